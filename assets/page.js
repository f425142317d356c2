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

  document.addEventListener("click", (event) => {
    if (event.target.closest("#theme")) document.body.classList.toggle("dark");
  });
}
