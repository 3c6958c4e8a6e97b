"""Word what happens in rollouts: which step is served, who is late, who rejected what, what lingers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from fsxds.api.secrets import mask_reason
from fsxds.events.event import Details, Level, LogLine
from fsxds.events.phrases import LONGEST_NAME, MOST_NAMES, count_of, noun_of, shortened, some_of, type_name
from fsxds.events.rollout_events import CanaryAwaited, RolloutChanged, VersionsHeld, VersionsReleased
from fsxds.model.resources import Key, RowsChange
from fsxds.model.values import PlainValue
from fsxds.rollout import (
    Client,
    Completed,
    Held,
    LingeringEnded,
    LingeringStarted,
    PinsChanged,
    Removal,
    Step,
    StepStarted,
    StepTimedOut,
    Superseded,
)

# Names of resources in one line for programs.
MOST_RESOURCES = 20
NO_REASON = "it gave no reason; see its own log"

_Worded: TypeAlias = tuple[Level, str, str, Details]
"""Level, event, text and details of a line."""


def rollout_line(event: RolloutChanged) -> LogLine:
    """Word an event of a rollout."""
    match event.happened:
        case StepStarted(_, step):
            worded = _started(step)
        case StepTimedOut(_, step, clients):
            names = _names(event, clients)
            text = f"{step.step_kind.value}: {some_of(names)} did not take it in time; the others go on"
            worded = Level.WARNING, "step_timed_out", text, {"step": step.step_kind.value, **_clients(names)}
        case Completed():
            worded = Level.DEBUG, "rollout_completed", "completed", {}
        case Superseded():
            worded = Level.DEBUG, "rollout_superseded", "a newer change takes its place", {}
        case Held(version, removals):
            text = f"{shares_of(removals)} removed: they stay; if that is meant, run `fsxds rollout approve {version}`"
            counts: PlainValue = {
                type_name(one.type_url): {"removed": one.removed, "before": one.before} for one in removals
            }
            worded = Level.WARNING, "removal_held", text, {"removals": counts}
        case PinsChanged(_, count, before):
            worded = _pinned(count, before)
        case LingeringStarted(_, keys):
            text = f"{resources_of(keys)} stay for connections of draining listeners"
            worded = Level.INFO, "lingering_started", text, _keys(keys)
        case LingeringEnded(_, keys):
            text = f"{resources_of(keys)} stayed for connections of draining listeners, and go now"
            worded = Level.INFO, "lingering_ended", text, _keys(keys)
        case _:
            raise TypeError(f"{event.happened} has no wording")
    return _line(event, worded)


def _started(step: Step) -> _Worded:
    counts = [
        f"+{_updated(change)} -{len(change.removed)} {type_name(type_url)}" for type_url, change in step.changed.items()
    ]
    changes: PlainValue = {
        type_name(type_url): {"changed": _updated(change), "removed": len(change.removed)}
        for type_url, change in step.changed.items()
    }
    text = f"{step.step_kind.value}: {', '.join(counts) or 'nothing that clients see'}"
    return Level.DEBUG, "step_started", text, {"step": step.step_kind.value, "changes": changes}


def _updated(change: RowsChange) -> int:
    return len(change.fresh | change.renewed)


def _pinned(count: int, before: int) -> _Worded:
    if not count:
        return Level.INFO, "rollback_ended", "rollback: it has ended; the tree is followed", {"count": count}
    resources = count_of(count, "resource")
    if count < before:
        text = f"rollback: {resources} still as before; the others changed in the tree, and follow it"
        return Level.INFO, "rollback_reduced", text, {"count": count}
    text = f"rolled back: {resources} as before, each until it changes in the tree, or `fsxds rollout resume`"
    return Level.WARNING, "rolled_back", text, {"count": count}


def held_line(event: VersionsHeld) -> LogLine:
    """Word that versions are held back from all nodes."""
    keys, nodes = [key for key, _ in event.versions], sorted(node.name[:LONGEST_NAME] for node in event.nodes)
    reason = next(
        (words for node in event.nodes for version, (words, _) in node.reasons.items() if version in event.versions),
        None,
    )
    shown = shortened(mask_reason(reason or NO_REASON))
    who = some_of(nodes) or "nodes"
    text = f"{resources_of(keys)}: held back from all nodes where a good version is known, because {who} rejected them: {shown}"
    return LogLine(Level.ERROR, "versions_held", text, {**_keys(keys), **_clients(nodes), "reason": shown})


def released_line(event: VersionsReleased) -> LogLine:
    """Word that versions are not held back any more."""
    keys = [key for key, _ in event.versions]
    return LogLine(
        Level.INFO, "versions_released", f"{resources_of(keys)}: no longer held back from all nodes", _keys(keys)
    )


def canary_line(event: CanaryAwaited) -> LogLine:
    """Word that a change waits for canaries."""
    who = (
        f"{event.missing} of {event.count} canaries have not taken it, or left"
        if event.count
        else "no canary is connected"
    )
    text = f"a change waits: {who}; bring them back, or run `fsxds rollout promote`"
    return LogLine(Level.WARNING, "canary_awaited", text, {"missing": event.missing, "count": event.count})


def _line(event: RolloutChanged, worded: _Worded) -> LogLine:
    level, name, text, details = worded
    where = f" of {', '.join(event.layers)}" if event.layers else ""
    cohort = "" if event.cohort == "main" else f" ({event.cohort})"
    version = event.happened.snapshot_id
    facts: Details = {
        "layers": [*event.layers],
        "cohort": event.cohort,
        "version": version,
        **details,
    }
    return LogLine(level, name, f"rollout {version}{where}{cohort}: {text}", facts)


def _names(event: RolloutChanged, clients: Iterable[Client]) -> list[str]:
    return sorted({event.names[client][:LONGEST_NAME] for client in clients})


def _clients(names: list[str]) -> Details:
    return {"client_count": len(names), "clients": [*names[:MOST_NAMES]]}


def shares_of(removals: Iterable[Removal]) -> str:
    """Word what goes: `6 of 10 clusters, 1 of 2 routes`."""
    return ", ".join(f"{one.removed} of {one.before} {noun_of(one.type_url)}" for one in removals)


def resources_of(keys: Collection[Key]) -> str:
    """Name a few resources, or say how many there are."""
    return some_of(written_keys(keys)) if len(keys) <= MOST_NAMES else count_of(len(keys), "resource")


def written_keys(keys: Iterable[Key]) -> list[str]:
    """Return resources as the log names them, sorted: `cds web`."""
    return sorted(f"{type_name(type_url)} {name[:LONGEST_NAME]}" for type_url, name in keys)


def _keys(keys: Collection[Key]) -> Details:
    return {"count": len(keys), "resources": [*written_keys(keys)[:MOST_RESOURCES]]}
