// Publishes the views that have changed. The values of two events may arrive in either order, or only the
// last of several; a later value includes the views of all earlier ones.
import { follow, publish } from "./view.js";

/**
 * The views that changed after `seen`, and the time of the last change.
 * @param {Record<string, { when: number, value: string }>} views
 * @param {number} seen
 */
export function changedSince(views, seen) {
  const changed = Object.entries(views).filter(([, { when }]) => when > seen);
  return { changed, seen: Math.max(seen, ...changed.map(([, { when }]) => when)) };
}

export default function updates(/** @type {import("./view.js").View} */ view) {
  let last = 0;
  follow(view, (value) => {
    const { changed, seen } = changedSince(JSON.parse(value), last);
    last = seen;
    for (const [name, { value }] of changed) publish(name, value);
  });
}
