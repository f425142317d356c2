// Draws the figure that Python built, on one lasting element, in the colours of the theme.
const card = element.querySelector(".timings");
const tables = element.querySelector(".tables");
const plot = element.querySelector(".plot");
let figure = null;
let loading = null; // plotly is large: it is fetched when there is something to draw

const plotly = () =>
  (loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("gradio_api/file=" + props.plotly, document.baseURI);
    script.onload = () => resolve(window.Plotly);
    script.onerror = reject;
    document.head.append(script);
  }));

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

async function draw() {
  if (!figure) return;
  const Plotly = await plotly();
  const { data, layout } = coloured(figure, getComputedStyle(document.body));
  await Plotly.react(plot, data, layout, { responsive: true, displayModeBar: false });
}

function table({ columns, rows }) {
  const made = document.createElement("table");
  const fill = (row, tag, cells) => {
    for (const cell of cells) {
      row.append(Object.assign(document.createElement(tag), { textContent: cell }));
    }
  };
  fill(made.createTHead().insertRow(), "th", columns);
  const body = made.createTBody();
  for (const cells of rows) fill(body.insertRow(), "td", cells);
  return made;
}

function show() {
  if (!props.value) return;
  const value = JSON.parse(props.value);
  card.hidden = false;
  figure = value.figure;
  tables.hidden = !value.tables; // they come at the end
  tables.querySelectorAll(".table").forEach((holder, i) => {
    holder.replaceChildren(...(value.tables ?? []).slice(i, i + 1).map(table));
  });
  draw();
}

watch("value", show);
new MutationObserver(draw).observe(document.body, { attributeFilter: ["class"] });
