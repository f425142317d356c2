// What the card of a token says of it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { facts, named, probability, reason, refusedState, repr, times, title } from "../../assets/lanes/explanation.js";

const RUN = { greedy: false, lossy: false, jointly: false, blocks: false, pieces: new Map([[7, " sky"]]) };
const STEP = {
  ...{ lane: "speculative", index: 2, drafted: [5, 6, 7, 8], copied: false, accepted: 2, draft_s: 0.002 },
  ...{ verify_s: 0.01, time_s: 0.1, draft_prob: [0.5, 0.5, 0.25, 0.5], target_prob: [0.5, 0.6, 0.0001, 0.5] },
  ...{ accept_prob: [1, 1, 0.0004, 1], uniform: [null, 0.3, 0.75, null] },
};
const about = (state, place, { run = {}, ...line } = {}) => ({
  ...{ run: { ...RUN, ...run }, line: { ...STEP, ...line } },
  ...{ place, state, id: 7, text: " sky", at: 9 },
});
const GREEDY = { run: { greedy: true } };
const BLOCK = { run: { jointly: true } };
const LOSSY = { run: { lossy: true } };

test("what cannot be seen, or turns the direction, is escaped; a long text is cut", () => {
  assert.equal(repr(' "a"\n'), String.raw`" \"a\"\n"`);
  assert.equal(repr("zero\u200bwidth\u202e\u00a0"), String.raw`"zero\u{200b}width\u{202e}\u{a0}"`);
  assert.equal(repr("é".repeat(61)), `"${"é".repeat(60)}…" (61 characters)`);
  assert.equal(repr("😀".repeat(31)), `"${"😀".repeat(31)}…" (62 characters)`);
  assert.deepEqual([named(RUN, 7), named(RUN, 8)], ['" sky"', "#8"]);
});

test("a title names the token, its state, its place and its id", () => {
  assert.deepEqual(title(about("accepted", 1), false), ['" sky"', " accepted · step 3, position 2 · id 7"]);
  assert.deepEqual(title({ ...about("target", 0), text: "" }, false), [
    "part of a character",
    " target · step 3 · id 7",
  ]);
  assert.equal(title(about("accepted", 1), true)[0], "end of text");
});

test("a sampled test shows p, q, the chance and the number drawn, with the same digits", () => {
  const rejected = [
    ["replaces the drafted", '" sky"'],
    ["drafted", "in a pass of its own"],
    ["draft probability q", "0.250"],
    ["target probability p", "< 0.001"],
    ["accepted with min(1, p ∕ q)", "< 0.001"],
    ["random number", "0.750 → rejected"],
  ];
  assert.deepEqual(facts(about("resampled", 2)), rejected);
  assert.deepEqual(facts(about("accepted", 1)).at(-1), ["random number", "0.300 → accepted"]);
  assert.ok(!facts(about("accepted", 0)).some(([name]) => name === "random number")); // there was none
  assert.deepEqual([0, 0.0004, 0.0005, 1].map(probability), ["0.000", "< 0.001", "0.001", "1.000"]);
});

test("greedy decoding invents no number", () => {
  for (const state of ["accepted", "resampled", "rejected", "remembered"]) {
    const names = facts(about(state, 2, GREEDY)).map(([name]) => name);
    assert.ok(!names.some((name) => /probability|number|accepted/.test(name)), names);
  }
  assert.match(reason(about("accepted", 0, GREEDY)), /first choice of both models/);
  assert.match(reason(about("accepted", 0, { ...GREEDY, copied: true })), /The target’s first choice, so/);
  assert.match(reason(about("resampled", 2, GREEDY)), /in place of the draft’s/);
});

test("a draft verified as a block says which token decided", () => {
  assert.match(reason(about("accepted", 0, BLOCK)), /up to a later token/);
  assert.match(reason(about("accepted", 1, BLOCK)), /accepted the draft up to here/);
  assert.match(reason(about("rejected", 3, BLOCK)), /up to an earlier token only/);
  assert.match(reason(about("resampled", 2, BLOCK)), /times the probability that the draft is kept so far/);
  assert.equal(facts(about("accepted", 1, BLOCK)).at(-2)[0], "accepted up to here, if not further");
  const states = (more) => [2, 3].map((place) => refusedState({ ...RUN, ...more.run }, { ...STEP, ...more }, place));
  assert.deepEqual(states(BLOCK), ["rejected", "rejected"]);
  assert.deepEqual(states({ ...BLOCK, copied: true }), ["rejected", "untested"]);
  assert.deepEqual(states({}), ["rejected", "untested"]);
});

test("typical acceptance says that it is lossy", () => {
  assert.match(reason(about("accepted", 1, LOSSY)), /lossy/);
  assert.match(reason(about("resampled", 2, LOSSY)), /target’s distribution without the rejected token/);
  assert.deepEqual(facts(about("accepted", 1, LOSSY)).at(-1), ["p is typical of the target", "yes"]);
});

test("a card says how a token was drafted, before it is verified and afterwards", () => {
  for (const state of ["drafted", "accepted"]) {
    const source = (more) => facts(about(state, 0, more)).find(([name]) => name === "drafted")[1];
    assert.equal(source(), "in a pass of its own");
    assert.equal(source({ run: { blocks: true } }), "in one pass, all 4 tokens of this step");
    assert.equal(source({ run: { blocks: true }, drafted: [5] }), "in one pass");
    assert.equal(source({ copied: true }), "by copying, without a pass");
  }
  const remembered = about("remembered", 0, { copied: true });
  assert.equal(facts(remembered)[0][1], "by copying from an earlier answer");
  assert.match(reason(remembered), /in an earlier answer/);
  assert.equal(reason(about("drafted", 0)), "Not verified yet.");
});

test("every other state has its reason, and what is one is not counted as many", () => {
  assert.match(reason(about("accepted", 0)), /always accepted/);
  assert.match(reason(about("bonus", 4)), /^All 4 drafted tokens are accepted, so/);
  assert.match(reason(about("bonus", 1, { drafted: [5] })), /^The drafted token is accepted, so/);
  assert.match(reason(about("untested", 3)), /never tested/);
  assert.match(reason(about("rejected", 2)), /failed the acceptance test/);
  assert.match(reason(about("target", 0)), /No token was drafted/);
  assert.match(reason(about("target", 0, { lane: "autoregressive" })), /one token/);
  assert.equal(times(STEP), "draft 2.0 ms, verify 10.0 ms · 100.0 ms after the start");
  assert.equal(times({ ...STEP, drafted: [] }), "forward pass 10.0 ms · 100.0 ms after the start");
});
