// A line at the moment that the panes show, in the row of each lane. What comes after it is faded.
import plots from "../plots/plots.js";
import { listen, make } from "../view/dom.js";

export default function timeline(/** @type {import("../view/view.js").View} */ view) {
  const { holder, plot } = plots(view).timeline;
  const marks = ["yaxis", "yaxis2"].map((axis) => {
    const mark = make("i", { className: "after", hidden: true });
    holder.append(mark);
    return { axis, mark };
  });
  /** @type {number | null} milliseconds of model time; null where nothing is stepped through */
  let at = null;

  // Plotly has no public name for where it has drawn its axes; a test of the plots fails when it moves them.
  function place() {
    const { _fullLayout: drawn } = /** @type {any} */ (plot);
    const x = drawn?.xaxis;
    for (const { axis, mark } of marks) {
      const y = drawn?.[axis];
      const from = x && at !== null ? x.l2p(at) : 0;
      mark.hidden = !x || !y || at === null || from > x._length + 1; // a zoom may end before it
      if (mark.hidden) continue;
      const shown = Math.min(Math.max(from, 0), x._length);
      mark.classList.toggle("line", from > -1);
      Object.assign(mark.style, {
        left: `${plot.offsetLeft + x._offset + shown}px`,
        top: `${plot.offsetTop + y._offset}px`,
        width: `${x._length - shown}px`,
        height: `${y._length}px`,
      });
    }
  }

  listen(view.element, "moment", ({ detail }) => {
    at = detail.time; // null when a run begins
    place();
  });
  plot.addEventListener("drawn", () => {
    place();
    const drawn = /** @type {any} */ (plot); // with Plotly's own events, of which this one is a zoom
    drawn.removeAllListeners("plotly_relayout");
    drawn.on("plotly_relayout", place);
  });
}
