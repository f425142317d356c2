() => {
  // Gradio has no way to name these for tests.
  for (const name of ["run", "stop"]) document.getElementById(name).dataset.testid = name;

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      document.getElementById("run").click();
    } else if (event.key === "Escape") {
      document.getElementById("stop").click();
    }
  });

  // A link to what the form holds: of each field that is not at its default, its value.
  window.copyLink = async (defaults, names, values) => {
    const link = new URL(location.pathname, location.origin);
    names.forEach((name, i) => {
      if (values[i] !== defaults[name]) link.searchParams.set(name, values[i] ?? "");
    });
    const button = document.getElementById("copy-link");
    try {
      await navigator.clipboard.writeText(link);
      button.textContent = "Link copied";
    } catch {
      prompt("The link", link); // where the browser keeps its clipboard to itself
    }
    setTimeout(() => (button.textContent = "Copy link"), 2000);
  };

  document.addEventListener("click", (event) => {
    if (event.target.closest("#theme")) document.body.classList.toggle("dark");
  });
}
