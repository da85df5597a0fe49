// Live updates: on a change event the page is fetched again and its regions are patched in place.
// X-Refresh-Interval limits how often, so that all open pages together use little of the server's time.
// X-Stale-Seconds is set if the response used cached values; the page is then fetched once more after they expire.
// In a list (data-region="list") existing rows are patched; new rows are shown on a click on the "n new" button.
import { morph } from "./morph.js";
import { updateTimes } from "./times.js";

let interval = 1, timer = 0, pendingReason = "", busy = false, lastRefresh = 0, staleTimer = 0;

function showConnection(on) {
  for (const element of document.querySelectorAll("[data-live-state]")) {
    element.dataset.on = on;
    element.lastElementChild.textContent = on === "yes" ? "Live" : "Reconnecting";
  }
}

function concernsPage(jobs) {
  const jobId = document.body.querySelector("[data-job]")?.dataset.job;
  return !jobId || jobs === null || jobs.includes(jobId);
}

export function scheduleRefresh(reason = "change") {
  pendingReason = pendingReason || reason;
  if (timer || busy || document.hidden) return;
  timer = setTimeout(refresh, Math.max(0, lastRefresh + interval * 1000 - Date.now()));
}

async function refresh() {
  timer = 0;
  if (!pendingReason || busy || document.hidden) return;
  const reason = pendingReason;
  pendingReason = "";
  busy = true;
  try {
    const response = await fetch(location.href, { headers: { "X-Refresh": "1" }, redirect: "manual" });
    interval = Number(response.headers.get("X-Refresh-Interval")) || interval;
    if (reason === "change") refreshWhenStale(Number(response.headers.get("X-Stale-Seconds")));
    if (response.ok) applyRegions(new DOMParser().parseFromString(await response.text(), "text/html"));
  } catch {
    // the server is unreachable; the event stream reconnects
  } finally {
    busy = false;
    lastRefresh = Date.now();
    if (pendingReason) scheduleRefresh(pendingReason);
    schedulePolling();
  }
}

function refreshWhenStale(seconds) {
  clearTimeout(staleTimer);
  if (seconds > 0) staleTimer = setTimeout(() => scheduleRefresh("poll"), seconds * 1000 + 100);
}

export function applyRegions(fresh) {
  for (const region of document.querySelectorAll("[data-region]")) {
    const next = fresh.getElementById(region.id);
    if (!next) continue;
    if (region.dataset.region === "list") patchList(region, next);
    else morph(region, next);
  }
  updateTimes();
  document.dispatchEvent(new CustomEvent("refreshed"));
}

function patchList(old, fresh) {
  const rows = new Map([...old.querySelectorAll("tr[data-key]")].map((row) => [row.dataset.key, row]));
  if (!rows.size) return morph(old, fresh);
  let newRows = 0;
  for (const row of fresh.querySelectorAll("tr[data-key]")) {
    const oldRow = rows.get(row.dataset.key);
    if (oldRow) morph(oldRow, row);
    else newRows += 1;
  }
  const pill = document.querySelector("[data-news]");
  if (pill) {
    pill.hidden = newRows === 0;
    pill.textContent = newRows === 1 ? "1 new" : `${newRows} new`;
    pill.onclick = () => { morph(old, fresh); pill.hidden = true; updateTimes(); };
  }
}

let pollTimer = 0;
function schedulePolling() {
  clearTimeout(pollTimer);
  const active = document.querySelector("[data-active]");
  if (active) pollTimer = setTimeout(() => scheduleRefresh("poll"), Math.max(2, interval) * 1000);
}

export function startLive() {
  const url = document.body.dataset.live;
  interval = Number(document.body.dataset.refreshInterval) || 1;
  lastRefresh = Date.now();
  if (!url || !document.querySelector("[data-region]")) return;
  const source = new EventSource(url);
  source.addEventListener("ready", () => showConnection("yes"));
  source.addEventListener("reset", () => { showConnection("yes"); scheduleRefresh(); });
  source.addEventListener("changed", (event) => { showConnection("yes"); if (concernsPage(JSON.parse(event.data).jobs)) scheduleRefresh(); });
  source.onerror = () => showConnection("no");
  document.addEventListener("visibilitychange", () => { if (!document.hidden && pendingReason) scheduleRefresh(pendingReason); });
  addEventListener("pagehide", () => source.close());
  refreshWhenStale(Number(document.body.dataset.staleSeconds));
  schedulePolling();
}
