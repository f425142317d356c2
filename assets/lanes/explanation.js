// What happened to a token, in words. Nothing here knows the page.

/**
 * A step of a lane, as a line of its transcript (`ui/run/transcript.py`) has it; a draft that waits for its
 * verification lacks most. Tokens have an id, a text and an origin; probabilities are by place in the draft.
 * @typedef {{ lane: string, index: number, drafted: number[], copied: boolean, accepted: number,
 *   tokens: [number, string, string][], made: number, tokens_per_second: number | null, draft_s: number,
 *   verify_s: number, time_s: number, drafted_at_s: number, draft_prob: number[], target_prob: number[],
 *   accept_prob: number[], uniform: (number | null)[], draft_top: [number, number][][],
 *   target_top: [number, number][][] }} Step
 *
 * What holds for all tokens of a run. Its drafts may be verified `jointly`, or made as `blocks`.
 * @typedef {{ greedy: boolean, lossy: boolean, jointly: boolean, blocks: boolean, pieces: Map<number, string> }} Run
 *
 * A token; `at` is its place in the text, and `place` that in the draft of its step.
 * @typedef {{ run: Run, line: Step, place: number, id: number, text: string, state: string, at: number }} About
 */

const LONGEST = 60; // characters of a token
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\u00a0\u2000-\u200a\u202f\u205f\u3000]/gu;
const TESTED = ["accepted", "remembered", "resampled", "rejected"];

/** The text as a string literal: invisible characters, and those that change the direction, are escaped. */
export function repr(/** @type {string} */ text) {
  const characters = Array.from(text.slice(0, 2 * LONGEST));
  const cut = text.length > LONGEST && characters.slice(0, LONGEST).join("");
  const shown = JSON.stringify(cut || text).replace(INVISIBLE, (one) => `\\u{${one.codePointAt(0)?.toString(16)}}`);
  return cut ? `${shown.slice(0, -1)}…" (${text.length} characters)` : shown;
}

export function named(/** @type {Run} */ { pieces }, /** @type {number} */ id) {
  const text = pieces.get(id);
  return text === undefined ? `#${id}` : repr(text);
}

export const probability = (/** @type {number} */ value) =>
  value > 0 && value < 0.0005 ? "< 0.001" : value.toFixed(3);

const milliseconds = (/** @type {number} */ seconds) => `${(1000 * seconds).toFixed(1)} ms`;

/** Whether the draft was verified as a block, all tokens together. A copied draft never is. */
const asBlock = (/** @type {Run} */ run, /** @type {Step} */ line) =>
  run.jointly && line.drafted.length > 0 && !line.copied;

/** The state of the drafts that were not accepted: token by token, those after the first are not tested. */
export const refusedState = (/** @type {Run} */ run, /** @type {Step} */ line, /** @type {number} */ place) =>
  place === line.accepted || (place > line.accepted && asBlock(run, line)) ? "rejected" : "untested";

/** The name of a token, and where it is. @param {About} about @param {boolean} endKey */
export function title({ line, place, id, text, state }, endKey) {
  const step = `step ${line.index + 1}`;
  const where = state === "target" ? step : `${step}, position ${place + 1}`;
  const name = endKey ? "end of text" : text ? repr(text) : "part of a character";
  return [name, ` ${state} · ${where} · id ${id}`];
}

/** What is known of its draft and its test, as names and values. @returns {[string, string][]} */
export function facts(/** @type {About} */ { run, line, place, state }) {
  /** @type {[string, string][]} */
  const rows = [];
  if (state === "resampled") rows.push(["replaces the drafted", named(run, line.drafted[place])]);
  if (place < line.drafted.length) rows.push(["drafted", source(run, line, state)]);
  // Greedy decoding compares two first choices without a random number, so nothing is shown.
  if (run.greedy || !TESTED.includes(state)) return rows;
  rows.push(["draft probability q", probability(line.draft_prob[place])]);
  rows.push(["target probability p", probability(line.target_prob[place])]);
  if (run.lossy) return [...rows, ["p is typical of the target", line.accept_prob[place] ? "yes" : "no"]];
  const test = asBlock(run, line) ? "accepted up to here, if not further" : "accepted with min(1, p ∕ q)";
  rows.push([test, probability(line.accept_prob[place])]);
  const uniform = line.uniform[place];
  if (uniform === null) return rows;
  const outcome = place < line.accepted ? "accepted" : "rejected";
  return [...rows, ["random number", `${probability(uniform)} → ${outcome}`]];
}

// How a token was drafted: the tokens of a block all in one pass, those of a draft model one by one.
function source(/** @type {Run} */ run, /** @type {Step} */ { drafted, copied }, /** @type {string} */ state) {
  if (copied) return state === "remembered" ? "by copying from an earlier answer" : "by copying, without a pass";
  if (!run.blocks) return "in a pass of its own";
  return drafted.length > 1 ? `in one pass, all ${drafted.length} tokens of this step` : "in one pass";
}

/** Why it is in the text, or is not. */
export function reason(/** @type {About} */ { run, line, place, state }) {
  const whole = asBlock(run, line);
  switch (state) {
    case "target":
      return line.lane === "speculative"
        ? "No token was drafted in this step."
        : "One forward pass of the target, one token.";
    case "accepted":
      if (run.greedy && line.copied) return "The target’s first choice, so it is accepted.";
      if (run.greedy) return "The first choice of both models, so it is accepted.";
      if (whole && place + 1 < line.accepted)
        return "Block verification accepted the draft up to a later token, and this one with it.";
      if (whole)
        return "Block verification accepted the draft up to here: the last token that passes its test decides.";
      if (run.lossy)
        return "Typical enough of the target, whatever its probability under the draft: accepted, which is lossy.";
      return line.uniform[place] === null
        ? "The target’s probability is at least the draft’s, so it is always accepted."
        : "";
    case "remembered":
      return "It followed the same words in an earlier answer, from where it was copied, and the target accepted it.";
    case "resampled":
      if (run.greedy) return "The target’s first choice, in place of the draft’s.";
      if (!whole && run.lossy)
        return "Sampled from the target’s distribution without the rejected token, whose figures these are.";
      return `Sampled from the residual: the target’s distribution${
        whole ? ", times the probability that the draft is kept so far," : ""
      } minus the draft’s. The figures are those of the token it replaces.`;
    case "bonus":
      return `${
        line.drafted.length === 1 ? "The drafted token is" : `All ${line.drafted.length} drafted tokens are`
      } accepted, so the same forward pass gives one more.`;
    case "rejected":
      if (whole) return "Block verification accepted the draft up to an earlier token only.";
      return run.greedy
        ? "Not the target’s first choice."
        : "It failed the acceptance test; the next token replaces it.";
    case "untested":
      return "It follows a token that ended the step, so it was never tested.";
    default:
      return "Not verified yet.";
  }
}

export function times(/** @type {Step} */ line) {
  const parts = [`${line.drafted.length ? "verify" : "forward pass"} ${milliseconds(line.verify_s)}`];
  if (line.drafted.length) parts.unshift(`draft ${milliseconds(line.draft_s)}`);
  return `${parts.join(", ")} · ${milliseconds(line.time_s)} after the start`;
}
