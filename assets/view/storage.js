// What a visitor's browser keeps. It may deny the storage.

/** @param {(storage: Storage) => unknown} act @returns {any} */
function kept(act) {
  try {
    return act(localStorage);
  } catch {
    return null;
  }
}

/** The value kept under that name, or null. */
export const recall = (/** @type {string} */ name) => kept((storage) => JSON.parse(String(storage.getItem(name))));

export const remember = (/** @type {string} */ name, /** @type {unknown} */ value) =>
  kept((storage) => storage.setItem(name, JSON.stringify(value)));
