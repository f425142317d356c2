// Draws a run from its lines of JSON, at its end or at any moment of its model time.
import { fill, find, findAll } from "../view/dom.js";
import { subscribe } from "../view/view.js";
import { Card } from "./card.js";
import { Pane } from "./pane.js";
import { Replay } from "./replay.js";

/**
 * The number of steps that a pane shows, and then a draft that waits or null.
 * @typedef {{ pane: Pane, count: number, draft: import("./tokens.js").Step | null }} Moment
 */

export default function lanes(/** @type {import("../view/view.js").View} */ view) {
  const { element } = view;
  const holder = find(element, ".panes");
  const remembered = find(element, ".legend .remembered"); // shown where there is any
  const panes = findAll(element, ".pane").map((pane) => new Pane(pane));
  const paneOf = Object.fromEntries(panes.map((pane) => [pane.name, pane]));
  const card = new Card(element, panes);
  const replay = new Replay(element, panes, present);
  let run = /** @type {any} */ ({ run: null, pieces: new Map() }); // its first line, and the texts of its ids
  let racing = /** @type {Pane[]} */ ([]);
  let next = 0; // the number of the line to read next

  const read = /** @type {Record<string, (line: any) => void>} */ ({
    start(line) {
      run = { ...line, pieces: new Map() };
      racing = line.lanes.map((/** @type {string} */ name) => paneOf[name]);
      card.hide();
      remembered.hidden = true;
      holder.dataset.source = line.badge ? "record" : "live";
      holder.classList.toggle("single", racing.length === 1);
      holder.style.setProperty("--budget", line.budget);
      fill(element, line);
      for (const pane of panes) {
        pane.begin(run, line.budget);
        pane.element.hidden = !racing.includes(pane);
      }
    },
    drafted: (line) => Object.assign(paneOf[line.lane], { undecided: line }),
    step(line) {
      if (line.tokens[0]?.state === "remembered") remembered.hidden = false;
      paneOf[line.lane].add(line);
    },
    end: (line) => paneOf[line.lane].finish(line),
  });

  // The value of a live run has its latest lines, and at its end all lines: missed ones are read then.
  function show(/** @type {string} */ value) {
    let [begins, changed] = [false, false];
    const lines = value.split("\n").filter(Boolean);
    for (const line of lines.map((text) => JSON.parse(text))) {
      const other = line.run !== run.run;
      if (other ? line.number !== 0 : line.number !== next) continue;
      begins ||= other;
      changed = true;
      for (const [id, ...piece] of line.pieces ?? []) run.pieces.set(id, piece);
      read[line.kind](line);
      next = line.number + 1;
    }
    if (!changed) return; // a replay goes on as it was
    if (begins) replay.reset();
    if (racing.every(({ end }) => end)) replay.ready(racing, Boolean(run.badge));
    else present(racing.map((pane) => ({ pane, count: pane.steps.length, draft: pane.undecided })));
  }

  // All nodes are changed before anything is measured, so that the browser computes the layout once.
  function present(/** @type {Moment[]} */ moments) {
    for (const { pane, count, draft } of moments) pane.show(count, draft);
    card.hideIfGone();
    for (const pane of racing) pane.follow();
  }

  find(element, ".show-rejected").addEventListener("change", (event) => {
    holder.classList.toggle("with-rejected", /** @type {HTMLInputElement} */ (event.target).checked);
  });
  subscribe(view, show);
}
