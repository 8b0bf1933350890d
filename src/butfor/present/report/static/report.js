// The report: draws its charts, lists the episodes of a cell, shows one episode at a time.

const read = (name) => JSON.parse(document.getElementById(`data-${name}`).textContent);
const find = (name, root = document) => root.querySelector(`[data-field="${name}"]`);
const listing = read("listing");
const ID = 0, OBSERVED = 1, STEPS = 2, MODEL = 3, THIN = 7, RANK = 8, PLACE = 9, WORDS = 10;
const byId = new Map(listing.rows.map((row) => [row[ID], row]));
const template = document.getElementById("stay-template");
const state = { rows: [], shown: null, view: null, stay: null, paths: false, whole: false, sort: null, down: true };
const MOST = 2000; // rows in the list before "show all"

// ------------------------------------------------------------------------------------- the list

function listRows(keep, words, button) {
  state.rows = listing.rows.filter(keep);
  state.sort = null;
  document.querySelectorAll(".cell, .filter").forEach((other) => {
    other.setAttribute("aria-pressed", String(other === button));
  });
  const count = state.rows.length;
  const noun = count === 1 ? listing.noun : listing.nouns;
  const scope = listing.scope && `; the list has ${listing.scope}`;
  document.getElementById("list-words").textContent = `${count} ${noun}: ${words}${scope}`;
  document.getElementById("absent-words").hidden = state.rows.every((row) => row[PLACE] >= 0);
  fillList(MOST);
}

// what the list says of an episode, by column
function listTexts(row) {
  const [chance, differs, range, thin] = row[WORDS];
  const model = `${listing.names[row[MODEL]]} ${chance}`;
  return [row[ID], thin, listing.names[row[OBSERVED]], String(row[STEPS]), model, differs, range];
}

