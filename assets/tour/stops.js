// What each stop of the tour is about on the page, how it is shown, and which event ends it.
import { find, findAll, findInput } from "../view/dom.js";

/**
 * A stop, as Python tells it (`ui/tour.py`), and how it behaves here. `on`: what is highlighted. `show`: does what
 * the stop asks for. `done`: whether an event has done it.
 * @typedef {{ name: string, title: string, text: string, task: string, step: number | null,
 *   at_ms: number | null }} Stop
 * @typedef {{ on: (stop: Stop) => HTMLElement[], show: (stop: Stop) => void,
 *   done: (stop: Stop, event: string, detail: any) => boolean }} Behaviour
 */

const PANE = "#lanes [data-lane=speculative]";
const ROUNDING = 0.001; // milliseconds, of a time in the value
const EMITTED = ["accepted", "remembered", "resampled", "bonus", "target"];

const replay = () => findAll(document, "#lanes .replay");
const experiments = () => findAll(document, "#details [role=tab][data-tab-id=experiments]");

/** The tokens of the stop's step in these states. @param {Stop} stop @param {string[]} states */
const tokens = ({ step }, ...states) =>
  findAll(document, `${PANE} .text .tok`).filter(
    ({ dataset }) => Number(dataset.step) === step && states.includes(String(dataset.state)),
  );

/** A moment of the replay, set as a visitor sets it. @param {Stop} stop */
function seek({ at_ms }) {
  const scrubber = findInput(document, "#lanes .replay [type=range]");
  scrubber.value = String(Number(at_ms) + ROUNDING);
  scrubber.dispatchEvent(new Event("input", { bubbles: true }));
}

/** Opens the card of a token; the replay may not have come to it yet. @returns {Behaviour} */
function token(/** @type {string[]} */ states, /** @type {Behaviour["done"]} */ done) {
  const on = (/** @type {Stop} */ stop) => tokens(stop, ...states).slice(0, 1);
  const show = (/** @type {Stop} */ stop) => {
    find(document, "#lanes [data-do=end]").click();
    const [first] = on(stop);
    first?.scrollIntoView({ block: "nearest" });
    first?.click();
  };
  return { on, show, done };
}

/** @type {Record<string, Behaviour>} */
export const BEHAVIOURS = {
  race: {
    on: () => [find(document, "#run")],
    show: () => find(document, "#run").click(),
    done: (_, event) => event === "raced",
  },
  token: token(EMITTED, (_, event, { lane }) => event === "card" && lane === "speculative"),
  draft: {
    on: (stop) => [...tokens(stop, "drafted"), ...replay()],
    show: seek,
    done: (stop, event) => event === "moment" && tokens(stop, "drafted").length > 0,
  },
  verify: {
    on: (stop) => [...tokens(stop, ...EMITTED, "drafted"), ...replay()],
    show: seek,
    done: (stop, event, { speculative }) =>
      event === "moment" && speculative === Number(stop.step) + 1 && !tokens(stop, "drafted").length,
  },
  rejection: token(["resampled"], (_, event, { state }) => event === "card" && state === "resampled"),
  bonus: token(["bonus"], (_, event, { state }) => event === "card" && state === "bonus"),
  loss: {
    on: experiments,
    show: () => {
      const [tab] = experiments();
      tab?.click();
      tab?.scrollIntoView(); // with what is in it, which is below
    },
    done: (_, event) => event === "tab",
  },
};

export const isExperiments = (/** @type {Node} */ target) => experiments().some((tab) => tab.contains(target));

/** What the panel keeps clear of where a stop highlights nothing. */
export const panes = () => findAll(document, PANE);
