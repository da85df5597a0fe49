// A log that is still being written is followed to its end; who scrolled up is left alone.
const MOST = 400000;
const CODES = /\x1b\[[0-?]*[ -\/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z^_]/g;
const UNSEEN = /[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

function follow(box) {
  const source = new EventSource(box.dataset.follow);
  let fresh = true;
  source.addEventListener("log", (event) => {
    if (fresh) { box.textContent = ""; fresh = false; }
    const low = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    box.append(seen(JSON.parse(event.data).text));
    while (box.textContent.length > MOST && box.firstChild !== box.lastChild) box.firstChild.remove();
    if (low) box.scrollTop = box.scrollHeight;
  });
  source.addEventListener("end", () => source.close());
  addEventListener("pagehide", () => source.close());
}

// What turns or hides text is written out, as in the pages that the server makes.
function seen(text) {
  return text.replace(CODES, "").replace(UNSEEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function startLogs() {
  for (const box of document.querySelectorAll(".log")) box.scrollTop = box.scrollHeight;
  for (const box of document.querySelectorAll("[data-follow]")) follow(box);
}
