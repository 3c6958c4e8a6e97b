// The page: what is asked for and when, what is shown, and what keys and clicks do. It decides nothing in fsxds.

import { TokenNeeded, ask, forgetToken, keepToken, listen } from "/assets/api.js";
import * as clientList from "/assets/clients.js";
import { h, short, tick, update, visible } from "/assets/dom.js";
import * as fileList from "/assets/files.js";
import { graph, nodeBeside } from "/assets/graph.js";
import { history } from "/assets/history.js";
import { facts, overview, summary } from "/assets/overview.js";
import { rollouts } from "/assets/rollouts.js";

const TABS = ["overview", "graph", "clients", "files", "rollouts", "history"];
// What is not reported as an event, such as an ACK, shows up within this time.
const REFRESH_MS = 5_000;
// As many times as long as an answer took.
const RESTS = 3;
const AFTER_CHANGE_MS = 1_000;
const TYPING_MS = 200;
const MOST_NODES = 160;
// Beside the drawing, with the space between them.
const PANEL_PX = 322;
const NARROW = matchMedia("(max-width: 700px)");

const state = {
  tab: "overview",
  status: null,
  fetched_ms: 0,
  graph: null, graphError: "", selected: "", content: null,
  clients: null, client: null,
  files: null, file: "",
  history: null, historyError: "", diff: null,
  showAll: new Set(),
  query: { graph: { width: 0 }, clients: {}, files: {} },
};
// What the address of each tab says after its name, as in `#clients?search=edge&client=edge-7`; the rest is as here.
const DEFAULTS = {
  graph: { search: "", view: "", around: "", as: NARROW.matches ? "list" : "drawing" },
  clients: { search: "", view: "", state: "", offset: 0 },
  files: { search: "", state: "", offset: 0 },
};
for (const tab in DEFAULTS) Object.assign(state.query[tab], DEFAULTS[tab]);
const element = (id) => document.getElementById(id);

// What is asked for

let isAsking = false;
let isWanted = false;
let asked_ms = 0;
let endRest = () => {};

// Ask for what is shown. While that goes on, one more time is noted, however often it is wanted. A server that is slow to
// answer is asked less often, so that many pages cannot keep it from its work.
async function refresh() {
  isWanted = true;
  if (isAsking) return;
  isAsking = true;
  try {
    while (isWanted) {
      isWanted = false;
      asked_ms = Date.now();
      await fetchAll();
      await rest(Math.min(REFRESH_MS, (Date.now() - asked_ms) * RESTS));
    }
  } catch (error) {
    if (error instanceof TokenNeeded) askForToken();
    else if (!state.status) connection("stale", `No status: ${error.message}`);
  } finally {
    isAsking = false;
  }
}

function rest(time_ms) {
  return new Promise((resolve) => {
    endRest = resolve;
    setTimeout(resolve, time_ms);
  });
}

// Ask for what a reader wants to see, who does not wait.
function look() {
  endRest();
  return refresh();
}

async function fetchAll() {
  const before = state.status;
  [state.status] = await Promise.all([ask("/api/status"), FETCH[state.tab]?.()]);
  state.fetched_ms = Date.now();
  document.body.dataset.ready = "true";
  show();
  announce(before, state.status);
}

const FETCH = {
  async graph() {
    const { search, view, around } = state.query.graph;
    try {
      [state.graph] = await Promise.all([ask("/api/graph", { search, view, around, limit: MOST_NODES }), fetchContent()]);
      state.graphError = "";
    } catch (error) {
      if (error instanceof TokenNeeded) throw error;
      state.graphError = error.message;
    }
  },
  async clients() {
    const found = [ask("/api/clients", { ...state.query.clients, limit: clientList.LIMIT }), fetchClient()];
    [state.clients] = await Promise.all(found);
  },
  async files() {
    state.files = await ask("/api/files", { ...state.query.files, limit: fileList.LIMIT });
  },
  async history() {
    const { state: kept, fleet } = state.status ?? await ask("/api/status");
    if (!kept && !fleet.length) {
      state.historyError = "There is no history: start fsxds with --state DIR.";
      return;
    }
    try {
      state.history = (await ask("/api/history")).snapshots;
      state.historyError = "";
    } catch (error) {
      if (error instanceof TokenNeeded) throw error;
      state.historyError = error.message;
    }
  },
};

