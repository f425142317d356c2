// Fills the texts of an experiment.
import { fill, find } from "../view/dom.js";
import { subscribe } from "../view/view.js";

export default function experiment(/** @type {import("../view/view.js").View} */ view) {
  const card = find(view.element, ".experiment");
  subscribe(view, (value) => {
    const { experiment } = JSON.parse(value);
    Object.assign(card.dataset, { state: experiment.state, plotted: experiment.plotted });
    fill(card, experiment);
  });
}
