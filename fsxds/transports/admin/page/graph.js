// The graph of what uses what: drawn in layers from listeners to endpoints, and as a list that says the same.

import { badge, count, diffLines, empty, h, number, panel, short, sign, svg } from "/assets/dom.js";

const COLUMNS = ["lcds", "lds", "ecds", "srds", "rds", "vhds", "cds", "eds", "leds", "sds", "rtds"];
const HEADINGS = {
  lds: "Listeners", ecds: "Extensions", srds: "Scoped routes", rds: "Routes", vhds: "Virtual hosts", cds: "Clusters",
  eds: "Endpoints", leds: "Endpoints (LEDS)", sds: "Secrets", rtds: "Runtime",
};
const LEAST_BOX = 144;
const MOST_BOX = 184;
const LEAST_GAP = 44;
const MOST_GAP = 150;
const HEIGHT = 30;
const SPACE = 10;
const TOP = 34;
const EDGE = 14;
const SWEEPS = 4;

export function graph({ graph: part, query, selected, content, graphError }) {
  if (graphError) return empty(graphError);
  if (!part) return empty("Loading …");
  const found = part.nodes.length;
  const { search, around } = query.graph;
  const all = found < part.total ? `${number(found)} of ${count(part.total, "resource")}` : count(found, "resource");
  const what = around ? `What hangs together with ${short(around, 80)}`
    : search ? `${count(part.total, "name")} with “${short(search, 80)}”, and what hangs together with ${part.total === 1 ? "it" : "them"}` : all;
  return [
    h("p", { class: "note", role: "status" },
      `${what}. `,
      part.missing ? badge("missing", `${count(part.missing, "name is", "names are")} missing`) : badge("good", "nothing is missing"),
      around ? [" ", h("button", { "data-do": "graph-around", "data-value": "" }, "Show all")] : null),
    found ? h("div", { class: "graph-layout", "data-key": "layout" }, picture(part, query.graph, selected), detail(part, selected, content)) : empty("Nothing is found."),
    found ? legend() : null,
  ];
}

function picture(part, { as, width }, selected) {
  return as === "list" ? list(part, selected) : drawing(part, selected, width);
}

// Boxes and gaps that make use of the width that there is; where it is too small, the drawing is scrolled.
function sizeFor(columns, width) {
  const room = (width - 2 * EDGE - (columns - 1) * LEAST_GAP) / columns;
  const box = Math.min(Math.max(room, LEAST_BOX), MOST_BOX);
  const gap = (width - 2 * EDGE - columns * box) / Math.max(columns - 1, 1);
  return { box, gap: Math.min(Math.max(gap, LEAST_GAP), MOST_GAP), letters: Math.floor((box - 34) / 7.6) };
}

function legend() {
  return h("ul", { class: "legend", "aria-label": "Signs" },
    h("li", {}, badge("served"), " is served"),
    h("li", {}, badge("missing"), " is used, and not defined"),
    h("li", {}, badge("outside"), " comes from the bootstrap, or from elsewhere"));
}

// By id: what each uses, and what uses it.
function neighbours(part) {
  const uses = new Map(part.nodes.map((node) => [node.id, []]));
  const users = new Map(part.nodes.map((node) => [node.id, []]));
  for (const [user, used] of part.edges) {
    uses.get(user).push(used);
    users.get(used).push(user);
  }
  return { uses, users };
}

function reachable(start, next) {
  const seen = new Set([start]);
  for (const id of seen) for (const other of next.get(id) ?? []) seen.add(other);
  return seen;
}

function detail(part, selected, content) {
  const node = part.nodes.find((each) => each.id === selected);
  if (!node) return null;
  const { uses, users } = neighbours(part);
  const heading = [h("span", { class: "note" }, `${node.type} `), short(node.name, 1000)];
  return panel({ id: "node-heading", key: "panel", action: "graph-select" }, heading,
    h("p", {}, badge(node.state), " ", node.place ? h("code", {}, short(node.place)) : meaning(node)),
    links("Is used by", users.get(node.id)),
    links("Uses", uses.get(node.id)),
    h("div", { class: "actions" },
      h("button", { "data-do": "graph-around", "data-value": node.id }, "Show only what hangs together with it"),
      node.state === "served" && content?.id !== node.id ? h("button", { "data-do": "content", "data-value": node.id }, "Show its content") : null),
    content?.id === node.id ? contentOf(content) : null);
}

