// Keyboard shortcuts: j/k move between rows, Enter opens, x selects, / searches, g + letter opens a page, ? shows help.
const PAGES = { o: "/", j: "/jobs", d: "/dead-letters", q: "/queues", w: "/workers", g: "/dags", t: "/datasets", s: "/schedules", b: "/objects", a: "/admin" };
const HELP = [["Ctrl K", "Command palette"], ["/", "Search this list"], ["j  k", "Next, previous row"], ["Enter", "Open the row"], ["x", "Select the row"],
  ["g o", "Overview"], ["g j", "Jobs"], ["g d", "Dead letters"], ["g q", "Queues"], ["g w", "Workers"], ["g g", "DAGs"], ["g t", "Datasets"], ["g s", "Schedules"], ["g b", "Objects"], ["?", "This help"]];
let prefixTime = 0; // when "g" was pressed

function rows() { return [...document.querySelectorAll("tbody tr[data-key]")]; }

function moveFocus(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("focused"));
  all[at]?.classList.remove("focused");
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))] ?? all[0];
  next.classList.add("focused");
  next.querySelector("a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function showHelp() {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "Keyboard shortcuts");
  const list = document.createElement("dl");
  list.className = "keys";
  for (const [keys, description] of HELP) {
    const term = document.createElement("dt"), text = document.createElement("dd"), cap = document.createElement("kbd");
    cap.textContent = keys;
    term.append(cap);
    text.textContent = description;
    list.append(term, text);
  }
  dialog.append(list);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (Date.now() - prefixTime < 1200 && PAGES[event.key]) { prefixTime = 0; location.assign(PAGES[event.key]); return; }
    const row = document.querySelector("tr.focused");
    if (event.key === "g") prefixTime = Date.now();
    else if (event.key === "j") moveFocus(1);
    else if (event.key === "k") moveFocus(-1);
    else if (event.key === "x") row?.querySelector("input[type=checkbox]")?.click();
    else if (event.key === "?") showHelp();
    else if (event.key === "/") { event.preventDefault(); (document.querySelector("main input[type=search]") ?? document.querySelector("[data-palette]"))?.focus(); }
  });
}
