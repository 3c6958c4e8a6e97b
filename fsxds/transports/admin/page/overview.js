// What is served to whom, in one look: the summary above the tabs, problems with their source lines, and the views.

import { badge, count, empty, h, number, row, short, sign, since, table, toneOf } from "/assets/dom.js";

const MOST_PROBLEMS = 20;
const MOST_VIEWS = 50;
const MOST_PINNED = 5;

// The facts that matter, the worst first: [state, sentence, tab that shows more].
export function facts(status) {
  const { files } = status;
  const clients = clientsByState(status);
  const found = [];
  if (!status.is_ready) found.push(["error", `Not ready${status.waits_for ? `: waits for ${status.waits_for}` : ""}`, "overview"]);
  // Upstreams that are away have a sentence of their own.
  const away = new Set(status.upstreams.map((each) => `upstream ${each.name}`));
  const degraded = status.degraded.filter((each) => !away.has(each));
  if (degraded.length) found.push(["error", `Degraded: ${degraded.join(", ")}`, "overview"]);
  if (files.broken) found.push(["error", `${count(files.broken, "file")} broken: no content of ${them(files.broken)} is served`, "files"]);
  if (clients.NACK) found.push(["error", `${count(clients.NACK, "client")} rejected a version`, "clients"]);
  for (const each of status.upstreams) {
    if (each.state === "connected") continue;
    const name = `Upstream ${short(each.name, 60)} ${each.state === "refused" ? "cannot be used" : `is ${each.state}`}`;
    if (each.resources.length) found.push(["held", `${name}: its last resources are served`, "overview"]);
    else found.push([each.state === "connecting" ? "waits" : "error", `${name}, and has sent no resource yet`, "overview"]);
  }
  for (const each of status.upstreams) {
    if (each.rejected.length) found.push(["held", `Upstream ${short(each.name, 60)} sent resources that fsxds rejects`, "overview"]);
  }
  if (files.held) found.push(["held", `${count(files.held, "file")} held back: the last good content is served`, "files"]);
  for (const rollout of status.rollouts) {
    const name = nameOf(rollout);
    // What nodes reject is said of the others, too.
    const held = rollout.cohort === "rejecting" ? 0 : heldBack(rollout).length;
    if (rollout.pinned) found.push(["held", `${name}: ${count(rollout.pinned, "resource")} rolled back`, "rollouts"]);
    if (rollout.approval) found.push(["held", `${name}: waits for approval to remove ${rollout.approval.removal}`, "rollouts"]);
    if (held) found.push(["held", `${name}: ${count(held, "resource")} held back or rejected`, "rollouts"]);
    if (rollout.waits_for_canary) found.push(["held", `${name}: a change waits for canaries`, "rollouts"]);
    else if (rollout.step) found.push(["waits", `${name}: ${rollout.step.name} waits for ${count(rollout.step.waits_for.length, "client")}`, "rollouts"]);
    else if (!rollout.is_done && rollout.asked) found.push(["waits", `${name}: a change is on its way`, "rollouts"]);
  }
  return found;
}

// What is held back, but for what an operator rolled back, or has to approve.
export function heldBack(rollout) {
  return rollout.held.filter((each) => !["pinned", "waits for approval"].includes(each.reason));
}

// Stands above all else while a rollback is in force: the files are not all that is served.
function banner(status, fetched_ms) {
  const pinned = status.rollouts.filter((each) => each.pinned);
  if (!pinned.length) return null;
  const names = new Set(pinned.flatMap((each) => each.held).filter((each) => each.reason === "pinned").map((each) => `${each.type} ${each.name}`));
  const shown = [...names].slice(0, MOST_PINNED).map((each) => short(each, 60)).join(", ");
  const more = names.size > MOST_PINNED ? ` and ${count(names.size - MOST_PINNED, "more resource")}` : "";
  return h("p", { class: "banner", role: "note", "data-key": "banner" },
    h("strong", {}, "Rolled back"), " for ", since(Math.max(...pinned.map((each) => each.pinned_for_s ?? 0)), fetched_ms),
    `: ${shown}${more}. Each follows its file again when that changes. To end it for all: `,
    h("code", { class: "command" }, "fsxds rollout resume"));
}

function them(number) {
  return number === 1 ? "it" : "them";
}

export function nameOf(rollout) {
  const views = rollout.views.filter(Boolean).map((each) => short(each, 60)).join(", ");
  const name = views || rollout.layers.join("+") || "whole tree";
  return rollout.cohort === "main" ? name : `${name}, ${rollout.cohort}`;
}

export function clientsByState(status) {
  const states = {};
  for (const each of status.clients) states[each.state] = (states[each.state] ?? 0) + each.count;
  return states;
}