function fillList(most) {
  const body = document.querySelector("#list tbody");
  const lines = state.rows.slice(0, most).map((row) => {
    const [id, thin, ...rest] = listTexts(row);
    const address = `#stay-${encodeURIComponent(id)}`;
    const cells = [
      newElement("a", id, { href: address, ...(row[PLACE] < 0 && { class: "absent" }) }),
      row[THIN] > 0.5 ? newElement("span", thin, { class: "thin" }) : thin,
      ...rest,
    ];
    return newElement("tr", cells.map((cell) => newElement("td", cell)), { "data-id": row[ID] });
  });
  body.replaceChildren(...lines);
  if (state.rows.length > most) {
    const more = newElement("button", `Show all ${state.rows.length}`, { type: "button" });
    more.addEventListener("click", () => fillList(Infinity));
    body.append(newElement("tr", newElement("td", more, { colspan: 7 })));
  }
  document.querySelectorAll("#list thead th").forEach((head) => {
    const column = Number(head.firstElementChild.dataset.sort);
    if (column === state.sort) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  markCurrent();
}

function sortList(column) {
  state.down = state.sort === column ? !state.down : column > OBSERVED;
  state.sort = column;
  const turn = state.down ? -1 : 1;
  const compare = (a, b) => {
    if (a === null || b === null) return (b === null) - (a === null);
    return typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
  };
  state.rows.sort((a, b) => turn * compare(a[column], b[column]));
  fillList(MOST);
}

function markCurrent() {
  document.querySelectorAll("#list tbody tr").forEach((line) => {
    if (line.dataset.id === state.shown) line.setAttribute("aria-current", "true");
    else line.removeAttribute("aria-current");
  });
  document.getElementById("previous").disabled = neighbor(-1) === undefined;
  document.getElementById("next").disabled = neighbor(1) === undefined;
}

// ------------------------------------------------------------------------------------- one stay

const timeOf = (step) => `${listing.unit} ${Number((step * listing.step).toFixed(6))}`;

function fillStay(root, stay) {
  root.replaceChildren(template.content.cloneNode(true));
  for (const name of ["story", "says", "caveat", "risk", "range", "first", "reason"]) {
    find(name, root).textContent = stay[name];
  }
  find("why", root).hidden = !stay.reason;
  find("nocourse", root).hidden = stay.course;
  const term = (name, text, look = {}) => [newElement("dt", name, look), newElement("dd", text, look)];
  for (const name of ["given", "inferred", "side"]) {
    const list = find(name, root);
    list.replaceChildren(...stay[name].flatMap(([name, text]) => term(name, text)));
    list.hidden = list.previousElementSibling.hidden = !stay[name].length;
  }
  find("estimated", root).hidden = !stay.inferred.length;
  const empty = !stay.side.length && !stay.notes.length;
  find("side", root).previousElementSibling.hidden = empty;
  find("dimmed", root).hidden = empty;
  find("aside", root).hidden = empty && !stay.given.length && !stay.inferred.length;
  find("notes", root).replaceChildren(
    ...stay.notes.map(({ name, entries }) => {
      const late = (step) => stay.first_change >= 0 && step > stay.first_change;
      const lines = entries.flatMap(([step, text]) =>
        term(timeOf(step), text, late(step) ? { class: "after" } : {})
      );
      const summary = newElement("summary", `${name} (${entries.length})`);
      return newElement("details", [summary, newElement("dl", lines)]);
    })
  );
  const { table, caption } = stay.recorded;
  find("recorded", root).hidden = !table.length;
  if (table.length) fillTable(root.querySelector("table.values"), table);
  find("caption", root).textContent = caption;
  fillTable(find("numbers", root).querySelector("table"), stay.table);
  offerTables(root, `${listing.noun} ${stay.id} `);
  const chart = find("chart", root);
  chart.setAttribute("aria-label", stay.description);
  return chart;
}

const rowsOf = (stay, { paths, whole }) => {
  const rows = unpackRows(stay.datasets);
  const shown = paths ? rows : withoutPaths(rows);
  return whole ? shown : nearRows(shown, stay.near);
};

let turn = Promise.resolve(); // one after the other, however fast the keys are pressed
function showStay(id, focus = false) {
  turn = turn.then(() => drawStay(id, focus));
  return turn;
}

async function drawStay(id, focus) {
  if (state.shown === id) return;
  state.shown = id;
  const place = byId.get(id)?.[PLACE] ?? -1;
  if (place >= 0) await drawPicture(id, read(`stay-${place}`));
  else explainAbsence(id);
  markCurrent();
  if (focus) find("title").focus({ preventScroll: true });
}

// Say why an episode is not shown step by step, and how it can be; the numbers are those of the list.
function explainAbsence(id) {
  const row = byId.get(id);
  const name = `${listing.noun[0].toUpperCase()}${listing.noun.slice(1)} ${id}`;
  state.view?.finalize();
  state.view = state.stay = null;
  find("title").textContent = name;
  if (!row) {
    const scope = listing.scope && ` It lists only ${listing.scope}.`;
    find("body").replaceChildren(newElement("p", `This report has no ${listing.noun} ${id}.${scope}`));
    return;
  }
  const [chance, differs, range, thin] = row[WORDS];
  const number = listing.rows.indexOf(row) + 1;
  const numbers = [
    `What happened: ${listing.names[row[OBSERVED]]}.`,
    `Model, likeliest: ${listing.names[row[MODEL]]} ${chance}.`,
    `Differs by: ${differs}.`,
    range && `Worst to best case: ${range}, if the model is right.`,
    `Thin evidence: ${thin} of its steps.`,
    "A model estimate, not a fact.",
  ];
  find("body").replaceChildren(
    newElement("p", `${name} has no step-by-step page in this report, which has ${listing.included}.`),
    newElement("p", ["To include it: ", newElement("code", `butfor report AUDIT --episodes ${number}`)]),
    newElement("p", numbers.filter(Boolean).join(" "))
  );
}

async function drawPicture(id, stay) {
  state.stay = stay;
  find("title").textContent = stay.title;
  const body = find("body");
  const open = find("numbers", body)?.open;
  const closed = find("recorded", body)?.open === false;
  const old = state.view && find("chart", body);
  const chart = fillStay(body, stay);
  find("numbers", body).open = Boolean(open);
  find("recorded", body).open = !closed;
  const paths = find("paths", body);
  paths.hidden = !stay.datasets.draws.length;
  paths.setAttribute("aria-pressed", String(state.paths));
  paths.addEventListener("click", () => toggle("paths"));
  const whole = find("whole", body);
  whole.hidden = !stay.near;
  whole.replaceChildren(`Show up to ${stay.near?.until} `, newElement("kbd", "z"));
  whole.setAttribute("aria-pressed", String(state.whole));
  whole.addEventListener("click", () => toggle("whole"));
  if (old) {
    old.setAttribute("aria-label", stay.description);
    chart.replaceWith(old);
    await swapRows(state.view, rowsOf(stay, state));
  } else {
    state.view = await drawChart(chart, read("template").spec, rowsOf(stay, state));
  }
  find("chart", body).dataset.drawn = id;
}

// show or hide the sampled paths, or the whole horizon
async function toggle(what) {
  state[what] = !state[what];
  find(what).setAttribute("aria-pressed", String(state[what]));
  await swapRows(state.view, rowsOf(state.stay, state));
}

// the next or previous one in the list that has a page; from outside the list, its first
function neighbor(by) {
  let place = state.rows.findIndex((row) => row[ID] === state.shown) + by;
  while (state.rows[place] && state.rows[place][PLACE] < 0) place += by;
  return state.rows[place]?.[ID];
}

function move(by) {
  const id = neighbor(by);
  if (id !== undefined) openStay(id);
}

function openStay(id) {
  const address = `#stay-${encodeURIComponent(id)}`;
  if (location.hash === address) followAddress();
  else location.hash = address;
}

function followAddress() {
  if (!location.hash.startsWith("#stay-")) return;
  let id = location.hash.slice(6);
  try {
    id = decodeURIComponent(id);
  } catch {
    // not an address of ours: named as it is
  }
  document.getElementById("stay").scrollIntoView({ block: "start" });
  showStay(id, true);
}

// ----------------------------------------------------------------------------------------- print

const WIDEST = 1000; // pixels that a table of an episode may have on a screen to fit on paper
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((details) => { details.open = true; });
  document.querySelectorAll(".stay .wide table").forEach((table) => {
    table.style.zoom = Math.min(1, WIDEST / table.scrollWidth);
  });
});
window.addEventListener("afterprint", () => {
  opened.forEach((details) => { details.open = false; });
  document.querySelectorAll(".stay .wide table").forEach((table) => { table.style.zoom = ""; });
});