async function fetchClient() {
  const node = state.client?.node;
  if (node === undefined) return;
  let entries = [];
  try {
    const found = await ask(`/api/clients/${encodeURIComponent(node)}`);
    entries = Array.isArray(found) ? found : found.clients;
  } catch (error) {
    if (error instanceof TokenNeeded) throw error;
  }
  // Another one may have been chosen meanwhile.
  if (state.client?.node === node) state.client = { node, entries };
}

async function fetchContent() {
  const wanted = state.content;
  if (!wanted) return;
  try {
    wanted.shown = await ask("/api/resource", { view: state.query.graph.view, id: wanted.id });
    wanted.error = "";
  } catch (error) {
    if (error instanceof TokenNeeded) throw error;
    wanted.error = error.message;
  }
}

// What is shown

const VIEWS = { overview, graph, clients: clientList.clients, files: fileList.files, rollouts, history };
const FORMS = {};

function show() {
  const { status } = state;
  if (!status) return;
  element("content").hidden = false;
  element("login").hidden = true;
  element("token").value = "";
  const where = visible(status.directory) || short(status.upstreams.map((each) => each.name).join(", "), 80);
  element("where").textContent = where;
  document.body.dataset.tab = state.tab;
  document.title = `${titleSign(status)}fsxds ${where}`;
  update(element("summary"), ...summary(status, state.fetched_ms));
  showTabs();
  const panel = element(state.tab);
  let body = panel.querySelector(":scope > .body");
  if (!body) {
    body = h("div", { class: "body" });
    panel.replaceChildren(...(FORMS[state.tab] ? [FORMS[state.tab]()] : []), body);
    fillForm();
  }
  fillViews(panel);
  state.query.graph.width = panel.clientWidth - (state.selected && !NARROW.matches ? PANEL_PX : 2);
  const made = VIEWS[state.tab](state);
  update(body, ...(Array.isArray(made) ? made : [made]));
}

function titleSign(status) {
  const worst = facts(status)[0]?.[0];
  return worst === "error" ? "✕ " : worst === "held" ? "! " : "";
}

function showTabs() {
  for (const name of TABS) {
    const tab = element(`tab-${name}`);
    const isSelected = name === state.tab;
    tab.setAttribute("aria-selected", String(isSelected));
    tab.tabIndex = isSelected ? 0 : -1;
    element(name).hidden = !isSelected;
  }
}

// The forms stay as they are while what is below them changes.

function select(name, label, options) {
  const choices = options.map(([each, words]) => h("option", { value: each }, words));
  return h("label", {}, h("span", {}, label), h("select", { name }, choices));
}

function search(label) {
  return h("label", { class: "search" }, h("span", {}, label),
    h("input", { type: "search", name: "search", autocomplete: "off", spellcheck: "false", maxlength: 200 }));
}

FORMS.graph = () => h("form", { role: "search", "data-form": "graph", "aria-label": "Graph" },
  search("Search names"), select("view", "View", []),
  select("as", "Show as", [["drawing", "drawing"], ["list", "list"]]));
FORMS.clients = () => h("form", { role: "search", "data-form": "clients", "aria-label": "Clients" },
  search("Search nodes"), select("view", "View", [["", "all"]]),
  select("state", "State", [["", "all"], ["NACK"], ["STALE"], ["NOT SENT"], ["SYNCED"]].map(([each, words]) => [each, words ?? each])));
