// The review app: pictures, keys, drafts. Everything else works without it.
(() => {
  "use strict";
  const find = (selector) => document.querySelector(selector);
  const json = async (address) => {
    const answer = await fetch(address, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
    return answer.json();
  };

  // ----------------------------------------------------------------------------------- pictures

  const paths = { shown: false, rows: null, view: null };
  async function draw(element) {
    const chart = json(element.dataset.chart);
    const given = element.dataset.rows ? json(element.dataset.rows) : null;
    const { spec, datasets } = await chart;
    const rows = given ? (await given).datasets : datasets;
    const marks = rows.marks ? rows.marks.length : 0;
    const first = given ? { ...rows, draws: [], draw_ends: [] } : rows;
    const view = await drawChart(element, spec, first, marks > 2500 ? { renderer: "canvas" } : {});
    if (given) Object.assign(paths, { rows, view });
    const button = find("#paths");
    if (given && button) button.hidden = !(rows.draws || []).length;
    element.dataset.drawn = "yes";
  }

  async function togglePaths() {
    const button = find("#paths");
    if (!button || button.hidden || !paths.view) return;
    paths.shown = !paths.shown;
    button.setAttribute("aria-pressed", String(paths.shown));
    const { draws, draw_ends } = paths.rows;
    await swapRows(paths.view, paths.shown ? { draws, draw_ends } : { draws: [], draw_ends: [] });
  }
  find("#paths")?.addEventListener("click", togglePaths);

  // ------------------------------------------------------------------------- drafts and seconds

  const form = find("#verdict");
  const seconds = form?.elements.seconds;
  let lastActive = Date.now();
  for (const kind of ["keydown", "pointermove", "pointerdown", "scroll"]) {
    addEventListener(kind, () => { lastActive = Date.now(); }, { passive: true });
  }
  if (seconds) {
    setInterval(() => {
      if (!document.hidden && Date.now() - lastActive < 60000) seconds.value = Number(seconds.value) + 1;
    }, 1000);
  }

  const FIELDS = ["verdict", "variable", "step", "sure", "comment"];
  const content = () => {
    const data = new FormData(form);
    return Object.fromEntries(FIELDS.map((name) => [name, data.get(name) || ""]));
  };
  if (form?.dataset.draft) {
    let saved = JSON.stringify(content());
    const status = find("#draft");
    const keep = async () => {
      const now = content();
      if (JSON.stringify(now) === saved) return;
      const body = { form: now, run: form.dataset.run, place: Number(form.dataset.place) };
      try {
        const answer = await fetch(form.dataset.draft, {
          method: "POST",
          headers: { "Content-Type": "application/json", "X-CSRF-Token": form.elements.csrf.value },
          body: JSON.stringify(body),
          credentials: "same-origin",
        });
        status.textContent = answer.ok ? "Draft kept" : "The draft could not be kept: save, or copy it";
        if (answer.ok) saved = JSON.stringify(now);
      } catch {
        status.textContent = "The review does not answer; what you write is only here";
      }
    };
    const timer = setInterval(keep, 5000);
    form.addEventListener("submit", () => clearInterval(timer));
  }

  // ----------------------------------------------------------------------------------------- keys

  const open = (link) => { if (link) location.assign(link.href); };
  const submit = (button) => button?.form.requestSubmit(button);
  let leaving = false;  // a form is sent once
  addEventListener("submit", (event) => {
    if (leaving) event.preventDefault();
    leaving = true;
  });
  addEventListener("pageshow", () => { leaving = false; });
  const typing = (target) =>
    target.isContentEditable ||
    /^(TEXTAREA|SELECT)$/.test(target.tagName) ||
    (target.tagName === "INPUT" && !/^(radio|checkbox|button|submit)$/.test(target.type));
  const help = find("#keys");
  const showKeys = (event) => { event?.preventDefault(); help.showModal(); };
  let before = "";

  addEventListener("keydown", (event) => {
    if (help.open) return;
    if (event.ctrlKey && event.key === "Enter") {
      const main = find("form.card button.main");
      if (main) { event.preventDefault(); if (!event.repeat) submit(main); }
      return;
    }
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const last = before;
    before = event.key;
    const choice = /^[1-5]$/.test(event.key) && form?.querySelector(`[name=verdict][value="${event.key}"]`);
    if (choice) { choice.checked = true; choice.focus(); choice.dispatchEvent(new Event("change", { bubbles: true })); }
    else if (event.key === "j") open(find("#next"));
    else if (event.key === "k") open(find("#previous"));
    else if (event.key === "c") { const field = find("#comment, #first_impression"); if (field) { event.preventDefault(); field.focus(); } }
    else if (event.key === "d") togglePaths();
    else if (event.key === "n") { const numbers = find("#numbers"); if (numbers) numbers.open = !numbers.open; }
    else if (event.key === "s") submit(find("#skip"));
    else if (event.key === "u") submit(find("form.undo button"));
    else if (event.key === "q" && last === "g") location.assign("/");
    else if (event.key === "?") showKeys(event);
    else if (event.key === "Enter" && event.target === document.body) open(find("#continue"));
  });

  addEventListener("DOMContentLoaded", async () => {
    find(".wrong input, .wrong select, .wrong textarea")?.focus();
    await Promise.all([...document.querySelectorAll("[data-chart]")].map(draw));
    document.documentElement.dataset.ready = "yes";
  });
})();