// What stands above the tabs.
export function summary(status, fetched_ms) {
  const found = facts(status);
  const [state, sentence] = found[0] ?? ["good", allGood(status)];
  const more = found.slice(1, 5).map(([each, words, tab]) =>
    h("li", {}, h("a", { href: `#${tab}` }, badge(each, words))));
  if (found.length > 5) more.push(h("li", {}, `and ${count(found.length - 5, "more thing", "more things")}`));
  const states = clientsByState(status);
  const clients = Object.values(states).reduce((sum, each) => sum + each, 0);
  const byTransport = {};
  for (const each of status.clients) byTransport[each.transport] = (byTransport[each.transport] ?? 0) + each.count;
  return [
    banner(status, fetched_ms),
    h("div", { class: `verdict ${toneOf(state)}`, "data-state": state },
      h("span", { class: "mark", "aria-hidden": "true" }, sign(state)),
      h("div", {}, h("h2", {}, sentence), more.length ? h("ul", {}, more) : null)),
    h("div", { class: "tiles" },
      tile("Files", "files", status.files.good + status.files.held + status.files.broken,
        parts(status.files, ["good", "held", "broken"])),
      tile("Clients", "clients", clients, [
        ...parts(states, ["SYNCED", "STALE", "NACK", "NOT SENT"]),
        ...Object.entries(byTransport).map(([name, each]) => h("li", {}, `${number(each)} by ${name}`)),
      ]),
      tile("Views", "overview", status.view_count, []),
      tile("Problems", "overview", status.problem_count,
        Object.entries(status.problem_counts).filter(([, each]) => each).map(([severity, each]) => h("li", {}, badge(severity, count(each, severity)))))),
  ];
}

function allGood(status) {
  const clients = Object.values(clientsByState(status)).reduce((sum, each) => sum + each, 0);
  const files = count(status.files.good, "file");
  if (status.upstreams.length) {
    const sources = [status.directory && files, count(status.upstreams.length, "upstream")].filter(Boolean).join(" and ");
    return clients ? `All good: ${sources} served to ${count(clients, "client")}` : `All good: ${sources}, and no client yet`;
  }
  return clients ? `All good: ${files} served to ${count(clients, "client")}` : `All good: ${files}, and no client yet`;
}

function tile(name, tab, value, facts) {
  return h("a", { class: "tile", href: `#${tab}` },
    h("span", { class: "name" }, name), h("span", { class: "value" }, number(value)), h("ul", {}, facts));
}

function parts(counts, states) {
  return states.filter((state) => counts[state]).map((state) => h("li", {}, badge(state, `${number(counts[state])} ${state}`)));
}

export function overview({ status, fetched_ms, showAll }) {
  const problems = showAll.has("problems") ? status.problems : status.problems.slice(0, MOST_PROBLEMS);
  const views = showAll.has("views") ? status.views : status.views.slice(0, MOST_VIEWS);
  return [
    h("h2", {}, "Problems ", h("span", { class: "count" }, number(status.problem_count))),
    problems.length
      ? h("ol", { class: "problems" }, problems.map((each) => problem(each, fetched_ms)))
      : empty("There is none."),
    more("problems", problems.length, status.problems.length, status.problem_count),
    ...(status.upstreams.length ? upstreams(status.upstreams, fetched_ms) : []),
    h("h2", {}, "Views ", h("span", { class: "count" }, number(status.view_count))),
    status.views.length ? viewTable(views) : empty("Nothing is served yet."),
    more("views", views.length, status.views.length, status.view_count),
    h("h2", {}, "Server"),
    server(status, fetched_ms),
  ];
}

function more(what, shown, sent, total) {
  if (shown < sent) return h("button", { "data-do": "show-all", "data-value": what }, `Show ${number(sent - shown)} more`);
  return sent < total ? h("p", { class: "note" }, `The first ${number(sent)} of ${number(total)}.`) : null;
}

const OUTCOMES = {
  broken: "no content of this file is served",
  held: "the last good content of this file is served",
  ignored: "this file is not read",
  rejected: "nodes reject this",
  kept: "the last good content is served",
  upstream: "this is about an upstream",
};

