// Copy buttons, row selection, toasts and confirmations.

export function toast(text, level = "good") {
  const element = document.createElement("div");
  element.className = `toast ${level}`;
  element.textContent = text;
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

function updateSelection(form) {
  const toolbar = form.querySelector(".selection");
  if (!toolbar) return;
  const boxes = [...form.querySelectorAll("tbody input[type=checkbox]")], selected = boxes.filter((box) => box.checked).length;
  for (const button of toolbar.querySelectorAll("button")) button.disabled = selected === 0;
  const label = toolbar.querySelector("[data-selected]");
  if (label) label.textContent = selected ? `${selected} selected` : "Select rows for bulk actions";
  const all = form.querySelector("[data-all]");
  if (all) { all.checked = selected > 0 && selected === boxes.length; all.indeterminate = selected > 0 && selected < boxes.length; }
}

export function startSelections() {
  for (const form of document.querySelectorAll("form[data-selection]")) {
    const all = form.querySelector("[data-all]");
    if (all) all.hidden = false;
    form.addEventListener("change", (event) => {
      if (event.target === all) for (const box of form.querySelectorAll("tbody input[type=checkbox]")) box.checked = all.checked;
      updateSelection(form);
    });
    document.addEventListener("refreshed", () => updateSelection(form));
    updateSelection(form);
  }
}

export function startToasts() {
  for (const element of document.querySelectorAll("[data-toast]")) setTimeout(() => element.remove(), element.querySelector("form") ? 10000 : 5000);
}

export function startConfirmations() {
  document.addEventListener("submit", (event) => {
    const question = event.submitter?.dataset.confirm || event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });
}

// On a small screen the menu is wider than the window: scroll to the current entry.
export function startMenu() {
  const menu = document.querySelector(".side nav"), here = menu?.querySelector("[aria-current]");
  if (here) menu.scrollLeft = here.offsetLeft - (menu.clientWidth - here.offsetWidth) / 2;
}
