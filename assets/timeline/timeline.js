// A line at the moment that the panes show, in the row of each lane. What comes after it is faded. A frame around the
// round that one points at, here or in a pane.
import plots from "../plots/plots.js";
import { listen, make, tell } from "../view/dom.js";

export default function timeline(/** @type {import("../view/view.js").View} */ view) {
  const frame = plots(view).timeline;
  const plot = /** @type {any} */ (frame.plot); // with Plotly's own properties, once it is drawn
  const layer = (/** @type {string} */ className) => make("i", { className, hidden: true });
  const after = { yaxis: layer("after"), yaxis2: layer("after") };
  const around = layer("round");
  frame.holder.append(...Object.values(after), around);
  /** @type {{ lane?: string, step?: number }} the round in the frame */
  let round = {};
  /** @type {number | null} milliseconds of model time; null where nothing is stepped through */
  let now = null;

  function place() {
    if (!plot._fullLayout) return;
    for (const [row, mark] of Object.entries(after)) cover(mark, row, now);
    const bars = plot.data.find((/** @type {any} */ part) => part.meta === round.lane);
    const [middle, width] = ["x", "width"].map((of) => bars?.[of][round.step ?? -1]);
    cover(around, bars?.yaxis.replace("y", "yaxis"), middle - width / 2, middle + width / 2);
  }

  /**
   * Puts a mark over a row of the plot, between two times; hides it where there is none, or a zoom ends before it.
   * Plotly has no public name for where it has drawn its axes; a test of the plots fails when it moves them.
   * @param {HTMLElement} mark
   * @param {string} row
   * @param {number | null} begin
   * @param {number} [end]
   */
  function cover(mark, row, begin, end) {
    const { xaxis: x, [row]: y } = plot._fullLayout;
    const from = begin === null ? Infinity : x.l2p(begin);
    mark.hidden = !y || !(from <= x._length + 1);
    if (mark.hidden) return;
    mark.classList.toggle("line", from > -1);
    const to = end === undefined ? x._length : x.l2p(end);
    const [left, right] = [from, to].map((at) => Math.min(Math.max(at, 0), x._length));
    Object.assign(mark.style, {
      left: `${plot.offsetLeft + x._offset + left}px`,
      top: `${plot.offsetTop + y._offset}px`,
      width: `${right - left}px`,
      height: `${y._length}px`,
    });
  }

  listen(view.element, "moment", ({ detail }) => {
    now = detail.time; // null when a run begins
    place();
  });
  listen(view.element, "round", ({ detail }) => {
    round = detail;
    place();
  });
  const on = {
    plotly_relayout: place, // a zoom
    plotly_hover(/** @type {any} */ { points: [{ data, pointNumber }] }) {
      // Plotly tells late, when the pointer may be over a token by then.
      if (plot.matches(":hover")) tell(view.element, "round", { lane: data.meta, step: pointNumber });
    },
  };
  plot.addEventListener("pointerleave", () => tell(view.element, "round", {}));
  plot.addEventListener("drawn", () => {
    place();
    for (const [name, act] of Object.entries(on)) {
      plot.removeAllListeners(name);
      plot.on(name, act);
    }
  });
}
