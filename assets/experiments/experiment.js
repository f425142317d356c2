// Fills the texts of an experiment, and hands its two buttons on to those of the page.
const card = element.querySelector(".experiment");
const press = (id) => document.getElementById(id).click();
card.querySelector(".start").onclick = () => press(`measure-${card.dataset.experiment}`);
card.querySelector(".end").onclick = () => press("stop");

subscribe((value) => {
  const { experiment } = JSON.parse(value);
  card.dataset.state = experiment.state;
  card.dataset.plotted = experiment.plotted;
  for (const holder of card.querySelectorAll("[data-field]")) {
    holder.textContent = experiment[holder.dataset.field];
  }
});
