// The caches as rows of blocks, after the target run that the slider is at. It follows the scrubber
// of the panes, and may be moved alone.
const blocks = element.querySelector(".blocks");
const slider = blocks.querySelector("input");
let picture = null;
let stale = false; // drawn when it is in sight
let follows = true; // the run, until someone moves the slider

function showBlocks(value) {
  const { saved, ...shown } = JSON.parse(value);
  picture = shown.picture;
  const runs = Object.values(picture.models)[0]?.length ?? 0;
  blocks.hidden = !runs;
  blocks.classList.toggle("unblocked", !picture.block);
  blocks.querySelector(".kept-as").textContent = picture.kept_as;
  const at = follows ? runs : slider.value; // to set the end may move it
  slider.max = runs;
  slider.value = at;
  if (runs) drawBlocks();
  showSaved(saved);
}

// What a benchmark measured; it is the same for every run.
function showSaved(measured) {
  const section = element.querySelector(".saved");
  if (!measured || !section.hidden) return;
  section.hidden = false;
  section.querySelector(".table").append(table(measured));
  section.querySelector(".where").textContent = measured.where;
}

function drawBlocks() {
  stale = false;
  const run = Number(slider.value);
  blocks.querySelector("output").textContent = `${run} of ${slider.max}`;
  slider.setAttribute("aria-valuetext", `target run ${run} of ${slider.max}`);
  const models = Object.entries(picture.models).map(([name, runs]) => model(name, runs, run));
  blocks.querySelector(".models").replaceChildren(...models);
}

function model(name, runs, run) {
  const { kept, rolled, bytes } = runs[run - 1];
  const before = runs.slice(0, run);
  const all = before.reduce((sum, each) => sum + each.rolled, 0);
  const used = picture.block ? `${Math.ceil(kept / picture.block)} blocks, ` : "";
  const back = rolled === null ? "" : `; rolled back ${rolled} by this run, ${all} since the prompt`;
  const words = `${kept} tokens, ${used}${(bytes / 1e6).toFixed(2)} MB${back}`;
  const heading = make("h3", { textContent: name }, make("span", { textContent: words }));
  const row = make("div", { className: "kv-row" });
  if (picture.block) {
    const once = new Set();
    for (const each of before) for (let i = 0; i < each.rolled; i++) once.add(each.kept + i);
    const count = Math.ceil((kept + rolled) / picture.block);
    for (let i = 0; i < count; i++) row.append(block(i * picture.block, kept, rolled, once));
  }
  row.setAttribute("aria-hidden", "true"); // the words say it
  return make("section", {}, heading, row);
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

// `lanes.js` tells how many steps of each lane it shows.
function goTo({ detail }) {
  if (!element.isConnected) return document.removeEventListener("moment", goTo);
  const runs = detail[picture?.lane];
  follows ||= runs === 0; // another run begins
  if (runs === undefined || Number(slider.value) === Math.max(runs, 1)) return;
  slider.value = Math.max(runs, 1);
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
