// The files of the tree: good, held back or broken, and what is wrong with each.

import { badge, empty, h, number, pager, panel, row, short, since, table } from "/assets/dom.js";
import { problem } from "/assets/overview.js";

export const LIMIT = 100;
const HEADINGS = ["File", "State", "Resources", "Problems", "Since"];

export function files({ files: page, status, fetched_ms, query, file }) {
  if (!page) return empty("Loading …");
  return [
    file ? detail(file, status, fetched_ms) : null,
    page.files.length
      ? table("Files, those with something wrong first", HEADINGS, page.files.map((each) => one(each, fetched_ms)))
      : empty(query.files.search || query.files.state ? "No file is found with this." : "There is no file with configuration yet."),
    pager("files", page.total, query.files.offset, LIMIT),
  ];
}

function one(each, fetched_ms) {
  const name = each.problems
    ? h("button", { class: "link", "data-do": "file", "data-value": each.path }, short(each.path))
    : short(each.path);
  return row(each.path, HEADINGS, [
    name, badge(each.state), number(each.resources), number(each.problems), since(each.since_s ?? 0, fetched_ms)]);
}

function detail(path, status, fetched_ms) {
  const found = status.problems.filter((each) => each.path === path);
  return panel({ id: "file-heading", key: `detail ${path}`, action: "file" }, short(path),
    found.length
      ? h("ol", { class: "problems" }, found.map((each) => problem(each, fetched_ms)))
      : empty("Its problems are not among the first that are shown here; ", h("code", {}, "fsxds check"), " lists all."));
}
