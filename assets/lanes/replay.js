// Steps through a run that has ended, in its model time. The lines hold all of it: nothing is computed or
// fetched again.
import { find, findInput, tell } from "../view/dom.js";

/**
 * @typedef {import("./pane.js").Pane} Pane
 * @typedef {import("./lanes.js").Moment} Moment
 */

const PERIOD = 80; // milliseconds between two frames
const WATCHABLE = 5000; // milliseconds that a slow replay takes at least
const IN_SIGHT = 0.25; // of the panes
const CLOSE = 1e-6; // milliseconds; a scrubber rounds its value
const KEYS = /** @type {Record<string, string>} */ ({
  ...{ ArrowLeft: "back", ArrowDown: "back", ArrowRight: "forward", ArrowUp: "forward" },
  ...{ Home: "start", End: "end" },
});

/** The model times at which something changes, from 0. @param {Pick<Pane, "steps">[]} panes */
export function momentsOf(panes) {
  const times = panes.flatMap(({ steps }) =>
    steps.flatMap(({ line, drafted, ends }) => (line.drafted.length ? [drafted, ends] : [ends])),
  );
  return [...new Set([0, ...times])].sort((one, other) => one - other);
}

/** What a pane shows at that time: between draft and verification, the draft. */
export function stateAt(/** @type {Pick<Pane, "steps">} */ { steps }, /** @type {number} */ time) {
  const next = steps.findIndex(({ ends }) => ends > time + CLOSE);
  if (next < 0) return { count: steps.length, draft: null };
  const { line, drafted } = steps[next];
  return { count: next, draft: drafted <= time + CLOSE && line.drafted.length ? line : null };
}

/** The speed of a slow replay of a run that took so many milliseconds: at most half of its own. */
export const slowSpeed = (/** @type {number} */ total) => Math.min(0.5, total / WATCHABLE);

export class Replay {
  #time = 0;
  #moments = [0];
  #timer = 0; // 0: none
  #speed = 1; // of the run's own
  /** @type {Pane[]} */
  #panes = [];
  #element;
  #present;
  #bar;
  #scrubber;

  /** @param {HTMLElement} element @param {Pane[]} all @param {(moments: Moment[]) => void} present */
  constructor(element, all, present) {
    this.#element = element;
    this.#present = present;
    this.#bar = find(element, ".replay", HTMLFieldSetElement);
    this.#scrubber = findInput(this.#bar, "[type=range]");
    // Who reads the answer by keyboard is not interrupted: the focus scrolls it into sight.
    find(element, ".panes").addEventListener("focusin", () => this.#sight.disconnect());
    this.#bar.addEventListener("click", ({ target }) => {
      const button = /** @type {HTMLElement} */ (target).closest("button");
      if (button) this.#act(String(button.dataset.do));
    });
    this.#scrubber.addEventListener("input", () => {
      const time = this.#scrubber.valueAsNumber;
      this.#pause();
      this.#seek(time);
    });
    this.#bar.addEventListener("keydown", (event) => {
      const name = KEYS[event.key];
      if (!name) return;
      event.preventDefault();
      this.#act(name);
    });
    for (const place of [this.#scrubber, ...all.map(({ text }) => text)]) {
      place.addEventListener("keydown", (event) => {
        if (event.key !== " " || this.#bar.disabled) return;
        event.preventDefault();
        this.#act("play");
      });
    }
  }

  /** A run begins: there is nothing to step through yet. */
  reset() {
    [this.#time, this.#moments, this.#panes] = [0, [0], []];
    this.#pause();
    this.#bar.disabled = true;
    this.#scrubber.value = "0";
    find(this.#bar, ".moment").textContent = "";
    tell(this.#element, "moment", { time: null });
  }

  /**
   * The run has ended. A recorded one is replayed once, slowly, when the panes are in sight, which they are not in a
   * tab in the background; a race has been shown as it happened.
   * @param {Pane[]} panes
   * @param {boolean} isRecord
   */
  ready(panes, isRecord) {
    this.#panes = panes;
    this.#moments = momentsOf(panes);
    this.#bar.disabled = this.#total === 0;
    this.#scrubber.max = String(this.#total);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still || !isRecord || this.#total === 0) return this.#seek(this.#total);
    this.#seek(0);
    this.#sight.observe(find(this.#element, ".panes"));
  }

  #sight = new IntersectionObserver(
    ([{ intersectionRatio }]) =>
      intersectionRatio >= IN_SIGHT ? this.#play(slowSpeed(this.#total)) : this.#seek(this.#total),
    { threshold: IN_SIGHT },
  );

  get #total() {
    return this.#moments[this.#moments.length - 1];
  }

  // Other parts of the page follow: `time` is in milliseconds, and the others are steps shown, by lane.
  #seek(/** @type {number} */ time) {
    this.#time = this.#total - time < CLOSE ? this.#total : Math.max(time, 0);
    this.#present(this.#panes.map((pane) => ({ pane, ...stateAt(pane, this.#time) })));
    this.#scrubber.value = String(this.#time);
    const counts = this.#panes.map(({ made }) => made).join(" and ");
    const tokens = counts === "1" ? "1 token" : `${counts} tokens`; // of one lane, or "1 and 1 tokens"
    const [now, end] = [this.#time, this.#total].map((value) => (value / 1000).toFixed(2));
    const moment = `${now} of ${end} s · ${tokens}`;
    find(this.#bar, ".moment").textContent = moment;
    if (!this.#timer) this.#scrubber.ariaValueText = moment;
    const shown = Object.fromEntries(this.#panes.map((pane) => [pane.name, pane.shown]));
    tell(this.#element, "moment", { time: this.#time, ...shown });
  }

  #play(/** @type {number} */ speed) {
    this.#sight.disconnect();
    this.#speed = speed;
    if (this.#time >= this.#total) this.#seek(0);
    let last = performance.now();
    this.#timer = setInterval(() => {
      const now = performance.now();
      this.#seek(this.#time + (now - last) * this.#speed);
      last = now;
      if (this.#time >= this.#total || !this.#element.isConnected) this.#pause();
    }, PERIOD);
    this.#nameButton("Pause");
  }

  #pause() {
    this.#sight.disconnect();
    clearInterval(this.#timer);
    this.#timer = 0;
    if (this.#total) this.#seek(this.#time);
    this.#nameButton("Play");
  }

  #nameButton(/** @type {string} */ name) {
    const button = find(this.#bar, "[data-do=play]");
    Object.assign(button, { title: name, ariaLabel: name });
    button.dataset.playing = String(this.#timer !== 0);
    const slow = this.#timer !== 0 && this.#speed < 1;
    find(this.#element, ".slowed").textContent = slow ? "In slow motion" : "";
  }

  #act(/** @type {string} */ name) {
    const [playing, now] = [this.#timer !== 0, this.#time];
    this.#pause();
    if (name === "start") this.#seek(0);
    else if (name === "back") this.#seek(this.#moments.findLast((time) => time < now - CLOSE) ?? 0);
    else if (name === "forward") this.#seek(this.#moments.find((time) => time > now + CLOSE) ?? this.#total);
    else if (name === "end") this.#seek(this.#total);
    else if (name === "slowly") this.#play(slowSpeed(this.#total));
    else if (!playing) this.#play(1);
  }
}
