// Draws the figures that Python builds, in the colours of the theme. Each has a table, and both can be saved.
const frames = Object.fromEntries(
  [...element.querySelectorAll("[data-plot]")].map((holder) => [holder.dataset.plot, frame(holder)]),
);
const coarse = matchMedia("(pointer: coarse)").matches; // there, a finger on a plot scrolls the page

function frame(holder) {
  const title = holder.querySelector("h2");
  const name = title.textContent;
  const button = (text, what, act) => {
    const pressed = make("button", { type: "button", textContent: text, onclick: () => act(made) });
    pressed.setAttribute("aria-label", `${text} of “${name}”: ${what}`);
    pressed.dataset.keep = text.toLowerCase();
    return pressed;
  };
  const made = { holder, name, figure: null, table: null, csv: "", stale: false, seen: true, rests: 0 };
  made.keep = make("span", { className: "keep", hidden: true },
    button("PNG", "save the picture", savePicture), button("CSV", "save the table", saveFigures));
  made.plot = make("div", { className: "plot" });
  made.plot.setAttribute("role", "img");
  made.plot.setAttribute("aria-label", `${name}; the table that follows has the same values`);
  made.note = make("p", { className: "note" });
  made.rows = make("div", { className: "table", tabIndex: 0 });
  made.rows.setAttribute("role", "region");
  made.rows.setAttribute("aria-label", `${name}, as a table`);
  made.details = make("details", { hidden: true, ontoggle: () => fillTable(made) },
    make("summary", { textContent: "As a table" }), made.rows);
  const head = make("div", { className: "head" });
  title.replaceWith(head);
  head.append(title, made.keep);
  holder.append(made.plot, made.note, made.details);
  return made;
}

// --- drawing -----------------------------------------------------------------------------------

// Plotly is large: it is fetched once, when the first plot is drawn.
function plotly() {
  return (window.plotlyLoading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("gradio_api/file=" + props.plotly, document.baseURI);
    script.onload = () => resolve(window.Plotly);
    script.onerror = reject;
    document.head.append(script);
  }));
}

// Python names colours by CSS variable; Plotly wants values.
function coloured(value, style) {
  if (typeof value === "string" && value.startsWith("var(")) {
    return style.getPropertyValue(value.slice(4, -1)).trim();
  }
  if (Array.isArray(value)) return value.map((item) => coloured(item, style));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, coloured(item, style)]),
  );
}

// In a hidden tab nothing has a size: its plots are drawn when it is opened. During a run, plots out of sight
// wait, and drawing takes at most `SHARE` of the time, since the models may run on the same machine.
const SHARE = 0.05;

async function draw(frame) {
  frame.stale = true;
  if (!frame.figure || !frame.plot.offsetWidth) return;
  const Plotly = await plotly();
  const begins = performance.now();
  const waits = !frame.table && (!frame.seen || begins < frame.rests);
  if (!frame.stale || !frame.plot.offsetWidth || waits) return;
  frame.stale = false;
  const { data, layout } = coloured(frame.figure, getComputedStyle(document.body));
  layout.dragmode = coarse ? false : "zoom";
  frame.width = frame.plot.offsetWidth;
  await Plotly.react(frame.plot, data, { ...layout, width: frame.width }, { displayModeBar: false });
  frame.plot.dispatchEvent(new Event("drawn", { bubbles: true }));
  const ends = performance.now();
  frame.rests = ends + (ends - begins) / SHARE;
}

const sizes = new ResizeObserver(() => {
  for (const frame of Object.values(frames)) {
    if (frame.stale || frame.width !== frame.plot.offsetWidth) draw(frame);
  }
});

const sights = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const frame = Object.values(frames).find(({ plot }) => plot === target);
    frame.seen = isIntersecting;
    if (frame.seen && frame.stale) draw(frame);
  }
});

function showPlots(value) {
  for (const [name, shown] of Object.entries(JSON.parse(value).plots)) {
    const frame = frames[name];
    if (frame.figure?.layout.uirevision !== shown.layout.uirevision) frame.rests = 0; // another run
    frame.figure = { data: shown.data, layout: shown.layout };
    frame.table = shown.table; // these come at the end
    frame.csv = shown.csv;
    frame.plot.style.minHeight = `${shown.layout.height}px`;
    frame.note.textContent = shown.note;
    frame.keep.hidden = frame.details.hidden = !shown.table;
    fillTable(frame);
    draw(frame);
  }
}

function fillTable(frame) {
  if (frame.details.open && frame.table) frame.rows.replaceChildren(table(frame.table));
}

// --- saving -----------------------------------------------------------------------------------

const fileName = (frame) => `dolly-${frame.holder.dataset.plot}`;

// The picture has the current zoom and theme, and a title.
async function savePicture(frame) {
  const Plotly = await plotly();
  const style = getComputedStyle(document.body);
  const { data, layout } = coloured(frame.figure, style);
  const picture = {
    ...layout,
    ...(frame.plot.layout && { xaxis: frame.plot.layout.xaxis, yaxis: frame.plot.layout.yaxis }),
    paper_bgcolor: style.getPropertyValue("--card").trim(),
    title: { text: frame.name, x: 0.02, y: 0.98, yanchor: "top", font: { color: style.getPropertyValue("--ink").trim() } },
    margin: { ...layout.margin, t: 84 },
  };
  const size = { width: 1200, height: layout.height + 96, scale: 2 };
  await Plotly.downloadImage({ data, layout: picture }, { format: "png", filename: fileName(frame), ...size });
}

function saveFigures(frame) {
  const file = new Blob(["\ufeff", frame.csv], { type: "text/csv" }); // else Excel takes it for Latin-1
  const link = make("a", { href: URL.createObjectURL(file), download: `${fileName(frame)}.csv` });
  link.click();
  URL.revokeObjectURL(link.href);
}

for (const { plot } of Object.values(frames)) {
  sizes.observe(plot);
  sights.observe(plot);
}
new MutationObserver(() => {
  for (const frame of Object.values(frames)) {
    frame.rests = 0; // in the old colours it would not wait either
    draw(frame);
  }
}).observe(document.body, { attributeFilter: ["class"] });
subscribe(showPlots);
