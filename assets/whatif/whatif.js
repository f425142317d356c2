// Shows the prediction at the sliders' acceptance and draft length. Python computes all of them; here, one is
// picked.
import plots from "../plots/plots.js";
import { find, findInput } from "../view/dom.js";
import { subscribe } from "../view/view.js";

/**
 * The prediction for a pair of these sizes, in billions of weights.
 * @param {any} sizes
 * @param {number} target
 * @param {number} draft
 */
export function ofSizes(sizes, target, draft, weights = "int8") {
  if (!(target > 0 && draft > 0)) return "Type both sizes, in billions of weights.";
  if (draft > target) return "A draft model that is larger than its target gains nothing.";
  const distances = sizes.shares.map((/** @type {number} */ share) => Math.abs(Math.log((share * target) / draft)));
  const nearest = sizes.words[distances.indexOf(Math.min(...distances))];
  const alone = target * sizes.milliseconds[weights];
  if (alone < sizes.least) return nearest;
  return `${nearest} · a token of the target alone takes at most about ${duration(alone)} here`;
}

const duration = (/** @type {number} */ ms) =>
  ms < 1000 ? `${Number(ms.toPrecision(2))} ms` : `${Number((ms / 1000).toPrecision(2))} s`;

export default function whatIf(/** @type {import("../view/view.js").View} */ view) {
  const { speedups, parts } = plots(view);
  const holder = find(view.element, ".what-if");
  const acceptance = findInput(holder, "[name=acceptance]"); // an index of `grid.acceptances`
  const length = findInput(holder, "[name=length]");
  const own = find(view.element, ".any-sizes", HTMLFormElement);
  let grid = /** @type {any} */ (null);
  let sizes = /** @type {any} */ (null);

  function asInRun() {
    acceptance.value = grid.run.acceptance;
    length.value = grid.run.length;
    pick();
  }

  function pick() {
    const [a, k] = [acceptance.valueAsNumber, length.valueAsNumber - 1];
    const [at, even, speedup] = [grid.acceptances[a], grid.break_even[k], grid.speedup[a][k]];
    label(acceptance, `${Math.round(100 * at)} %`);
    label(length, length.value);
    find(holder, ".predicted b").textContent = `${speedup.toFixed(2)}× predicted`;
    find(holder, ".predicted span").textContent = grid.words[a][k];
    for (const line of speedups.figure.data) {
      if (line.meta === "curve") line.y = grid.speedup.map((/** @type {number[]} */ row) => row[k]);
      if (line.meta === "here") [line.x, line.y] = [[at], [speedup]];
      if (line.meta === "even") [line.x, line.y] = even === null ? [[], []] : [[even], [1]];
    }
    for (const [i, part] of parts.figure.data.entries()) part.x.splice(-1, 1, grid.milliseconds[a][k][i]);
    speedups.draw();
    parts.draw();
  }

  function predict() {
    const [target, draft] = ["target", "draft"].map((name) => findInput(own, `[name=${name}]`).valueAsNumber);
    find(own, ".predicted").textContent = ofSizes(sizes, target, draft, String(new FormData(own).get("weights")));
  }

  own.addEventListener("input", predict);
  for (const slider of [acceptance, length]) slider.addEventListener("input", pick);
  find(holder, "button").addEventListener("click", asInRun);
  subscribe(view, (value) => {
    ({ grid, sizes } = JSON.parse(value));
    own.hidden = !sizes;
    if (sizes) predict();
    if (!grid) return;
    acceptance.max = String(grid.acceptances.length - 1);
    length.max = grid.break_even.length;
    asInRun();
  });
}

function label(/** @type {HTMLInputElement} */ slider, /** @type {string} */ text) {
  find(/** @type {HTMLElement} */ (slider.parentElement), ".value").textContent = text;
  slider.ariaValueText = text;
}
