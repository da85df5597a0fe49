// j and k walk through rows, Enter opens, x picks, / searches, g then a letter goes to a page, ? shows all this.
const PLACES = { o: "/", j: "/jobs", d: "/dead-letters", q: "/queues", w: "/workers", g: "/dags", t: "/datasets", s: "/schedules", b: "/objects", a: "/admin" };
const HELP = [["Ctrl K", "Go anywhere"], ["/", "Search this list"], ["j  k", "Next, previous row"], ["Enter", "Open the row"], ["x", "Pick the row"],
  ["g o", "Overview"], ["g j", "Jobs"], ["g d", "Dead letters"], ["g q", "Queues"], ["g w", "Workers"], ["g g", "DAGs"], ["g t", "Datasets"], ["g s", "Schedules"], ["g b", "Objects"], ["?", "This list"]];
let going = 0;

function rows() { return [...document.querySelectorAll("tbody tr[data-key]")]; }

function walk(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("focused"));
  all[at]?.classList.remove("focused");
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))] ?? all[0];
  next.classList.add("focused");
  next.querySelector("a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function help() {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "Keyboard");
  const list = document.createElement("dl");
  list.className = "keys";
  for (const [press, words] of HELP) {
    const term = document.createElement("dt"), text = document.createElement("dd"), cap = document.createElement("kbd");
    cap.textContent = press;
    term.append(cap);
    text.textContent = words;
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
    if (Date.now() - going < 1200 && PLACES[event.key]) { going = 0; location.assign(PLACES[event.key]); return; }
    const row = document.querySelector("tr.focused");
    if (event.key === "g") going = Date.now();
    else if (event.key === "j") walk(1);
    else if (event.key === "k") walk(-1);
    else if (event.key === "x") row?.querySelector("input[type=checkbox]")?.click();
    else if (event.key === "?") help();
    else if (event.key === "/") { event.preventDefault(); (document.querySelector("main input[type=search]") ?? document.querySelector("[data-palette]"))?.focus(); }
  });
}
