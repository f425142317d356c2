// A trace file that is too large is refused here, in the server's words, and not uploaded: of a very large one
// Gradio would show messages of its own, beside what the line said before.
import { listen } from "../view/dom.js";
import { publish } from "../view/view.js";

export default function tooLarge(/** @type {import("../view/view.js").View} */ { element, props }) {
  const refuse = (/** @type {any} */ event) => {
    const size = event.target.type === "file" ? event.target.files[0]?.size : 0;
    if (!(size > props.largest)) return;
    event.stopPropagation();
    event.target.value = ""; // so that the same file can be chosen again
    publish("notice", JSON.stringify({ line: props.refusal.replace("SIZE", Math.ceil(size / 2 ** 20)) }));
  };
  listen(element, "change", refuse, { capture: true });
}
