"""Held resources as problems of files, and a change's served part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

from fsxds.api.secrets import mask_reason
from fsxds.events.event import NO_REASON, some_of
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL
from fsxds.model.resources import Key, Resource, Snapshot
from fsxds.model.values import Problem, Severity, TypeUrl
from fsxds.rollout.holding import Hold, HoldReason, Holds
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import RejectingNode, Rejections
from fsxds.rollout.target import Target

# The status shows the rest.
MOST_PROBLEMS = 100

REJECTED = "rejected-by-client"
IN_USE = "removed-in-use"
UNDEFINED = "undefined-name"
DEPENDS = "needs-held"
CLAIMS = "claims-held"

CLUSTERS, LISTENERS = (BY_SHORT_NAME[name].type_url for name in ("cds", "lds"))


@dataclass(frozen=True, slots=True)
class ExplainedHold:
    """A resource not served as in the tree, or rejected; `since_s` by the event loop's clock, or None."""

    key: Key
    reason: HoldReason
    problem: Problem
    since_s: float | None = None
    nodes: tuple[str, ...] = ()


def hold_problems(holds: Holds) -> Iterator[Problem]:
    """Yield problems of holds by dependencies or dependents."""
    found = (one.problem for one in held_resources(holds, {}) if one.reason in _OF_FILES)
    return islice(found, MOST_PROBLEMS)


def held_resources(holds: Holds, since_s: Mapping[Key, float]) -> Iterator[ExplainedHold]:
    """Yield held, not rejected, resources, given the holds' starts."""
    for key, hold in holds.items():
        resource = hold.asked or hold.kept
        if resource is not None and hold.reason in _WORDS:
            rule, fact, remedy = _WORDS[hold.reason](noun_of(key), hold)
            problem = resource.origin.problem(rule, fact, remedy, Severity.ERROR)
            yield ExplainedHold(key, hold.reason, problem, since_s.get(key))


def rejection_problems(rejections: Rejections, targets: Callable[[], Iterable[Target]]) -> Iterator[Problem]:
    """Yield problems of rejected versions that `targets` want."""
    return (one.problem for one in rejected_resources(rejections, targets))


def rejected_resources(rejections: Rejections, targets: Callable[[], Iterable[Target]]) -> Iterator[ExplainedHold]:
    """Yield each rejected version in the trees or rollbacks of `targets`."""
    nodes: dict[ResourceVersion, list[RejectingNode]] = {}
    for node in rejections.nodes.values():
        for version in node.reasons:
            nodes.setdefault(version, []).append(node)
    found = tuple(targets()) if nodes else ()
    replaced = {id(target): frozenset(target.held_of(rejections.held)) for target in found if rejections.held}
    for version in sorted(nodes)[:MOST_PROBLEMS]:
        having = [(one, target) for target in found if (one := target.find(version)) is not None]
        if having:
            is_held = version in rejections.held
            is_kept = is_held and not all(version in replaced[id(target)] for _, target in having)
            problem = _rejection(having[0][0], nodes[version], is_held=is_held, is_kept=is_kept)
            since_s = min(node.reasons[version][1] for node in nodes[version])
            names = tuple(sorted({node.name for node in nodes[version]}))
            yield ExplainedHold(version[0], HoldReason.REJECTED, problem, since_s, names)


def _rejection(resource: Resource, nodes: list[RejectingNode], *, is_held: bool, is_kept: bool) -> Problem:
    version = (resource.type_url, resource.name), resource.version
    reason = mask_reason(nodes[0].reasons[version][0] or NO_REASON)
    who = some_of(sorted({node.name for node in nodes}))
    verb = "rejects" if len(nodes) == 1 else "reject"
    fact = f"{who} {verb} {noun_of(version[0])}: {reason}"
    if is_kept:
        remedy = "correct it; no good version of it is known, so it stays as it is until then"
        return resource.origin.problem(REJECTED, fact, remedy, Severity.ERROR)
    if is_held:
        remedy = f"correct it; until then no node is served it, or run `fsxds rollout retry {resource.name}`"
        return resource.origin.problem(REJECTED, fact, remedy, Severity.ERROR)
    remedy = (
        "correct the resource, or that node; until then the node keeps its version, and all other nodes get the new one"
    )
    return resource.origin.problem(REJECTED, fact, remedy, Severity.WARNING)


