// The functions of the page that need no page.
import assert from "node:assert/strict";
import { test } from "node:test";
import { momentsOf, slowSpeed, stateAt } from "../../assets/lanes/replay.js";
import { linkTo, pythonFor } from "../../assets/page/page.js";
import { coloured } from "../../assets/plots/plots.js";
import { measured, open } from "../../assets/tour/guess.js";
import { overlap } from "../../assets/tour/tour.js";
import { counted } from "../../assets/view/dom.js";
import { recall, remember } from "../../assets/view/storage.js";
import { changedSince } from "../../assets/view/updates.js";
import { ofSizes } from "../../assets/whatif/whatif.js";

const draft = { drafted: [5, 6] };
const STEPS = [
  { line: { drafted: [] }, drafted: 4, ends: 10 },
  { line: draft, drafted: 15, ends: 20 },
];

test("a replay stops at every draft and every step, of either lane", () => {
  assert.deepEqual(momentsOf([{ steps: STEPS }, { steps: [{ line: { drafted: [] }, drafted: 1, ends: 15 }] }]), [
    ...[0, 10, 15, 20],
  ]);
  const states = [0, 10, 14, 15, 20].map((time) => stateAt({ steps: STEPS }, time));
  assert.deepEqual(states, [
    ...[
      { count: 0, draft: null },
      { count: 1, draft: null },
      { count: 1, draft: null },
    ],
    ...[
      { count: 1, draft },
      { count: 2, draft: null },
    ],
  ]);
});

test("a slow replay takes five seconds, and is at most half as fast as the run", () => {
  assert.deepEqual([100, 1000, 5000, 9000].map(slowSpeed), [0.02, 0.2, 0.5, 0.5]);
});

test("of the updates of two events, in either order, each view is shown once and never an older one", () => {
  const older = { header: { when: 1, value: "a" } };
  const newer = { ...older, notice: { when: 2, value: "b" } };
  const { changed, seen } = changedSince(newer, 1);
  assert.deepEqual([changed.map(([name]) => name), seen], [["notice"], 2]);
  assert.deepEqual(changedSince(older, seen), { changed: [], seen: 2 });
});

test("a link and a script have what is not at its default", () => {
  const form = [{ instruction: "", seed: 1, mode: "race" }, ["instruction", "seed", "mode"], [null, 1, "race"]];
  const changed = [form[0], form[1], ['Say "<a>" & b', 2, "race"]];
  const here = "http://localhost/sub/";
  assert.equal(linkTo(new URL(here), ...form), here);
  assert.equal(linkTo(new URL(here), ...changed), `${here}?instruction=Say+%22%3Ca%3E%22+%26+b&seed=2`);
  assert.match(pythonFor(new URL(here), ...changed), /predict\(\n {4}instruction="Say \\"<a>\\" & b",\n {4}seed=2,\n/);
  assert.match(
    pythonFor(new URL(here), ...form),
    /Client\("http:..localhost.sub."\)\n.*\n {4}mode="race",\n {4}api_name/,
  );
});

test("a figure has the colours of the theme, wherever it names them", () => {
  const figure = { marker: { color: "var(--ink)" }, x: [1, null, "var(--ink)"], text: "a var(--ink)" };
  const shown = { marker: { color: "#000" }, x: [1, null, "#000"], text: "a var(--ink)" };
  assert.deepEqual(
    coloured(figure, (name) => ({ "--ink": "#000" })[name]),
    shown,
  );
});

test("a guess is told against what was measured", () => {
  const guess = { picked: "loss", by: 2.5 };
  assert.equal(open(guess), "Your guess: autoregressive by 2.5×. The next race measures it.");
  const told = (outcome, speedup) => measured(guess, { outcome, speedup });
  assert.equal(told("loss", 0.5), "Right: you guessed autoregressive by 2.5×, measured autoregressive by 2.0×.");
  assert.match(told("even", 1.01), /^Not this time: .*, measured neither\.$/);
  assert.match(told(null, null), /not compared/);
});

test("a count of one has no plural", () => {
  assert.deepEqual([counted(0, "step"), counted(1, "step")], ["0 steps", "1 step"]);
});

test("boxes that do not touch share no area", () => {
  const box = { left: 0, right: 4, top: 0, bottom: 4 };
  assert.equal(overlap(box, { left: 2, right: 9, top: 3, bottom: 9 }), 2);
  assert.equal(overlap(box, { left: 5, right: 9, top: 5, bottom: 9 }), 0);
});

test("a browser that denies the storage, or holds what is no value, is one without any", () => {
  assert.equal(recall("theme"), null);
  assert.doesNotThrow(() => remember("theme", "dark"));
  globalThis.localStorage = { getItem: () => "dark" };
  assert.equal(recall("theme"), null);
});

test("a pair of typed sizes is predicted by the nearest share of its draft model", () => {
  const sizes = { shares: [0.1, 0.5], words: ["1.50×", "0.90×"], milliseconds: { int8: 30, int4: 15 }, least: 7 };
  const bound = "a token of the target alone takes at most about";
  assert.equal(ofSizes(sizes, 12, 1, "int4"), `1.50× · ${bound} 180 ms here`);
  assert.equal(ofSizes(sizes, 70, 30), `0.90× · ${bound} 2.1 s here`);
  assert.equal(ofSizes(sizes, 0.1, 0.01), "1.50×"); // smaller than the run's: no bound is known
  assert.match(ofSizes(sizes, Number.NaN, 1), /^Type both sizes/);
  assert.match(ofSizes(sizes, 1, 2), /larger than its target/);
});
