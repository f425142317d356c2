// Draws a run from the lines of its feed (ui/feed.py). The feed only grows, so each call reads what
// is new. Text reaches the page through textContent alone: nothing a model writes is ever markup.
const $ = (selector, root = element) => root.querySelector(selector);
const stage = $(".stage");
const card = $(".token-card");
const lanes = {};
let read = 0, budget = 1, trace = null, details = [], quarter = 0;

const make = (tag, className, text = "") => {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
};
const say = (text) => { $(".live").textContent = text; };
const ms = (seconds) => `${(seconds * 1e3).toFixed(2)} ms`;

function reset() {
  trace = null; details = []; quarter = 0;
  card.hidden = true;
  $(".download").hidden = true;
  for (const pane of element.querySelectorAll(".pane")) {
    $(".text", pane).textContent = $(".count", pane).textContent = "";
    $(".bar i", pane).style.width = 0;
    lanes[pane.dataset.lane] = { pane, text: $(".text", pane), count: 0, time: 0, drafts: [] };
  }
}

const draw = {
  start(line) { reset(); budget = line.budget; say("Running both decoders"); },
  prefill(line) { lanes[line.lane].time = line.seconds; },
  drafted(line) {
    const lane = lanes[line.lane];
    lane.drafts = line.texts.map((text) => {
      const node = make("span", "tok", text);
      node.dataset.state = "drafted";
      return node;
    });
    lane.text.append(...lane.drafts);
  },
  step(line) {
    const lane = lanes[line.lane];
    lane.drafts.forEach((node) => node.remove());
    lane.drafts = [];
    for (const token of line.tokens) {
      const node = make("span", "tok", token.text);
      node.dataset.state = token.state;
      node.dataset.step = token.step;
      if (token.state !== "rejected") {
        node.dataset.i = lane.count++;
        node.dataset.detail = details.push(token) - 1;
      }
      lane.text.append(node);
    }
    if (line.lane === "speculative") lane.text.append(make("i", "tick"));
    lane.time = line.time_s;
    $(".count", lane.pane).textContent = `${lane.count} / ${budget} · ${lane.time.toFixed(2)} s`;
    $(".bar i", lane.pane).style.width = `${Math.min(100, (100 * lane.count) / budget)}%`;
    const reached = Math.floor((4 * Math.max(...Object.values(lanes).map((l) => l.count))) / budget);
    if (reached > quarter && reached < 4) say(`${25 * (quarter = reached)} percent of the tokens`);
  },
  finish(line) {
    const words = { stop: "end", length: "budget used", cancelled: "stopped", error: "failed" };
    const lane = lanes[line.lane];
    lane.drafts.forEach((node) => node.remove());
    lane.text.append(make("span", "end", words[line.reason]));
    if (line.reason === "stop") $(".bar i", lane.pane).style.width = "100%";
  },
  summary(line) {
    const verdict = $(".verdict");
    verdict.dataset.mood = line.verdict.mood;
    line.verdict.figures.forEach((figure, i) => {
      $(".big", verdict.children[i]).textContent = figure.value;
      $(".lab", verdict.children[i]).textContent = figure.label;
    });
    for (const [name, rate] of Object.entries(line.rates)) {
      if (rate) $(".count", lanes[name].pane).textContent = `${lanes[name].count} / ${budget} · ${rate.toFixed(0)} tok/s`;
    }
    $(".timings tbody").replaceChildren(...line.rows.map((row) => {
      const tr = make("tr", "");
      tr.append(...row.map((cell) => make("td", "", cell)));
      return tr;
    }));
    plot(line.figure);
    $(".verdict .note").textContent = line.verdict.note;
  },
  end(line) {
    trace = line.trace;
    $(".download").hidden = false;
    // A lane that was stopped between its steps has no line of its own that says so.
    for (const [name, lane] of Object.entries(trace.lanes)) {
      if (!$(".end", lanes[name].pane)) draw.finish({ lane: name, reason: lane.finish });
    }
    say(`${$(".verdict .big").textContent}. ${$(".verdict .note").textContent}`);
  },
};

function update() {
  const feed = props.value || "";
  if (feed.length < read) read = 0; // a new run
  const whole = feed.lastIndexOf("\n") + 1;
  const fresh = feed.slice(read, whole);
  read = whole;
  for (const text of fresh.split("\n").filter(Boolean)) {
    const line = JSON.parse(text);
    draw[line.kind](line);
  }
}