def _in_use(noun: str, hold: Hold) -> tuple[str, str, str]:
    user = noun_of(hold.other) if hold.other else "another resource"
    return (
        IN_USE,
        f"{noun} was removed, and is still served: {user} names it",
        f"let {user} name another one, or put it back",
    )


def _undefined(noun: str, hold: Hold) -> tuple[str, str, str]:
    missing = noun_of(hold.other) if hold.other else "another resource"
    kept = "the last good version stays" if hold.kept else "it is not served"
    is_cluster = hold.other is not None and hold.other[0] == CLUSTERS
    static = ", or list it in `static_clusters` if the bootstrap defines it" if is_cluster else ""
    return UNDEFINED, f"{noun} would name {missing}, which is not defined; {kept}", f"define {missing}{static}"


def _depends(noun: str, hold: Hold) -> tuple[str, str, str]:
    other = noun_of(hold.other) if hold.other else "another resource"
    kept = "the last good version stays" if hold.kept else "it is not served"
    return DEPENDS, f"{noun} would name {other}, which is held back; {kept}", f"correct {other}"


def _claims(noun: str, hold: Hold) -> tuple[str, str, str]:
    other, claimed = noun_of(hold.other) if hold.other else "another resource", claimed_as(hold.other)
    kept = "the last good version stays" if hold.kept else "it is not served"
    fact = f"{noun} would have the {claimed} of {other}, which is served with it; {kept}"
    return CLAIMS, fact, f"wait until {other} is served without it, or give one of them another {claimed}"


def _pinned(noun: str, _: Hold) -> tuple[str, str, str]:
    return "", f"{noun} is rolled back", "change it, or run `fsxds rollout resume`"


def _removed(noun: str, _: Hold) -> tuple[str, str, str]:
    return "", f"{noun} was removed, and stays until that is approved", "run `fsxds rollout approve`"


def _waits(noun: str, hold: Hold) -> tuple[str, str, str]:
    fact = f"{noun} waits for canaries" if hold.asked else f"{noun} was removed, and stays until canaries took that"
    return "", fact, "bring these back, or run `fsxds rollout promote`"


_WORDS = {
    HoldReason.IN_USE: _in_use,
    HoldReason.UNDEFINED: _undefined,
    HoldReason.DEPENDS: _depends,
    HoldReason.CLAIMS: _claims,
    HoldReason.PINNED: _pinned,
    HoldReason.REMOVAL: _removed,
    HoldReason.CANARY: _waits,
}
# The author of a file can act on these; operators decide about the others.
_OF_FILES = frozenset({HoldReason.IN_USE, HoldReason.UNDEFINED, HoldReason.DEPENDS, HoldReason.CLAIMS})


def with_served_changes(tree: Snapshot, holds: Holds) -> Snapshot:
    """Drop the held changes of a tree."""
    if not holds:
        return tree

    def served(type_url: TypeUrl, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if (type_url, name) not in holds)

    changes = {
        type_url: replace(
            change,
            added=served(type_url, change.added),
            changed=served(type_url, change.changed),
            removed=served(type_url, change.removed),
        )
        for type_url, change in tree.changes.items()
    }
    return replace(tree, changes=MappingProxyType(changes))


def noun_of(key: Key) -> str:
    """Name a resource in a sentence: `cluster web`."""
    noun = BY_TYPE_URL[key[0]].noun
    return f"{noun.removesuffix('s') if noun != 'endpoints' else noun} {key[1]}"


def claimed_as(owner: Key | None) -> str:
    """Return a claim's noun; of listeners, only the address."""
    return "address" if owner is None or owner[0] == LISTENERS else "domain or name"
