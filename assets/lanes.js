// Draws a run from its lines of JSON, which are only ever appended to. Every text is set by
// textContent: what a user typed and what a model wrote is never markup.
const card = element.querySelector(".token-card");
const lanes = Object.fromEntries(
  [...element.querySelectorAll(".pane")].map((pane) => [pane.dataset.lane, newLane(pane)]),
);
let run = { id: null, budget: 1, greedy: true, endIds: new Set() };
let seen = 0; // characters of the value that are drawn

function newLane(pane) {
  const find = (selector) => pane.querySelector(selector);
  return { pane, text: find(".text"), bar: find(".bar"), pace: find(".pace"), pending: [], count: 0 };
}

// --- the lines ---------------------------------------------------------------------------------

const draw = {
  start(line) {
    run = { id: line.run, budget: line.budget, greedy: line.greedy, endIds: new Set(line.end_ids) };
    hideCard();
    for (const lane of Object.values(lanes)) {
      lane.text.replaceChildren();
      lane.pending = [];
      lane.count = 0;
      lane.pane.dataset.end = "";
      lane.pane.classList.add("begun");
      setPace(lane, 0, "");
    }
  },

  drafted(line) {
    const lane = lanes[line.lane];
    dropPending(lane);
    lane.pending = line.tokens.map(([id, text], place) =>
      token(id, text, "drafted", { line, lane: line.lane, place, at: lane.count + place }),
    );
    append(lane, lane.pending);
  },

  step(line) {
    const lane = lanes[line.lane];
    const made = [];
    dropPending(lane);
    line.tokens.forEach(([id, text, state], place) => {
      if (state === "resampled") made.push(...refused(line, place, lane.count));
      made.push(token(id, text, state, { line, lane: line.lane, place, at: lane.count++ }));
    });
    if (line.tokens.at(-1)[2] === "accepted") made.push(...refused(line, line.tokens.length, lane.count));
    if (line.lane === "speculative") made.push(node("i", "", "tick"));
    append(lane, made);
  },

  pace(line) {
    setPace(lanes[line.lane], line.made, line.rate);
  },

  end(line) {
    const lane = lanes[line.lane];
    dropPending(lane);
    lane.pane.dataset.end = line.reason;
    const why = { stop: "complete", length: "token limit", cancelled: "stopped", error: "failed" };
    lane.pace.textContent = [lane.count + " tokens", lane.rate, why[line.reason]].filter(Boolean).join(" · ");
  },
};

// The drafts from `place` on that came to nothing: the first was rejected if it was tested at all.
function refused(line, place, at) {
  return line.drafted.slice(place).map(([id, text], i) => {
    const state = place + i === line.accepted ? "rejected" : "untested";
    return token(id, text, state, { line, lane: line.lane, place: place + i, at: at + i });
  });
}

// The blank before a word stays unpainted, or it would be left behind where a line breaks.
function token(id, text, state, about) {
  const made = node("span", "", "tok");
  const blank = text.trim() ? text.slice(0, text.length - text.trimStart().length) : "";
  made.append(blank, node("span", text.slice(blank.length)));
  Object.assign(made.dataset, { state, step: about.line.index, i: about.at });
  if (run.endIds.has(id)) made.dataset.end = "";
  made.about = { ...about, id, text, state };
  return made;
}

function append(lane, nodes) {
  const box = lane.text;
  const following = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  box.append(...nodes);
  if (following) box.scrollTop = box.scrollHeight;
}

function dropPending(lane) {
  for (const node of lane.pending) node.remove();
  lane.pending = [];
}

function setPace(lane, made, rate) {
  lane.rate = rate;
  lane.pace.textContent = [`${made} / ${run.budget}`, rate].filter(Boolean).join(" · ");
  lane.bar.firstElementChild.style.width = `${(100 * made) / run.budget}%`;
  lane.bar.setAttribute("aria-valuemax", run.budget);
  lane.bar.setAttribute("aria-valuenow", made);
}

function show() {
  const value = props.value ?? "";
  const first = value.slice(0, value.indexOf("\n"));
  if (!first) return;
  if (JSON.parse(first).run !== run.id) seen = 0;
  const lines = value.slice(seen).split("\n").filter(Boolean);
  seen = Math.max(seen, value.length);
  for (const line of lines.map((text) => JSON.parse(text))) draw[line.kind](line);
}

// --- a token's card ----------------------------------------------------------------------------

let active = null;

function hideCard() {
  active?.classList.remove("active");
  active = null;
  if (card.matches(":popover-open")) card.hidePopover();
}

function showCard(node) {
  if (node === active) return;
  hideCard();
  active = node;
  node.classList.add("active");
  card.replaceChildren(...describe(node.about));
  card.showPopover();
  placeCard();
}

