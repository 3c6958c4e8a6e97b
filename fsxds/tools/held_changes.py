"""Predicts the changes that `fsxds serve` would hold, by its own rules.

| rule | source |
| --- | --- |
| If nothing is served yet, nothing is held. | `rollout.holding` |
| A resource possibly in a broken file, behind a dangling redirect, or at an upstream is not removed. | `Snapshot` |
| A name that an upstream may have is not undefined. | `snapshots.elsewhere` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.events.rollout_events import shares_of
from fsxds.model.resources import Key, Rows, Snapshot, key_of
from fsxds.publishing.held_resources import CLAIMS, DEPENDS, IN_USE, REJECTED, UNDEFINED, claimed_as, noun_of
from fsxds.rollout.holding import Composed, Hold, HoldingRules, HoldReason, compose
from fsxds.rollout.served_outline import ServedOutline
from fsxds.rollout.uses import CLUSTERS

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
        if resource is not None and hold.reason in _WORDS:
            rule, fact, remedy = _WORDS[hold.reason](noun_of(key), hold)
            origin = resource.origin
            yield HeldChange(origin.path, origin.line, rule, fact, remedy, is_removed=hold.asked is None)
    if composed.removals:
        yield _removal(composed, composed.approval_id or "")


def _removal(composed: Composed, approval_id: str) -> HeldChange:
    keys = [key for removal in composed.removals for key in removal.keys]
    kept = [hold.kept for key in keys if (hold := composed.holds.get(key)) is not None and hold.kept is not None]
    origin = min((one.origin for one in kept), key=lambda one: (one.path.parts, one.line))
    fact = f"{shares_of(composed.removals)} removed: they would stay until that is approved"
    remedy = (
        f"if it is meant, run `fsxds rollout approve {approval_id}` when it waits, or list the id in `approved` before"
    )
    return HeldChange(origin.path, origin.line, LARGE_REMOVAL, fact, remedy, is_removed=True, approval_id=approval_id)


_Words = tuple[str, str, str]


def _in_use(noun: str, hold: Hold) -> _Words:
    user = _named(hold.other)
    return IN_USE, f"{noun} is removed, and would stay: {user} names it", f"let {user} name another one, or put it back"


def _undefined(noun: str, hold: Hold) -> _Words:
    missing = _named(hold.other)
    listed = (
        ", or list it in `static_clusters` if the bootstrap defines it"
        if hold.other and hold.other[0] == CLUSTERS
        else ""
    )
    return UNDEFINED, f"{noun} names {missing}, which is not defined: {_outcome(hold)}", f"define {missing}{listed}"


def _depends(noun: str, hold: Hold) -> _Words:
    other = _named(hold.other)
    return DEPENDS, f"{noun} names {other}, which would be held: {_outcome(hold)}", f"correct {other}"


def _claims(noun: str, hold: Hold) -> _Words:
    other, claimed = _named(hold.other), claimed_as(hold.other)
    fact = f"{noun} has the {claimed} of {other}, which would be served with it: {_outcome(hold)}"
    return CLAIMS, fact, f"wait until {other} is served without it, or give one of them another {claimed}"


def _rejected(noun: str, hold: Hold) -> _Words:
    return REJECTED, f"nodes reject this version of {noun}: {_outcome(hold)}", "correct it, or `fsxds rollout retry`"


def _outcome(hold: Hold) -> str:
    return "the served version would stay" if hold.kept else "it would not be served"


def _named(key: Key | None) -> str:
    return "another resource" if key is None else noun_of(key)


_WORDS: dict[HoldReason, Callable[[str, Hold], _Words]] = {
    HoldReason.IN_USE: _in_use,
    HoldReason.UNDEFINED: _undefined,
    HoldReason.DEPENDS: _depends,
    HoldReason.CLAIMS: _claims,
    HoldReason.REJECTED: _rejected,
}
