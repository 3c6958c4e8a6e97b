// Each rollout as it goes: its step, whom that waits for, what is held back, and the command that decides about it.

import { badge, count, duration, empty, h, short, since } from "/assets/dom.js";
import { heldBack, nameOf } from "/assets/overview.js";

const STEPS = ["grow", "switch", "shrink"];
const MEANINGS = {
  whole: "all changes at once: none needs an order",
  grow: "used resources are added and changed",
  switch: "resources that use them change",
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
  if (rollout.held.length || rollout.approval || rollout.pinned || rollout.waits_for_canary) return 0;
  return rollout.step ? 1 : rollout.is_done ? 3 : 2;
}

function stateOf(rollout) {
  if (rollout.pinned) return badge("held", "rolled back");
  if (rollout.approval) return badge("held", "waits for approval");
  if (rollout.step) return badge("waits", `${rollout.step.name} goes on`);
  if (rollout.waits_for_canary) return badge("held", "waits for canaries");
  if (rollout.baking_s !== null) return badge("waits", "waits for the canary");
  if (rollout.held.length) return badge("held", "held back");
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
    rollout.pinned ? decide(`${count(rollout.pinned, "resource")} rolled back, each until it changes in the tree. To follow the tree again: `, "fsxds rollout resume") : null,
    keys("Rolled back", rollout, "pinned"),
    rollout.approval ? decide(`The tree removes ${rollout.approval.removal}: they stay until that is approved. To let them go: `, `fsxds rollout approve ${rollout.approval.id}`) : null,
    keys("Stays until that is approved", rollout, "waits for approval"),
    rollout.step ? step(rollout.step, fetched_ms) : null,
    rollout.waits_for_canary ? decide("Waits for canaries that have not taken the change, or are not there. To go on without them: ", "fsxds rollout promote") : null,
    rollout.baking_s !== null ? decide(`Follows the canary in ${duration(rollout.baking_s)}. Not to wait: `, "fsxds rollout promote") : null,
    heldList(heldBack(rollout), fetched_ms),
    lingering(rollout.lingering));
}

function fact(name, ...value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function version(value) {
  return value ? h("code", {}, value) : "nothing";
}

// Each resource with what is the matter with it, for how long, and the remedy.
function heldList(list, fetched_ms) {
  if (!list.length) return null;
  return h("div", { class: "names reason" }, h("h4", {}, "Held back, or rejected"), h("ul", {}, list.map((each) =>
    h("li", { "data-key": `${each.type} ${each.name} ${each.reason} ${each.place}` },
      h("b", {}, `${each.type} ${short(each.name, 200)}`), ` ${each.reason}`,
      each.nodes.length ? ` by ${each.nodes.map((one) => short(one, 60)).join(", ")}` : null,
      each.since_s === null ? null : [" for ", since(each.since_s, fetched_ms)],
      h("p", {}, h("strong", { class: "place" }, short(each.place)), ` ${short(each.message, 600)}`),
      each.remedy ? h("p", { class: "remedy" }, h("span", { "aria-hidden": "true" }, "→ "), h("span", { class: "unseen" }, "Remedy: "), short(each.remedy, 600)) : null))));
}

function keys(heading, rollout, reason) {
  return names(heading, rollout.held.filter((each) => each.reason === reason).map((each) => `${each.type} ${each.name}`));
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
