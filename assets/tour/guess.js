// A visitor's guess about the next race, in words and against what was measured.

/**
 * @typedef {{ picked: string, by: number | null }} Guess which lane is faster, and how many times
 * @typedef {{ outcome: string | null, speedup: number | null }} Outcome
 */

const NAMES = /** @type {Record<string, string>} */ ({ win: "speculative", loss: "autoregressive", even: "neither" });
const times = (/** @type {number | null} */ value) => (value === null ? "" : ` by ${value.toFixed(1)}×`);
const words = (/** @type {string} */ which, /** @type {number | null} */ by) => `${NAMES[which]}${times(by)}`;

export const open = (/** @type {Guess} */ { picked, by }) =>
  `Your guess: ${words(picked, by)}. The next race measures it.`;

export function measured(/** @type {Guess} */ { picked, by }, /** @type {Outcome} */ { outcome, speedup }) {
  if (outcome === null || speedup === null) return "Your guess is open: this race is not compared.";
  const factor = outcome === "even" ? null : Math.max(speedup, 1 / speedup);
  const right = picked === outcome ? "Right" : "Not this time";
  return `${right}: you guessed ${words(picked, by)}, measured ${words(outcome, factor)}.`;
}
