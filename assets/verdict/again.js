// A race that was disturbed is run again, with what the form holds.
import { find } from "../view/dom.js";

export default function again(/** @type {import("../view/view.js").View} */ { element }) {
  find(element, ".again").addEventListener("click", () => find(document, "#run").click());
}
