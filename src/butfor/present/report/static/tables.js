// Tables as CSV files in which no cell is a formula, as butfor's exports write them.

const FORMULA = /^'*[=+\-@\t\r\n]/;
const NUMBER = /^[+\-−]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?$/;

// Numbers become plain ones, except in the first column, which holds names.
function csvCell(text, place) {
  if (place > 0 && NUMBER.test(text)) return text.replace("−", "-").replace("+", "").replaceAll(",", "");
  const guarded = FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
}

const csvText = (rows) => rows.map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");

const rowsOfTable = (table) =>
  [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));

function download(name, rows) {
  const file = new Blob([csvText(rows)], { type: "text/csv;charset=utf-8" });
  const link = newElement("a", [], { href: URL.createObjectURL(file), download: `${name}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Offer the rows, which a function returns, as a file, with a button below an element.
function offerDownload(element, words, rows) {
  const label = `Download as CSV: ${words}`;
  const button = newElement("button", "CSV", { type: "button", class: "csv", title: label, "aria-label": label });
  const name = words.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60);
  button.addEventListener("click", () => download(name, rows()));
  element.after(newElement("p", button, { class: "buttons" }));
}

// Offer each table of numbers within an element; what it is about precedes its name.
function offerTables(root, about = "") {
  root.querySelectorAll(".wide").forEach((frame) => {
    const table = frame.querySelector("table");
    offerDownload(frame, `${about}${frame.getAttribute("aria-label")}`, () => rowsOfTable(table));
  });
}
