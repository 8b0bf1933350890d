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

// {name: [[field, …], [value, …], …]} to {name: [{field: value}, …]}; plain rows are left as they are
function unpackRows(packed) {
  const datasets = {};
  for (const [name, rows] of Object.entries(packed)) {
    if (!rows.length || !Array.isArray(rows[0])) {
      datasets[name] = rows;
      continue;
    }
    const [fields, ...values] = rows;
    datasets[name] = values.map((row) => {
      const entry = {};
      fields.forEach((field, i) => {
        if (row[i] !== null) entry[field] = row[i];
      });
      return entry;
    });
  }
  return datasets;
}

// Draw a template with rows of data; returns the Vega view.
async function drawChart(element, template, datasets = {}, options = {}) {
  const spec = { ...template, datasets: { ...template.datasets, ...datasets } };
  const result = await window.vegaEmbed(element, spec, { ...EMBED, ...options });
  element.querySelectorAll("svg, canvas").forEach((drawing) => {
    drawing.setAttribute("aria-hidden", "true"); // the element around it has role and words
  });
  return result.view;
}

// Show other rows in a chart that has been drawn.
async function swapRows(view, datasets) {
  for (const [name, rows] of Object.entries(datasets)) view.data(name, rows);
  await view.runAsync();
}

// Fill a table from rows of text, the first of which is its head.
function fillTable(table, rows) {
  const [head, ...body] = rows;
  const cell = (kind, text, scope) => {
    const element = document.createElement(kind);
    element.textContent = text;
    if (scope) element.scope = scope;
    return element;
  };
  const line = (cells) => {
    const row = document.createElement("tr");
    row.append(...cells);
    return row;
  };
  const top = document.createElement("thead");
  top.append(line(head.map((text) => cell("th", text, "col"))));
  const rest = document.createElement("tbody");
  rest.append(
    ...body.map((row) => line(row.map((text, i) => (i ? cell("td", text) : cell("th", text, "row")))))
  );
  const caption = table.querySelector("caption");
  table.replaceChildren(...(caption ? [caption] : []), top, rest);
}
