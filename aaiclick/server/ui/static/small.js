// Copy buttons, picking rows, toasts, questions before what cannot be undone.

export function toast(words, kind = "good") {
  const element = document.createElement("div");
  element.className = `toast ${kind}`;
  element.textContent = words;
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), 4000);
}

export function startCopies() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      const field = document.createElement("textarea");
      field.value = button.dataset.copy;
      button.after(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    button.dataset.done = "yes";
    setTimeout(() => delete button.dataset.done, 1200);
  });
}

function show(form) {
  const strip = form.querySelector(".picked");
  if (!strip) return;
  const boxes = [...form.querySelectorAll("tbody input[type=checkbox]")], picked = boxes.filter((box) => box.checked).length;
  for (const button of strip.querySelectorAll("button")) button.disabled = picked === 0;
  const words = strip.querySelector("[data-picked]");
  if (words) words.textContent = picked ? `${picked} picked` : "Pick rows to act on them together";
  const all = form.querySelector("[data-all]");
  if (all) { all.checked = picked > 0 && picked === boxes.length; all.indeterminate = picked > 0 && picked < boxes.length; }
}

export function startSelections() {
  for (const form of document.querySelectorAll("form[data-pick]")) {
    const all = form.querySelector("[data-all]");
    if (all) all.hidden = false;
    form.addEventListener("change", (event) => {
      if (event.target === all) for (const box of form.querySelectorAll("tbody input[type=checkbox]")) box.checked = all.checked;
      show(form);
    });
    document.addEventListener("refreshed", () => show(form));
    show(form);
  }
}

export function startToasts() {
  for (const element of document.querySelectorAll("[data-toast]")) setTimeout(() => element.remove(), element.querySelector("form") ? 10000 : 5000);
}

export function startConfirmations() {
  document.addEventListener("submit", (event) => {
    const words = event.submitter?.dataset.confirm || event.target.dataset.confirm;
    if (words && !confirm(words)) event.preventDefault();
  });
}

// On a small screen the menu is wider than the window: where one is, is in sight.
export function startMenu() {
  const menu = document.querySelector(".side nav"), here = menu?.querySelector("[aria-current]");
  if (here) menu.scrollLeft = here.offsetLeft - (menu.clientWidth - here.offsetWidth) / 2;
}
