// Draws the pixels so far; of a drawing that goes on, only those that are new.
const PIXELS = 64;
const DARKEST = 16;

function showDigits(value) {
  const { sheets, claim } = JSON.parse(value);
  for (const [lane, sheet] of Object.entries(sheets)) {
    const figure = element.querySelector(`[data-lane="${lane}"]`);
    figure.querySelector(".figures").textContent = sheet.figures;
    paint(figure.querySelector(".images"), sheet);
  }
  element.querySelector(".claim").textContent = claim;
}

function paint(images, { levels, origins }) {
  const shown = images.querySelectorAll("i").length;
  const same = shown <= levels.length && images.dataset.levels === levels.slice(0, shown).join();
  if (!same) images.replaceChildren();
  for (let at = same ? shown : 0; at < levels.length; at++) {
    if (at % PIXELS === 0) images.append(Object.assign(document.createElement("div"), { className: "image" }));
    const pixel = document.createElement("i");
    pixel.dataset.origin = origins[at];
    pixel.style.setProperty("--level", levels[at] / DARKEST);
    images.lastElementChild.append(pixel);
  }
  images.dataset.levels = levels.join();
}

subscribe(showDigits);
