// A race that was disturbed is run again, with what the form holds.
element.querySelector(".again").addEventListener("click", () => document.getElementById("run").click());
