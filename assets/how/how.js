// Fills the explanation with the figures of the last run; every text is set by textContent.
const article = element.querySelector(".how");

function showHow(value) {
  const { state, fields, tables, paper, signatures } = JSON.parse(value);
  article.dataset.state = state;
  for (const holder of article.querySelectorAll("[data-field]")) {
    holder.textContent = fields[holder.dataset.field] ?? "";
  }
  fillTables({ candidates: null, ...tables, paper, signatures });
  article.querySelector(".paper").hidden = !paper;
  article.querySelector(".paper .where").textContent = paper?.where ?? "";
}

function fillTables(tables) {
  for (const [name, rows] of Object.entries(tables)) {
    const holder = article.querySelector(`[data-table="${name}"]`);
    holder.replaceChildren(...(rows ? [table(rows)] : []));
  }
}

subscribe(showHow);
