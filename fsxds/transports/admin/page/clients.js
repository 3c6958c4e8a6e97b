// Who is connected, what each has of each type, and why it rejected something.

import { badge, count, empty, h, number, pager, panel, row, short, since, table } from "/assets/dom.js";

export const LIMIT = 50;
const HEADINGS = ["Node", "View", "Transport", "Types", "Since"];

export function clients({ clients: page, client, fetched_ms, query }) {
  if (!page) return empty("Loading …");
  const offset = query.clients.offset;
  return [
    client ? detail(client, fetched_ms) : null,
    page.clients.length
      ? table("Clients, those with something wrong first", HEADINGS, page.clients.map((each) => one(each, fetched_ms)))
      : empty(query.clients.search || query.clients.state || query.clients.view ? "No client is found with this." : "No client is connected."),
    pager("clients", page.total, offset, LIMIT),
  ];
}

function one(each, fetched_ms) {
  const rejected = each.types.filter((type) => type.state === "NACK" && type.reason);
  return row(`${each.transport} ${each.service} ${each.peer} ${each.node}`, HEADINGS, [
    [h("button", { class: "link", "data-do": "client", "data-value": each.node }, short(each.node || "without a node id", 80)),
      each.cluster ? h("small", {}, short(each.cluster, 80)) : null],
    short(each.view || "whole tree", 60),
    [each.transport, each.peer ? h("small", {}, short(each.peer, 60)) : null],
    [h("ul", { class: "chips" }, byState(each.types).map(([state, names]) => h("li", {}, badge(state, `${state} ${names.join(" ")}`)))),
      rejected.map((type) => h("p", { class: "reason" }, `${type.type}: `, short(type.reason, 600)))],
    since(each.since_s, fetched_ms),
  ]);
}

const ORDER = ["NACK", "STALE", "NOT SENT", "SYNCED"];

// The names of types by their state, the worst first.
function byState(types) {
  const found = new Map(ORDER.map((state) => [state, []]));
  for (const { type, state } of types) found.get(state)?.push(type);
  return [...found].filter(([, names]) => names.length);
}

const TYPE_HEADINGS = ["Type", "State", "Sent", "ACKed", "NACKed", "Current", "Since"];

function detail({ node, entries }, fetched_ms) {
  return panel({ id: "client-heading", key: `detail ${node}`, action: "client" }, short(node || "without a node id"),
    entries.length ? entries.map((each) => [
      h("p", { class: "note" }, `${each.transport}${each.service ? ` ${each.service}` : ""}, view ${short(each.view || "whole tree", 60)}, `,
        each.peer ? `from ${short(each.peer, 60)}, ` : "", "for ", since(each.since_s, fetched_ms)),
      table(`Types of ${short(node, 60)}`, TYPE_HEADINGS, each.types.map((type) => row(type.type, TYPE_HEADINGS, [
        type.type, badge(type.state), version(type.sent), version(type.acked), version(type.nacked), version(type.current),
        since(type.since_s ?? 0, fetched_ms)]))),
      each.types.map((type) => difference(type)),
    ]) : empty("It is not connected any more."));
}

function version(value) {
  return value ? h("code", { title: value }, String(value).slice(0, 8)) : "–";
}

const DIFFERENCES = [["lacks", "does not have"], ["outdated", "has an older version of"], ["surplus", "has and should not have"],
  ["missing", "subscribed, and in no file:"]];

function difference(type) {
  const lists = DIFFERENCES.filter(([name]) => names(type[name]).count).map(([name, words]) => {
    const found = names(type[name]);
    return h("p", {}, `${type.type}: ${words} ${count(found.count, "resource")}: `, h("code", {}, found.names.map((name) => short(name, 100)).join(", ")),
      found.count > found.names.length ? ` and ${number(found.count - found.names.length)} more` : "");
  });
  const reason = type.state === "NACK" && type.reason ? h("p", { class: "reason" }, `${type.type}: `, short(type.reason, 4000)) : null;
  return lists.length || reason ? h("div", { class: "difference" }, reason, lists) : null;
}

function names(given) {
  if (!given) return { count: 0, names: [] };
  return Array.isArray(given) ? { count: given.length, names: given } : given;
}
