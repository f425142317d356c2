// --- stepping through a run that has ended, in its model time ----------------------------------
// The lines hold all of it: nothing is computed or fetched again.

const bar = element.querySelector(".replay");
const scrubber = bar.querySelector("[type=range]");
const moment = bar.querySelector(".moment");
const slowed = element.querySelector(".slowed");
const PERIOD = 80; // milliseconds between two frames
const WATCHABLE = 4000; // milliseconds; a race that took less is replayed, so slowly that it takes as long
const IN_SIGHT = 0.25; // of the panes
const CLOSE = 1e-6; // milliseconds; a scrubber rounds its value
let replay = { time: 0, moments: [0], timer: null };

const total = () => replay.moments.at(-1);
const speed = () => Number(bar.querySelector("[name=speed]:checked").value);

// A run begins: there is nothing to step through yet.
function reset() {
  pause();
  replay = { time: 0, moments: [0], timer: null };
  bar.disabled = true;
  scrubber.value = 0;
  moment.textContent = "";
  tell({ time: null });
}

// The run has ended. A recorded run is played, slowly enough to follow, once the panes are in sight, which they
// are not in a tab in the background. So is a race too fast to follow, at once.
function ready() {
  const times = run.lanes.flatMap((lane) =>
    lane.steps.flatMap((step) => (step.line.drafted.length ? [step.drafted, step.ends] : [step.ends])),
  );
  replay.moments = [...new Set([0, ...times])].sort((one, other) => one - other);
  bar.disabled = total() === 0;
  scrubber.max = total();
  const speeds = [...bar.querySelectorAll("[name=speed]")];
  const slow = speeds.findLast(({ value }) => value <= 1 && total() / value >= WATCHABLE);
  (slow ?? speeds[0]).checked = true;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const took = run.lanes.reduce((sum, { steps }) => sum + (steps.at(-1)?.ends ?? 0), 0); // one lane at a time
  if (still || total() === 0 || (!run.badge && took >= WATCHABLE)) return seek(total());
  seek(0);
  if (run.badge) sight.observe(panes); // which calls back at once, or, in a hidden tab, when that is opened
  else play();
}

const sight = new IntersectionObserver(
  ([{ intersectionRatio }]) => (intersectionRatio >= IN_SIGHT ? play() : seek(total())),
  { threshold: IN_SIGHT },
);

// Shows both panes as they were at that time; between draft and verification, the draft.
function seek(time) {
  replay.time = total() - time < CLOSE ? total() : Math.max(time, 0);
  const moments = run.lanes.map((lane) => {
    const next = lane.steps.findIndex((step) => step.ends > replay.time + CLOSE);
    const step = lane.steps[next];
    const undecided = step && step.drafted <= replay.time + CLOSE && step.line.drafted.length;
    return [lane, step ? next : lane.steps.length, undecided ? step.line : null];
  });
  present(moments);
  scrubber.value = replay.time;
  const seconds = (value) => (value / 1000).toFixed(2);
  const counts = run.lanes.map((lane) => lane.steps[lane.shown - 1]?.line.made ?? 0).join(" and ");
  const tokens = counts === "1" ? "1 token" : `${counts} tokens`; // of one lane, or "1 and 1 tokens"
  moment.textContent = `${seconds(replay.time)} of ${seconds(total())} s · ${tokens}`;
  if (!replay.timer) scrubber.setAttribute("aria-valuetext", moment.textContent);
  tell({ time: replay.time, ...Object.fromEntries(run.lanes.map(({ pane, shown }) => [pane.dataset.lane, shown])) });
}

// Other parts of the page follow: `time` is in milliseconds, and the others are steps shown, by lane.
function tell(detail) {
  element.dispatchEvent(new CustomEvent("moment", { bubbles: true, detail }));
}

// Who reads the answer by keyboard is not interrupted: the focus scrolls it into sight.
panes.addEventListener("focusin", () => sight.disconnect());

function play() {
  sight.disconnect();
  if (replay.time >= total()) seek(0);
  let last = performance.now();
  replay.timer = setInterval(() => {
    const now = performance.now();
    seek(replay.time + (now - last) * speed());
    last = now;
    if (replay.time >= total() || !element.isConnected) pause();
  }, PERIOD);
  nameButton("Pause");
}

function pause() {
  sight.disconnect();
  clearInterval(replay.timer);
  replay.timer = null;
  if (total()) seek(replay.time);
  nameButton("Play");
}

function nameButton(name) {
  const button = bar.querySelector("[data-do=play]");
  Object.assign(button, { title: name, ariaLabel: name });
  button.dataset.playing = replay.timer !== null;
  sayPace();
}

function sayPace() {
  slowed.textContent = replay.timer !== null && speed() < 1 ? `Replay, slowed to ${speed()}×` : "";
}

const go = {
  start: () => seek(0),
  back: () => seek(replay.moments.findLast((time) => time < replay.time - CLOSE) ?? 0),
  forward: () => seek(replay.moments.find((time) => time > replay.time + CLOSE) ?? total()),
  end: () => seek(total()),
};

function act(name) {
  const playing = replay.timer !== null;
  pause();
  if (name !== "play") go[name]();
  else if (!playing) play();
}

bar.querySelector(".speeds").addEventListener("change", sayPace);
bar.addEventListener("click", (event) => {
  const name = event.target.closest("button")?.dataset.do;
  if (name) act(name);
});
scrubber.addEventListener("input", () => {
  const time = scrubber.valueAsNumber;
  pause();
  seek(time);
});
bar.addEventListener("keydown", (event) => {
  const keys = { ArrowLeft: "back", ArrowDown: "back", ArrowRight: "forward", ArrowUp: "forward" };
  const name = { ...keys, Home: "start", End: "end" }[event.key];
  if (!name || event.target.type === "radio") return;
  event.preventDefault();
  act(name);
});
for (const place of [scrubber, ...Object.values(lanes).map(({ text }) => text)]) {
  place.addEventListener("keydown", (event) => {
    if (event.key !== " " || bar.disabled) return;
    event.preventDefault();
    act("play");
  });
}

subscribe(show);
