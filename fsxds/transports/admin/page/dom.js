// Makes elements of text, and updates what is shown in place, so that focus, selection and scrolling stay.
//
// Text is put in as text alone. What would hide in it or turn it around (control characters, marks of direction) is written
// out: \u{202e}.

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const LONGEST = 200;

export function visible(text) {
  return String(text).replace(UNSEEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
}

// A name that is too long for a line or a table, cut.
export function short(text, longest = LONGEST) {
  const letters = visible(text);
  if (letters.length <= longest) return letters;
  return `${letters.slice(0, longest)}… (${number(String(text).length)} characters)`;
}

export function number(value) {
  return Number(value).toLocaleString("en");
}

export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

// Make an element: h("p", {class: "note"}, "text", h("b", {}, "more"), …); null and false are left out.
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(child));
  }
  return element;
}

// Show these nodes in an element instead of those that it has. Those with the same `data-key` stay the same nodes.
export function update(element, ...children) {
  const focused = document.activeElement;
  const fresh = document.createDocumentFragment();
  fresh.append(...children.flat(Infinity).filter(Boolean));
  updateChildren(element, fresh);
  // What is moved loses the focus.
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

function keyOf(node) {
  return node.dataset?.key;
}

function updateChildren(old, fresh) {
  const wanted = [...fresh.childNodes];
  const keys = new Set(wanted.map(keyOf));
  const keyed = new Map([...old.children].filter((each) => keyOf(each) !== undefined).map((each) => [keyOf(each), each]));
  let place = old.firstChild;
  const next = () => {
    const left = place;
    place = place.nextSibling;
    return left;
  };
  for (const each of wanted) {
    // What goes is removed first, so that what follows it need not move.
    while (place && keyOf(place) !== undefined && !keys.has(keyOf(place))) next().remove();
    const key = keyOf(each);
    const found = key === undefined ? place && keyOf(place) === undefined && place : keyed.get(key);
    keyed.delete(key);
    if (!found || !isSame(found, each)) {
      old.insertBefore(each, place);
      continue;
    }
    if (found === place) next();
    else old.insertBefore(found, place);
    updateNode(found, each);
  }
  while (place) next().remove();
}

function isSame(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName;
}

function updateNode(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // Which details are open is up to who reads.
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
  if (old.localName === "select" && old !== document.activeElement) {
    updateChildren(old, fresh);
    old.value = fresh.value;
    return;
  }
  updateChildren(old, fresh);
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const at = UNITS.findIndex(([size]) => whole >= size);
  if (at < 0) return "0 s";
  const [size, unit] = UNITS[at];
  const rest = at < 2 ? Math.floor((whole % size) / UNITS[at + 1][0]) : 0;
  return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${UNITS[at + 1][1]}` : ""}`;
}

// The time since something, which goes on by itself. `at_ms` is on the clock of this browser.
export function since(seconds, at_ms = Date.now()) {
  const began = Math.round((at_ms - seconds * 1000) / 1000);
  return h("time", { "data-began": began, class: "since" }, duration(at_ms / 1000 - began));
}

export function tick(now_ms = Date.now()) {
  for (const element of document.querySelectorAll("time[data-began]")) {
    const text = duration(now_ms / 1000 - Number(element.dataset.began));
    if (element.textContent !== text) element.textContent = text;
  }
}

// A state in words, with a sign of its own: never by colour alone.
const SIGNS = {
  good: "✓", SYNCED: "✓", served: "✓", done: "✓",
  held: "!", STALE: "↻", warning: "!", outside: "↗", note: "i", waits: "…",
  broken: "✕", NACK: "✕", error: "✕", missing: "✕", "NOT SENT": "–",
  added: "+", removed: "−", changed: "~",
};
const TONES = {
  good: "good", SYNCED: "good", served: "good", done: "good",
  held: "warn", STALE: "warn", warning: "warn", waits: "info", note: "info", outside: "quiet",
  broken: "bad", NACK: "bad", error: "bad", missing: "bad", "NOT SENT": "quiet",
  added: "good", removed: "bad", changed: "info",
};

export function toneOf(state) {
  return TONES[state] ?? "quiet";
}

export function badge(state, ...words) {
  const sign = h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[state] ?? "•");
  return h("span", { class: `badge ${toneOf(state)}` }, sign, words.length ? words : state);
}

export function sign(state) {
  return SIGNS[state] ?? "•";
}

export function empty(...words) {
  return h("p", { class: "empty" }, ...words);
}

// Details of what was chosen, with a heading that gets the focus, and a button that closes it: `action` without a value.
export function panel({ id, key, action, level = "h3" }, heading, ...children) {
  return h("section", { class: "panel", "aria-labelledby": id, "data-key": key },
    h("div", { class: "panel-head" },
      h(level, { id, tabindex: "-1" }, heading),
      h("button", { "data-do": action, "data-value": "" }, "Close")),
    children);
}

// The lines of a difference, each with its sign.
export function diffLines(lines) {
  return h("pre", { class: "diff", tabindex: "0" }, lines.map((line) =>
    h("span", { class: { "+": "plus", "-": "minus", "@": "place" }[line[0]] ?? "same" }, line)));
}

// A table with a caption. On a narrow screen its rows are cards, so each cell has its heading with it.
export function table(caption, headings, rows) {
  return h("table", { role: "table" },
    h("caption", { class: "unseen" }, caption),
    h("thead", { role: "rowgroup" },
      h("tr", { role: "row" }, headings.map((heading) => h("th", { scope: "col", role: "columnheader" }, heading)))),
    h("tbody", { role: "rowgroup" }, rows));
}

export function row(key, headings, cells) {
  return h("tr", { role: "row", "data-key": key }, cells.map((cell, at) => {
    const name = at ? "td" : "th";
    const attributes = at ? { role: "cell" } : { role: "rowheader", scope: "row" };
    return h(name, { ...attributes, "data-heading": headings[at] }, h("div", {}, cell));
  }));
}

export function pager(what, total, offset, limit) {
  if (total <= limit && offset === 0) return null;
  const last = Math.min(offset + limit, total);
  return h("nav", { class: "pager", "aria-label": `Pages of ${what}` },
    h("button", { "data-do": `${what}-page`, "data-value": Math.max(0, offset - limit), disabled: offset === 0 }, "Previous"),
    h("p", {}, `${number(offset + (total ? 1 : 0))}–${number(last)} of ${number(total)}`),
    h("button", { "data-do": `${what}-page`, "data-value": offset + limit, disabled: last >= total }, "Next"));
}