// What is served of a resource, and how its file differs: held back, rejected or rolled back, or on its way.
function contentOf({ shown, error }) {
  if (error) return empty(error);
  if (!shown) return empty("Loading …");
  return h("div", { "data-key": "content" },
    shown.file ? [h("h4", {}, "Its file, beside what is served"), diffLines(shown.file.lines), note(shown.file.omitted)] : note("Its file has the same."),
    h("h4", {}, "What is served"), shown.lines.length ? h("pre", { class: "diff", tabindex: "0" }, shown.lines.join("\n")) : null, note(shown.omitted));
}

function note(words) {
  return words ? h("p", { class: "note" }, words) : null;
}

function meaning(node) {
  return node.state === "missing" ? "its users do not work: define it, or correct the name" : "it is not in this tree";
}

function links(heading, ids) {
  return h("div", { class: "names" }, h("h4", {}, heading),
    ids.length
      ? h("ul", { class: "chips" }, ids.slice(0, 60).map((id) => h("li", {}, h("button", { class: "link", "data-do": "graph-select", "data-value": id }, short(id, 120)))),
        ids.length > 60 ? h("li", {}, `and ${ids.length - 60} more`) : null)
      : h("p", { class: "note" }, "nothing that is shown here"));
}

function list(part, selected) {
  const { uses } = neighbours(part);
  const byId = new Map(part.nodes.map((node) => [node.id, node]));
  return h("div", { class: "graph-list", "data-key": "list" }, columnsOf(part).map(([type, nodes]) => h("section", { "data-key": type },
    h("h3", {}, HEADINGS[type] ?? type, " ", h("span", { class: "count" }, number(nodes.length))),
    h("ul", {}, nodes.map((node) => h("li", { class: node.state, "data-key": node.id },
      h("button", { class: "link", "data-do": "graph-select", "data-value": node.id, "aria-pressed": String(node.id === selected) }, short(node.name, 120)),
      node.state === "served" ? "" : [" ", badge(node.state)],
      node.place ? [" ", h("small", {}, short(node.place, 120))] : "",
      uses.get(node.id).length ? h("span", { class: "uses" }, h("span", { "aria-hidden": "true" }, " → "), h("span", { class: "unseen" }, " uses "),
        uses.get(node.id).slice(0, 12).map((id, at) => [at ? ", " : "", short(id, 80), byId.get(id).state === "missing" ? " (missing)" : ""]),
        uses.get(node.id).length > 12 ? ` and ${uses.get(node.id).length - 12} more` : "") : null))))));
}

function columnsOf(part) {
  return COLUMNS.map((type) => [type, part.nodes.filter((node) => node.type === type)]).filter(([, nodes]) => nodes.length);
}

// Where each node is: in the column of its type, in an order in which few edges cross, and near to what it is connected with.
function placed(part, size) {
  const columns = columnsOf(part).map(([, nodes]) => nodes.map((node) => node.id));
  const { uses, users } = neighbours(part);
  const order = new Map();
  const note = (ids) => ids.forEach((id, at) => order.set(id, (at + 0.5) / ids.length));
  columns.forEach(note);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const next = sweep % 2 ? uses : users;
    for (const ids of sweep % 2 ? [...columns].reverse() : columns) {
      const wanted = new Map(ids.map((id) => [id, mean(next.get(id).map((other) => order.get(other))) ?? order.get(id)]));
      ids.sort((a, b) => wanted.get(a) - wanted.get(b));
      note(ids);
    }
  }
  const tallest = columns.findIndex((ids) => ids.length === Math.max(...columns.map((each) => each.length)));
  const heights = new Map();
  const byDistance = columns.map((_, column) => column).sort((a, b) => Math.abs(a - tallest) - Math.abs(b - tallest));
  for (const column of byDistance) {
    const near = (id) => mean([...uses.get(id), ...users.get(id)].map((other) => heights.get(other)).filter((y) => y !== undefined));
    stack(columns[column], near, heights, columns[tallest].length);
  }
  const places = new Map();
  columns.forEach((ids, column) => ids.forEach((id, at) =>
    places.set(id, { x: EDGE + column * (size.box + size.gap), y: heights.get(id), column, at })));
  const height = TOP + columns[tallest].length * (HEIGHT + SPACE) + EDGE;
  return { places, columns, width: 2 * EDGE + columns.length * size.box + (columns.length - 1) * size.gap, height };
}

// Put the nodes of a column where they are wanted, as near as they fit below each other in room for so many.
function stack(ids, near, heights, room) {
  const step = HEIGHT + SPACE;
  const spread = (room / ids.length) * step;
  const wanted = new Map(ids.map((id, at) => [id, near(id) ?? TOP + at * spread]));
  ids.sort((a, b) => wanted.get(a) - wanted.get(b));
  let lowest = TOP;
  for (const id of ids) {
    heights.set(id, Math.max(wanted.get(id), lowest));
    lowest = heights.get(id) + step;
  }
  let highest = TOP + (room - 1) * step;
  for (const id of [...ids].reverse()) {
    heights.set(id, Math.min(heights.get(id), highest));
    highest = heights.get(id) - step;
  }
}

