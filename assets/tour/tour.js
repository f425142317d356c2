// The tour lies over the page and moves nothing on it. Each stop highlights the control or the tokens that it
// is about, and is done when the visitor has used them, or has had them shown.
const panel = element.querySelector(".tour");
const [guess, asked] = [panel.querySelector(".guess"), panel.querySelector(".questions")];
const button = (name) => panel.querySelector(`[data-do=${name}]`);
const pane = "#lanes [data-lane=speculative]";
const ROUNDING = 0.001; // milliseconds, of a time in the value
const CORNERS = ["bottom right", "bottom left", "top right", "top left"];
const SPACE = 16; // pixels between the panel and what is highlighted
let run = { stops: [], questions: [] }; // the run that is shown
let at = 0; // the number of the stop; one after the last are the questions
let opener = document.body; // has the focus again when the tour is left
let pending = null; // a guess about the next race

// --- the stops -----------------------------------------------------------------------------------

const tokens = (...states) => [...document.querySelectorAll(`${pane} .text .tok`)].filter(
  ({ dataset }) => Number(dataset.step) === stop().step && (!states.length || states.includes(dataset.state)),
);
const first = (...states) => () => tokens(...states).slice(0, 1);
const whole = () => tokens("accepted", "remembered", "resampled", "bonus", "target", "drafted");
const tab = () => [...document.querySelectorAll("#details [role=tab]")].filter(
  ({ textContent }) => textContent.trim() === "Experiments",
);
const replay = () => [...document.querySelectorAll("#lanes .replay")];

// `on`: what is highlighted. `show`: does what the stop asks for. The other names are events that end it.
const stopped = {
  race: {
    on: () => [document.getElementById("run")],
    show: () => document.getElementById("run").click(),
    raced: () => true,
  },
  token: {
    on: first("accepted", "remembered", "resampled", "bonus", "target"),
    show: open,
    card: ({ lane }) => lane === "speculative",
  },
  draft: {
    on: () => [...tokens("drafted"), ...replay()],
    show: () => seek(stop().at_ms + ROUNDING),
    moment: () => tokens("drafted").length > 0,
  },
  verify: {
    on: () => [...whole(), ...replay()],
    show: () => seek(stop().at_ms + ROUNDING),
    moment: ({ speculative }) => speculative === stop().step + 1 && !tokens("drafted").length,
  },
  rejection: { on: first("resampled"), show: open, card: ({ state }) => state === "resampled" },
  bonus: { on: first("bonus"), show: open, card: ({ state }) => state === "bonus" },
  loss: { on: tab, show: openTab, tab: () => true },
};
const stop = () => run.stops[at - 1];
const behaviour = () => stopped[stop()?.name];

// A moment of the replay, set as a visitor sets it.
function seek(milliseconds) {
  const scrubber = document.querySelector("#lanes .replay [type=range]");
  scrubber.value = milliseconds;
  scrubber.dispatchEvent(new Event("input", { bubbles: true }));
}

// Opens the card of the highlighted token; the replay may not have come to it yet.
function open() {
  document.querySelector("#lanes [data-do=end]").click();
  const [token] = behaviour().on();
  token?.scrollIntoView({ block: "nearest" });
  token?.click();
}

// With what is in it, which is below.
function openTab() {
  tab()[0]?.click();
  tab()[0]?.scrollIntoView();
}

function tell(event, detail) {
  if (panel.hidden || !behaviour()) return;
  if (stop().task && behaviour()[event]?.(detail)) finished();
  highlight(false);
}

function finished() {
  if (panel.dataset.state === "done") return;
  panel.dataset.state = "done";
  panel.querySelector(".done").textContent = "Done.";
}

// --- what is shown -------------------------------------------------------------------------------

function go(number) {
  at = Math.min(Math.max(number, 1), run.stops.length + 1);
  panel.hidden = false;
  panel.dataset.state = "";
  panel.querySelector(".done").textContent = "";
  fill();
  remember(false);
  highlight(true);
}

function fill() {
  const here = stop();
  const none = "This run drafted nothing to ask about. Choose a fixed draft length in Settings, and run both.";
  const ending = run.questions.length ? "Answer each before you open it. The figures are of the run above." : none;
  set(".where", here ? `Tour, ${at} of ${run.stops.length}` : "Tour, the end");
  set("h2", here ? here.title : "Three questions about this run");
  set(".what", here ? here.text : ending);
  set(".task", here ? here.task : "");
  guess.hidden = here?.name !== "race";
  asked.hidden = Boolean(here);
  asked.replaceChildren(...run.questions.map(details));
  button("back").disabled = at === 1;
  button("show").disabled = !here?.task;
  button("next").textContent = here ? "Next" : "Finish";
}

// An unchanged text is not announced again.
function set(selector, text) {
  const holder = panel.querySelector(selector);
  if (holder.textContent !== text) holder.textContent = text;
}

function details({ question, answer }) {
  const made = document.createElement("details");
  const [summary, text] = [document.createElement("summary"), document.createElement("p")];
  [summary.textContent, text.textContent] = [question, answer];
  made.append(summary, text);
  return made;
}

function highlight(scroll) {
  for (const old of document.querySelectorAll("[data-toured]")) delete old.dataset.toured;
  if (panel.hidden) return;
  const found = behaviour()?.on() ?? [];
  for (const each of found) each.dataset.toured = "";
  const shown = found.length || !stop() ? found : [...document.querySelectorAll(pane)];
  if (scroll) uncover(shown);
}

