// The caches as rows of blocks, after the step that the slider is at. It follows the scrubber of the panes,
// and can be moved on its own.
import { counted, find, findAll, findInput, listen, make } from "../view/dom.js";
import { subscribe } from "../view/view.js";

/**
 * The cache of a model after a step (`ui/tabs/cache.py`): its tokens, and those that were rolled back.
 * @typedef {{ kept: number, rolled: number | null, words: string, pool: any }} Kept
 */

const megabytes = (/** @type {number} */ bytes) => `${(bytes / 1e6).toFixed(2)} MB`;

export default function cache(/** @type {import("../view/view.js").View} */ view) {
  const { element } = view;
  const blocks = find(element, ".blocks");
  const slider = findInput(blocks, "input");
  let picture = /** @type {any} */ (null);
  let stale = false; // to be drawn when it is in sight
  let follows = true; // the scrubber, until someone moves the slider

  function draw() {
    stale = false;
    const step = slider.valueAsNumber;
    find(blocks, "output").textContent = `${step} of ${slider.max}`;
    slider.ariaValueText = `step ${step} of ${slider.max}`;
    const models = Object.entries(picture.models).map(([name, steps]) => model(name, steps.slice(0, step), picture));
    find(blocks, ".models").replaceChildren(...models);
  }

  // `replay.js` tells the number of steps that each lane shows.
  listen(element, "moment", ({ detail }) => {
    const count = detail[picture?.lane];
    follows ||= detail.time === null; // another run begins
    if (count === undefined || Number(slider.value) === Math.max(count, 1)) return;
    slider.value = String(Math.max(count, 1));
    stale = true;
    if (blocks.checkVisibility()) draw();
  });
  new IntersectionObserver(() => stale && draw()).observe(blocks);
  slider.addEventListener("input", () => {
    follows = slider.value === slider.max;
    draw();
  });
  subscribe(view, (value) => {
    picture = JSON.parse(value);
    const models = /** @type {Kept[][]} */ (Object.values(picture.models));
    const count = models[0]?.length ?? 0;
    blocks.hidden = !count;
    for (const each of findAll(blocks, ".of-pool")) each.hidden = !models.some((steps) => steps[0]?.pool);
    const at = follows ? String(count) : slider.value; // to set the end may move it
    slider.max = String(count);
    slider.value = at;
    if (count) draw();
  });
}

/** @param {string} name @param {Kept[]} steps up to the one that is shown @param {any} picture */
function model(name, steps, { block, limit }) {
  const { kept, rolled, words, pool } = steps[steps.length - 1];
  const heading = make("h3", {}, name, make("span", {}, words));
  const row = make("div", { className: "kv-row", ariaHidden: "true" }); // the heading has the same in words
  const once = new Set(steps.flatMap(({ kept, rolled }) => Array.from({ length: rolled ?? 0 }, (_, i) => kept + i)));
  const end = block ? kept + (rolled ?? 0) : 0;
  for (let begin = 0; begin < end; begin += block) {
    const filled = kept < begin + block ? "last" : "filled";
    const slots = Array.from({ length: block }, (_, i) => {
      const place = begin + i;
      const state = place < kept ? filled : place < end ? "rolled" : "";
      return make("i", { className: `slot ${state} ${once.has(place) ? "once" : ""}` });
    });
    row.append(make("div", { className: "kv-block" }, ...slots));
  }
  return make("section", {}, heading, row, ...(pool ? gauge(pool, limit) : []));
}

// How much of the model's pool is in use, and what has become of its blocks.
function gauge(/** @type {any} */ pool, /** @type {number | null} */ limit) {
  const { pool_bytes, blocks, used, shared, high_water, recycled, copied } = pool;
  const percent = (/** @type {number} */ count) => `${Math.min(100, (100 * count) / blocks)}%`;
  const parts = [
    make("i", { className: "shared", style: { width: percent(shared) } }),
    make("i", { className: "used", style: { width: percent(used - shared) } }),
    make("i", { className: "high-water", style: { left: percent(high_water) } }),
  ];
  const all = limit ? ` All pools together may hold ${megabytes(limit)}.` : "";
  const words =
    `Pool of all its sequences: ${used} of ${counted(blocks, "block")} in use, ${megabytes(pool_bytes)} in all; ` +
    `${shared} shared. Since the models were loaded: at most ${high_water} at once, ` +
    `${recycled} recycled, ${copied} copied on write.${all}`;
  // The words say what the bar does.
  return [
    make("div", { className: "pool", ariaHidden: "true" }, ...parts),
    make("p", { className: "pool-words" }, words),
  ];
}
