// Draws the pixels so far; of a drawing that goes on, only those that are new.
import { find, findAll, make } from "../view/dom.js";
import { subscribe } from "../view/view.js";

const PIXELS = 64;
const DARKEST = 16;

export default function digits(/** @type {import("../view/view.js").View} */ view) {
  const { element } = view;
  subscribe(view, (value) => {
    const { sheets, claim } = JSON.parse(value);
    for (const [lane, sheet] of Object.entries(sheets)) {
      const figure = find(element, `[data-lane="${lane}"]`);
      find(figure, ".figures").textContent = sheet.figures;
      paint(find(figure, ".images"), sheet);
    }
    find(element, ".claim").textContent = claim;
  });
}

/** @param {HTMLElement} images @param {{ levels: number[], origins: string[] }} sheet */
function paint(images, { levels, origins }) {
  const shown = findAll(images, "i").length;
  const same = shown <= levels.length && images.dataset.levels === levels.slice(0, shown).join();
  if (!same) images.replaceChildren();
  for (let at = same ? shown : 0; at < levels.length; at++) {
    if (at % PIXELS === 0) images.append(make("div", { className: "image" }));
    const pixel = make("i", { dataset: { origin: origins[at] } });
    pixel.style.setProperty("--level", String(levels[at] / DARKEST));
    images.lastElementChild?.append(pixel);
  }
  images.dataset.levels = levels.join();
}
