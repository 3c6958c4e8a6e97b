// Each rollout as it goes: its step, whom that waits for, what is held back, and the command that decides about it.

import { badge, count, duration, empty, h, short, since } from "/assets/dom.js";
import { nameOf } from "/assets/overview.js";

const STEPS = ["grow", "switch", "shrink"];
const MEANINGS = {
  whole: "everything at once: nothing needs an order",
  grow: "what is used is added and changed",
  switch: "what uses it changes",
  shrink: "what nothing uses any more goes",
};
const MOST_NAMES = 100;

export function rollouts({ status, fetched_ms }) {
  if (!status.rollouts.length) return empty("Nothing is served yet.");
  const order = [...status.rollouts].sort((a, b) => rank(a) - rank(b));
  const more = status.rollout_count - order.length;
  return [h("ul", { class: "cards" }, order.map((each) => card(each, fetched_ms))),
    more > 0 ? h("p", { class: "note" }, `and ${count(more, "more rollout")}: fsxds rollout status lists all`) : null];
}

function rank(rollout) {
  if (rollout.held || rollout.pinned) return 0;
  return rollout.step ? 1 : rollout.is_done ? 3 : 2;
}

function stateOf(rollout) {
  if (rollout.held) return badge("held", "waits for approval");
  if (rollout.pinned) return badge("held", "rolled back");
  if (rollout.step) return badge("waits", `${rollout.step.name} goes on`);
  if (rollout.waits_for_canary || rollout.baking_s !== null) return badge("waits", "waits for the canary");
  return rollout.is_done ? badge("done", "has what the tree asks for") : badge("waits", "on its way");
}

function card(rollout, fetched_ms) {
  return h("li", { class: "card", "data-key": `${rollout.layers.join("+")} ${rollout.cohort}` },
    h("div", { class: "card-head" }, h("h3", {}, nameOf(rollout)), stateOf(rollout)),
    h("dl", { class: "facts" },
      fact("Layers", rollout.layers.length ? short(rollout.layers.join(" + ")) : "the whole tree"),
      fact("Clients", String(rollout.clients)),
      fact("Serves", version(rollout.served)),
      rollout.target !== rollout.served ? fact("Goes to", version(rollout.target)) : null,
      rollout.asked !== rollout.target ? fact("Tree asks for", version(rollout.asked)) : null),
    rollout.held ? held(rollout.held) : null,
    rollout.pinned ? decide(`Rolled back to ${rollout.pinned}; the tree is not followed. To follow it again: `, "fsxds rollback --resume") : null,
    rollout.step ? step(rollout.step, fetched_ms) : null,
    rollout.waits_for_canary ? decide("Waits until the canary has taken it. Not to wait: ", "fsxds rollout promote") : null,
    rollout.baking_s !== null ? decide(`Follows the canary in ${duration(rollout.baking_s)}. Not to wait: `, "fsxds rollout promote") : null,
    names("Late: they let a step time out, and have taken nothing since", rollout.late),
    names("Rejected by clients", rollout.rejections, "reason"),
    names("Taken back, and not served again until the tree changes", rollout.tainted),
    lingering(rollout.lingering));
}

function fact(name, ...value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function version(value) {
  return value ? h("code", {}, value) : "nothing";
}

function held({ version: held_version, reason }) {
  return decide(`It ${reason}. To serve it all the same: `, `fsxds rollout approve ${held_version}`);
}

function decide(words, command) {
  return h("p", { class: "decide" }, words, h("code", { class: "command" }, command));
}

function step(one, fetched_ms) {
  const steps = STEPS.includes(one.name) ? STEPS : [one.name];
  const at = steps.indexOf(one.name);
  return h("div", { class: "step" },
    h("ol", { class: "steps", "aria-label": "Steps" }, steps.map((name, place) =>
      h("li", { class: place < at ? "past" : place === at ? "now" : "next", "aria-current": place === at ? "step" : null, title: MEANINGS[name] },
        h("span", {}, name), place < at ? h("span", { class: "unseen" }, " (done)") : null))),
    h("p", {}, `${MEANINGS[one.name] ?? ""}: for `, since(one.since_s, fetched_ms), `, and ${duration(one.ends_within_s)} more at most. To take it back: `,
      h("code", { class: "command" }, "fsxds rollout abort")),
    names(`Waits for ${count(one.waits_for.length, "client")}`, one.waits_for.map((each) => `${each.client} (${each.transport})`)));
}

function lingering(list) {
  if (!list.length) return null;
  return names("Stays for open connections of draining listeners", list.map((each) =>
    `${each.type} ${each.name}, of ${each.listeners.join(", ")}${each.left_s === null ? "" : `, ${duration(each.left_s)} more at most`}`));
}

function names(heading, list, style = "") {
  if (!list.length) return null;
  const shown = list.slice(0, MOST_NAMES).map((each) => h("li", {}, short(each, 600)));
  if (list.length > MOST_NAMES) shown.push(h("li", {}, `and ${list.length - MOST_NAMES} more`));
  return h("div", { class: `names ${style}` }, h("h4", {}, heading), h("ul", {}, shown));
}
