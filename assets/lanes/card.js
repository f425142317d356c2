// --- a token's card -----------------------------------------------------------------------------
// It follows pointer and focus; a click, a tap or Enter pins it, so that it can be read.

const card = element.querySelector(".token-card");
let active = null; // the token that the card is about
let pinned = false;

function hideCard() {
  active?.classList.remove("active");
  active = null;
  pinned = false;
  if (card.matches(":popover-open")) card.hidePopover();
}

function showCard(node, pin = false) {
  if (node !== active) {
    hideCard();
    active = node;
    node.classList.add("active");
    card.replaceChildren(...describe(node.about, "end" in node.dataset));
    card.showPopover();
    const { state, line } = node.about;
    element.dispatchEvent(new CustomEvent("card", { bubbles: true, detail: { state, lane: line.lane } }));
  }
  if (pin && !pinned) card.prepend(closeButton());
  pinned ||= pin;
  card.classList.toggle("pinned", pinned);
  placeCard();
}

function closeButton() {
  const made = node("button", "", "close");
  made.type = "button";
  made.ariaLabel = "Close";
  made.addEventListener("click", hideCard);
  return made;
}

function placeCard() {
  if (!active) return;
  const [at] = [...active.lastElementChild.getClientRects(), active.getBoundingClientRect()];
  const left = Math.min(at.left - 12, document.documentElement.clientWidth - card.offsetWidth - 8);
  const below = at.bottom + 8;
  const covered = parseFloat(getComputedStyle(document.documentElement).scrollPaddingBottom) || 0; // by the tour
  const fits = below + card.offsetHeight < window.innerHeight - covered;
  card.style.left = `${Math.max(8, left)}px`;
  card.style.top = `${fits ? below : Math.max(8, at.top - card.offsetHeight - 8)}px`;
}

// --- its texts ------------------------------------------------------------------------------

const LONGEST = 60; // characters of a token
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\u00a0\u2000-\u200a\u202f\u205f\u3000]/gu;

// The text as a string literal: invisible characters, and those that change the direction, are escaped.
function repr(text) {
  const characters = Array.from(text.slice(0, 2 * LONGEST));
  const cut = text.length > LONGEST && characters.slice(0, LONGEST).join("");
  const shown = JSON.stringify(cut || text).replace(
    INVISIBLE,
    (one) => `\\u{${one.codePointAt(0).toString(16)}}`,
  );
  return cut ? `${shown.slice(0, -1)}…" (${text.length} characters)` : shown;
}

const named = (id) => (run.pieces.has(id) ? repr(run.pieces.get(id)) : `#${id}`);
const probability = (value) => (value > 0 && value < 0.0005 ? "< 0.001" : value.toFixed(3));
const milliseconds = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;

function describe(about, endKey) {
  const { line, place, id, text, state } = about;
  const head = node("p", "", "what");
  const step = `step ${line.index + 1}`;
  const where = state === "target" ? step : `${step}, position ${place + 1}`;
  const name = endKey ? "end of text" : text ? repr(text) : "part of a character";
  head.append(node("b", name), ` ${state} · ${where} · id ${id}`);

  const table = node("table", "");
  const row = (name, value) => {
    const cells = table.insertRow();
    cells.append(node("th", name), node("td", value));
  };
  if (state === "resampled") row("replaces the drafted", named(line.drafted[place]));
  if (place < line.drafted.length) row("drafted", source(line, state));
  if (["accepted", "remembered", "resampled", "rejected"].includes(state)) test(line, place, row);

  const parts = [head, table, node("p", reason(about), "why"), ...likeliest(about)];
  if (state !== "drafted") parts.push(node("p", times(line), "times"));
  return parts;
}

// How a token was drafted: the tokens of a block all in one pass, those of a draft model one by one.
function source({ drafted, copied }, state) {
  if (copied) return state === "remembered" ? "by copying from an earlier answer" : "by copying, without a pass";
  if (!run.blocks) return "in a pass of its own";
  return drafted.length > 1 ? `in one pass, all ${drafted.length} tokens of this step` : "in one pass";
}

// The acceptance test of one drafted token. Greedy decoding compares two first choices without a random
// number, so nothing is shown.
function test(line, place, row) {
  if (run.greedy) return;
  row("draft probability q", probability(line.draft_prob[place]));
  row("target probability p", probability(line.target_prob[place]));
  if (run.lossy) return row("p is typical of the target", line.accept_prob[place] ? "yes" : "no");
  const acceptedWith = asBlock(line) ? "accepted up to here, if not further" : "accepted with min(1, p ∕ q)";
  row(acceptedWith, probability(line.accept_prob[place]));
  const uniform = line.uniform[place];
  if (uniform !== null) {
    row("random number", `${probability(uniform)} → ${place < line.accepted ? "accepted" : "rejected"}`);
  }
}

