// The card of a token. It follows pointer and focus; a click, a tap or Enter pins it, so that it can be read.
import { find, findAll, listen, make, tell } from "../view/dom.js";
import { abouts, isEmitted, pieceOf } from "./tokens.js";

/** @typedef {import("./tokens.js").About} About */

const STEPS = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 });

/** @returns {HTMLElement | null} */
const tokenAt = (/** @type {any} */ event) => event.target.closest?.(".pane .text .tok");

export class Card {
  /** @type {HTMLElement | null} the token that the card is about */
  #active = null;
  #pinned = false;
  #element;
  #card;

  /** @param {HTMLElement} element @param {{ text: HTMLElement }[]} panes */
  constructor(element, panes) {
    this.#element = element;
    this.#card = find(element, ".token-card");
    element.addEventListener("pointerover", (event) => {
      if (this.#pinned) return;
      const node = tokenAt(event);
      if (node) this.#show(node);
      else if (event.pointerType === "mouse") this.hide();
    });
    element.addEventListener("pointerleave", () => this.#pinned || this.hide());
    listen(element, "click", (event) => {
      const node = tokenAt(event);
      if (node && !(this.#pinned && node === this.#active)) this.#show(node, true);
      else if (!this.#card.contains(event.target)) this.hide();
    });
    for (const { text } of panes) {
      text.addEventListener("keydown", (event) => this.#step(text, event));
      text.addEventListener("focus", () => {
        const first = text.querySelector(".tok");
        if (first && !this.#active && text.matches(":focus-visible")) this.#show(/** @type {HTMLElement} */ (first));
      });
      text.addEventListener("blur", () => this.#pinned || this.hide());
    }
    // Captured before the page's own handler: Escape first closes the card, and only then stops a run.
    const close = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape" || !this.#active) return;
      this.hide();
      event.stopPropagation();
    };
    listen(element, "keydown", close, { capture: true });
    listen(element, "scroll", () => this.#place(), { passive: true, capture: true });
    // A round is lit wherever one points at a part of it: here at a token, in the timeline at its bar.
    listen(element, "round", ({ detail: { lane, step } }) => {
      for (const node of findAll(element, ".tok.lit")) node.classList.remove("lit");
      for (const node of findAll(element, `.pane[data-lane="${lane}"] .tok[data-step="${step}"]`))
        node.classList.add("lit");
    });
  }

  hide() {
    if (this.#active) tell(this.#element, "round", {});
    this.#active?.classList.remove("active");
    [this.#active, this.#pinned] = [null, false];
    if (this.#card.matches(":popover-open")) this.#card.hidePopover();
  }

  hideIfGone() {
    if (this.#active && !this.#active.isConnected) this.hide();
  }

  #show(/** @type {HTMLElement} */ node, pin = false) {
    const about = abouts.get(node);
    if (!about) return;
    if (node !== this.#active) {
      this.hide();
      this.#active = node;
      node.classList.add("active");
      this.#card.replaceChildren(...describe(about, node.dataset.end));
      this.#card.showPopover();
      tell(this.#element, "card", { state: about.token.state, lane: about.line.lane });
      tell(this.#element, "round", about.line);
    }
    if (pin && !this.#pinned) this.#card.prepend(this.#closeButton());
    this.#pinned ||= pin;
    this.#card.classList.toggle("pinned", this.#pinned);
    this.#place();
  }

  #closeButton() {
    return make("button", { className: "close", type: "button", ariaLabel: "Close", onclick: () => this.hide() });
  }

  #place() {
    if (!this.#active) return;
    const [at] = [...(this.#active.lastElementChild?.getClientRects() ?? []), this.#active.getBoundingClientRect()];
    const { clientWidth } = document.documentElement;
    const covered = parseFloat(getComputedStyle(document.documentElement).scrollPaddingBottom) || 0; // by the tour
    const bottom = window.innerHeight - covered - 8;
    this.#card.style.maxHeight = "";
    const { offsetWidth: wide, offsetHeight: high } = this.#card;
    // Below the token, or beside it; never over what is above the answers.
    const fits = at.bottom + 8 + high <= bottom;
    const beside = at.right + 12 + wide < clientWidth ? at.right + 12 : at.left - wide - 12;
    const left = Math.max(8, fits ? Math.min(at.left - 12, clientWidth - wide - 8) : beside);
    const highest = Math.max(8, find(this.#element, ".panes").getBoundingClientRect().top);
    const top = fits ? at.bottom + 8 : Math.max(highest, bottom - high);
    Object.assign(this.#card.style, { left: `${left}px`, top: `${top}px`, maxHeight: `${bottom - top}px` });
  }

  #step(/** @type {HTMLElement} */ text, /** @type {KeyboardEvent} */ event) {
    if (event.key === "Enter" && this.#active && !event.ctrlKey && !event.metaKey) this.#show(this.#active, true);
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const tokens = findAll(text, ".tok").filter((node) => node.offsetParent);
    const at = this.#active ? tokens.indexOf(this.#active) : -1;
    const next = at < 0 ? tokens.at(step > 0 ? 0 : -1) : tokens[at + step];
    if (!next) return;
    next.scrollIntoView({ block: "nearest" });
    this.#show(next, this.#pinned);
  }
}

// All of an explanation; `endName` is the name of the end key.
function describe(/** @type {About} */ about, /** @type {string | undefined} */ endName) {
  const { line, token } = about;
  const { name, state, place, id, facts, reason } = token;
  const where = `step ${line.step + 1}${state === "target" ? "" : `, position ${place + 1}`}`;
  const rows = Object.entries(facts);
  const round = [line.drafting, state === "drafted" ? "" : line.verification].filter(Boolean);
  return [
    make("p", { className: "what" }, make("b", {}, endName ?? name), ` ${state} · ${where} · id ${id}`),
    make("table", {}, ...rows.map(([name, value]) => make("tr", {}, make("th", {}, name), make("td", {}, value)))),
    make("p", { className: "why" }, reason),
    ...likeliest(about),
    make("p", { className: "times" }, `${round.join(". ")}.`),
  ];
}

// The most likely tokens of both models at this position, as far as they are shown at this moment.
function likeliest(/** @type {About} */ { run, line, token: { state, place } }) {
  const known = state !== "drafted";
  const emitted = known && line.tokens.find((token) => isEmitted(token) && token.place === place)?.id;
  const drafted = line.drafted[place];
  const ranked = Object.entries({ target: known ? line.target_top[place] : [], draft: line.draft_top?.[place] });
  const lists = ranked.filter(([, top]) => top?.length);
  if (!lists.length) return [];
  const rankings = lists.map(([model, top]) => {
    const entries = top.map(([id, share]) => {
      const className = `${id === emitted ? "emitted" : ""} ${id === drafted ? "drafted" : ""}`;
      const bar = make("i", { style: { width: `${100 * Math.min(1, share)}%` } });
      const piece = make("span", { className: "piece" }, pieceOf(run, id)[1]);
      const shown = share > 0 && share < 0.0005 ? "< 0.001" : share.toFixed(3);
      return make("li", { className }, bar, piece, make("span", {}, shown));
    });
    return make("div", {}, make("h3", {}, `Most likely, ${model}`), make("ol", {}, ...entries));
  });
  const marks = drafted === undefined ? "Bold: emitted." : "Bold: emitted. Dashed: drafted.";
  return [
    make("div", { className: "tops" }, ...rankings),
    make("p", { className: "why" }, `${run.probabilities} ${marks}`),
  ];
}
