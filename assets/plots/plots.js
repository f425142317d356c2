// Draws the figures that Python builds, in the colours of the theme. Each has a table, and both can be saved.
import { find, findAll, make, table } from "../view/dom.js";
import { subscribe } from "../view/view.js";

const SHARE = 0.05; // of the time that drawing may take during a run
const coarse = globalThis.matchMedia?.("(pointer: coarse)").matches; // there, a finger on a plot scrolls the page

// Plotly is large: it is fetched when the first plot is drawn.
async function plotly() {
  await import(new URL("../plotly.min.js", import.meta.url).href);
  return /** @type {any} */ (window).Plotly;
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

/** A plot, with its table and its buttons, in what `plot.html` holds. */
class Frame {
  figure = /** @type {any} */ (null); // its data and its layout
  #stale = false; // not drawn as it is now
  #seen = true;
  #rests = 0; // until then, in milliseconds of the page, it is not drawn again during a run
  /** @type {{ columns: string[], rows: string[][] } | undefined} which comes at the end of a run */
  #table;
  #csv = "";
  #width = 0; // as it was drawn
  #details;

  constructor(/** @type {HTMLElement} */ holder) {
    this.holder = holder;
    this.plot = find(holder, ".plot");
    this.#details = find(holder, "details", HTMLDetailsElement);
    this.#details.addEventListener("toggle", () => this.#fillTable());
    find(holder, "[data-keep=png]").addEventListener("click", () => this.#savePicture());
    find(holder, "[data-keep=csv]").addEventListener("click", () => this.#saveFigures());
    new ResizeObserver(() => (this.#stale || this.#resized) && this.draw()).observe(this.plot);
    new IntersectionObserver((entries) => {
      this.#seen = Boolean(entries.at(-1)?.isIntersecting);
      if (this.#seen && this.#stale) this.draw();
    }).observe(this.plot);
    new MutationObserver(() => {
      this.#rests = 0; // in the old colours it would not wait either
      this.draw();
    }).observe(document.body, { attributeFilter: ["class"] });
  }

  show(/** @type {any} */ { data, layout, note, table, csv }) {
    if (this.figure?.layout.uirevision !== layout.uirevision) this.#rests = 0; // another run
    this.figure = { data, layout };
    [this.#table, this.#csv] = [table, csv];
    this.plot.style.minHeight = `${layout.height}px`;
    find(this.holder, ".note").textContent = note;
    find(this.holder, ".keep").hidden = this.#details.hidden = !table;
    this.#fillTable();
    this.draw();
  }

  get #resized() {
    return this.#width !== this.plot.offsetWidth;
  }

  // In a hidden tab nothing has a size: its plots are drawn when it is opened. During a run, plots out of sight
  // wait, and drawing takes at most `SHARE` of the time, since the models may run on the same machine.
  async draw() {
    this.#stale = true;
    if (!this.figure || !this.plot.offsetWidth) return;
    const Plotly = await plotly();
    const begins = performance.now();
    const waits = !this.#table && (!this.#seen || begins < this.#rests);
    if (!this.#stale || !this.plot.offsetWidth || waits) return;
    this.#stale = false;
    const { data, layout } = coloured(this.figure, themeColours());
    const draw = this.#resized ? Plotly.newPlot : Plotly.react; // which leaves the legend's old height free
    this.#width = this.plot.offsetWidth;
    Object.assign(layout, { dragmode: coarse ? false : "zoom", width: this.#width });
    await draw(this.plot, data, layout, { displayModeBar: false });
    this.plot.dispatchEvent(new Event("drawn", { bubbles: true }));
    const ends = performance.now();
    this.#rests = ends + (ends - begins) / SHARE;
  }

  #fillTable() {
    if (this.#details.open && this.#table) find(this.#details, ".table").replaceChildren(table(this.#table));
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
    const text = find(this.holder, "h2").textContent;
    const title = { text, x: 0.02, y: 0.98, yanchor: "top", font: { color: colourOf("--ink") } };
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
  const holders = findAll(view.element, "[data-plot]");
  const frames = Object.fromEntries(holders.map((holder) => [holder.dataset.plot, new Frame(holder)]));
  subscribe(view, (value) => {
    for (const [name, shown] of Object.entries(JSON.parse(value).plots)) frames[name].show(shown);
  });
  return frames;
}