function reason({ line, place, state }) {
  const certain = line.uniform?.[place] === null;
  switch (state) {
    case "target":
      return line.lane === "speculative"
        ? "No token was drafted in this step."
        : "One forward pass of the target, one token.";
    case "accepted":
      if (run.greedy && line.copied) return "The target’s first choice, so it is accepted.";
      if (run.greedy) return "The first choice of both models, so it is accepted.";
      if (asBlock(line)) {
        return place + 1 < line.accepted
          ? "Block verification accepted the draft up to a later token, and this one with it."
          : "Block verification accepted the draft up to here: the last token that passes its test decides.";
      }
      if (run.lossy) return "Typical enough of the target, whatever its probability under the draft: accepted, which is lossy.";
      return certain ? "The target’s probability is at least the draft’s, so it is always accepted." : "";
    case "remembered":
      return "It followed the same words in an earlier answer, from where it was copied, and the target accepted it.";
    case "resampled":
      if (run.greedy) return "The target’s first choice, in place of the draft’s.";
      if (asBlock(line)) {
        return "Sampled from the residual: the target’s distribution, times the probability that the draft is kept so far, minus the draft’s. The figures are those of the token it replaces.";
      }
      if (run.lossy) return "Sampled from the target’s distribution without the rejected token, whose figures these are.";
      return "Sampled from the residual: the target’s distribution minus the draft’s. The figures are those of the token it replaces.";
    case "bonus":
      return `${
        line.drafted.length === 1 ? "The drafted token is" : `All ${line.drafted.length} drafted tokens are`
      } accepted, so the same forward pass gives one more.`;
    case "rejected":
      if (asBlock(line)) return "Block verification accepted the draft up to an earlier token only.";
      return run.greedy ? "Not the target’s first choice." : "It failed the acceptance test; the next token replaces it.";
    case "untested":
      return "It follows a token that ended the step, so it was never tested.";
    default:
      return "Not verified yet.";
  }
}

function times(line) {
  const parts = [];
  if (line.drafted.length) parts.push(`draft ${milliseconds(line.draft_s)}`);
  parts.push(`${line.drafted.length ? "verify" : "forward pass"} ${milliseconds(line.verify_s)}`);
  return `${parts.join(", ")} · ${milliseconds(line.time_s)} after the start`;
}

// The most likely tokens of both models at this position, as far as they are shown at this moment.
function likeliest({ line, place, state }) {
  const known = state !== "drafted";
  const emitted = known ? line.tokens[place]?.[0] : undefined;
  const lists = [
    ["target", known && line.target_top[place]],
    ["draft", line.draft_top?.[place]],
  ].filter(([, top]) => top?.length);
  if (!lists.length) return [];
  const tops = node("div", "", "tops");
  tops.append(...lists.map(([model, top]) => ranking(model, top, emitted, line.drafted[place])));
  const of = run.greedy
    ? "Each model’s own probabilities; greedy decoding takes the target’s first choice."
    : "Probabilities after temperature, top-p and top-k, as they were tested.";
  const marks = line.drafted[place] === undefined ? "Bold: emitted." : "Bold: emitted. Dashed: drafted.";
  return [tops, node("p", `${of} ${marks}`, "why")];
}

function ranking(model, top, emitted, drafted) {
  const made = node("div", "");
  const list = node("ol", "");
  for (const [id, share] of top) {
    const entry = node("li", "");
    entry.classList.toggle("emitted", id === emitted);
    entry.classList.toggle("drafted", id === drafted);
    const bar = node("i", "");
    bar.style.width = `${100 * Math.min(1, share)}%`;
    entry.append(bar, node("span", named(id), "piece"), node("span", probability(share)));
    list.append(entry);
  }
  made.append(node("h3", `Most likely, ${model}`), list);
  return made;
}

// --- pointing, tapping and keys ----------------------------------------------------------------

const tokenAt = (event) => event.target.closest?.(".pane .text .tok");

element.addEventListener("pointerover", (event) => {
  if (pinned) return;
  const node = tokenAt(event);
  if (node) showCard(node);
  else if (event.pointerType === "mouse") hideCard();
});
element.addEventListener("pointerleave", () => pinned || hideCard());
document.addEventListener("click", (event) => {
  const node = tokenAt(event);
  if (node && !(pinned && node === active)) showCard(node, true);
  else if (!card.contains(event.target)) hideCard();
});

for (const { text } of Object.values(lanes)) {
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && active && !event.ctrlKey && !event.metaKey) showCard(active, true);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const tokens = [...text.querySelectorAll(".tok")].filter((node) => node.offsetParent);
    const at = tokens.indexOf(active);
    const next = at < 0 ? tokens.at(step > 0 ? 0 : -1) : tokens[at + step];
    if (!next) return;
    next.scrollIntoView({ block: "nearest" });
    showCard(next, pinned);
  });
  text.addEventListener("focus", () => {
    const first = text.querySelector(".tok");
    if (first && !active && text.matches(":focus-visible")) showCard(first);
  });
  text.addEventListener("blur", () => pinned || hideCard());
}
// Captured before the page's own handler: Escape first closes the card, and only then stops a run.
document.addEventListener(
  "keydown",
  (event) => {
    if (event.key !== "Escape" || !active) return;
    hideCard();
    event.stopPropagation();
  },
  { capture: true },
);
document.addEventListener("scroll", placeCard, { passive: true, capture: true });
