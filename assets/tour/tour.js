// The tour lies over the page and moves nothing on it. Each stop highlights the control or the tokens that it
// is about, and is done when the visitor has used them, or has had them shown.
import { fill, find, findAll, listen, make, setText } from "../view/dom.js";
import { recall, remember } from "../view/storage.js";
import { subscribe } from "../view/view.js";
import { measured, open } from "./guess.js";
import { BEHAVIOURS, isExperiments, panes } from "./stops.js";

/** @typedef {import("./guess.js").Outcome & { live: boolean, stops: import("./stops.js").Stop[], questions: { question: string, answer: string }[] }} Run */

const CORNERS = ["bottom right", "bottom left", "top right", "top left"];
const SPACE = 16; // pixels between the panel and what is highlighted
const NOTHING = "This run drafted nothing to ask about. Choose a fixed draft length in Settings, and run both.";
const ASKED = "Answer each before you open it. The figures are of the run above.";

export default function tour(/** @type {import("../view/view.js").View} */ view) {
  const { element } = view;
  const shown = new Tour(find(element, ".tour"));
  listen(element, "moment", ({ detail }) => shown.moment(detail));
  listen(element, "card", ({ detail }) => shown.tell("card", detail));
  listen(element, "click", ({ target }) => {
    const opener = target.closest?.("#tour-open");
    if (opener) shown.toggle(opener);
    else if (isExperiments(target)) shown.tell("tab");
  });
  // Escape closes a token's card, then the tour, and only then stops a run.
  const leave = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && !event.cancelBubble && shown.escape()) event.stopPropagation();
  };
  listen(element, "keydown", leave, { capture: true });
  subscribe(view, (value) => shown.show(JSON.parse(value)));
  shown.resume();
}

class Tour {
  #run = /** @type {Run} */ ({ live: false, outcome: null, speedup: null, stops: [], questions: [] });
  #at = 0; // the number of the stop; one after the last are the questions
  /** @type {HTMLElement} has the focus again when the tour is left */
  #opener = document.body;
  /** @type {import("./guess.js").Guess | null} about the next race */
  #pending = null;
  #panel;
  #form;

