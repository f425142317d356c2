// Fills each [data-field] with that field of the value and each [data-table] with that table, and styles the whole by
// its `state` and such.
import { fill, find, findAll, table } from "./dom.js";
import { subscribe } from "./view.js";

export default function fields(/** @type {import("./view.js").View} */ view) {
  const live = find(view.element, "[data-live]");
  subscribe(view, (value) => {
    const shown = JSON.parse(value);
    fill(view.element, shown);
    for (const holder of findAll(view.element, "[data-table]")) {
      const cells = shown[String(holder.dataset.table)];
      holder.replaceChildren(...(cells ? [table(cells)] : []));
    }
    for (const name of ["state", "mark", "alarm", "racing", "plotted"]) live.dataset[name] = shown[name] ?? "";
  });
}
