// Tells each view what is new on the board. What two events put there may arrive in either order, and
// of several at once only the last may be passed on; the later board holds what the earlier one did.
let seen = 0; // the time of the last change

watch("value", () => {
  const before = seen;
  for (const [name, { when, value }] of Object.entries(JSON.parse(props.value))) {
    if (when > before) tell(name, value);
    seen = Math.max(seen, when);
  }
});
