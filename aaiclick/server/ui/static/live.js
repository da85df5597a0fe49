// Pages stay fresh: when the server says that something changed, the page is asked for again and what differs is put in
// place. How often, the server says (X-Pace): all open pages together take a small share of its time.
// An answer may be a moment old (X-Again says until when): then the page asks once more, lest the last news be missed.
// A list (data-list) changes its rows where they stand; new ones wait behind a pill until they are asked for.
import { morph } from "./morph.js";
import { count } from "./times.js";

let pace = 1, timer = 0, wanted = "", busy = false, last = 0, later = 0;

function state(on) {
  for (const element of document.querySelectorAll("[data-live-state]")) {
    element.dataset.on = on;
    element.lastElementChild.textContent = on === "yes" ? "Live" : "Reconnecting";
  }
}

function concerns(jobs) {
  const only = document.body.querySelector("[data-job]")?.dataset.job;
  return !only || jobs === null || jobs.includes(only);
}

export function refreshSoon(why = "news") {
  wanted = wanted || why;
  if (timer || busy || document.hidden) return;
  timer = setTimeout(refresh, Math.max(0, last + pace * 1000 - Date.now()));
}

async function refresh() {
  timer = 0;
  if (!wanted || busy || document.hidden) return;
  const because = wanted;
  wanted = "";
  busy = true;
  try {
    const response = await fetch(location.href, { headers: { "X-Refresh": "1" }, redirect: "manual" });
    pace = Number(response.headers.get("X-Pace")) || pace;
    if (because === "news") askAgain(Number(response.headers.get("X-Again")));
    if (response.ok) apply(new DOMParser().parseFromString(await response.text(), "text/html"));
  } catch {
    // the server is away: the stream says when it is back
  } finally {
    busy = false;
    last = Date.now();
    if (wanted) refreshSoon(wanted);
    again();
  }
}

function askAgain(seconds) {
  clearTimeout(later);
  if (seconds > 0) later = setTimeout(() => refreshSoon("again"), seconds * 1000 + 100);
}

export function apply(fresh) {
  for (const region of document.querySelectorAll("[data-region]")) {
    const next = fresh.getElementById(region.id);
    if (!next) continue;
    if (region.dataset.region === "list") list(region, next);
    else morph(region, next);
  }
  count();
  document.dispatchEvent(new CustomEvent("refreshed"));
}

function list(old, fresh) {
  const rows = new Map([...old.querySelectorAll("tr[data-key]")].map((row) => [row.dataset.key, row]));
  if (!rows.size) return morph(old, fresh);
  let news = 0;
  for (const row of fresh.querySelectorAll("tr[data-key]")) {
    const known = rows.get(row.dataset.key);
    if (known) morph(known, row);
    else news += 1;
  }
  const pill = document.querySelector("[data-news]");
  if (pill) {
    pill.hidden = news === 0;
    pill.textContent = news === 1 ? "1 new" : `${news} new`;
    pill.onclick = () => { morph(old, fresh); pill.hidden = true; count(); };
  }
}

let beat = 0;
function again() {
  clearTimeout(beat);
  const active = document.querySelector("[data-active]");
  if (active) beat = setTimeout(() => refreshSoon("again"), Math.max(2, pace) * 1000);
}

export function startLive() {
  const where = document.body.dataset.live;
  pace = Number(document.body.dataset.pace) || 1;
  last = Date.now();
  if (!where || !document.querySelector("[data-region]")) return;
  const source = new EventSource(where);
  source.addEventListener("ready", () => state("yes"));
  source.addEventListener("reset", () => { state("yes"); refreshSoon(); });
  source.addEventListener("changed", (event) => { state("yes"); if (concerns(JSON.parse(event.data).jobs)) refreshSoon(); });
  source.onerror = () => state("no");
  document.addEventListener("visibilitychange", () => { if (!document.hidden && wanted) refreshSoon(wanted); });
  addEventListener("pagehide", () => source.close());
  askAgain(Number(document.body.dataset.again));
  again();
}
