// The snapshots of the past, and what changed between them.

import { badge, count, diffLines, empty, h, number, panel, short } from "/assets/dom.js";

const MOST = 50;
const MOST_NAMES = 5;

export function history({ history: list, historyError, diff, showAll }) {
  if (historyError) return empty(historyError);
  if (!list) return empty("Loading …");
  if (!list.length) return empty("There is no snapshot yet.");
  const shown = showAll.has("history") ? list : list.slice(0, MOST);
  return [
    h("ol", { class: "cards history" }, shown.map((each) => one(each, before(each, list), diff))),
    shown.length < list.length ? h("button", { "data-do": "show-all", "data-value": "history" }, `Show ${number(list.length - shown.length)} more`) : null,
  ];
}

function before(one, list) {
  const layers = one.layers.join("\n");
  return list.find((each) => each.number < one.number && each.layers.join("\n") === layers);
}

function one(snapshot, previous, diff) {
  const made = new Date(snapshot.time_s * 1000);
  const key = String(snapshot.number);
  const own = diff && diff.of === snapshot.number ? diff : null;
  return h("li", { class: "card", "data-key": key },
    h("div", { class: "card-head" },
      h("h3", {}, `@${snapshot.number} `, h("span", { class: "note" }, short(snapshot.layers.join(" + ") || "whole tree", 100))),
      h("time", { datetime: made.toISOString(), class: "note" }, made.toLocaleString())),
    h("p", {}, h("code", {}, snapshot.version), snapshot.commit ? [" commit ", h("code", {}, snapshot.commit.slice(0, 12))] : null),
    changes(snapshot.changes),
    h("div", { class: "actions" },
      previous ? button(`${previous.number} ${snapshot.number}`, snapshot.number, `What it changed since @${previous.number}`) : null,
      button(`${snapshot.number} `, snapshot.number, "What changed since"),
      h("span", { class: "note" }, "To serve it again: ", h("code", { class: "command" }, `fsxds rollback @${snapshot.number}`))),
    own ? difference(own) : null);
}

function button(range, of, words) {
  return h("button", { "data-do": "diff", "data-value": `${of} ${range}` }, words);
}

function changes(by_type) {
  const parts = Object.entries(by_type).map(([type, change]) => {
    const words = ["added", "changed", "removed"].filter((name) => change[name].count).map((name) => `${number(change[name].count)} ${name}`);
    const names = ["added", "changed", "removed"].flatMap((name) => change[name].names);
    const first = names.slice(0, MOST_NAMES).map((name) => short(name, 60)).join(", ");
    return h("li", {}, h("b", {}, type), ` ${words.join(", ")}: `, first, names.length > MOST_NAMES ? ", …" : "");
  });
  return parts.length ? h("ul", { class: "chips" }, parts) : null;
}

function difference(diff) {
  const { from, to, error, content } = diff;
  const title = to ? `From @${from} to @${to}` : `From @${from} to what is served now`;
  return panel({ id: "diff-heading", action: "diff", level: "h4" }, title,
    error ? empty(error) : !content ? empty("Loading …") : !content.resources.length ? empty("Nothing differs.") : [
      content.resources.map((each) => h("details", { "data-key": `${from} ${to} ${each.type} ${each.name}`, open: content.resources.length < 6 },
        h("summary", {}, badge(each.action), " ", h("b", {}, each.type), " ", short(each.name), " ", h("span", { class: "note" }, short(each.place))),
        each.lines.length ? diffLines(each.lines) : null,
        each.omitted ? h("p", { class: "note" }, each.omitted) : null)),
      content.total > content.resources.length ? h("p", { class: "note" }, `and ${count(content.total - content.resources.length, "more resource")}: fsxds diff shows all`) : null,
    ]);
}
