// One lane of a run: its steps, and the elements of those that are shown.
import { counted, find } from "../view/dom.js";
import { abouts, tokensOf, waiting } from "./tokens.js";

/**
 * @typedef {import("./tokens.js").Run} Run
 * @typedef {import("./tokens.js").Step} Step
 * @typedef {{ reason: string | null, name: string, tokens_per_second: number | null, repeats: boolean }} End
 */

/** @type {Record<string, string>} */
const WHY = { stop: "complete", length: "token limit", cancelled: "stopped", error: "failed" };

export class Pane {
  run = /** @type {Run} */ (/** @type {unknown} */ (null)); // since its first line
  budget = 0; // tokens
  /** @type {{ line: Step, drafted: number, ends: number, nodes: HTMLElement[] | null }[]} times in milliseconds */
  steps = [];
  /** @type {Step | null} a draft that waits, as of the last line */
  undecided = null;
  /** @type {End | null} */
  end = null;
  shown = 0; // steps
  /** @type {Step | null} the draft that is shown as waiting, and its elements */
  #draft = null;
  /** @type {HTMLElement[]} */
  #waiting = [];
  #follows = true; // the end of the text, until someone scrolls

  constructor(/** @type {HTMLElement} */ element) {
    this.element = element;
    this.name = String(element.dataset.lane);
    this.text = find(element, ".text");
    this.text.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.text;
      this.#follows = scrollHeight - scrollTop - clientHeight < 40;
    });
  }

  /** The tokens of the steps shown. */
  get made() {
    return this.steps[this.shown - 1]?.line.made ?? 0;
  }

  begin(/** @type {Run} */ run, /** @type {number} */ budget) {
    Object.assign(this, { run, budget, steps: [], undecided: null, end: null, shown: 0 });
    [this.#draft, this.#waiting, this.#follows] = [null, [], true];
    this.text.replaceChildren();
    this.#showPace();
  }

  add(/** @type {Step} */ line) {
    this.undecided = null;
    this.steps.push({ line, drafted: 1000 * line.drafted_at_s, ends: 1000 * line.time_s, nodes: null });
  }

  finish(/** @type {End} */ end) {
    this.undecided = null;
    this.end = end;
    const last = this.steps.at(-1);
    if (end.reason !== "stop" || !last) return;
    const endKey = this.#nodesOf(last).findLast((node) => abouts.get(node)?.at === last.line.made - 1);
    if (endKey) endKey.dataset.end = end.name;
  }

  /** Shows the first `count` steps and then the drafts of `draft`. */
  show(/** @type {number} */ count, /** @type {Step | null} */ draft) {
    if (draft !== this.#draft || count !== this.shown) {
      for (const node of this.#waiting) node.remove();
      this.#waiting = [];
    }
    this.text.append(...this.steps.slice(this.shown, count).flatMap((step) => this.#nodesOf(step)));
    for (const { nodes } of this.steps.slice(count, this.shown)) for (const node of nodes ?? []) node.remove();
    this.shown = count;
    this.#draft = draft;
    if (draft && !this.#waiting.length) {
      this.#waiting = waiting(this.run, draft, this.made);
      this.text.append(...this.#waiting);
    }
    this.#showPace();
  }

  follow() {
    if (this.#follows) this.text.scrollTop = this.text.scrollHeight;
  }

  // Made when they are first shown.
  #nodesOf(/** @type {Pane["steps"][number]} */ step) {
    step.nodes ??= tokensOf(this.run, step.line);
    return step.nodes;
  }

  // Progress and tokens per second of decoding, as of the last step shown.
  #showPace() {
    const ended = this.shown === this.steps.length && !this.#draft ? this.end : null;
    const rate = ended ? ended.tokens_per_second : (this.steps[this.shown - 1]?.line.tokens_per_second ?? null);
    const reason = ended?.reason ?? "";
    const parts = [
      ended ? counted(this.made, "token") : `${this.made} / ${this.budget}`,
      rate === null ? "" : `${rate.toFixed(0)} tok/s`,
      WHY[reason],
      ended?.repeats ? "repeats itself" : "",
    ];
    this.element.dataset.end = reason;
    find(this.element, ".pace").textContent = parts.filter(Boolean).join(" · ");
    const bar = find(this.element, ".bar");
    find(bar, "i").style.transform = `scaleX(${this.made / this.budget})`;
    bar.ariaValueMax = String(this.budget);
    bar.ariaValueNow = String(this.made);
  }
}
