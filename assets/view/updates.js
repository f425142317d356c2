// Publishes the views that have changed. The values of two events may arrive in either order, or only the
// last of several; a later value includes the views of all earlier ones.
let seen = 0; // the time of the last change

watch("value", () => {
  const before = seen;
  for (const [name, { when, value }] of Object.entries(JSON.parse(props.value))) {
    if (when > before) publish(name, value);
    seen = Math.max(seen, when);
  }
});
