// A line at the moment that the panes show, in the row of each lane. What comes after it is faded.
const { timeline } = frames;
const marks = ["yaxis", "yaxis2"].map((axis) => {
  const mark = make("i", { className: "after", hidden: true });
  timeline.holder.append(mark);
  return { axis, mark };
});
let at = null; // milliseconds of model time; null where nothing is stepped through

function place() {
  const { _fullLayout: drawn } = timeline.plot;
  const x = drawn?.xaxis;
  for (const { axis, mark } of marks) {
    const y = drawn?.[axis];
    const from = x && at !== null ? x.l2p(at) : 0;
    mark.hidden = !x || !y || at === null || from > x._length + 1; // a zoom may end before it
    if (mark.hidden) continue;
    const shown = Math.min(Math.max(from, 0), x._length);
    mark.classList.toggle("line", from > -1);
    Object.assign(mark.style, {
      left: `${timeline.plot.offsetLeft + x._offset + shown}px`,
      top: `${timeline.plot.offsetTop + y._offset}px`,
      width: `${x._length - shown}px`,
      height: `${y._length}px`,
    });
  }
}

// `replay.js` sends the time; null when a run begins.
function goTo({ detail }) {
  if (!element.isConnected) return document.removeEventListener("moment", goTo);
  at = detail.time;
  place();
}

document.addEventListener("moment", goTo);
element.addEventListener("drawn", place);
// Plotly adds its own events when it first draws; this one is a zoom.
element.addEventListener("drawn", () => timeline.plot.on("plotly_relayout", place), { once: true });
