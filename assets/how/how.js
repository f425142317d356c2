// Fills the explanation with the figures of the last run.
import plots from "../plots/plots.js";
import { fill, find, table } from "../view/dom.js";
import { subscribe } from "../view/view.js";

export default function how(/** @type {import("../view/view.js").View} */ view) {
  plots(view);
  const article = find(view.element, ".how");
  subscribe(view, (value) => {
    const { state, fields, tables, paper, signatures } = JSON.parse(value);
    article.dataset.state = state;
    fill(article, fields);
    for (const [name, rows] of Object.entries({ candidates: null, ...tables, paper, signatures })) {
      find(article, `[data-table="${name}"]`).replaceChildren(...(rows ? [table(rows)] : []));
    }
    find(article, ".paper").hidden = !paper;
    find(article, ".paper .where").textContent = paper?.where ?? "";
  });
}
