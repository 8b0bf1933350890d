// The review app: pictures, keys, drafts. Everything else works without it.
(() => {
  "use strict";
  const find = (selector) => document.querySelector(selector);
  const json = async (address) => {
    const answer = await fetch(address, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
    const straight = (key, value) =>
      typeof value === "string" ? value.replace(/[\u202a-\u202e\u2066-\u2069]/g, "") : value;
    return JSON.parse(await answer.text(), straight); // remove characters that reverse the text around them
  };

  // ----------------------------------------------------------------------------------- pictures

  const picture = { paths: false, whole: false, rows: null, near: null, view: null };
  const rowsShown = () => {
    const rows = picture.paths ? picture.rows : withoutPaths(picture.rows);
    return picture.whole ? rows : nearRows(rows, picture.near);
  };
  async function draw(element) {
    const chart = json(element.dataset.chart);
    const given = element.dataset.rows ? json(element.dataset.rows) : null;
    const { spec, datasets } = await chart;
    if (given) {
      const { datasets: rows, near } = await given;
      Object.assign(picture, { rows, near });
      picture.view = await drawChart(element, spec, rowsShown());
      const [paths, whole] = [find("#paths"), find("#whole")];
      if (paths) paths.hidden = !(rows.draws || []).length;
      whole.hidden = !near;
      if (near) whole.replaceChildren(`Show up to ${near.until} `, newElement("kbd", "z"));
    } else {
      const marks = datasets.marks ? datasets.marks.length : 0;
      await drawChart(element, spec, datasets, marks > 2500 ? { renderer: "canvas" } : {});
    }
    element.dataset.drawn = "yes";
  }

  // show or hide the sampled paths, or the whole horizon
  async function toggle(what) {
    const button = find(`#${what}`);
    if (!button || button.hidden || !picture.view) return;
    picture[what] = !picture[what];
    button.setAttribute("aria-pressed", String(picture[what]));
    await swapRows(picture.view, rowsShown());
  }
  for (const what of ["paths", "whole"]) find(`#${what}`)?.addEventListener("click", () => toggle(what));

  // ------------------------------------------------------------------------- drafts and seconds

  const form = find("#verdict");
  const written = find("#verdict, #question, #impression");
  const seconds = written?.elements.seconds;
  let lastActive = Date.now();
  for (const kind of ["keydown", "pointermove", "pointerdown", "scroll"]) {
    addEventListener(kind, () => { lastActive = Date.now(); }, { passive: true });
  }
  if (seconds) {
    setInterval(() => {
      if (!document.hidden && Date.now() - lastActive < 60000) seconds.value = Number(seconds.value) + 1;
    }, 1000);
  }

  const UNWRITTEN = ["csrf", "run", "version", "place", "seconds"];
  const content = () => Object.fromEntries([...new FormData(written)].filter(([name]) => !UNWRITTEN.includes(name)));

  // only the fields that the chosen verdict needs; style sheets hide the others
  const chooseFields = () => {
    const chosen = form.elements.verdict.value;
    for (const part of form.querySelectorAll("[data-for]")) {
      const needed = part.dataset.for.includes(chosen) || part.matches(".wrong");
      for (const field of part.querySelectorAll("input, select")) field.disabled = Boolean(chosen) && !needed;
    }
  };

  // What is sent is remembered in this window until a page other than the sign-in appears: if the
  // session had ended, it returns to the form afterwards, for the same reviewer.
  const reviewer = document.body.dataset.reviewer;
  const run = written?.elements.run.value;
  const place = written?.elements.place?.value ?? "";
  const page = { path: location.pathname, form: written?.id, run, place };
  const again = (other) => other.path === page.path && other.form === page.form && (other.run !== run || other.place === place);
  const clock = `seconds ${reviewer} ${Object.values(page).join(" ")}`;
  let saved = written && JSON.stringify(content());
  let sent = JSON.parse(sessionStorage.getItem("sent"));
  if (sent && reviewer && sent.reviewer !== reviewer) sent = null;
  // A page that is loaded again may have been made before the draft arrived that was sent last.
  let left = JSON.parse(sessionStorage.getItem("left"));
  if (left && (left.reviewer !== reviewer || Date.now() - left.at > 10000)) left = null;
  sessionStorage.removeItem("left");
  if (sent && find("#typed")) {
    find("#again").textContent = "It is not saved, but remembered in this window: it will return to the form when you have signed in, if the page still has one.";
  } else if (reviewer) {
    const last = [sent, left].find((one) => one && written && again(one.page));
    for (const [name, value] of last?.content ?? []) {
      const field = written.elements[name];
      if (field?.type === "checkbox") field.checked = true;
      else if (field) field.value = value;
    }
    sessionStorage.removeItem("sent");
  }
  if (seconds) seconds.value = Math.max(seconds.value, sessionStorage.getItem(clock));

  if (form) {
    form.addEventListener("change", chooseFields);
    chooseFields();
  }

  let leaving = false; // a form is sent only once
  addEventListener("submit", (event) => {
    if (event.target.method === "dialog") return;
    if (leaving) event.preventDefault();
    leaving = true;
    sessionStorage.removeItem(clock);
    if (event.target === written) {
      const words = Object.entries({ ...content(), ...(seconds && { seconds: seconds.value }) });
      sessionStorage.setItem("sent", JSON.stringify({ reviewer, page, content: words }));
    } else if (reviewer) sessionStorage.removeItem("sent");
  });
  addEventListener("pageshow", () => { leaving = false; });

  if (reviewer && written) addEventListener("pagehide", () => {
    if (leaving || JSON.stringify(content()) === saved) return;
    sessionStorage.setItem("left", JSON.stringify({ reviewer, page, at: Date.now(), content: Object.entries(content()) }));
  });
  if (seconds) addEventListener("pagehide", () => { if (!leaving) sessionStorage.setItem(clock, seconds.value); });
  if (form?.dataset.draft) {
    const status = find("#draft");
    const keep = async () => {
      const now = content();
      if (JSON.stringify(now) === saved || leaving) return;
      const body = { form: { ...now, seconds: seconds.value }, run: form.dataset.run, place: Number(form.dataset.place) };
      try {
        const answer = await fetch(form.dataset.draft, {
          method: "POST",
          headers: { "Content-Type": "application/json", "X-CSRF-Token": form.elements.csrf.value },
          body: JSON.stringify(body),
          credentials: "same-origin",
          keepalive: true, // even while the page is closing
        });
        if (answer.ok) saved = JSON.stringify(now);
        status.textContent = answer.ok ? "Draft saved"
          : answer.status === 401 ? "You are no longer signed in: press save, then sign in; nothing is lost"
          : "The draft could not be saved: press save, or copy it";
      } catch {
        status.textContent = "The review does not respond; what you write is only in this window";
      }
    };
    setInterval(keep, 5000);
    addEventListener("pagehide", keep);
    document.addEventListener("visibilitychange", () => { if (document.hidden) keep(); });
  }

  // ----------------------------------------------------------------------------------------- keys

  const open = (link) => { if (link) location.assign(link.href); };
  const submit = (button) => button?.form.requestSubmit(button);
  const typing = (target) =>
    target.isContentEditable ||
    /^(TEXTAREA|SELECT)$/.test(target.tagName) ||
    (target.tagName === "INPUT" && !/^(radio|checkbox|button|submit|number)$/.test(target.type));
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
    else if (event.key === "d") toggle("paths");
    else if (event.key === "z") toggle("whole");
    else if (event.key === "n") { const numbers = find("#numbers"); if (numbers) numbers.open = !numbers.open; }
    else if (event.key === "s") submit(find("#skip"));
    else if (event.key === "u") submit(find("form.undo button"));
    else if (event.key === "q" && last === "g") location.assign("/");
    else if (event.key === "?") showKeys(event);
    else if (event.key === "Enter" && event.target === document.body) {
      if (find("#continue")) open(find("#continue"));
      else submit(find("form.card button.main"));
    }
  });

  const name = find("#reviewer"); // another reviewer types over the remembered name
  name?.addEventListener("focus", () => name.select());
  if (name && name === document.activeElement) name.select();

  addEventListener("DOMContentLoaded", async () => {
    const wrong = find(".wrong input, .wrong select, .wrong textarea");
    const showWrong = () => {
      if (wrong && wrong === document.activeElement) wrong.closest(".wrong").scrollIntoView({ block: "center" });
    };
    wrong?.focus();
    showWrong();
    await Promise.all([...document.querySelectorAll("[data-chart]")].map(draw));
    showWrong(); // the pictures have moved it
    document.documentElement.dataset.ready = "yes";
  });
})();
