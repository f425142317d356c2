// Publishes the lines of a run for the panes.
watch("value", () => publish("lanes", props.value));
