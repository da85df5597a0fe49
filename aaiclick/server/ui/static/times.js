// Updates relative times every second; the title has the exact time in the browser's timezone.
const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

function roundToUnit(seconds) {
  for (const [unit, length] of UNITS) if (seconds >= length) return `${Math.round(seconds / length)} ${unit}`;
  return `${Math.round(seconds)} s`;
}

export function formatRelativeTime(then, now) {
  const seconds = (now - then) / 1000;
  if (Math.abs(seconds) < 2) return "just now";
  return seconds > 0 ? `${roundToUnit(seconds)} ago` : `in ${roundToUnit(-seconds)}`;
}

export function formatDuration(seconds) {
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds), two = (value) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function updateTimes() {
  const now = Date.now();
  for (const element of document.querySelectorAll("time[datetime]")) {
    const then = Date.parse(element.dateTime);
    setText(element, formatRelativeTime(then, now));
    if (!element.dataset.local) {
      element.dataset.local = "yes";
      element.title = `${new Date(then).toLocaleString()} · ${element.title}`;
    }
  }
  for (const element of document.querySelectorAll("[data-since]")) {
    setText(element, formatDuration((now - Date.parse(element.dataset.since)) / 1000));
  }
}

export function startTimes() {
  updateTimes();
  setInterval(updateTimes, 1000);
}
