"""Canaries: nodes that get changes first, and when others follow, per resource.

| rule | source |
| --- | --- |
| Others get a version, or a removal, when canaries of a view with it have lived with it. | |
| A removed resource stays while a new one of its type waits: it may be renamed. | |
| Silence is not consent: without a canary, or when one is gone, changes wait. | |
| A version held back on canaries waits; so do its dependents. | `holding` |
| Patience ends neither a bake nor that wait. | |
| A connected node that is no longer a canary has no vote. | |

Changes that arrived together, and stand alike with all canaries, bake together, also after later edits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import inf
from operator import is_
from typing import TypeAlias

from fsxds.events.event import some_of
from fsxds.events.rollout_events import CanaryAwaited
from fsxds.model.resources import Key, Snapshot
from fsxds.model.values import Layers, Version
from fsxds.protocol.messages import SyncState
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.held_resources import ExplainedHold, held_resources
from fsxds.rollout import version_of
from fsxds.rollout.holding import Composed, Hold, HoldingRules, HoldReason, compose
from fsxds.rollout.rejections import NodeKey, Rejections
from fsxds.rollout.step import Standing
from fsxds.rollout.target import changed_keys
from fsxds.runtime.channels import ChannelClient, ChannelKey, node_key

Change: TypeAlias = tuple[Key, Version | None]
"""A version of a resource for the others; None for its removal."""

Answers: TypeAlias = dict[NodeKey, bool | None]
"""Per canary, whether it has taken a change; None if it rejects some of it, or is not served it."""

# Faults of the tree itself are held when it is served.
_RULES = HoldingRules(keeps_references=False, max_removal=None)


@dataclass(frozen=True, slots=True)
class BakeRules:
    """When other nodes follow canaries.

    `quorum` is the share of canaries that must have a version for `bake_s`, above 0 and up to 1; after `patience_s`
    others follow anyway, infinite for never.
    """

    bake_s: float
    quorum: float = 1.0
    patience_s: float = inf


@dataclass(slots=True, eq=False)
class Bake:
    """Changes that wait for the same canaries.

    `taken_since_s` is when enough canaries had it, `opens_at_s` when others get it; None until then. `is_reported`: too
    few answers were reported, and never enough since. `places`: whether each canary rollout is to serve it, None if no
    change.
    """

    changes: frozenset[Change]
    since_s: float
    nodes: Answers = field(default_factory=dict)
    gone: AbstractSet[NodeKey] = frozenset()
    taken_since_s: float | None = None
    opens_at_s: float | None = None
    is_open: bool = False
    is_promoted: bool = False
    is_reported: bool = False
    places: tuple[bool | None, ...] = ()

    @property
    def missing(self) -> int:
        """Canaries that have not taken it, or are gone."""
        return sum(not has_taken for has_taken in self.nodes.values())

    @property
    def is_short(self) -> bool:
        """Whether too few canaries have it, without promotion."""
        return self.taken_since_s is None and not self.is_promoted

    def receive(self, answers: Answers, there: AbstractSet[NodeKey], rules: BakeRules, now_s: float) -> bool:
        """Take answers; return whether the bake opened now.

        A gone canary has taken nothing; one `there` without an answer has no vote.
        """
        self.gone = self.nodes.keys() - answers.keys() - there
        self.nodes = answers | {node: None if self.nodes[node] is None else False for node in self.gone}
        count, was_open = len(self.nodes), self.is_open
        if not 0 < count - self.missing >= rules.quorum * count:
            self.taken_since_s = None
        elif self.taken_since_s is None:
            self.taken_since_s, self.is_reported = now_s, False
        if self.is_promoted:
            self.opens_at_s = now_s
        elif self.taken_since_s is not None:
            self.opens_at_s = self.taken_since_s + rules.bake_s
        else:
            is_patient = rules.patience_s == inf or None in self.nodes.values()
            self.opens_at_s = None if is_patient else self.since_s + rules.patience_s
        self.is_open = self.opens_at_s is not None and self.opens_at_s <= now_s
        return self.is_open and not was_open

    def is_served_by(self, rollout: ChannelRollout) -> bool:
        """Whether a rollout serves it; removed resources may linger."""
        served, lingering = rollout.machine.served, rollout.machine.lingering
        return served is not None and all(
            version_of(served, key) == version or (version is None and key in lingering)
            for key, version in self.changes
        )


class CanaryGate:
    """Holds versions back from other nodes until baked."""

    def __init__(self, rules: BakeRules) -> None:
        self.rules = rules
        self.bakes: list[Bake] = []
        self._bakes: dict[Change, Bake] = {}
        # The keys removed from trees of canaries while changes wait.
        self._removed: dict[Layers, set[Key]] = {}
        # The inputs of the bakes.
        self._seen: list[object] = []

    def receive_trees(self, before: Mapping[Layers, Snapshot], trees: Mapping[Layers, Snapshot]) -> None:
        """Note removals from views."""
        for layers, tree in trees.items():
            if layers in before and tree is not before[layers]:
                changed = changed_keys(tree, before[layers])
                gone = {key for key in changed if version_of(tree, key) is None}
                self._removed[layers] = (self._removed.get(layers, set()) - changed) | gone

    def admit(self, rollout: ChannelRollout, wanted: Snapshot) -> Composed:
        """Return a tree's part for other nodes; the rest stays, with its dependents."""
        before, pins = rollout.target.tree or rollout.machine.target, rollout.target.pins
        if before is None or wanted is before:
            return Composed(wanted)
        changed, waiting = changed_keys(wanted, before), dict[Key, Hold]()
        for key in sorted(changed):
            asked, kept = (one.resources(key[0]).get(key[1]) for one in (wanted, before))
            change = key, None if asked is None else asked.version
            # A restored version in place of a rolled back one is not that of its tree.
            is_pinned = rollout.target.tree is None and key in pins and change[1] in pins[key].asked
            if version_of(before, key) != change[1] and not is_pinned and not self._is_open(change):
                waiting[key] = Hold(HoldReason.CANARY, kept, asked)
        new = {type_url for (type_url, _), hold in waiting.items() if hold.kept is None}
        for key in changed - waiting.keys():
            if key[0] in new and version_of(wanted, key) is None:
                waiting[key] = Hold(HoldReason.CANARY, before.resources(key[0]).get(key[1]), None)
        if not waiting:
            return Composed(wanted)
        # A tree that must show pinned resources does so as a whole.
        is_all = len(waiting) == len(changed) or rollout.target.pinned is not None
        composed = Composed(before, waiting) if is_all else compose(wanted, before, waiting, _RULES)
        return replace(composed, snapshot=before) if composed.holds.keys() >= changed else composed

    def look(self, rollouts: Mapping[ChannelKey, ChannelRollout], rejections: Rejections, now_s: float) -> bool:
        """Update the bakes; return whether one opened."""
        seats = [one for key, one in rollouts.items() if key.is_canary]
        self._sort([one for key, one in rollouts.items() if not (key.is_canary or key.lane)], seats, now_s)
        found = [(bake, _answers(bake, seats, rejections)) for bake in self.bakes]
        there: set[NodeKey] = set()
        if any(bake.nodes.keys() - answers.keys() - bake.gone for bake, answers in found):
            there.update(node_key(client) for one in rollouts.values() for client in one.channel.clients)
        return True in [bake.receive(answers, there, self.rules, now_s) for bake, answers in found]

    def promote(self) -> None:
        """Open all current bakes."""
        for bake in self.bakes:
            bake.is_promoted = True

    def wait_s(self, now_s: float) -> float:
        """Return the longest wait for missing canaries."""
        return max((now_s - bake.since_s for bake in self.bakes if bake.is_short), default=0.0)

    def take_missed(self, since_s: float) -> CanaryAwaited | None:
        """Report changes waiting since a time, or None."""
        nodes: dict[NodeKey, bool] = {}
        due = [bake for bake in self.bakes if bake.is_short and not bake.is_reported and bake.since_s <= since_s]
        for bake in due:
            bake.is_reported = True
            nodes.update({node: nodes.get(node, True) and bool(has_it) for node, has_it in bake.nodes.items()})
        return CanaryAwaited(list(nodes.values()).count(False), len(nodes)) if due else None

    @property
    def unmissed_since_s(self) -> float:
        """The first unreported wait's start, or infinity."""
        return min((bake.since_s for bake in self.bakes if bake.is_short and not bake.is_reported), default=inf)

    def next_s(self) -> float:
        """Return when the next bake opens; infinite for never."""
        times_s = (bake.opens_at_s for bake in self.bakes if not bake.is_open)
        return min((at_s for at_s in times_s if at_s is not None), default=inf)

    def bakes_of(self, rollout: ChannelRollout) -> Collection[Bake]:
        """Return a rollout's bakes."""
        changes = (_change_of(key, hold) for key, hold in rollout.waits.items())
        return {id(bake): bake for one in changes if (bake := self._bakes.get(one)) is not None}.values()

    def held_in(self, rollout: ChannelRollout) -> Iterator[ExplainedHold]:
        """Yield waiting resources, with the missing canaries."""
        for one in held_resources(rollout.waits, rollout.held_since_s):
            bake = self._bakes.get(_change_of(one.key, rollout.waits[one.key]))
            problem = one.problem
            if one.reason is HoldReason.CANARY and bake is not None:
                missing = [node for node, has_taken in bake.nodes.items() if not has_taken]
                names = sorted(str(node[0]) if isinstance(node, tuple) else "one without a node id" for node in missing)
                whom = (
                    some_of(names)
                    if names
                    else "connected canaries use it until the time is over"
                    if bake.nodes
                    else "none is connected"
                )
                problem = replace(problem, message=f"{problem.message}: {whom}")
            yield replace(one, problem=problem)

    def _is_open(self, change: Change) -> bool:
        bake = self._bakes.get(change)
        return bake is not None and bake.is_open

    def _sort(self, others: Collection[ChannelRollout], seats: Collection[ChannelRollout], now_s: float) -> None:
        seen: list[object] = [each for one in others for each in (one, one.waits)]
        seen += [each for one in map(_goal, seats) for each in (one, one.wanted, one.target.composed)]
        if len(seen) == len(self._seen) and all(map(is_, seen, self._seen)):
            return
        self._seen = seen
        waiting: dict[Change, set[Layers]] = {}
        for one in others:
            for key, hold in one.waits.items():
                waiting.setdefault(_change_of(key, hold), set()).add(one.channel.key.layers)
        if not waiting and all(one.follows_tree for one in others):
            self._removed.clear()
        alike: dict[tuple[Bake | None, tuple[bool | None, ...]], set[Change]] = {}
        for change, layers in waiting.items():
            places = tuple(self._place(change, layers, _goal(one)) for one in seats)
            alike.setdefault((self._bakes.get(change), places), set()).add(change)
        self.bakes, self._bakes = [], {}
        for (bake, places), changes in alike.items():
            made = Bake(frozenset(), now_s) if bake is None else bake
            if made.changes != changes:
                made = replace(made, changes=frozenset(changes))
            made.places = places
            self.bakes.append(made)
            self._bakes.update(dict.fromkeys(changes, made))

    def _place(self, change: Change, views: Collection[Layers], rollout: ChannelRollout) -> bool | None:
        """Whether canaries are to be served a change; None if it is none."""
        (key, version), layers, composed = change, rollout.channel.key.layers, rollout.target.composed
        if rollout.wanted is None or version_of(rollout.wanted, key) != version:
            return None
        if version is None and layers not in views and key not in self._removed.get(layers, ()):
            return None
        return composed is not None and version_of(composed.snapshot, key) == version


