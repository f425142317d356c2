// A line at the moment that the panes show, in the row of each lane. What comes after it is faded. A frame around the
// round that one points at, here or in a pane.
import plots from "../plots/plots.js";
import { listen, make, tell } from "../view/dom.js";

export default function timeline(/** @type {import("../view/view.js").View} */ view) {
  const { holder, plot } = plots(view).timeline;
  const marks = ["yaxis", "yaxis2"].map((axis) => {
    const mark = make("i", { className: "after", hidden: true });
    holder.append(mark);
    return { axis, mark };
  });
  const frame = make("i", { className: "round", hidden: true });
  holder.append(frame);
  /** @type {{ lane?: string, step?: number }} the round in the frame */
  let round = {};
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
      mark.classList.toggle("line", from > -1);
      cover(mark, x, y, from, x._length);
    }
  }

  // Puts an element over a row of the plot, between two pixels of its axis.
  function cover(
    /** @type {HTMLElement} */ mark,
    /** @type {any} */ x,
    /** @type {any} */ y,
    /** @type {number[]} */ ...ends
  ) {
    const [from, to] = ends.map((end) => Math.min(Math.max(end, 0), x._length));
    Object.assign(mark.style, {
      left: `${plot.offsetLeft + x._offset + from}px`,
      top: `${plot.offsetTop + y._offset}px`,
      width: `${to - from}px`,
      height: `${y._length}px`,
    });
  }

  function placeFrame() {
    const { _fullLayout: drawn, data } = /** @type {any} */ (plot);
    const bars = data?.find((/** @type {any} */ part) => part.meta === round.lane);
    const [middle, width] = ["x", "width"].map((of) => bars?.[of][round.step ?? -1]);
    frame.hidden = middle === undefined;
    if (frame.hidden) return;
    const { xaxis: x, [bars.yaxis.replace("y", "yaxis")]: y } = drawn;
    cover(frame, x, y, x.l2p(middle - width / 2), x.l2p(middle + width / 2));
  }

  listen(view.element, "moment", ({ detail }) => {
    at = detail.time; // null when a run begins
    place();
  });
  listen(view.element, "round", ({ detail }) => {
    round = detail;
    placeFrame();
  });
  // Plotly tells late, when the pointer may be over a token by then.
  const point = (/** @type {object} */ part) => plot.matches(":hover") && tell(view.element, "round", part);
  const on = {
    plotly_relayout: placeAll,
    plotly_hover: (/** @type {any} */ { points: [{ data, pointNumber }] }) =>
      point({ lane: data.meta, step: pointNumber }),
  };
  plot.addEventListener("pointerleave", () => tell(view.element, "round", {}));
  plot.addEventListener("drawn", () => {
    placeAll();
    const drawn = /** @type {any} */ (plot); // with Plotly's own events, of which relayout is a zoom
    for (const [name, act] of Object.entries(on)) {
      drawn.removeAllListeners(name);
      drawn.on(name, act);
    }
  });

  function placeAll() {
    place();
    placeFrame();
  }
}
