// A view shows the value that it was made with, and then every value published under its name. Gradio
// takes long over each output of an event, more than a view takes to show it; so events have two hidden
// outputs, whose scripts publish what they hold.

// The latest value of each view is kept, for one that Gradio makes only when its tab is opened.
function publish(name, value) {
  (window.views ??= {})[name] = value;
  document.dispatchEvent(new CustomEvent("update", { detail: { name, value } }));
}

function subscribe(show) {
  const onUpdate = ({ detail }) => {
    if (!element.isConnected) document.removeEventListener("update", onUpdate);
    else if (detail.name === props.view) show(detail.value);
  };
  document.addEventListener("update", onUpdate);
  const value = window.views?.[props.view] ?? props.value;
  if (value) show(value);
}