def _goal(rollout: ChannelRollout) -> ChannelRollout:
    return rollout.goal or rollout


def _change_of(key: Key, hold: Hold) -> Change:
    return key, None if hold.asked is None else hold.asked.version


def _answers(bake: Bake, seats: Iterable[ChannelRollout], rejections: Rejections) -> Answers:
    answers: Answers = {}
    for rollout, place in zip(seats, bake.places, strict=True):
        if place is None:
            continue
        is_served: bool | None = None if place and rollout.goal is None else False
        for client in rollout.channel.clients:
            node = node_key(client)
            known, others = rejections.nodes.get(node), answers.get(node, True)
            if not place or others is None or (known and not bake.changes.isdisjoint(known.reasons)):
                answers[node] = None
                continue
            has_it = bool(bake.nodes.get(node))
            if not has_it and is_served is not False and _has_answered(client, rollout, rejects=known is not None):
                # This costs all changes, so it is asked only when the answer may be new.
                is_served = has_it = bake.is_served_by(rollout) if is_served is None else is_served
            answers[node] = others and has_it
    return answers


def _has_answered(client: ChannelClient, rollout: ChannelRollout, *, rejects: bool) -> bool:
    state, step = client.sync_state(), rollout.asked
    if state is SyncState.NACK and rejects:
        # It rejects versions that it is not served now.
        return rollout.machine.step is None and step is not None and client.standing(step) is Standing.TAKEN
    return state is SyncState.SYNCED
