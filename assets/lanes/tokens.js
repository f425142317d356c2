// The elements of a step's tokens: those of the text, and those drafted in vain.
import { make } from "../view/dom.js";
import { refusedState } from "./explanation.js";

/**
 * @typedef {import("./explanation.js").About} About
 * @typedef {import("./explanation.js").Run} Run
 * @typedef {import("./explanation.js").Step} Step
 */

/** What each element is about. @type {WeakMap<Element, About>} */
export const abouts = new WeakMap();

/** @param {Run} run @param {Step} line */
export function tokensOf(run, line) {
  let at = line.made - line.tokens.length;
  const made = line.tokens.flatMap(([id, text, state], place) => {
    const before = state === "resampled" ? refused(run, line, place, at) : [];
    return [...before, token({ run, line, place, id, text, state, at: at++ })];
  });
  made.forEach((node, i) => {
    if ("joined" in (made[i + 1]?.dataset ?? {})) node.dataset.joins = "";
  });
  // A text that ended within a draft leaves drafts behind.
  const last = line.tokens.at(-1)?.[2];
  if (last === "accepted" || last === "remembered") made.push(...refused(run, line, line.tokens.length, at));
  if (line.lane === "speculative") made.push(make("i", { className: "tick" }));
  return made;
}

/** The drafts that wait for their verification. @param {Run} run @param {Step} line @param {number} at */
export const waiting = (run, line, at) =>
  line.drafted.map((_, place) => drafted(run, line, place, "drafted", at + place));

/** @param {Run} run @param {Step} line @param {number} from a place in the draft @param {number} at */
const refused = (run, line, from, at) =>
  line.drafted.slice(from).map((_, i) => drafted(run, line, from + i, refusedState(run, line, from + i), at + i));

/** @param {Run} run @param {Step} line @param {number} place @param {string} state @param {number} at */
function drafted(run, line, place, state, at) {
  const id = line.drafted[place];
  return token({ run, line, place, id, text: run.pieces.get(id) ?? `#${id}`, state, at });
}

// The blank before a word is coloured between tokens that were accepted together, and else not, since it would
// remain at the end of a line that breaks there. A token without visible text (a part of a character, a line
// break, a zero-width mark) gets a symbol.
function token(/** @type {About} */ about) {
  const { text, place, state, line, at } = about;
  const joined = place > 0 && (state === "accepted" || state === "remembered");
  const blank = text.trim() && !joined ? text.slice(0, text.length - text.trimStart().length) : "";
  const made = make("span", { className: "tok" }, blank, make("span", {}, text.slice(blank.length)));
  if (joined) made.dataset.joined = "";
  Object.assign(made.dataset, { state, step: line.index, i: at });
  if (/^[\s\p{C}]*$/u.test(text) && !/^ +$/.test(text)) made.dataset.shapeless = "";
  abouts.set(made, about);
  return made;
}
