// Relative times go on counting; the exact one, in the reader's own zone, is in the title.
const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

function rough(seconds) {
  for (const [unit, length] of UNITS) if (seconds >= length) return `${Math.round(seconds / length)} ${unit}`;
  return `${Math.round(seconds)} s`;
}

export function ago(then, now) {
  const seconds = (now - then) / 1000;
  if (Math.abs(seconds) < 2) return "just now";
  return seconds > 0 ? `${rough(seconds)} ago` : `in ${rough(-seconds)}`;
}

export function duration(seconds) {
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds), two = (value) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function count() {
  const now = Date.now();
  for (const element of document.querySelectorAll("time[datetime]")) {
    const then = Date.parse(element.dateTime);
    set(element, ago(then, now));
    if (!element.dataset.local) {
      element.dataset.local = "yes";
      element.title = `${new Date(then).toLocaleString()} · ${element.title}`;
    }
  }
  for (const element of document.querySelectorAll("[data-since]")) {
    set(element, duration((now - Date.parse(element.dataset.since)) / 1000));
  }
}

export function startTimes() {
  count();
  setInterval(count, 1000);
}