FORMS.files = () => h("form", { role: "search", "data-form": "files", "aria-label": "Files" },
  search("Search paths"), select("state", "State", [["", "all"], ["broken", "broken"], ["held", "held"], ["good", "good"]]));

// Let the form of this tab show what the address says.
function fillForm() {
  for (const field of document.querySelectorAll(`[data-form=${state.tab}] :is(input, select)`)) {
    if (field.name !== "view") field.value = state.query[state.tab][field.name];
  }
}

const MOST_VIEWS = 500;

function fillViews(panel) {
  const chooser = panel.querySelector("select[name=view]");
  if (!chooser || chooser === document.activeElement) return;
  const isGraph = state.tab === "graph";
  const labels = state.status.views.slice(0, MOST_VIEWS).map((view) => [view.name || view.layers.join("+"), view.name || "whole tree"]);
  const wanted = [...(isGraph ? [] : [["", "all"]]), ...new Map(labels)];
  chooser.closest("label").hidden = state.status.views.length < 2;
  if (wanted.length === chooser.options.length && wanted.every(([value], at) => chooser.options[at].value === value)) return;
  const value = state.query[state.tab].view || chooser.value || (isGraph ? state.graph?.view : "");
  chooser.replaceChildren(...wanted.map(([each, words]) => h("option", { value: each }, words)));
  chooser.value = wanted.some(([each]) => each === value) ? value : wanted[0][0];
}

// What is said aloud: what changed of the facts, and nothing that stays.
function announce(before, after) {
  if (!before) return;
  const known = new Set(facts(before).map(([, sentence]) => sentence));
  const fresh = facts(after).map(([, sentence]) => sentence).filter((sentence) => !known.has(sentence));
  if (!facts(after).length && known.size) fresh.push("All is good again");
  if (fresh.length) element("announcer").textContent = visible(fresh.slice(0, 3).join(". "));
}

function connection(how, words) {
  const shown = element("connection");
  shown.dataset.state = how;
  shown.textContent = words;
  document.body.dataset.live = how;
}

function askForToken() {
  const wasGiven = element("token").value !== "";
  element("content").hidden = true;
  element("login").hidden = false;
  element("login-message").textContent = wasGiven ? "This token is not known here." : "";
  connection("stale", "Needs a token");
  element("token").focus();
}

// What clicks and keys do

const ACTIONS = {
  "show-all"(what) {
    state.showAll.add(what);
    show();
  },
  "clients-page"(offset) {
    state.query.clients.offset = Number(offset);
    note();
    look();
  },
  "files-page"(offset) {
    state.query.files.offset = Number(offset);
    note();
    look();
  },
  async client(node, button) {
    const close = button.closest(".panel") !== null;
    state.client = close ? null : { node, entries: [] };
    note();
    await fetchClient();
    show();
    if (!close) element("client-heading")?.focus();
  },
  file(path) {
    state.file = path;
    note();
    show();
    element("file-heading")?.focus();
  },
  "graph-select"(id) {
    state.selected = id;
    note();
    show();
  },
  async "graph-around"(id) {
    state.query.graph.around = id;
    note();
    await look();
  },
  async content(id) {
    state.content = { id, shown: null, error: "" };
    show();
    await fetchContent();
    show();
  },
  async diff(value) {
    const [of, from, to] = value.split(" ");
    state.diff = value ? { of: Number(of), from, to, content: null } : null;
    show();
    if (!value) return;
    const wanted = state.diff;
    try {
      wanted.content = await ask("/api/diff", { from, to });
    } catch (error) {
      wanted.error = error.message;
    }
    show();
    element("diff-heading")?.focus();
  },
};

function act(target) {
  const found = target.closest("[data-do]");
  if (!found || found.disabled) return false;
  ACTIONS[found.dataset.do]?.(found.dataset.value, found);
  return true;
}

