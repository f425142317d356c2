// Publishes the lines of a run for the panes.
import { follow, publish } from "./view.js";

export default function lines(/** @type {import("./view.js").View} */ view) {
  follow(view, (value) => publish("lanes", value));
}
