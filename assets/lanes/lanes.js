// Draws a run from its lines of JSON, at its end or at any moment of its model time. Every text is set by
// textContent: text of users, models and files is never markup.
//
// card.js (a token's card) and replay.js (stepping through a run) are appended to this script and share its
// names.
const panes = element.querySelector(".panes");
const badge = element.querySelector(".badge");
const remembered = element.querySelector(".legend .remembered"); // shown where there is any
const lanes = Object.fromEntries(
  [...element.querySelectorAll(".pane")].map((pane) => [pane.dataset.lane, newLane(pane)]),
);
let run = { run: null, lanes: [], pieces: new Map() };
let next = 0; // the number of the line to read next

function newLane(pane) {
  const find = (selector) => pane.querySelector(selector);
  const parts = { pane, text: find(".text"), bar: find(".bar"), pace: find(".pace") };
  const lane = { ...parts, follows: true, ...newRecord() };
  lane.text.addEventListener("scroll", ({ target }) => {
    lane.follows = target.scrollHeight - target.scrollTop - target.clientHeight < 40;
  });
  return lane;
}

// The record of a lane, and how much of it is shown: a number of steps, and then a draft not yet verified.
function newRecord() {
  return { steps: [], undecided: null, end: undefined, shown: 0, draft: null, pending: [] };
}

// --- the lines ---------------------------------------------------------------------------------

const read = {
  start(line) {
    run = { ...line, lanes: line.lanes.map((name) => lanes[name]), pieces: new Map() };
    hideCard();
    remembered.hidden = true;
    panes.dataset.source = line.badge ? "record" : "live";
    panes.classList.toggle("single", run.lanes.length === 1);
    panes.style.setProperty("--budget", line.budget);
    badge.textContent = line.badge;
    element.querySelector(".asked").textContent = line.asked;
    for (const [name, lane] of Object.entries(lanes)) {
      Object.assign(lane, newRecord());
      lane.follows = true;
      lane.text.replaceChildren();
      lane.pane.hidden = !line.lanes.includes(name);
      showPace(lane);
    }
  },

  drafted(line) {
    learn(line.pieces);
    lanes[line.lane].undecided = line;
  },

  step(line) {
    learn(line.pieces);
    const lane = lanes[line.lane];
    lane.undecided = null;
    if (line.tokens[0]?.[2] === "remembered") remembered.hidden = false;
    lane.steps.push({
      line,
      drafted: 1000 * line.drafted_at_s,
      ends: 1000 * line.time_s,
      nodes: null, // made when first shown
    });
  },

  end(line) {
    const lane = lanes[line.lane];
    lane.undecided = null;
    lane.end = line.reason ?? "";
    lane.rate = line.tokens_per_second;
    lane.repeats = line.repeats;
    const last = lane.steps.at(-1);
    if (line.reason !== "stop" || !last) return;
    const endKey = nodesOf(last).findLast((node) => node.about?.at === last.line.made - 1);
    endKey.dataset.end = "";
  },
};

// The texts of token ids; a transcript has each only once.
function learn(pieces) {
  for (const [id, text] of pieces) run.pieces.set(id, text);
}

// The value of a live run has its latest lines, and at its end all lines: missed ones are read then.
function show(value) {
  let [begins, changed] = [false, false];
  for (const line of value.split("\n").filter(Boolean).map((text) => JSON.parse(text))) {
    const other = line.run !== run.run;
    if (other ? line.number !== 0 : line.number !== next) continue;
    begins ||= other;
    changed = true;
    read[line.kind](line);
    next = line.number + 1;
  }
  if (!changed) return; // a replay goes on as it was
  if (begins) reset();
  if (run.lanes.every((lane) => lane.end !== undefined)) ready();
  else present(run.lanes.map((lane) => [lane, lane.steps.length, lane.undecided]));
}

// --- what is shown of a lane -------------------------------------------------------------------

// Shows, for each lane, the first `count` steps and then the drafts of `draft`, a line or null. All nodes are
// changed before anything is measured, so that the browser computes the layout once.
function present(moments) {
  for (const moment of moments) rebuild(...moment);
  if (active && !active.isConnected) hideCard();
  for (const { text, follows } of run.lanes) if (follows) text.scrollTop = text.scrollHeight;
}