function placeCard() {
  if (!active) return;
  const [at] = [...active.getClientRects(), active.getBoundingClientRect()];
  const left = Math.min(at.left - 12, document.documentElement.clientWidth - card.offsetWidth - 8);
  const below = at.bottom + 8;
  const fits = below + card.offsetHeight < window.innerHeight;
  card.style.left = `${Math.max(8, left)}px`;
  card.style.top = `${fits ? below : Math.max(8, at.top - card.offsetHeight - 8)}px`;
}

const number = (value) => (value === 0 || value >= 0.01 ? value.toFixed(2) : value.toExponential(1));
const milliseconds = (value) => `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ms`;
const quoted = (text, id) =>
  run.endIds.has(id) ? "end key" : text ? JSON.stringify(text) : "part of a character";

function node(tag, text, className = "") {
  return Object.assign(document.createElement(tag), { textContent: text, className });
}

function describe(about) {
  const { line, place, id, text, state } = about;
  const head = node("p", "", "what");
  const where = state === "target" ? `run ${line.index + 1}` : `step ${line.index + 1}, place ${place + 1}`;
  head.append(node("b", quoted(text, id)), ` ${state} · ${where} · id ${id}`);

  const table = node("table", "");
  const row = (name, value) => {
    const cells = table.insertRow();
    cells.append(node("th", name), node("td", value));
  };
  if (state === "resampled") row("replaced the draft’s", quoted(line.drafted[place][1], line.drafted[place][0]));
  if (["accepted", "resampled", "rejected"].includes(state)) test(line, place, row);

  const parts = [head, table, node("p", reason(about), "why")];
  if (line.time_ms !== undefined) parts.push(node("p", times(line), "times"));
  return parts;
}

// The acceptance test of one drafted token. Greedy compares two first choices and draws no number,
// so none is shown.
function test(line, place, row) {
  if (run.greedy) return;
  row("draft gave it", number(line.draft_prob[place]));
  row("target gave it", number(line.target_prob[place]));
  row("accepted with probability", number(line.accept_prob[place]));
  const drawn = line.uniform[place];
  if (drawn !== null) {
    row("number drawn", `${number(drawn)} → ${place < line.accepted ? "accepted" : "rejected"}`);
  }
}

function reason({ line, place, state }) {
  const certain = line.uniform?.[place] === null;
  switch (state) {
    case "target":
      return line.drafted?.length === 0 ? "The target’s own: one run, one token." : "The target’s own.";
    case "accepted":
      if (run.greedy) return "The target’s first choice too: they agree, and nothing is drawn.";
      return certain ? "The target likes it at least as well as the draft: no number is needed." : "";
    case "resampled":
      if (run.greedy) return "The target’s first choice; the draft’s was another. Nothing is drawn.";
      return "Drawn from what the target wants beyond what the draft already gave. The test is of the token it replaced.";
    case "bonus":
      return `All ${line.drafted.length} drafts passed, so the same run gives one token more.`;
    case "rejected":
      return run.greedy ? "Not the target’s first choice." : "Failed the test; the next token replaces it.";
    case "untested":
      return "Came after a token that ended the round, so it was never tested.";
    default:
      return "Proposed by the draft; the target has not seen it yet.";
  }
}

function times(line) {
  const parts = [];
  if (line.drafted.length) parts.push(`draft ${milliseconds(line.draft_ms)}`);
  parts.push(`${line.drafted.length ? "verify" : "target run"} ${milliseconds(line.verify_ms)}`);
  return `${parts.join(", ")} · ${milliseconds(line.time_ms)} into the answer`;
}

// --- pointing, tapping and keys ----------------------------------------------------------------

const tokenAt = (event) => event.target.closest?.(".pane .tok");

element.addEventListener("pointerover", (event) => {
  const node = tokenAt(event);
  if (node) showCard(node);
  else if (event.pointerType === "mouse") hideCard();
});
element.addEventListener("pointerleave", hideCard);
element.addEventListener("click", (event) => {
  const node = tokenAt(event);
  if (node) showCard(node);
  else hideCard();
});

for (const { text } of Object.values(lanes)) {
  text.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" && active) {
      hideCard();
      event.stopPropagation(); // or it would also stop the run
    }
    if (!step) return;
    event.preventDefault();
    const tokens = [...text.querySelectorAll(".tok")].filter((node) => node.offsetParent);
    const at = tokens.indexOf(active);
    const next = at < 0 ? tokens.at(step > 0 ? 0 : -1) : tokens[at + step];
    if (!next) return;
    next.scrollIntoView({ block: "nearest" });
    showCard(next);
  });
  text.addEventListener("focus", () => {
    const first = text.querySelector(".tok");
    if (first && !active && text.matches(":focus-visible")) showCard(first);
  });
  text.addEventListener("blur", hideCard);
}
document.addEventListener("scroll", placeCard, { passive: true, capture: true });

element.querySelector(".show-rejected").addEventListener("change", (event) => {
  element.querySelector(".panes").classList.toggle("with-rejected", event.target.checked);
});

watch("value", show);
show();
