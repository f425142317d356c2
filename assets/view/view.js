// A view shows its initial value, and then every value published under its name. Each output of an event
// costs Gradio more time than a view needs to show it; so events have two hidden outputs, whose scripts
// publish the values.
import { listen } from "./dom.js";
import { recall, remember } from "./storage.js";

/**
 * What Gradio gives a component, and `component.py` hands to the default export of its scripts.
 * @typedef {{ element: HTMLElement, props: Record<string, any>, watch: (name: string, act: () => void) => void }} View
 */

const KEPT = import.meta.url; // which has the version, and so whatever understands the values
const SESSION = "sessionStorage";

// The latest value of each view, for views that Gradio creates only when their tab is opened, and after a reload.
const page = /** @type {{ views?: Record<string, string> }} */ (globalThis);
page.views ??= /** @type {Record<string, string>} */ (recall(KEPT, SESSION) ?? {});
const latest = page.views;

/** Keeps the run that is shown for a reload, unless it goes on: then its latest lines alone are there. */
export function keepViews(/** @type {boolean} */ running) {
  const { header, notice, ...shown } = latest;
  remember(KEPT, null, SESSION); // in case that the rest does not fit
  if (!running) remember(KEPT, shown, SESSION);
}

export function publish(/** @type {string} */ name, /** @type {string} */ value) {
  latest[name] = value;
  document.dispatchEvent(new CustomEvent("update", { detail: { name, value } }));
}

/** @param {View} view @param {(value: any) => void} show */
export function subscribe({ element, props }, show) {
  listen(element, "update", ({ detail }) => detail.name === props.view && show(detail.value));
  const value = latest[props.view] ?? props.value;
  if (value) show(value);
  element.closest(`#${props.view}`)?.setAttribute("data-mounted", ""); // the style sheet shows it now
}

/** Calls back with the value of a hidden output, also with one that came before its script. */
export function follow(/** @type {View} */ { props, watch }, /** @type {(value: string) => void} */ act) {
  watch("value", () => act(props.value));
  if (props.value) act(props.value);
}