function rebuild(lane, count, draft) {
  const box = lane.text;
  if (draft !== lane.draft || count !== lane.shown) {
    for (const node of lane.pending) node.remove();
    lane.pending = [];
  }
  if (count > lane.shown) box.append(...lane.steps.slice(lane.shown, count).flatMap(nodesOf));
  for (const step of lane.steps.slice(count, lane.shown)) {
    for (const node of step.nodes) node.remove();
  }
  lane.shown = count;
  lane.draft = draft;
  if (draft && !lane.pending.length) {
    const at = lane.steps[count - 1]?.line.made ?? 0;
    lane.pending = draft.drafted.map((id, place) => drafted(draft, place, "drafted", at + place));
    box.append(...lane.pending);
  }
  showPace(lane);
}

function nodesOf(step) {
  if (step.nodes) return step.nodes;
  const { line } = step;
  let at = line.made - line.tokens.length;
  step.nodes = line.tokens.flatMap(([id, text, state], place) => {
    const before = state === "resampled" ? refused(line, place, at) : [];
    return [...before, token({ line, place, id, text, state, at: at++ })];
  });
  step.nodes.forEach((node, at) => {
    if ("joined" in (step.nodes[at + 1]?.dataset ?? {})) node.dataset.joins = "";
  });
  // A text that ended within a draft leaves drafts behind.
  const last = line.tokens.at(-1)[2];
  if (last === "accepted" || last === "remembered") step.nodes.push(...refused(line, line.tokens.length, at));
  if (line.lane === "speculative") step.nodes.push(node("i", "", "tick"));
  return step.nodes;
}

// Whether the draft was verified as a block, all tokens together. A copied draft never is.
const asBlock = (line) => run.jointly && line.drafted.length > 0 && !line.copied;

// The drafts from `place` on that were not accepted: token by token, those after the first are not tested.
function refused(line, place, at) {
  const state = (at) => (at === line.accepted || (at > line.accepted && asBlock(line)) ? "rejected" : "untested");
  return line.drafted.slice(place).map((_, i) => drafted(line, place + i, state(place + i), at + i));
}

function drafted(line, place, state, at) {
  const id = line.drafted[place];
  return token({ line, place, id, text: run.pieces.get(id) ?? `#${id}`, state, at });
}

// The blank before a word is coloured between tokens that were accepted together, and else not, since it would
// remain at the end of a line that breaks there. A token without visible text (a part of a character, a line
// break, a zero-width mark) gets a symbol.
function token(about) {
  const { text } = about;
  const made = node("span", "", "tok");
  const joined = about.place > 0 && ["accepted", "remembered"].includes(about.state);
  const blank = text.trim() && !joined ? text.slice(0, text.length - text.trimStart().length) : "";
  made.append(blank, node("span", text.slice(blank.length)));
  if (joined) made.dataset.joined = "";
  Object.assign(made.dataset, { state: about.state, step: about.line.index, i: about.at });
  if (/^[\s\p{C}]*$/u.test(text) && !/^ +$/.test(text)) made.dataset.shapeless = "";
  made.about = about;
  return made;
}

function node(tag, text, className = "") {
  return Object.assign(document.createElement(tag), { textContent: text, className });
}

// Progress and tokens per second of decoding, as of the last step shown.
function showPace(lane) {
  const { made = 0, tokens_per_second: soFar = null } = lane.steps[lane.shown - 1]?.line ?? {};
  const ended = lane.end !== undefined && lane.shown === lane.steps.length && !lane.draft;
  const why = { stop: "complete", length: "token limit", cancelled: "stopped", error: "failed" };
  const rate = ended ? lane.rate : soFar;
  const parts = [
    ended ? counted(made, "token") : `${made} / ${run.budget}`,
    rate === null ? "" : `${rate.toFixed(0)} tok/s`,
    ended ? why[lane.end] : "",
    ended && lane.repeats ? "repeats itself" : "",
  ];
  lane.pane.dataset.end = ended ? lane.end : "";
  lane.pace.textContent = parts.filter(Boolean).join(" · ");
  lane.bar.firstElementChild.style.transform = `scaleX(${made / run.budget})`;
  lane.bar.setAttribute("aria-valuemax", run.budget);
  lane.bar.setAttribute("aria-valuenow", made);
}

element.querySelector(".show-rejected").addEventListener("change", (event) => {
  panes.classList.toggle("with-rejected", event.target.checked);
});
