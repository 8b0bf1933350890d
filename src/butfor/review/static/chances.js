// The question about ten such cases: digits, arrows, steppers, and the remainder filled in.
(() => {
  "use strict";
  const OUT_OF = 10;
  const form = document.querySelector("#question");
  const fields = [...form.querySelectorAll("input[type=number]")];
  const total = form.querySelector("#total");
  const cannot = form.querySelector("#cannot");
  const reason = form.querySelector("#reason");
  const given = new Set(fields.filter((field) => field.value !== "")); // by the reviewer, not filled in

  const sum = (chosen) => chosen.reduce((all, field) => all + Number(field.value), 0);

  // What is left goes to the last open field; once nothing is left, to all of them.
  function complete() {
    const left = OUT_OF - sum([...given]);
    const open = fields.filter((field) => !given.has(field));
    for (const field of open) {
      field.value = left === 0 ? 0 : left > 0 && open.length === 1 ? left : "";
    }
    const all = sum(fields);
    total.textContent = all === OUT_OF ? "10 of 10" : `${all} of 10: ${all < OUT_OF ? `${OUT_OF - all} more` : `${all - OUT_OF} too many`}`;
    total.classList.toggle("right", all === OUT_OF);
    total.classList.toggle("over", all > OUT_OF);
    // the browser says so instead of sending a form in which nothing is typed
    const empty = fields.every((field) => field.value === "");
    fields[0].setCustomValidity(empty ? "Give a number for each outcome, or tick “Cannot tell”" : "");
  }

  function set(field, number) {
    field.value = Math.min(OUT_OF, Math.max(0, number));
    given.add(field);
    complete();
  }

  function move(field, by) {
    const next = fields[fields.indexOf(field) + by];
    if (next) { next.focus({ preventScroll: true }); next.select(); }
    return next;
  }

  // A 1 may become a 10; every other digit is complete, and a digit after a 1 is the next number.
  let begun = null;
  function typeDigit(field, digit) {
    if (begun === field && digit === 0) set(field, OUT_OF);
    else if (begun === field) {
      begun = null;
      const next = move(field, 1);
      if (next) return typeDigit(next, digit);
    } else set(field, digit);
    begun = digit === 1 ? field : null;
    if (!begun) move(field, 1);
  }

  const ARROWS = { ArrowLeft: -1, ArrowRight: 1 };
  const STEPS = { ArrowUp: 1, ArrowDown: -1 };
  for (const field of fields) {
    field.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (/^\d$/.test(event.key)) {
        event.preventDefault();
        return typeDigit(field, Number(event.key));
      }
      begun = null;
      if (event.key in ARROWS) move(field, ARROWS[event.key]);
      else if (event.key in STEPS) set(field, Number(field.value) + STEPS[event.key]);
      else if (event.key.length !== 1) return; // Tab, Enter, Backspace
      event.preventDefault();
    });
    field.addEventListener("blur", () => { begun = null; });
    field.addEventListener("input", () => { // a keyboard on a screen, or deleting
      if (field.value === "") given.delete(field); else given.add(field);
      complete();
    });
  }
  form.addEventListener("click", (event) => {
    const button = event.target.closest("[data-add]");
    const field = button?.parentElement.querySelector("input");
    if (field) set(field, Number(field.value) + Number(button.dataset.add));
  });

  const toggle = () => {
    for (const field of fields) field.disabled = cannot.checked;
    (cannot.checked ? reason : fields[0]).focus({ preventScroll: true });
  };
  cannot.addEventListener("change", toggle);
  addEventListener("keydown", (event) => {
    const typing = event.target.matches("input:not([type=number], [type=radio], [type=checkbox])");
    if (event.ctrlKey || event.altKey || event.metaKey || typing || document.querySelector("#keys").open) return;
    if (event.key === "x") {
      event.preventDefault();
      cannot.checked = !cannot.checked;
      toggle();
    } else if (/^\d$/.test(event.key) && !fields.includes(event.target) && !cannot.checked) {
      event.preventDefault();
      const field = fields.find((one) => !given.has(one)) ?? fields[0];
      field.focus({ preventScroll: true });
      typeDigit(field, Number(event.key));
    }
  });

  complete();
  if (cannot.checked) toggle();
  else if (matchMedia("(min-width: 75rem)").matches) fields[0].focus({ preventScroll: true });
})();
