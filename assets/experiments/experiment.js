// Fills the texts of an experiment, and hands its two buttons on to those of the page.
import { fill, find } from "../view/dom.js";
import { subscribe } from "../view/view.js";

export default function experiment(/** @type {import("../view/view.js").View} */ view) {
  const card = find(view.element, ".experiment");
  const press = (/** @type {string} */ id) => document.getElementById(id)?.click();
  find(card, ".start").onclick = () => press(`measure-${card.dataset.experiment}`);
  find(card, ".end").onclick = () => press("stop");
  subscribe(view, (value) => {
    const { experiment } = JSON.parse(value);
    Object.assign(card.dataset, { state: experiment.state, plotted: experiment.plotted });
    fill(card, experiment);
  });
}
