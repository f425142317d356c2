// Publishes those views that have changed. What two events put here may arrive in either order, and of
// several at once only the last may be passed on; the later value holds what the earlier one did.
let seen = 0; // the time of the last change

watch("value", () => {
  const before = seen;
  for (const [name, { when, value }] of Object.entries(JSON.parse(props.value))) {
    if (when > before) publish(name, value);
    seen = Math.max(seen, when);
  }
});
