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

export default function whatIf(/** @type {import("../view/view.js").View} */ view) {
  const frames = plots(view);
  const holder = find(view.element, ".what-if");
  const reason = find(holder, ".reason");
  const usual = String(reason.textContent);
  const acceptance = findInput(holder, "[name=acceptance]"); // an index of `grid.acceptances`
  const length = findInput(holder, "[name=length]");
  let grid = /** @type {any} */ (null);

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

  for (const slider of [acceptance, length]) slider.addEventListener("input", pick);
  find(holder, "button").addEventListener("click", asInRun);
  subscribe(view, (value) => {
    const shown = JSON.parse(value);
    grid = shown.grid;
    holder.dataset.state = grid ? "known" : "none";
    reason.textContent = shown.reason || usual;
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
