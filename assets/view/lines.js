// The lines of a run, which are only ever appended to, are the panes' to read.
watch("value", () => tell("lanes", props.value));
