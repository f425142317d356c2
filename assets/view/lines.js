// The lines of a run, which are only ever appended to, are for the panes.
watch("value", () => publish("lanes", props.value));
