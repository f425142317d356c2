// Fills each [data-field] with that field of the value, and styles the whole by its `state` and such.
import { fill, find } from "./dom.js";
import { subscribe } from "./view.js";

export default function fields(/** @type {import("./view.js").View} */ view) {
  const live = find(view.element, "[data-live]");
  subscribe(view, (value) => {
    const shown = JSON.parse(value);
    fill(live, shown);
    for (const name of ["state", "mark", "alarm", "racing"]) live.dataset[name] = shown[name] ?? "";
  });
}
