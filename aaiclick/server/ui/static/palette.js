// Command palette (Ctrl-K): search by name or id. Without scripts the search field opens the results page.
let dialog = null;

function createDialog() {
  dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "Search");
  dialog.innerHTML = '<form method="dialog"><input type="search" role="combobox" aria-expanded="true" aria-autocomplete="list" aria-controls="palette-results" aria-label="Search jobs, tasks, DAGs, datasets, pages" placeholder="Job, DAG, dataset, id, page …" autocomplete="off" spellcheck="false"></form><ul class="results" id="palette-results" role="listbox" aria-label="Results"></ul><p class="none dim" role="status"></p>';
  document.body.append(dialog);
  const input = dialog.querySelector("input");
  let timer = 0, requests = 0;
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => search(input.value, ++requests, () => requests), 120); });
  input.addEventListener("keydown", (event) => {
    const links = [...dialog.querySelectorAll(".results a")];
    const at = links.findIndex((link) => link.getAttribute("aria-selected") === "true");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      select(links, (at + (event.key === "ArrowDown" ? 1 : -1) + links.length) % links.length);
    } else if (event.key === "Escape") {  // the browser's default only clears the field
      event.preventDefault();
      dialog.close();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (links.length) location.assign(links[Math.max(0, at)].href);
    }
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}

function select(links, index) {
  links.forEach((link, number) => link.setAttribute("aria-selected", String(number === index)));
  dialog.querySelector("input").setAttribute("aria-activedescendant", links[index]?.id ?? "");
  links[index]?.scrollIntoView({ block: "nearest" });
}

async function search(text, number, newest) {
  const response = await fetch(`/search?q=${encodeURIComponent(text)}`, { headers: { "X-Refresh": "1" } });
  if (!response.ok || number !== newest()) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  const results = fresh.querySelector(".results");
  dialog.querySelector(".results").replaceChildren(...[...(results?.children ?? [])].map((item) => document.importNode(item, true)));
  const links = [...dialog.querySelectorAll(".results a")];
  links.forEach((link, index) => {
    link.parentElement.setAttribute("role", "none");
    link.setAttribute("role", "option");
    link.tabIndex = -1;
    link.id = `palette-result-${index}`;
  });
  dialog.querySelector(".none").textContent = links.length ? "" : "No results";
  select(links, 0);
}

export function openPalette() {
  if (!dialog) createDialog();
  if (dialog.open) return;
  dialog.showModal();
  const input = dialog.querySelector("input");
  input.value = "";
  input.focus();
  search("", 0, () => 0);
}

export function startPalette() {
  if (!document.body.dataset.live) return;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); openPalette(); }
  });
}
