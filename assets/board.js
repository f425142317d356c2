// Tells each view what is new on the board. What two events put there may arrive in either order, and
// while the page is out of sight Gradio passes on only the last; the later board holds it all.
let seen = 0; // the time of the last change

watch("value", () => {
  const before = seen;
  for (const [name, { when, value }] of Object.entries(JSON.parse(props.value))) {
    if (when > before) tell(name, value);
    seen = Math.max(seen, when);
  }
});