function mean(values) {
  return values.length ? values.reduce((sum, each) => sum + each, 0) / values.length : undefined;
}

function drawing(part, selected, wanted) {
  const size = sizeFor(columnsOf(part).length, wanted);
  const { places, columns, width, height } = placed(part, size);
  const { uses, users } = neighbours(part);
  const chosen = places.has(selected) ? new Set([...reachable(selected, uses), ...reachable(selected, users)]) : null;
  const current = places.has(selected) ? selected : columns[0][0];
  const states = new Map(part.nodes.map((node) => [node.id, node.state]));
  const headings = columnsOf(part).map(([type, nodes], column) =>
    svg("text", { class: "heading", x: EDGE + column * (size.box + size.gap), y: 20 }, `${HEADINGS[type] ?? type} ${number(nodes.length)}`));
  const edges = part.edges.map(([user, used]) => svg("path", {
    class: `edge ${states.get(used)}${chosen && !(chosen.has(user) && chosen.has(used)) ? " dim" : ""}`,
    d: curve(places.get(user), places.get(used), size), "data-key": `${user}\n${used}` }));
  const nodes = part.nodes.map((node) => box(node, {
    place: places.get(node.id), size, isDim: chosen && !chosen.has(node.id), isCurrent: node.id === current, isSelected: node.id === selected,
    words: `${count(uses.get(node.id).length, "use", "uses")}, used by ${users.get(node.id).length}` }));
  return h("div", { class: "drawing", "data-key": "drawing" },
    svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Graph: the arrow keys move between resources, Enter shows one. The list has the same." },
      svg("g", { "aria-hidden": "true" }, headings), svg("g", { "aria-hidden": "true" }, edges), svg("g", {}, nodes)));
}

function curve(from, to, size) {
  const [y1, y2] = [from.y + HEIGHT / 2, to.y + HEIGHT / 2];
  if (from.column === to.column) {
    const x = from.x + size.box;
    return `M${x} ${y1}C${x + 34} ${y1} ${x + 34} ${y2} ${x} ${y2}`;
  }
  const forward = from.column < to.column;
  const [x1, x2] = forward ? [from.x + size.box, to.x] : [from.x, to.x + size.box];
  const bend = (forward ? 1 : -1) * Math.max(size.gap * 0.6, Math.abs(x2 - x1) * 0.4);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

function box(node, { place, size, isDim, isCurrent, isSelected, words }) {
  const letters = short(node.name, 400);
  const name = letters.length > size.letters ? `${letters.slice(0, size.letters - 1)}…` : letters;
  return svg("g", {
    class: `node ${node.state}${isDim ? " dim" : ""}${isSelected ? " selected" : ""}`, transform: `translate(${place.x} ${place.y})`,
    role: "button", tabindex: isCurrent ? 0 : -1, "aria-pressed": String(isSelected), "data-do": "graph-select", "data-value": node.id,
    "data-key": node.id, "data-column": place.column, "data-at": place.at,
    "aria-label": `${node.type} ${letters}, ${node.state}${node.place ? `, ${short(node.place)}` : ""}, ${words}` },
  svg("title", {}, `${letters}\n${node.state}${node.place ? `, ${short(node.place)}` : ""}`),
  svg("rect", { width: size.box, height: HEIGHT, rx: 7 }),
  svg("text", { class: "sign", x: 11, y: HEIGHT / 2 + 4.5 }, node.state === "served" ? "•" : sign(node.state)),
  svg("text", { x: 25, y: HEIGHT / 2 + 4.5 }, name));
}

// The node to go to by an arrow key, None where there is none.
export function nodeBeside(element, key) {
  const column = Number(element.dataset.column);
  const at = Number(element.dataset.at);
  const all = [...element.ownerSVGElement.querySelectorAll("g.node")];
  if (key === "ArrowUp" || key === "ArrowDown") {
    return all.find((each) => Number(each.dataset.column) === column && Number(each.dataset.at) === at + (key === "ArrowDown" ? 1 : -1));
  }
  const next = all.filter((each) => Number(each.dataset.column) === column + (key === "ArrowRight" ? 1 : -1));
  const y = (each) => each.transform.baseVal[0].matrix.f;
  return next.sort((a, b) => Math.abs(y(a) - y(element)) - Math.abs(y(b) - y(element)))[0];
}
