// Tables of text, for the scripts that follow.
function table({ columns, rows }) {
  const made = document.createElement("table");
  const fill = (row, tag, cells) => {
    for (const cell of cells) {
      row.append(Object.assign(document.createElement(tag), { textContent: cell === "" ? "–" : cell }));
    }
  };
  fill(made.createTHead().insertRow(), "th", columns);
  for (const head of made.tHead.rows[0].cells) head.scope = "col";
  const body = made.createTBody();
  for (const cells of rows) fill(body.insertRow(), "td", cells);
  return made;
}

function make(tag, about = {}, ...children) {
  const made = Object.assign(document.createElement(tag), about);
  made.append(...children);
  return made;
}
