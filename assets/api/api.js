// The examples call the server of this page, with the question of the run that is shown.
import { find, findAll, listen } from "../view/dom.js";

export default function api(/** @type {import("../view/view.js").View} */ { element }) {
  const fill = () => {
    const texts = {
      origin: new URL(".", document.baseURI).href,
      asked: JSON.stringify(find(document, "#lanes .asked").textContent),
      budget: find(document, "#lanes .panes").style.getPropertyValue("--budget"),
    };
    for (const [name, text] of Object.entries(texts))
      for (const place of findAll(element, `.${name}`)) place.textContent = text;
  };
  listen(element, "moment", fill); // which a run begins with
  fill();
}