export function problem(one, fetched_ms) {
  const place = one.line ? `${short(one.path)}:${one.line}${one.column ? `:${one.column}` : ""}` : short(one.path);
  return h("li", { class: `problem ${toneOf(one.severity)}`, "data-key": `${one.path} ${one.line} ${one.column} ${one.rule} ${one.message.slice(0, 200)}` },
    h("div", { class: "head" },
      badge(one.severity), h("strong", { class: "place" }, place), h("code", { class: "rule" }, one.rule)),
    h("p", { class: "message" }, short(one.message, 1000)),
    one.remedy ? h("p", { class: "remedy" }, h("span", { "aria-hidden": "true" }, "→ "), h("span", { class: "unseen" }, "Remedy: "), short(one.remedy, 1000)) : null,
    one.source?.length ? source(one) : null,
    h("p", { class: "note" }, OUTCOMES[one.state] ? `${OUTCOMES[one.state]}, ` : "", "for ", since(one.since_s ?? 0, fetched_ms)));
}

// The lines around the place, which has a sign in the margin and a line below it.
function source(one) {
  return h("pre", { class: "source", tabindex: "0", "aria-label": `Lines of ${short(one.path)}` },
    one.source.map(({ line, text }) => {
      const isPlace = line === one.line;
      return h("span", { class: isPlace ? "line marked" : "line" },
        h("span", { class: "number" }, isPlace ? "▶" : " ", String(line).padStart(4), " "),
        isPlace ? marked(text, one.column) : text);
    }));
}

function marked(text, column) {
  const letters = Array.from(text);
  const start = Math.min(Math.max((column || 1) - 1, 0), letters.length);
  const length = Math.max(1, letters.slice(start).join("").match(/^[\w.$@-]+|^./u)?.[0].length ?? 1);
  const end = Math.min(start + length, letters.length);
  return [letters.slice(0, start).join(""), h("mark", {}, letters.slice(start, end).join("") || " "), letters.slice(end).join("")];
}

const UPSTREAM_HEADINGS = ["Upstream", "State", "Server", "What is held", "Sent last"];
const UPSTREAM_STATES = { connected: "good", connecting: "waits", away: "held", refused: "broken" };

function upstreams(all, fetched_ms) {
  return [
    h("h2", {}, "Upstreams ", h("span", { class: "count" }, number(all.length))),
    table("Upstreams and their resources", UPSTREAM_HEADINGS, all.map((each) =>
      row(each.name, UPSTREAM_HEADINGS, [
        short(each.name, 80),
        [badge(UPSTREAM_STATES[each.state] ?? "note", each.state), " for ", since(each.since_s, fetched_ms), remarks(each)],
        each.server ? `${short(each.server, 80)} by ${each.wire}` : short(each.servers.join(", "), 200),
        each.resources.length
          ? h("ul", { class: "chips" }, each.resources.map((one) => h("li", {}, h("b", {}, one.type), ` ${number(one.resources)}`)))
          : "nothing",
        each.age_s === null ? "never" : [since(each.age_s, fetched_ms), " ago"],
      ]))),
  ];
}

function remarks(one) {
  const found = [
    ...(one.trouble ? [one.trouble] : []),
    ...(one.state === "connected" && one.pending.length ? [`has not responded yet for ${one.pending.join(", ")}`] : []),
    ...one.rejected.map((each) => `rejected: ${each}`),
  ];
  return found.length ? h("ul", {}, found.map((each) => h("li", {}, short(each, 500)))) : null;
}

const VIEW_HEADINGS = ["View", "Layers", "Clients", "What is served"];

function viewTable(views) {
  return table("Views, and the versions of what is served to them", VIEW_HEADINGS, views.map((view) =>
    row(`${view.name} ${view.layers.join("+")}`, VIEW_HEADINGS, [
      short(view.name || "whole tree", 80),
      short(view.layers.join(" + ") || "–"),
      number(view.clients),
      view.types.length
        ? h("ul", { class: "chips" }, view.types.map((each) =>
          h("li", { title: `version ${each.version}` }, h("b", {}, each.type), ` ${number(each.resources)} `, h("code", {}, String(each.version).slice(0, 8)))))
        : "nothing",
    ])));
}

function server(status, fetched_ms) {
  const listeners = status.listeners.map((each) =>
    h("li", {}, h("b", {}, each.name), " ", each.address, " ", each.tls ? badge("good", "TLS") : badge("outside", "no TLS")));
  return h("dl", { class: "facts" },
    h("dt", {}, "Version"), h("dd", {}, `${status.version}, process ${status.pid}, up for `, since(status.uptime_s, fetched_ms), `, generation ${number(status.generation)}`),
    h("dt", {}, "Tree"), h("dd", {}, status.directory ? h("code", {}, status.directory) : "none; upstreams are all there is"),
    h("dt", {}, "State"), h("dd", {}, status.state ? h("code", {}, status.state) : "not kept; start fsxds with --state DIR for a history"),
    h("dt", {}, "Listens"), h("dd", {}, listeners.length ? h("ul", { class: "chips" }, listeners) : "nowhere"));
}
