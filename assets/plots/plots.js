// Draws the figures that Python builds, in the colours of the theme. Each has a table, and both can be saved.
import { find, findAll, make, table } from "../view/dom.js";
import { subscribe } from "../view/view.js";

const SHARE = 0.05; // of the time that drawing may take during a run
const coarse = globalThis.matchMedia?.("(pointer: coarse)").matches; // there, a finger on a plot scrolls the page
/** @type {Promise<any> | undefined} */
let loading;

// Plotly is large: it is fetched once, when the first plot is drawn.
function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const onload = () => resolve(/** @type {any} */ (window).Plotly);
    const src = new URL("../plotly.min.js", import.meta.url).href;
    document.head.append(make("script", { src, onload, onerror: reject }));
  });
  return loading;
}

/**
 * The value with each CSS variable that Python names as a colour replaced by its value.
 * @param {any} value
 * @param {(name: string) => string} colourOf
 * @returns {any}
 */
export function coloured(value, colourOf) {
  if (typeof value === "string" && value.startsWith("var(")) return colourOf(value.slice(4, -1));
  if (Array.isArray(value)) return value.map((item) => coloured(item, colourOf));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item, colourOf)]));
}

function themeColours() {
  const style = getComputedStyle(document.body);
  return (/** @type {string} */ name) => style.getPropertyValue(name).trim();
}

/** A plot, with its table and its buttons, in a holder that Python has written. */
class Frame {
  figure = /** @type {any} */ (null); // its data and its layout
  stale = false; // not drawn as it is now
  seen = true;
  rests = 0; // until then, in milliseconds of the page, it is not drawn again during a run
  plot = make("div", { className: "plot", role: "img" });
  #note = make("p", { className: "note" });
  #rows = make("div", { className: "table", tabIndex: 0, role: "region" });
  /** @type {{ columns: string[], rows: string[][] } | undefined} which comes at the end of a run */
  #table;
  #csv = "";
  #width = 0; // as it was drawn

  constructor(/** @type {HTMLElement} */ holder) {
    this.holder = holder;
    const title = find(holder, "h2");
    this.#name = String(title.textContent);
    this.plot.ariaLabel = `${this.#name}; the table that follows has the same values`;
    this.#rows.ariaLabel = `${this.#name}, as a table`;
    const buttons = [
      this.#button("PNG", "save the picture", () => this.#savePicture()),
      this.#button("CSV", "save the table", () => this.#saveFigures()),
    ];
    this.#keep = make("span", { className: "keep", hidden: true }, ...buttons);
    const summary = make("summary", {}, "As a table");
    this.#details = make("details", { hidden: true, ontoggle: () => this.#fillTable() }, summary, this.#rows);
    const head = make("div", { className: "head" });
    title.replaceWith(head);
    head.append(title, this.#keep);
    holder.append(this.plot, this.#note, this.#details);
  }

  #name;
  #keep;
  #details;

  #button(/** @type {string} */ text, /** @type {string} */ what, /** @type {() => void} */ onclick) {
    const about = { type: "button", ariaLabel: `${text} of “${this.#name}”: ${what}`, onclick };
    return make("button", { ...about, dataset: { keep: text.toLowerCase() } }, text);
  }

  show(/** @type {any} */ { data, layout, note, table, csv }) {
    if (this.figure?.layout.uirevision !== layout.uirevision) this.rests = 0; // another run
    this.figure = { data, layout };
    [this.#table, this.#csv] = [table, csv];
    this.plot.style.minHeight = `${layout.height}px`;
    this.#note.textContent = note;
    this.#keep.hidden = this.#details.hidden = !table;
    this.#fillTable();
    this.draw();
  }

  get resized() {
    return this.#width !== this.plot.offsetWidth;
  }

  // In a hidden tab nothing has a size: its plots are drawn when it is opened. During a run, plots out of sight
  // wait, and drawing takes at most `SHARE` of the time, since the models may run on the same machine.
  async draw() {
    this.stale = true;
    if (!this.figure || !this.plot.offsetWidth) return;
    const Plotly = await plotly();
    const begins = performance.now();
    const waits = !this.#table && (!this.seen || begins < this.rests);
    if (!this.stale || !this.plot.offsetWidth || waits) return;
    this.stale = false;
    const { data, layout } = coloured(this.figure, themeColours());
    const draw = this.resized ? Plotly.newPlot : Plotly.react; // which leaves the legend's old height free
    this.#width = this.plot.offsetWidth;
    Object.assign(layout, { dragmode: coarse ? false : "zoom", width: this.#width });
    await draw(this.plot, data, layout, { displayModeBar: false });
    this.plot.dispatchEvent(new Event("drawn", { bubbles: true }));
    const ends = performance.now();
    this.rests = ends + (ends - begins) / SHARE;
  }

  #fillTable() {
    if (this.#details.open && this.#table) this.#rows.replaceChildren(table(this.#table));
  }

  get #fileName() {
    return `dolly-${this.holder.dataset.plot}`;
  }

  // The picture has the current zoom and theme, and a title.
  async #savePicture() {
    const Plotly = await plotly();
    const colourOf = themeColours();
    const { data, layout } = coloured(this.figure, colourOf);
    const { xaxis, yaxis } = /** @type {any} */ (this.plot).layout ?? layout;
    const title = { text: this.#name, x: 0.02, y: 0.98, yanchor: "top", font: { color: colourOf("--ink") } };
    const margin = { ...layout.margin, t: 84 };
    const picture = { ...layout, xaxis, yaxis, paper_bgcolor: colourOf("--card"), title, margin };
    const file = { format: "png", filename: this.#fileName };
    const size = { width: 1200, height: layout.height + 96, scale: 2 };
    await Plotly.downloadImage({ data, layout: picture }, { ...file, ...size });
  }

  #saveFigures() {
    const file = new Blob(["\ufeff", this.#csv], { type: "text/csv" }); // else Excel takes it for Latin-1
    const link = make("a", { href: URL.createObjectURL(file), download: `${this.#fileName}.csv` });
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

/**
 * Shows the plots of a view; returns them by their names.
 * @param {import("../view/view.js").View} view
 */
export default function plots(view) {
  const all = findAll(view.element, "[data-plot]").map((holder) => new Frame(holder));
  const frames = Object.fromEntries(all.map((frame) => [frame.holder.dataset.plot, frame]));
  const sizes = new ResizeObserver(() => {
    for (const frame of all) if (frame.stale || frame.resized) frame.draw();
  });
  const sights = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const frame = all.find(({ plot }) => plot === target);
      if (!frame) continue;
      frame.seen = isIntersecting;
      if (frame.seen && frame.stale) frame.draw();
    }
  });
  for (const { plot } of all) {
    sizes.observe(plot);
    sights.observe(plot);
  }
  new MutationObserver(() => {
    for (const frame of all) {
      frame.rests = 0; // in the old colours it would not wait either
      frame.draw();
    }
  }).observe(document.body, { attributeFilter: ["class"] });
  subscribe(view, (value) => {
    for (const [name, shown] of Object.entries(JSON.parse(value).plots)) frames[name].show(shown);
  });
  return frames;
}
