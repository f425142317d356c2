// The examples call the server of this page, with the question of the run that is shown.
import { fill, find, listen } from "../view/dom.js";

export default function api(/** @type {import("../view/view.js").View} */ { element }) {
  const show = () =>
    fill(element, {
      origin: new URL(".", document.baseURI).href,
      asked: JSON.stringify(find(document, "#lanes .asked").textContent),
      budget: find(document, "#lanes .panes").style.getPropertyValue("--budget"),
    });
  listen(element, "moment", show); // which a run begins with
  show();
}
