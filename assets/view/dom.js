// What the components do with elements. Texts of users, models and files are never markup: `textContent` and
// `append` set them.

/**
 * The first element that matches; it has to be there.
 * @template {Element} [T=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => T} [kind]
 */
export function find(root, selector, kind = /** @type {any} */ (HTMLElement)) {
  const found = root.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`${selector}: no ${kind.name}`);
  return found;
}

/** @param {ParentNode} root @param {string} selector @returns {HTMLElement[]} */
export const findAll = (root, selector) => [...root.querySelectorAll(/** @type {any} */ (selector))];

/** @param {string} selector */
export const findInput = (/** @type {ParentNode} */ root, selector) => find(root, selector, HTMLInputElement);

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, unknown>} [about] properties of the element
 * @param {...(Node | string)} children
 */
export function make(tag, { dataset = {}, style = {}, ...about } = {}, ...children) {
  const made = Object.assign(document.createElement(tag), about);
  Object.assign(made.dataset, dataset);
  Object.assign(made.style, style);
  made.append(...children);
  return made;
}

/** A table of texts. @param {{ columns: string[], rows: string[][] }} cells */
export function table({ columns, rows }) {
  const head = columns.map((text) => make("th", { scope: "col" }, text));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((text) => make("td", {}, text || "–"))));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}

/** An unchanged text is not set again, so that a live region announces it once. */
export function setText(/** @type {Element} */ holder, /** @type {string} */ text) {
  if (holder.textContent !== text) holder.textContent = text;
}

/** Shows each field in the elements that name it by `data-field`. @param {Record<string, any>} fields */
export function fill(/** @type {HTMLElement} */ root, fields) {
  for (const holder of findAll(root, "[data-field]")) setText(holder, fields[String(holder.dataset.field)] ?? "");
}

/**
 * Listens on the document for as long as the element is on the page: Gradio may make it anew.
 * @param {Element} element
 * @param {string} name
 * @param {(event: any) => void} act
 * @param {AddEventListenerOptions} [options]
 */
export function listen(element, name, act, options) {
  const onEvent = (/** @type {Event} */ event) => {
    if (element.isConnected) act(event);
    else document.removeEventListener(name, onEvent, options);
  };
  document.addEventListener(name, onEvent, options);
}

/** Tells other parts of the page. */
export function tell(/** @type {Element} */ element, /** @type {string} */ name, /** @type {object} */ detail) {
  element.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
}

/** "1 token", "2 tokens" */
export const counted = (/** @type {number} */ count, /** @type {string} */ noun) =>
  `${count} ${noun}${count === 1 ? "" : "s"}`;