// Scrolls to what the stop is about, and moves the panel to the corner where it covers least of that and of its
// card. On a small screen the panel is as wide as the window: all is above it.
function uncover(found) {
  panel.dataset.corner = CORNERS[0];
  const small = panel.offsetWidth > window.innerWidth / 2;
  const covered = small ? window.innerHeight - box(panel).top + SPACE : 0;
  document.documentElement.style.scrollPaddingBottom = `${covered}px`;
  found.at(-1)?.scrollIntoView({ block: small ? "end" : "nearest" });
  found[0]?.scrollIntoView({ block: "nearest" });
  if (small) return;
  const boxes = [...found, ...document.querySelectorAll(".token-card:popover-open")].map(box);
  const areas = CORNERS.map((corner) => {
    panel.dataset.corner = corner;
    return boxes.reduce((sum, each) => sum + overlap(each, box(panel)), 0);
  });
  panel.dataset.corner = CORNERS[areas.indexOf(Math.min(...areas))];
}

const box = (each) => each.getBoundingClientRect();

function overlap(one, other) {
  const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
  const height = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
  return Math.max(0, width) * Math.max(0, height);
}

function leave() {
  panel.hidden = true;
  document.documentElement.style.scrollPaddingBottom = "";
  remember(true);
  highlight(false);
  opener.focus({ preventScroll: true });
}

// --- remembered, and in the link -------------------------------------------------------------------

// A browser may deny the storage.
function kept(act) {
  try {
    return act(localStorage);
  } catch {
    return null;
  }
}

function remember(left) {
  kept((storage) => storage.setItem("tour", JSON.stringify({ stop: at, left })));
  const link = new URL(location);
  if (left || !stop()) link.searchParams.delete("tour");
  else link.searchParams.set("tour", at);
  history.replaceState(history.state, "", link);
}

function recall() {
  const text = kept((storage) => storage.getItem("tour"));
  try {
    const { stop, left } = JSON.parse(text);
    return Number.isInteger(stop) ? { stop, left } : { stop: 1, left: true };
  } catch {
    return { stop: 1, left: true };
  }
}

// --- the guess -------------------------------------------------------------------------------------

function guessed() {
  const picked = guess.querySelector("[name=guess]:checked")?.value;
  if (!picked) return null;
  const by = guess.querySelector("[name=by]").valueAsNumber;
  return { picked, by: picked === "even" || !(by >= 1) ? null : by };
}

// A line of the verdict, which is there from the guess on: nothing moves when a race ends or begins.
function compare(line) {
  const place = document.querySelector("#verdict .guessed");
  if (!place || place.textContent === line) return;
  place.textContent = line;
  place.dataset.used = "";
}

const names = { win: "speculative", loss: "autoregressive", even: "neither" };
const times = (value) => (value === null ? "" : ` by ${value.toFixed(1)}×`);

function outcome({ picked, by }) {
  if (run.outcome === null) return "Your guess is open: this race is not compared.";
  const factor = run.outcome === "even" ? null : Math.max(run.speedup, 1 / run.speedup);
  const right = picked === run.outcome ? "Right" : "Not this time";
  return `${right}: you guessed ${names[picked]}${times(by)}, measured ${names[run.outcome]}${times(factor)}.`;
}

// --- events ----------------------------------------------------------------------------------------

function show(value) {
  run = JSON.parse(value);
  if (run.live && pending) {
    compare(outcome(pending));
    pending = null;
    for (const radio of guess.querySelectorAll("[name=guess]")) radio.checked = false;
    guess.querySelector("[name=by]").value = "";
  }
  if (panel.hidden) return;
  fill();
  if (run.live) tell("raced");
  highlight(false);
}

const listeners = {
  moment: ({ detail }) => {
    if (detail.time === null && !pending) compare(""); // a run begins
    tell("moment", detail);
  },
  card: ({ detail }) => tell("card", detail),
  click: ({ target }) => {
    if (target.closest?.("#tour-open")) {
      opener = target.closest("#tour-open");
      if (!panel.hidden) return leave();
      const last = recall().stop;
      go(last > run.stops.length ? 1 : last);
      panel.focus({ preventScroll: true });
    } else if (tab().some((each) => each.contains(target))) tell("tab");
  },
};
for (const [name, act] of Object.entries(listeners)) {
  const listen = (event) => (element.isConnected ? act(event) : document.removeEventListener(name, listen));
  document.addEventListener(name, listen);
}

// Escape closes a token's card, then the tour, and only then stops a run.
document.addEventListener(
  "keydown",
  (event) => {
    if (event.key !== "Escape" || panel.hidden || event.cancelBubble) return;
    if (document.querySelector(".token-card:popover-open")) return;
    leave();
    event.stopPropagation();
  },
  { capture: true },
);

guess.addEventListener("input", () => {
  pending = guessed();
  if (pending) compare(`Your guess: ${names[pending.picked]}${times(pending.by)}. The next race measures it.`);
});
panel.addEventListener("click", (event) => {
  const name = event.target.closest("button")?.dataset.do;
  if (name === "show") event.stopPropagation(); // a click elsewhere closes the card that it opens
  const act = {
    back: () => go(at - 1),
    next: () => (stop() ? go(at + 1) : leave()),
    show: () => {
      behaviour().show();
      if (!["race", "loss"].includes(stop().name)) highlight(true);
    },
    leave,
  };
  act[name]?.();
});

subscribe(show);
const linked = Number(new URLSearchParams(location.search).get("tour"));
const last = recall();
if (Number.isInteger(linked) && linked >= 1 && linked <= run.stops.length) go(linked);
else if (!last.left) go(last.stop);
