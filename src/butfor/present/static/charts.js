// Draws chart templates and swaps their rows; for the report and the review app.
// Needs window.vegaEmbed. Works under a Content-Security-Policy without unsafe-eval or inline style.

const EMBED = {
  mode: "vega-lite",
  ast: true,
  actions: false,
  defaultStyle: false,
  renderer: "svg",
  logLevel: 1, // errors only: an episode may lack some kinds of rows
  tooltip: { disableDefaultStyle: true },
};

const LEGIBLE = 11 / 13; // of its size: letters of 13 pixels, the smallest, still have 11

// {name: [[field, …], [value, …], …]} to {name: [{field: value}, …]}; plain rows are left as they are
function unpackRows(packed) {
  const datasets = {};
  for (const [name, rows] of Object.entries(packed)) {
    if (!rows.length || !Array.isArray(rows[0])) {
      datasets[name] = rows;
      continue;
    }
    const [fields, ...values] = rows;
    datasets[name] = values.map((row) =>
      Object.fromEntries(fields.map((field, i) => [field, row[i]]).filter(([, value]) => value !== null))
    );
  }
  return datasets;
}

// Draw a template with rows of data; returns the Vega view.
async function drawChart(element, template, datasets = {}, options = {}) {
  const spec = { ...template, datasets: { ...template.datasets, ...datasets } };
  const result = await window.vegaEmbed(element, spec, { ...EMBED, ...options });
  element.querySelectorAll("svg, canvas").forEach((drawing) => {
    drawing.setAttribute("aria-hidden", "true"); // the element around it has role and words
    const width = parseFloat(drawing.style.width || drawing.getAttribute("width"));
    drawing.style.setProperty("--legible", `${Math.ceil(width * LEGIBLE)}px`);
  });
  return result.view;
}

// Show other rows in a chart that has been drawn.
async function swapRows(view, datasets) {
  for (const [name, rows] of Object.entries(datasets)) view.data(name, rows);
  await view.runAsync();
}

// The rows without the sampled paths.
const withoutPaths = (datasets) => ({ ...datasets, draws: [], draw_ends: [], draw_words: [] });

// The rows of a chart whose axis ends where little is left to see; all rows if that is not given.
function nearRows(datasets, near) {
  if (!near) return datasets;
  const end = near.rows.frame[0].high;
  const cut = Object.entries(datasets).map(([name, rows]) => [name, rows.filter((row) => !(row.step > end))]);
  return { ...Object.fromEntries(cut), ...near.rows };
}

// A new element with texts or elements in it; texts are never read as markup.
function newElement(tag, content, attributes = {}) {
  const element = document.createElement(tag);
  element.append(...[content].flat());
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// Fill a table from rows of text, the first of which is its head.
function fillTable(table, [head, ...body]) {
  const top = newElement("tr", head.map((text) => newElement("th", text, { scope: "col" })));
  const lines = body.map(([first, ...rest]) => {
    const cells = rest.map((text) => newElement("td", text));
    return newElement("tr", [newElement("th", first, { scope: "row" }), ...cells]);
  });
  const captions = table.querySelectorAll("caption");
  table.replaceChildren(...captions, newElement("thead", top), newElement("tbody", lines));
}
