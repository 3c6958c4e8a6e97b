"""Predicts the changes that `fsxds serve`, or a running server, would hold, by its own rules.

| rule | source |
| --- | --- |
| If nothing is served yet, nothing is held. | `rollout.holding` |
| A resource possibly in a broken file, behind a dangling redirect, or at an upstream is not removed. | `Snapshot` |
| A name that an upstream may have is not undefined. | `snapshots.elsewhere` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.events.rollout_events import shares_of
from fsxds.model.errors import UsageError
from fsxds.model.resources import Key, Rows, Snapshot, key_of
from fsxds.model.values import Layers, Problem, Severity
from fsxds.publishing.held_resources import CLAIMS, DEPENDS, IN_USE, REJECTED, UNDEFINED, claimed_as, noun_of
from fsxds.rollout.holding import Composed, Hold, HoldingRules, HoldReason, compose
from fsxds.rollout.served_outline import ServedOutline
from fsxds.rollout.uses import CLUSTERS
from fsxds.settings.options import Settings
from fsxds.snapshots.loaded_views import LoadedViews, by_views, named_in
from fsxds.tools.admin_client import ask, settings_at
from fsxds.transports.admin.status_paths import OUTLINE

LARGE_REMOVAL = "large-removal"


@dataclass(frozen=True, slots=True, order=True)
class HeldChange:
    """A held resource, or a large removal.

    Attributes:
        path: in the new tree; in the served tree for a removal.
        line: 0 if there is none.
        approval_id: empty if approval is no remedy.
    """

    path: PurePosixPath
    line: int
    rule: str
    fact: str
    remedy: str
    is_removed: bool = False
    approval_id: str = ""


def held_changes(tree: Snapshot, outline: ServedOutline, rules: HoldingRules) -> tuple[HeldChange, ...]:
    """Return the changes that would be held."""
    served = outline.served
    if not any(served.by_type.values()):
        return ()
    if outline.has_upstreams:
        rules = replace(rules, is_static=lambda _: True)
    rows = {type_url: _with_lacking(tree, each, served.resources(type_url)) for type_url, each in tree.by_type.items()}
    whole = replace(tree, by_type=MappingProxyType(rows))
    composed = compose(whole, served, outline.holds_of(whole), rules)
    return tuple(sorted(_changes(composed)))


def _with_lacking(tree: Snapshot, rows: Rows, served: Rows) -> Rows:
    is_unknown = rows.type_url in tree.incomplete
    lacking = (one for name, one in served.items() if name not in rows)
    # A resource without a line is from an upstream.
    kept = (one for one in lacking if is_unknown or not one.origin.line or key_of(one) in tree.unresolved)
    return rows.with_changes(kept, ())


def _changes(composed: Composed) -> Iterator[HeldChange]:
    for key, hold in composed.holds.items():
        resource = hold.asked or hold.kept
        if resource is not None and (words := _words(noun_of(key), hold)) is not None:
            origin = resource.origin
            yield HeldChange(origin.path, origin.line, *words, is_removed=hold.asked is None)
    if composed.removals:
        approval_id = composed.approval_id or ""
        keys = {key for removal in composed.removals for key in removal.keys}
        kept = [hold.kept for key, hold in composed.holds.items() if key in keys and hold.kept is not None]
        origin = min((one.origin for one in kept), key=lambda one: (one.path.parts, one.line))
        fact = f"{shares_of(composed.removals)} removed: they would stay until that is approved"
        remedy = f"if it is meant, run `fsxds rollout approve {approval_id}` when it waits, or list the id in `approved` before"
        yield HeldChange(origin.path, origin.line, LARGE_REMOVAL, fact, remedy, True, approval_id)


def _words(noun: str, hold: Hold) -> tuple[str, str, str] | None:
    """Rule, fact and remedy; None for reasons that a command does not predict."""
    other = "another resource" if hold.other is None else noun_of(hold.other)
    outcome = "the served version would stay" if hold.kept else "it would not be served"
    match hold.reason:
        case HoldReason.IN_USE:
            fact = f"{noun} is removed, and would stay: {other} names it"
            return IN_USE, fact, f"let {other} name another one, or put it back"
        case HoldReason.UNDEFINED:
            is_cluster = hold.other is not None and hold.other[0] == CLUSTERS
            listed = ", or list it in `static_clusters` if the bootstrap defines it" if is_cluster else ""
            return UNDEFINED, f"{noun} names {other}, which is not defined: {outcome}", f"define {other}{listed}"
        case HoldReason.DEPENDS:
            return DEPENDS, f"{noun} names {other}, which would be held: {outcome}", f"correct {other}"
        case HoldReason.CLAIMS:
            claimed = claimed_as(hold.other)
            fact = f"{noun} has the {claimed} of {other}, which would be served with it: {outcome}"
            return CLAIMS, fact, f"wait until {other} is served without it, or give one of them another {claimed}"
        case HoldReason.REJECTED:
            fact = f"nodes reject this version of {noun}: {outcome}"
            return REJECTED, fact, "correct it, or `fsxds rollout retry`"
    return None


@dataclass(frozen=True, slots=True)
class OtherServer:
    """A running fsxds: served state and holding rules."""

    address: str
    rules: HoldingRules
    outlines: Mapping[Layers, ServedOutline]

    def problems(
        self, loaded: LoadedViews, settings: Settings, is_static: Callable[[Key], bool]
    ) -> tuple[Problem, ...]:
        """Return each held change once, with its views unless in all."""
        views = {layers: tree for layers, tree in loaded.served.items() if layers in self.outlines}
        approved = self.rules.approved | frozenset(settings.approved or ())
        knows_static = (settings.static_clusters, settings.bootstrap) != (None, None)
        rules = replace(self.rules, approved=approved, is_static=is_static, knows_static=knows_static)
        found = by_views({layers: held_changes(tree, self.outlines[layers], rules) for layers, tree in views.items()})
        return tuple(named_in(_problem(one), shown) if shown else _problem(one) for one, shown in found.items())


def _problem(change: HeldChange) -> Problem:
    """A removed resource's line is only in the text."""
    fact = f"{change.fact} (it is served from line {change.line})" if change.is_removed else change.fact
    line = 1 if change.is_removed else change.line or 1
    return Problem(change.path, line, 1, "", change.rule, fact, change.remedy, Severity.ERROR)


def read_server(address: str, settings: Settings) -> OtherServer:
    """Ask a running fsxds; UsageError without an answer."""
    answer = ask(settings_at(address, settings), OUTLINE)
    try:
        outlines = map(ServedOutline.read, answer["views"])
        rules = HoldingRules(
            keeps_references=answer["references"] == "hold",
            max_removal=answer["max_removal"],
            approved=frozenset(answer["approved"]),
        )
        return OtherServer(address, rules, {one.layers: one for one in outlines})
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{address}: its response is in another format than this fsxds reads; use the same version of fsxds"
        ) from error
