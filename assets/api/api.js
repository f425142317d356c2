// The examples call the server of this page.
import { findAll } from "../view/dom.js";

export default function api(/** @type {import("../view/view.js").View} */ { element }) {
  const origin = new URL(".", document.baseURI).href;
  for (const place of findAll(element, ".origin")) place.textContent = origin;
}
