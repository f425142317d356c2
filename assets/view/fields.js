// Fills each [data-field] with that field of the value, and styles the whole by its `state` and such.
// Unchanged texts are not set again, so that a live region is announced once.
const live = element.querySelector("[data-live]");
const holders = [live, ...live.querySelectorAll("[data-field]")].filter((e) => e.dataset.field);

function show(value) {
  const fields = JSON.parse(value);
  for (const holder of holders) {
    const text = fields[holder.dataset.field] ?? "";
    if (holder.textContent !== text) holder.textContent = text;
  }
  for (const name of ["state", "mark", "alarm", "racing"]) live.dataset[name] = fields[name] ?? "";
}

subscribe(show);
