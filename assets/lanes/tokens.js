// The elements of a step's tokens: those of the text, and those drafted in vain.
import { make } from "../view/dom.js";

/**
 * What happened to a token, and to a step, in words: `pipeline/trace/explanation.py`.
 * @typedef {{ id: number, text: string, state: string, place: number, name: string,
 *   facts: Record<string, string>, reason: string }} Token
 *
 * A step of a lane, as a line of its transcript (`ui/run/transcript.py`) has it; a draft that waits for its
 * verification lacks most. Probabilities are by place in the draft.
 * @typedef {{ lane: string, step: number, drafted: number[], drafting: string, verification: string, tokens: Token[],
 *   made: number, tokens_per_second: number | null, time_s: number, drafted_at_s: number,
 *   draft_top: [number, number][][], target_top: [number, number][][] }} Step
 *
 * What holds for all tokens of a run; `pieces` are the text and the name of ids.
 * @typedef {{ waiting: string, probabilities: string, pieces: Map<number, string[]> }} Run
 *
 * @typedef {{ run: Run, line: Step, token: Token, at: number }} About a token, and its place in the text
 */

/** What each element is about. @type {WeakMap<Element, About>} */
export const abouts = new WeakMap();

/** Whether a token is in the text. @param {Token} token */
export const isEmitted = ({ state }) => !["drafted", "rejected", "untested"].includes(state);

/** The text and the name of an id, which an old trace may lack. @param {Run} run @param {number} id */
export const pieceOf = ({ pieces }, id) => pieces.get(id) ?? [`#${id}`, `#${id}`];

/** @param {Run} run @param {Step} line */
export function tokensOf(run, line) {
  const before = line.made - line.tokens.filter(isEmitted).length;
  const made = line.tokens.map((token) => element({ run, line, token, at: before + token.place }));
  made.forEach((node, i) => {
    if ("joined" in (made[i + 1]?.dataset ?? {})) node.dataset.joins = "";
  });
  if (line.lane === "speculative") made.push(make("i", { className: "tick" }));
  return made;
}

/** The drafts that wait for their verification. @param {Run} run @param {Step} line @param {number} at */
export const waiting = (run, line, at) =>
  line.drafted.map((id, place) => {
    const [text, name] = pieceOf(run, id);
    const token = { id, text, name, state: "drafted", place, facts: {}, reason: run.waiting };
    return element({ run, line, token, at: at + place });
  });

// The blank before a word is coloured between tokens that were accepted together, and else not, since it would
// remain at the end of a line that breaks there. A token without visible text (a part of a character, a line
// break, a zero-width mark) gets a symbol.
function element(/** @type {About} */ about) {
  const { token, line, at } = about;
  const { text, place, state } = token;
  const joined = place > 0 && (state === "accepted" || state === "remembered");
  const blank = text.trim() && !joined ? text.slice(0, text.length - text.trimStart().length) : "";
  const made = make("span", { className: "tok" }, blank, make("span", {}, text.slice(blank.length)));
  if (joined) made.dataset.joined = "";
  Object.assign(made.dataset, { state, step: line.step, i: at });
  if (/^[\s\p{C}]*$/u.test(text) && !/^ +$/.test(text)) made.dataset.shapeless = "";
  abouts.set(made, about);
  return made;
}
