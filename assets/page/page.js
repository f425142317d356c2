() => {
  // Gradio has no way to set these hooks for tests.
  for (const name of ["run", "stop"]) document.getElementById(name).dataset.testid = name;

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      document.getElementById("run").click();
    } else if (event.key === "Escape") {
      document.getElementById("stop").click();
    }
  });

  // Gradio 6.31 leaves the animation of its loading screen running, for which the browser draws sixty empty
  // frames per second. It is cancelled once no other animation has run for a while.
  let [frames, alone, last] = [0, 0, 0];
  const watchClock = () => {
    const id = requestAnimationFrame(watchClock); // ids are consecutive
    alone = id - last === 2 ? alone + 1 : 0;
    last = id;
    if (alone === 90) cancelAnimationFrame(id - 1);
    if (alone === 90 || ++frames === 1800) cancelAnimationFrame(id);
  };
  watchClock();

  // Gradio shows the place in the queue with a running clock, which a screen reader would announce each second.
  // Also a race that starts at once is in the queue for a moment: a line that comes and goes would move the page.
  const notice = document.getElementById("notice");
  const place = notice.querySelector(".place");
  const told = (line) => {
    if (place.textContent !== line) place.textContent = line;
    document.querySelector("#header header").toggleAttribute("data-waiting", line !== "");
  };
  let soon = null;
  new MutationObserver(() => {
    const queue = notice.querySelector(".progress-text")?.textContent.match(/queue: (\d+)\/(\d+)/);
    const line = queue
      ? `Waiting: number ${queue[1]} of ${queue[2]} in the queue. One race runs at a time, so that its times are accurate.`
      : "";
    if (!line) clearTimeout(soon);
    if (!line || place.textContent) [soon] = [null, told(line)];
    else soon ??= setTimeout(told, 400, line);
  }).observe(notice, { childList: true, characterData: true, subtree: true });

  // A link to a plot in another tab, whose content Gradio makes when the tab is first selected.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-opens]");
    if (!link) return;
    event.preventDefault();
    document.querySelector(`#details [data-tab-id="${link.dataset.opens}"]`).click();
    const reach = () => {
      const plot = document.querySelector(`[data-plot="${link.dataset.plotName}"]`);
      if (plot?.offsetWidth) plot.scrollIntoView();
      else requestAnimationFrame(reach);
    };
    reach();
  });

  const address = () => new URL(location.pathname, location.origin);

  // Copies a text, and says so on the button for a while.
  const copy = async (text, id, what) => {
    const button = document.getElementById(id);
    const label = (button.dataset.label ??= button.textContent);
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = `${what} copied`;
    } catch {
      prompt(what, text); // where the browser denies access to the clipboard
    }
    setTimeout(() => (button.textContent = label), 2000);
  };

  // The fields that are not at their defaults. A text that nobody has touched is null.
  const changed = (defaults, names, values) =>
    names
      .map((name, i) => [name, values[i] ?? (defaults[name] === "" ? "" : null)])
      .filter(([name, value]) => value !== defaults[name]);

  window.copyLink = (defaults, names, values) => {
    const link = address();
    for (const [name, value] of changed(defaults, names, values)) link.searchParams.set(name, value ?? "");
    copy(String(link), "copy-link", "Link");
  };

  // A script that runs the same through the API. JSON's texts and numbers are also Python's.
  window.copyPython = (defaults, names, values) => {
    const python = (value) => (value === null ? "None" : JSON.stringify(value));
    const given = changed({ ...defaults, mode: null }, names, values); // the mode in any case
    const script = [
      "from gradio_client import Client",
      "",
      `client = Client(${python(address())})`,
      "trace = client.predict(",
      ...given.map(([name, value]) => `    ${name}=${python(value)},`),
      '    api_name="/trace",',
      ")",
      'for name, lane in trace["lanes"].items():',
      '    print(f"{name}:\\n{lane[\'text\']}\\n")',
      "",
    ].join("\n");
    copy(script, "copy-python", "Python");
  };

  // The theme that was chosen here outlives a reload. A browser may deny the storage.
  const kept = (act) => {
    try {
      return act(localStorage);
    } catch {
      return null;
    }
  };
  const theme = kept((storage) => storage.getItem("theme"));
  if (theme) document.body.classList.toggle("dark", theme === "dark");
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#theme")) return;
    const dark = document.body.classList.toggle("dark");
    kept((storage) => storage.setItem("theme", dark ? "dark" : "light"));
  });
}