document.addEventListener("click", (event) => {
  const tab = event.target.closest("[role=tab]");
  if (tab) location.hash = address(tab.id.replace("tab-", ""));
  else act(event.target);
});

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (target.matches?.("[role=tab]")) moveTab(event, TABS.indexOf(target.id.replace("tab-", "")));
  else if (target.matches?.("g.node")) moveNode(event);
});

function moveTab(event, at) {
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: TABS.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const name = TABS[(to + TABS.length) % TABS.length];
  location.hash = address(name);
  element(`tab-${name}`).focus();
}

function moveNode(event) {
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    act(event.target);
  } else if (event.key.startsWith("Arrow")) {
    event.preventDefault();
    const next = nodeBeside(event.target, event.key);
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

let typing;

document.addEventListener("input", (event) => {
  const form = event.target.closest("[data-form]");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(() => {
    const query = state.query[form.dataset.form];
    Object.assign(query, Object.fromEntries(new FormData(form)), "offset" in query ? { offset: 0 } : { around: "" });
    window.history.replaceState(null, "", address(state.tab));
    show();
    look();
  }, event.target.name === "search" ? TYPING_MS : 0);
});

document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.closest("#login")) {
    keepToken(element("token").value.trim());
    element("login").hidden = true;
    start();
  }
});

let resizing;

window.addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(show, TYPING_MS);
});

// What is chosen in a tab, and is no part of what is asked for its list.
const CHOSEN = {
  graph: { get: () => ({ selected: state.selected }), set({ selected }) { state.selected = selected ?? ""; } },
  clients: {
    get: () => ({ client: state.client?.node ?? "" }),
    set({ client }) { if (client !== state.client?.node) state.client = client ? { node: client, entries: [] } : null; },
  },
  files: { get: () => ({ file: state.file }), set({ file }) { state.file = file ?? ""; } },
};

// The address of what a tab shows: it can be kept, and given to others.
function address(tab) {
  const defaults = DEFAULTS[tab] ?? {};
  const query = Object.keys(defaults).map((name) => [name, state.query[tab][name]]).filter(([name, value]) => value !== defaults[name]);
  const words = new URLSearchParams([...query, ...Object.entries(CHOSEN[tab]?.get() ?? {}).filter(([, value]) => value)]);
  return `#${tab}${words.size ? `?${words}` : ""}`;
}

// Note in the address what was chosen, so that Back leads to what was shown before.
function note() {
  if (location.hash !== address(state.tab)) window.history.pushState(null, "", address(state.tab));
}

function route() {
  const [name, words = ""] = location.hash.slice(1).split("?");
  if (!TABS.includes(name) || (name === state.tab && location.hash === address(name))) return;
  state.tab = name;
  const given = Object.fromEntries(new URLSearchParams(words));
  for (const [each, value] of Object.entries(DEFAULTS[name] ?? {})) {
    const said = given[each] ?? value;
    state.query[name][each] = each === "offset" ? Number(said) || 0 : said;
  }
  CHOSEN[name]?.set(given);
  fillForm();
  show();
  look();
}

window.addEventListener("hashchange", route);

// How it stays live

let changeTimer;

let isListening = false;

function start() {
  refresh();
  if (isListening) return;
  isListening = true;
  listen({
    // An event comes at once.
    up() {
      connection("live", "Live");
    },
    changed() {
      refresh();
      // Clients take a change a moment later.
      clearTimeout(changeTimer);
      changeTimer = setTimeout(refresh, AFTER_CHANGE_MS);
    },
    down(seconds) {
      connection("stale", `Not live: what you see may be old. Trying again in ${Math.ceil(seconds)} s`);
    },
    token() {
      isListening = false;
      forgetToken();
      askForToken();
    },
  });
}

setInterval(() => {
  if (document.hidden || !state.status) return;
  tick();
  if (Date.now() - asked_ms > REFRESH_MS && document.body.dataset.live === "live") refresh();
}, 1_000);

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && state.status) refresh();
});

route();
start();
