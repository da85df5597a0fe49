// Patches an element to match another one. Unchanged nodes stay in place, so focus, selection, scroll position and
// form input survive.

function nodeKey(node) {
  return node.nodeType === 1 ? node.id || node.dataset?.key || "" : "";
}

function isSameNode(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && nodeKey(old) === nodeKey(fresh);
}

const USER_ATTRIBUTES = { DETAILS: ["open"], INPUT: ["value", "checked"], DIALOG: ["open"] };

const SCRIPT_CLASSES = ["focused", "zoom"]; // set by scripts

function morphAttributes(old, fresh) {
  const preserved = ["style", ...(old.classList.contains("graph") ? ["viewBox", "width", "height"] : USER_ATTRIBUTES[old.nodeName] || [])];
  const classes = SCRIPT_CLASSES.filter((name) => old.classList.contains(name));
  if (classes.length) fresh.classList.add(...classes);
  for (const { name, value } of fresh.attributes) {
    if (!preserved.includes(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !preserved.includes(name)) old.removeAttribute(name);
  }
}

export function morph(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.hasAttribute("data-script-content")) return; // filled by a script
  if (old.nodeName === "TIME" && old.getAttribute("datetime") === fresh.getAttribute("datetime")) return;
  if (old.dataset?.since && old.dataset.since === fresh.dataset?.since) return;
  if (document.activeElement === old && (old.nodeName === "INPUT" || old.nodeName === "TEXTAREA" || old.nodeName === "SELECT")) return;
  morphAttributes(old, fresh);
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const byKey = new Map();
  for (const child of old.childNodes) if (nodeKey(child)) byKey.set(nodeKey(child), child);
  let cursor = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = nodeKey(child);
    let match = key ? byKey.get(key) : null;
    if (match && match.nodeName !== child.nodeName) match = null;
    if (!match && cursor && !nodeKey(cursor) && !key && isSameNode(cursor, child)) match = cursor;
    if (match) {
      if (match !== cursor) old.insertBefore(match, cursor);
      else cursor = cursor.nextSibling;
      byKey.delete(key);
      morph(match, child);
    } else {
      old.insertBefore(document.importNode(child, true), cursor);
    }
  }
  while (cursor) {
    const next = cursor.nextSibling;
    cursor.remove();
    cursor = next;
  }
}