// Plotly comes from the installed package. Loaded when first needed; the last figure wins.
let figure = null, loading = null;
function plot(next) {
  figure = next;
  $(".timings").hidden = false;
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = stage.dataset.plotly;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
  loading.then(paint, () => { $(".plot").textContent = "The plot could not be loaded; the table has its figures."; });
}
function paint() {
  const style = getComputedStyle(stage);
  const ink = style.getPropertyValue("--mute").trim(), line = style.getPropertyValue("--line").trim();
  const axis = (given) => ({ ...given, gridcolor: line, linecolor: line, zerolinecolor: line });
  const { layout, data } = figure;
  const themed = { ...layout, font: { color: ink, size: 12 }, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis) };
  window.Plotly.react($(".plot"), data, themed, { displayModeBar: false, responsive: true });
}
new MutationObserver(() => figure && window.Plotly && paint())
  .observe(document.body, { attributes: true, attributeFilter: ["class"] });

// A token's card: where it came from, and the numbers that decided it.
function rows(token) {
  const found = [["id", token.id], ["target run", token.step + 1]];
  if (token.state !== "target" && token.state !== "bonus") found.push(["place in the draft", token.place]);
  if (token.replaced !== undefined) found.push(["replaced the draft's", JSON.stringify(token.replaced)]);
  if (token.uniform !== undefined) {
    const certain = [0, 1].includes(token.draft_prob) && [0, 1].includes(token.target_prob);
    if (certain) {
      found.push(["draft and target", token.accept_prob ? "agree" : "disagree"]);
    } else {
      found.push(["draft gave it", token.draft_prob.toFixed(3)], ["target gave it", token.target_prob.toFixed(3)]);
      found.push(["accept with min(1, target/draft)", token.accept_prob.toFixed(3)]);
      found.push(["number drawn", token.uniform === null ? "none needed" : token.uniform.toFixed(3)]);
    }
  }
  if (token.draft_s) found.push(["drafting this run", ms(token.draft_s)]);
  found.push(["target's run", ms(token.verify_s)], ["into the answer", ms(token.time_s)]);
  return found;
}
let chosen = null;
function choose(node) {
  chosen?.classList.remove("chosen");
  chosen = node;
  card.hidden = !node;
  if (!node) return;
  node.classList.add("chosen");
  const token = details[node.dataset.detail];
  const list = make("dl", "");
  for (const [name, value] of rows(token)) list.append(make("dt", "", name), make("dd", "", value));
  const title = make("div", "");
  title.append(make("b", "", JSON.stringify(token.name)), ` · ${token.state}`);
  card.replaceChildren(title, list);
  const box = node.getBoundingClientRect(), home = stage.getBoundingClientRect();
  card.style.left = `${Math.max(0, Math.min(box.left - home.left, home.width - card.offsetWidth))}px`;
  card.style.top = `${box.bottom - home.top + 6}px`;
}
const tokenOf = (event) => event.target.closest?.(".pane .tok[data-detail]");
element.addEventListener("pointerover", (event) => choose(tokenOf(event) ?? null));
element.addEventListener("pointerleave", () => choose(null));
element.addEventListener("focusout", () => choose(null));
element.addEventListener("keydown", (event) => {
  const pane = event.target.closest(".pane");
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!pane || !step) return;
  const tokens = [...pane.querySelectorAll(".tok[data-detail]")];
  const at = tokens.indexOf(chosen);
  if (tokens.length) choose(tokens[at < 0 ? 0 : Math.max(0, Math.min(tokens.length - 1, at + step))]);
  event.preventDefault();
});

$(".show-rejected").addEventListener("change", (event) => stage.classList.toggle("with-rejected", event.target.checked));
$(".download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(trace)], { type: "application/json" }));
  link.download = `trace-${trace.created.replaceAll(":", "")}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
});

// Gradio's own buttons get their test hooks and keys here.
for (const name of ["run", "stop"]) document.getElementById(name)?.setAttribute("data-testid", name);
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) document.getElementById("run")?.click();
  if (event.key === "Escape") document.getElementById("stop")?.click();
});

reset();
update();
watch("value", update);
