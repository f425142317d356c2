// Shows the prediction at the sliders' acceptance and draft length. Python computes all of them; here, one is
// picked.
const whatIf = element.querySelector(".what-if");
const sentence = whatIf.querySelector(".reason").textContent;
const acceptance = whatIf.querySelector("[name=acceptance]"); // an index of `grid.acceptances`
const length = whatIf.querySelector("[name=length]");
let grid = null;

function showGrid(value) {
  const shown = JSON.parse(value);
  grid = shown.grid;
  whatIf.dataset.state = grid ? "known" : "none";
  whatIf.querySelector(".reason").textContent = shown.reason || sentence;
  if (!grid) return;
  acceptance.max = grid.acceptances.length - 1;
  length.max = grid.break_even.length;
  asInRun();
}

function asInRun() {
  acceptance.value = grid.run.acceptance;
  length.value = grid.run.length;
  pick();
}

const percent = (share) => `${Math.round(100 * share)} %`;

function pick() {
  const [a, k] = [acceptance.valueAsNumber, length.valueAsNumber];
  const even = grid.break_even[k - 1];
  label(acceptance, percent(grid.acceptances[a]));
  label(length, String(k));

  const [draft, verify, other] = grid.shares[a][k - 1];
  whatIf.querySelector(".predicted b").textContent = `${grid.speedup[a][k - 1].toFixed(2)}× predicted`;
  whatIf.querySelector(".predicted span").textContent = [
    `drafting ${draft} %, verifying ${verify} %, other ${other} % of the time`,
    `with K = ${k}, drafting pays ${even === null ? "at no acceptance" : `from an acceptance of ${percent(even)}`}`,
    `best draft length at this acceptance: ${grid.best[a] || "0, no drafting"}`,
  ].join(" · ");

  const lines = Object.fromEntries(frames.speedups.figure.data.map((line) => [line.meta, line]));
  lines.curve.y = grid.speedup.map((row) => row[k - 1]);
  [lines.here.x, lines.here.y] = [[grid.acceptances[a]], [grid.speedup[a][k - 1]]];
  [lines.even.x, lines.even.y] = even === null ? [[], []] : [[even], [1]];
  frames.parts.figure.data.forEach((part, i) => {
    part.x = [...part.x.slice(0, -1), grid.milliseconds[a][k - 1][i]];
  });
  draw(frames.speedups);
  draw(frames.parts);
}

function label(slider, text) {
  slider.parentElement.querySelector(".value").textContent = text;
  slider.setAttribute("aria-valuetext", text);
}

for (const slider of [acceptance, length]) slider.addEventListener("input", pick);
whatIf.querySelector("button").addEventListener("click", asInRun);
subscribe(showGrid);
