// A view shows its initial value, and then every value published under its name. Each output of an event
// costs Gradio more time than a view needs to show it; so events have two hidden outputs, whose scripts
// publish the values.

// The latest value of each view is kept for views that Gradio creates only when their tab is opened.
function publish(name, value) {
  (window.views ??= {})[name] = value;
  document.dispatchEvent(new CustomEvent("update", { detail: { name, value } }));
}

// "1 token", "2 tokens"
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

function subscribe(show) {
  const onUpdate = ({ detail }) => {
    if (!element.isConnected) document.removeEventListener("update", onUpdate);
    else if (detail.name === props.view) show(detail.value);
  };
  document.addEventListener("update", onUpdate);
  const value = window.views?.[props.view] ?? props.value;
  if (value) show(value);
}
