// The caches as rows of blocks, after the step that the slider is at. It follows the scrubber of the panes,
// and can be moved on its own.
const blocks = element.querySelector(".blocks");
const slider = blocks.querySelector("input");
let picture = null;
let stale = false; // to be drawn when it is in sight
let follows = true; // the scrubber, until someone moves the slider

function showBlocks(value) {
  const { saved, ...shown } = JSON.parse(value);
  picture = shown.picture;
  const count = Object.values(picture.models)[0]?.length ?? 0;
  blocks.hidden = !count;
  blocks.classList.toggle("unblocked", !picture.block);
  const pooled = Object.values(picture.models).some((steps) => steps[0]?.pool);
  for (const each of blocks.querySelectorAll(".of-pool")) each.hidden = !pooled;
  blocks.querySelector(".kept-as").textContent = picture.kept_as;
  const at = follows ? count : slider.value; // to set the end may move it
  slider.max = count;
  slider.value = at;
  if (count) drawBlocks();
  showSaved(saved);
}

// From a committed benchmark: the same for every run.
function showSaved(measured) {
  const section = element.querySelector(".saved");
  if (!measured || !section.hidden) return;
  section.hidden = false;
  section.querySelector(".table").append(table(measured));
  section.querySelector(".where").textContent = measured.where;
}

function drawBlocks() {
  stale = false;
  const step = Number(slider.value);
  blocks.querySelector("output").textContent = `${step} of ${slider.max}`;
  slider.setAttribute("aria-valuetext", `step ${step} of ${slider.max}`);
  const models = Object.entries(picture.models).map(([name, steps]) => model(name, steps, step));
  blocks.querySelector(".models").replaceChildren(...models);
}

function model(name, steps, step) {
  const { kept, blocks: used, megabytes, rolled, rolled_so_far, pool } = steps[step - 1];
  const inBlocks = used === null ? "" : `${counted(used, "block")}, `;
  const back =
    rolled === null ? "" : `; rolled back: ${rolled} by this step, ${rolled_so_far} since the prompt`;
  const words = `${counted(kept, "token")}, ${inBlocks}${megabytes.toFixed(2)} MB${back}`;
  const heading = make("h3", { textContent: name }, make("span", { textContent: words }));
  const row = make("div", { className: "kv-row" });
  if (picture.block) {
    const once = new Set();
    for (const each of steps.slice(0, step)) for (let i = 0; i < each.rolled; i++) once.add(each.kept + i);
    const count = Math.ceil((kept + rolled) / picture.block);
    for (let i = 0; i < count; i++) row.append(block(i * picture.block, kept, rolled, once));
  }
  row.setAttribute("aria-hidden", "true"); // the heading has the same in words
  return make("section", {}, heading, row, ...(pool ? gauge(pool) : []));
}

// How much of the model's pool is in use, and what has become of its blocks.
function gauge({ pool_bytes, blocks, used, shared, high_water, recycled, copied }) {
  const megabytes = (bytes) => `${(bytes / 1e6).toFixed(2)} MB`;
  const part = (name, count) => {
    const made = make("i", { className: name });
    made.style.width = `${(100 * count) / blocks}%`;
    return made;
  };
  const bar = make("div", { className: "pool" }, part("shared", shared), part("used", used - shared));
  const mark = make("i", { className: "high-water" });
  mark.style.left = `${Math.min(100, (100 * high_water) / blocks)}%`;
  bar.append(mark);
  bar.setAttribute("aria-hidden", "true"); // the words say the same
  const limit = picture.limit ? ` All pools together may hold ${megabytes(picture.limit)}.` : "";
  const words =
    `Pool of all its sequences: ${used} of ${counted(blocks, "block")} in use, ${megabytes(pool_bytes)} in all; ` +
    `${shared} shared. Since the models were loaded: at most ${high_water} at once, ` +
    `${recycled} recycled, ${copied} copied on write.${limit}`;
  return [bar, make("p", { className: "pool-words", textContent: words })];
}

// One block of slots; `begin` is the place of its first.
function block(begin, kept, rolled, once) {
  const made = make("div", { className: "kv-block" });
  const last = kept < begin + picture.block;
  for (let place = begin; place < begin + picture.block; place++) {
    const slot = make("i", { className: "slot" });
    if (place < kept) slot.classList.add(last ? "last" : "filled");
    else if (place < kept + rolled) slot.classList.add("rolled");
    if (once.has(place)) slot.classList.add("once");
    made.append(slot);
  }
  return made;
}

// `replay.js` sends the number of steps that each lane shows.
function goTo({ detail }) {
  if (!element.isConnected) return document.removeEventListener("moment", goTo);
  const count = detail[picture?.lane];
  follows ||= count === 0; // another run begins
  if (count === undefined || Number(slider.value) === Math.max(count, 1)) return;
  slider.value = Math.max(count, 1);
  stale = true;
  if (blocks.checkVisibility()) drawBlocks();
}

new IntersectionObserver(() => stale && drawBlocks()).observe(blocks);
document.addEventListener("moment", goTo);
slider.addEventListener("input", () => {
  follows = slider.value === slider.max;
  drawBlocks();
});
subscribe(showBlocks);
