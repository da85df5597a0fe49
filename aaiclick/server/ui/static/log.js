// Follows the log of a running task; scrolls along unless the reader has scrolled up.
const MAX_LENGTH = 400000;
const ANSI_CODES = /\x1b\[[0-?]*[ -\/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z^_]/g;
const INVISIBLE = /[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

function follow(box) {
  const source = new EventSource(box.dataset.follow);
  let fresh = true;
  source.addEventListener("log", (event) => {
    if (fresh) { box.textContent = ""; fresh = false; }
    const atBottom = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    box.append(escapeInvisible(JSON.parse(event.data).text));
    while (box.textContent.length > MAX_LENGTH && box.firstChild !== box.lastChild) box.firstChild.remove();
    if (atBottom) box.scrollTop = box.scrollHeight;
  });
  source.addEventListener("end", () => source.close());
  addEventListener("pagehide", () => source.close());
}

// Writes invisible and bidirectional characters as escapes, as the server's templates do.
function escapeInvisible(text) {
  return text.replace(ANSI_CODES, "").replace(INVISIBLE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function startLogs() {
  for (const box of document.querySelectorAll(".log")) box.scrollTop = box.scrollHeight;
  for (const box of document.querySelectorAll("[data-follow]")) follow(box);
}