async function drawAll() {
  const all = document.getElementById("all-stays");
  const words = document.getElementById("print-words");
  const shown = listing.rows.filter((row) => row[PLACE] >= 0).sort((a, b) => a[PLACE] - b[PLACE]);
  const spec = read("template").spec;
  if (!all.childElementCount) {
    for (const [count, row] of shown.entries()) {
      const stay = read(`stay-${row[PLACE]}`);
      const body = newElement("div", []);
      const chart = fillStay(body, stay);
      all.append(newElement("section", [newElement("h2", stay.title), body], { class: "stay copy" }));
      await drawChart(chart, spec, rowsOf(stay, {}));
      words.textContent = `Drawing ${count + 1} of ${shown.length}`;
    }
  }
  words.textContent = "";
  document.body.classList.add("all");
  document.documentElement.dataset.printable = "all";
}

// ----------------------------------------------------------------------------------------- start

document.querySelectorAll(".cell").forEach((button) => {
  const [observed, model] = [Number(button.dataset.observed), Number(button.dataset.model)];
  button.addEventListener("click", () =>
    listRows((row) => row[OBSERVED] === observed && row[MODEL] === model, button.dataset.words, button)
  );
});
const filters = Object.fromEntries(
  [...document.querySelectorAll(".filter")].map((button) => [button.dataset.filter, button])
);
const listFlagged = () => listRows((row) => row[RANK] > 0, "flagged, to be read", filters.flagged);
const listAll = () => listRows(() => true, "all", filters.all);
offerTables(document);
offerDownload(document.querySelector(".scroll"), `list of ${listing.nouns}`, () => {
  const head = [...document.querySelectorAll("#list thead th")].map((cell) => cell.textContent);
  return [head, ...state.rows.map(listTexts)];
});
offerDownload(document.querySelector(".cells"), "what happened and what the model says", () => {
  const head = ["What happened", "Model", listing.nouns, "Expected", listing.scope ? "Listed" : "Thin"];
  const lines = [...document.querySelectorAll(".cell")].map((cell) => {
    const numbers = [...cell.querySelectorAll("b, small")].map((part) => part.textContent.split(" ").at(-1));
    return [listing.names[cell.dataset.observed], listing.names[cell.dataset.model], ...numbers];
  });
  return [head, ...lines];
});
filters.flagged.addEventListener("click", listFlagged);
filters.all.addEventListener("click", listAll);
document.querySelectorAll("#list thead button").forEach((button) => {
  button.addEventListener("click", () => sortList(Number(button.dataset.sort)));
});
document.getElementById("previous").addEventListener("click", () => move(-1));
document.getElementById("next").addEventListener("click", () => move(1));
document.getElementById("print-all")?.addEventListener("click", async () => {
  await drawAll();
  window.print();
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || !state.shown) return;
  if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "d" && state.stay?.datasets.draws.length) toggle("paths");
  else if (event.key === "z" && state.stay?.near) toggle("whole");
  else if (event.key === "n" && state.stay) find("numbers").open = !find("numbers").open;
});
window.addEventListener("hashchange", followAddress);

if (listing.rows.some((row) => row[RANK] > 0)) listFlagged();
else listAll();

const shape = matchMedia("(max-width: 30rem)").matches ? "narrow" : "spec";
const glance = read("glance");
await drawChart(document.getElementById("chart-estimates"), read("estimates")[shape]);
const everyone = document.getElementById("chart-glance");
const marks = await drawChart(everyone, glance[shape], unpackRows(glance.datasets), {
  renderer: glance.renderer,
});
marks.addEventListener("click", (event, item) => {
  if (item?.datum?.id !== undefined) openStay(item.datum.id);
});
const rehearsal = document.getElementById("chart-rehearsal");
if (rehearsal) await drawChart(rehearsal, read("rehearsal")[shape]);
const first = listing.rows.find((row) => row[PLACE] === 0);
if (location.hash.startsWith("#stay-")) followAddress();
await turn;
if (!state.shown && first) await showStay(first[ID]);
if (location.hash === "#print") await drawAll();
document.documentElement.dataset.ready = "yes";
