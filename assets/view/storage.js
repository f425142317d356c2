// What a visitor's browser keeps: by default for good, in its "sessionStorage" as long as the tab is open. It may
// deny the storage.

/** @param {string} storage @param {(storage: Storage) => unknown} act @returns {any} */
function kept(storage, act) {
  try {
    return act(/** @type {any} */ (globalThis)[storage]);
  } catch {
    return null;
  }
}

/** The value kept under that name, or null. */
export const recall = (/** @type {string} */ name, storage = "localStorage") =>
  kept(storage, (where) => JSON.parse(String(where.getItem(name))));

export const remember = (/** @type {string} */ name, /** @type {unknown} */ value, storage = "localStorage") =>
  kept(storage, (where) => where.setItem(name, JSON.stringify(value)));
