// A view shows what it was made with, and then what it is told. Gradio takes long over each of its
// outputs, more than a view takes to show it; so events have two that are never seen, and what those
// hold is handed on here.

// What was told last is kept, for a view that Gradio makes only when its tab is opened.
function tell(name, value) {
  (window.told ??= {})[name] = value;
  document.dispatchEvent(new CustomEvent("told", { detail: { name, value } }));
}

function follow(show) {
  const told = ({ detail }) => {
    if (!element.isConnected) document.removeEventListener("told", told);
    else if (detail.name === props.view) show(detail.value);
  };
  document.addEventListener("told", told);
  const value = window.told?.[props.view] ?? props.value;
  if (value) show(value);
}
