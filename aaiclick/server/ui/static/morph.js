// Makes an element like another one by changing as little as possible: what stays the same stays the same node, so
// focus, selection, scrolling and half-filled forms survive.

function key(node) {
  return node.nodeType === 1 ? node.id || node.dataset?.key || "" : "";
}

function same(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && key(old) === key(fresh);
}

const KEPT = { DETAILS: ["open"], INPUT: ["value", "checked"], DIALOG: ["open"] };

const OURS = ["focused", "zoom"]; // classes that scripts give

function attributes(old, fresh) {
  const kept = ["style", ...(old.classList.contains("graph") ? ["viewBox", "width", "height"] : KEPT[old.nodeName] || [])];
  const given = OURS.filter((name) => old.classList.contains(name));
  if (given.length) fresh.classList.add(...given);
  for (const { name, value } of fresh.attributes) {
    if (!kept.includes(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !kept.includes(name) && !name.startsWith("data-own")) old.removeAttribute(name);
  }
}

export function morph(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.hasAttribute("data-mine")) return; // a script of ours fills it
  if (old.nodeName === "TIME" && old.getAttribute("datetime") === fresh.getAttribute("datetime")) return;
  if (old.dataset?.since && old.dataset.since === fresh.dataset?.since) return;
  if (document.activeElement === old && (old.nodeName === "INPUT" || old.nodeName === "TEXTAREA" || old.nodeName === "SELECT")) return;
  attributes(old, fresh);
  children(old, fresh);
}

function children(old, fresh) {
  const named = new Map();
  for (const child of old.childNodes) if (key(child)) named.set(key(child), child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const name = key(wanted);
    let found = name ? named.get(name) : null;
    if (found && found.nodeName !== wanted.nodeName) found = null;
    if (!found && place && !key(place) && !name && same(place, wanted)) found = place;
    if (found) {
      if (found !== place) old.insertBefore(found, place);
      else place = place.nextSibling;
      named.delete(name);
      morph(found, wanted);
    } else {
      old.insertBefore(document.importNode(wanted, true), place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}
