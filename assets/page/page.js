// What belongs to no component: keys, links, the theme, and what Gradio leaves to do.
import { find, make, setText } from "../view/dom.js";
import { recall, remember } from "../view/storage.js";
import { keepViews } from "../view/view.js";

/** @typedef {Record<string, unknown>} Fields */

const LONGEST_LINK = 8000; // characters

export default function page() {
  // Gradio has no way to set these hooks for tests.
  for (const name of ["run", "stop"]) find(document, `#${name}`).dataset.testid = name;
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      find(document, "#run").click();
    } else if (event.key === "Escape") {
      find(document, "#stop").click();
    }
  });
  document.addEventListener("click", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.closest("#theme")) remember("theme", document.body.classList.toggle("dark") ? "dark" : "light");
    /** @type {HTMLElement | null} */
    const button = target.closest("[data-presses]");
    /** @type {HTMLElement | null} */
    const link = target.closest("[data-opens]");
    if (button) document.getElementById(String(button.dataset.presses))?.click(); // one of Gradio's
    if (!link) return;
    event.preventDefault();
    openPlot(link.dataset);
  });
  const theme = recall("theme"); // the one that was chosen outlives a reload
  if (theme) document.body.classList.toggle("dark", theme === "dark");
  document.head.append(make("style", { id: "marks" }));
  Object.assign(window, FORM);
  addEventListener("pagehide", () => keepViews(find(document, "#header header").dataset.state === "running"));
  stopLoadingScreen();
  watchEvents();
}

// Gradio 6.31 leaves the animation of its loading screen running, for which the browser draws sixty empty
// frames per second. It is cancelled once no other animation has run for a while.
function stopLoadingScreen() {
  let [frames, alone, last] = [0, 0, 0];
  const watchClock = () => {
    const id = requestAnimationFrame(watchClock); // ids are consecutive
    alone = id - last === 2 ? alone + 1 : 0;
    last = id;
    if (alone === 90) cancelAnimationFrame(id - 1);
    if (alone === 90 || ++frames === 1800) cancelAnimationFrame(id);
  };
  watchClock();
}

// Gradio shows over the notice that an event waits or runs: then there is something to stop. It also shows the place
// in the queue, with a running clock, which a screen reader would announce each second. Also a race that starts at once
// is in the queue for a moment: a line that comes and goes would move the page.
function watchEvents() {
  const notice = find(document, "#notice");
  const place = find(notice, ".place");
  const show = (/** @type {string} */ line) => {
    setText(place, line);
    find(document, "#header header").toggleAttribute("data-waiting", line !== "");
  };
  const stop = find(document, "#stop", HTMLButtonElement);
  let soon = 0;
  stop.disabled = true;
  new MutationObserver(() => {
    stop.disabled = !notice.querySelector(".wrap:not(.hide, :has(.error))"); // an error stays when it has ended
    const queue = notice.querySelector(".progress-text")?.textContent?.match(/queue: (\d+)\/(\d+)/);
    const line = queue
      ? `Waiting: number ${queue[1]} of ${queue[2]} in the queue. One race runs at a time, so that its times are accurate.`
      : "";
    if (line && !place.textContent) {
      soon ||= setTimeout(show, 400, line);
      return;
    }
    clearTimeout(soon);
    soon = 0;
    show(line);
  }).observe(notice, { attributeFilter: ["class"], childList: true, characterData: true, subtree: true });
}

// A plot in another tab, whose content Gradio makes when the tab is first selected.
function openPlot(/** @type {DOMStringMap} */ { opens, plotName }) {
  find(document, `#details [data-tab-id="${opens}"]`).click();
  const reach = () => {
    const section = document.querySelector(`[data-plot="${plotName}"]:has(.plot[style])`); // whose value has come
    if (section?.clientWidth) section.scrollIntoView();
    else requestAnimationFrame(reach);
  };
  reach();
}

// --- copies of what the form holds ----------------------------------------------------------------

const address = () => new URL(location.pathname, location.origin);

/** The fields that are not at their defaults. A text that nobody has touched is null. */
function changed(/** @type {Fields} */ defaults, /** @type {string[]} */ names, /** @type {unknown[]} */ values) {
  return names
    .map((name, i) => /** @type {const} */ ([name, values[i] ?? (defaults[name] === "" ? "" : null)]))
    .filter(([name, value]) => value !== defaults[name]);
}

/** @param {URL} link @param {Fields} defaults @param {string[]} names @param {unknown[]} values */
export function linkTo(link, defaults, names, values) {
  for (const name of names) link.searchParams.delete(name);
  for (const [name, value] of changed(defaults, names, values)) link.searchParams.set(name, String(value ?? ""));
  return String(link);
}

// A script that runs the same through the API. JSON's texts and numbers are also Python's.
/** @param {URL} server @param {Fields} defaults @param {string[]} names @param {unknown[]} values */
export function pythonFor(server, defaults, names, values) {
  const python = (/** @type {unknown} */ value) => (value === null ? "None" : JSON.stringify(value));
  const given = changed({ ...defaults, mode: null }, names, values); // the mode in any case
  return `from gradio_client import Client

client = Client(${python(server)})
trace = client.predict(
${given.map(([name, value]) => `    ${name}=${python(value)},\n`).join("")}    api_name="/trace",
)
for name, lane in trace["lanes"].items():
    print(f"{name}:\\n{lane['text']}\\n")
`;
}

/** What Python calls with the form. @type {Record<string, (...form: [Fields, string[], unknown[]]) => void>} */
const FORM = {
  copyLink: (...form) => copy(linkTo(address(), ...form), "#share"),
  copyPython: (...form) => copy(pythonFor(address(), ...form), "#copy-python"),
  // In the address, so that a reload asks the same. A server refuses a longer one.
  keepForm(...form) {
    const link = linkTo(new URL(location.href), ...form);
    if (link.length < LONGEST_LINK) history.replaceState(history.state, "", link);
  },
  // The settings that differ, also those that are drawn only when the settings are opened: by a style.
  markChanged(...form) {
    const names = changed(...form).map(([name]) => name);
    const marks = names.map((name) => `#set-${name} { --mark: "changed" }`);
    if (names.length) marks.push(`#settings { --changed: "${names.length} changed" }`);
    find(document, "#marks").textContent = marks.join(" ");
  },
};

// Copies a text, and says so on the button for a while.
async function copy(/** @type {string} */ text, /** @type {string} */ id) {
  const button = find(document, id);
  button.dataset.label ??= String(button.textContent);
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    prompt("Copy this", text); // where the browser denies access to the clipboard
  }
  setTimeout(() => button.replaceChildren(String(button.dataset.label)), 2000);
}
