// Shows the prediction at the sliders' acceptance and draft length. Python computes all of them; here, one is
// picked.
import plots from "../plots/plots.js";
import { find, findInput } from "../view/dom.js";
import { subscribe } from "../view/view.js";

const percent = (/** @type {number} */ share) => `${Math.round(100 * share)} %`;

/** The prediction in words, at an acceptance by its index and a draft length. */
export function sentence(/** @type {any} */ grid, /** @type {number} */ a, /** @type {number} */ k) {
  const even = grid.break_even[k - 1];
  const [draft, verify, other] = grid.shares[a][k - 1];
  return [
    `drafting ${draft} %, verifying ${verify} %, other ${other} % of the time`,
    `with K = ${k}, drafting pays ${even === null ? "at no acceptance" : `from an acceptance of ${percent(even)}`}`,
    `best draft length at this acceptance: ${grid.best[a] || "0, no drafting"}`,
  ].join(" · ");
}

/** The prediction for a pair of these sizes, in billions of weights. */
export function ofSizes(
  /** @type {any} */ sizes,
  /** @type {number} */ target,
  /** @type {number} */ draft,
  weights = "int8",
) {
  if (!(target > 0 && draft > 0)) return "Type both sizes, in billions of weights.";
  if (draft > target) return "A draft model that is larger than its target gains nothing.";
  const distances = sizes.shares.map((/** @type {number} */ share) => Math.abs(Math.log((share * target) / draft)));
  const at = distances.indexOf(Math.min(...distances));
  const [speedup, even] = [sizes.speedup[at], sizes.break_even[at]];
  const alone = target * sizes.milliseconds[weights];
  const said = [
    `${speedup.toFixed(2)}× predicted with K = ${sizes.length[at]}`,
    `at this run’s acceptance, ${sizes.acceptance}`,
    even === null ? "it pays at no acceptance" : `it pays from ${percent(even)}`,
  ];
  if (alone >= sizes.least) said.push(`a token of the target alone takes at most about ${duration(alone)} here`);
  return said.join(" · ");
}

const duration = (/** @type {number} */ ms) =>
  ms < 1000 ? `${Number(ms.toPrecision(2))} ms` : `${Number((ms / 1000).toPrecision(2))} s`;

export default function whatIf(/** @type {import("../view/view.js").View} */ view) {
  const frames = plots(view);
  const holder = find(view.element, ".what-if");
  const reason = find(holder, ".reason");
  const usual = String(reason.textContent);
  const acceptance = findInput(holder, "[name=acceptance]"); // an index of `grid.acceptances`
  const length = findInput(holder, "[name=length]");
  const own = /** @type {HTMLFormElement} */ (find(view.element, ".any-sizes"));
  let grid = /** @type {any} */ (null);
  let sizes = /** @type {any} */ (null);

  function asInRun() {
    acceptance.value = grid.run.acceptance;
    length.value = grid.run.length;
    pick();
  }

  function pick() {
    const [a, k] = [acceptance.valueAsNumber, length.valueAsNumber];
    label(acceptance, percent(grid.acceptances[a]));
    label(length, String(k));
    find(holder, ".predicted b").textContent = `${grid.speedup[a][k - 1].toFixed(2)}× predicted`;
    find(holder, ".predicted span").textContent = sentence(grid, a, k);

    const even = grid.break_even[k - 1];
    const { speedups, parts } = frames;
    for (const line of speedups.figure.data) {
      if (line.meta === "curve") line.y = grid.speedup.map((/** @type {number[]} */ row) => row[k - 1]);
      if (line.meta === "here") [line.x, line.y] = [[grid.acceptances[a]], [grid.speedup[a][k - 1]]];
      if (line.meta === "even") [line.x, line.y] = even === null ? [[], []] : [[even], [1]];
    }
    for (const [i, part] of parts.figure.data.entries()) {
      part.x = [...part.x.slice(0, -1), grid.milliseconds[a][k - 1][i]];
    }
    speedups.draw();
    parts.draw();
  }

  function predict() {
    const [target, draft] = ["target", "draft"].map((name) => findInput(own, `[name=${name}]`).valueAsNumber);
    find(own, ".predicted").textContent = ofSizes(sizes, target, draft, String(new FormData(own).get("weights")));
  }

  own.addEventListener("input", predict);
  own.addEventListener("submit", (event) => event.preventDefault());
  for (const slider of [acceptance, length]) slider.addEventListener("input", pick);
  find(holder, "button").addEventListener("click", asInRun);
  subscribe(view, (value) => {
    const shown = JSON.parse(value);
    [grid, sizes] = [shown.grid, shown.sizes];
    holder.dataset.state = grid ? "known" : "none";
    reason.textContent = shown.reason || usual;
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