  constructor(/** @type {HTMLElement} */ panel) {
    this.#panel = panel;
    this.#form = find(panel, "form", HTMLFormElement); // of the guess
    this.#form.addEventListener("input", () => {
      this.#pending = this.#guessed();
      if (this.#pending) compare(open(this.#pending));
    });
    panel.addEventListener("click", (event) => {
      const button = /** @type {HTMLElement} */ (event.target).closest("button");
      if (button?.dataset.do === "show") event.stopPropagation(); // a click elsewhere closes the card that it opens
      this.#act(button?.dataset.do);
    });
  }

  get #stop() {
    return this.#run.stops[this.#at - 1];
  }

  // --- what happens on the page ---------------------------------------------------------------------

  show(/** @type {Run} */ run) {
    this.#run = run;
    if (run.live && this.#pending) {
      compare(measured(this.#pending, run));
      this.#pending = null;
      this.#form.reset();
    }
    if (this.#panel.hidden) return;
    this.#fill();
    if (run.live) this.tell("raced");
    this.#highlight(false);
  }

  moment(/** @type {any} */ detail) {
    if (detail.time === null && !this.#pending) compare(""); // a run begins
    this.tell("moment", detail);
  }

  tell(/** @type {string} */ event, /** @type {any} */ detail = {}) {
    const stop = this.#stop;
    if (this.#panel.hidden || !stop) return;
    if (stop.task && BEHAVIOURS[stop.name].done(stop, event, detail)) setText(find(this.#panel, ".done"), "Done.");
    this.#highlight(false);
  }

  toggle(/** @type {HTMLElement} */ opener) {
    this.#opener = opener;
    delete opener.dataset.offer;
    if (!this.#panel.hidden) return this.#leave();
    const last = kept().stop;
    this.#go(last > this.#run.stops.length ? 1 : last);
    this.#panel.focus({ preventScroll: true });
  }

  /** Leaves the tour, unless a card is open; returns whether it did. */
  escape() {
    if (this.#panel.hidden || document.querySelector(".token-card:popover-open")) return false;
    this.#leave();
    return true;
  }

  /** Opens the stop that the link names, or the one that was left open; or offers the tour. */
  resume() {
    const linked = Number(new URLSearchParams(location.search).get("tour"));
    const last = kept();
    if (Number.isInteger(linked) && linked >= 1 && linked <= this.#run.stops.length) this.#go(linked);
    else if (!last.left) this.#go(last.stop);
    else if (!recall("tour")) {
      find(document, "#tour-open").dataset.offer = "";
      this.#keep(true); // a first visit alone is offered the tour
    }
  }

  // --- what the panel shows -------------------------------------------------------------------------

  #act(/** @type {string | undefined} */ name) {
    const stop = this.#stop;
    if (name === "back") this.#go(this.#at - 1);
    else if (name === "next" && stop) this.#go(this.#at + 1);
    else if (name === "next" || name === "leave") this.#leave();
    else if (name === "show" && stop) {
      BEHAVIOURS[stop.name].show(stop);
      if (stop.name !== "race" && stop.name !== "loss") this.#highlight(true);
    }
  }

  #go(/** @type {number} */ number) {
    this.#at = Math.min(Math.max(number, 1), this.#run.stops.length + 1);
    this.#panel.hidden = false;
    find(this.#panel, ".done").textContent = "";
    this.#fill();
    this.#keep(false);
    this.#highlight(true);
  }

  #fill() {
    const stop = this.#stop;
    const { stops, questions } = this.#run;
    const asked = find(this.#panel, ".questions");
    const button = (/** @type {string} */ name) => find(this.#panel, `[data-do=${name}]`, HTMLButtonElement);
    const where = stop ? `Tour, ${this.#at} of ${stops.length}` : "Tour, the end";
    const end = { title: "Three questions about this run", text: questions.length ? ASKED : NOTHING };
    fill(this.#panel, { where, ...(stop ?? end) });
    find(this.#panel, ".guess").hidden = stop?.name !== "race";
    asked.hidden = Boolean(stop);
    const details = questions.map(({ question, answer }) =>
      make("details", {}, make("summary", {}, question), make("p", {}, answer)),
    );
    asked.replaceChildren(...details);
    button("back").disabled = this.#at === 1;
    button("show").disabled = !stop?.task;
    button("next").textContent = stop ? "Next" : "Finish";
  }

  #highlight(/** @type {boolean} */ scroll) {
    for (const old of findAll(document, "[data-toured]")) delete old.dataset.toured;
    if (this.#panel.hidden) return;
    const stop = this.#stop;
    const found = stop ? BEHAVIOURS[stop.name].on(stop) : [];
    for (const each of found) each.dataset.toured = "";
    if (scroll) this.#uncover(found.length || !stop ? found : panes());
  }

  // Scrolls to what the stop is about, and moves the panel to the corner where it covers least of that and of its
  // card. On a small screen the panel is as wide as the window: all is above it.
  #uncover(/** @type {HTMLElement[]} */ found) {
    const panel = this.#panel;
    panel.dataset.corner = CORNERS[0];
    const small = panel.offsetWidth > window.innerWidth / 2;
    const covered = small ? window.innerHeight - panel.getBoundingClientRect().top + SPACE : 0;
    document.documentElement.style.scrollPaddingBottom = `${covered}px`;
    found.at(-1)?.scrollIntoView({ block: small ? "end" : "nearest" });
    found[0]?.scrollIntoView({ block: "nearest" });
    if (small) return;
    const about = [...found, ...findAll(document, ".token-card:popover-open")];
    const boxes = about.map((each) => each.getBoundingClientRect());
    const areas = CORNERS.map((corner) => {
      panel.dataset.corner = corner;
      const own = panel.getBoundingClientRect();
      return boxes.reduce((sum, box) => sum + overlap(box, own), 0);
    });
    panel.dataset.corner = CORNERS[areas.indexOf(Math.min(...areas))];
  }

  #leave() {
    this.#panel.hidden = true;
    document.documentElement.style.scrollPaddingBottom = "";
    this.#keep(true);
    this.#highlight(false);
    this.#opener.focus({ preventScroll: true });
  }

  // In the browser and in the link.
  #keep(/** @type {boolean} */ left) {
    remember("tour", { stop: this.#at, left });
    const link = new URL(location.href);
    if (left || !this.#stop) link.searchParams.delete("tour");
    else link.searchParams.set("tour", String(this.#at));
    history.replaceState(history.state, "", link);
  }

  #guessed() {
    const { guess, by } = Object.fromEntries(new FormData(this.#form));
    if (!guess) return null;
    return { picked: String(guess), by: guess === "even" || !(Number(by) >= 1) ? null : Number(by) };
  }
}

/** @returns {{ stop: number, left: boolean }} */
function kept() {
  const last = recall("tour");
  return Number.isInteger(last?.stop) ? last : { stop: 1, left: true };
}

// A line of the verdict, which is there from the guess on: nothing moves when a race ends or begins.
function compare(/** @type {string} */ line) {
  for (const place of findAll(document, "#verdict .guessed")) {
    setText(place, line);
    if (line) place.dataset.used = "";
  }
}

/** The area that both cover. @param {Omit<DOMRect, "toJSON">} one @param {Omit<DOMRect, "toJSON">} other */
export function overlap(one, other) {
  const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
  const height = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
  return Math.max(0, width) * Math.max(0, height);
}
