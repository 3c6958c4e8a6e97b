"""Word what happens in rollouts: which step is served, who is late, who rejected what, what lingers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from fsxds.api.secrets import mask_reason
from fsxds.events import Level, RolloutChanged
from fsxds.observe.log_lines import (
    LONGEST_NAME,
    MOST_NAMES,
    Details,
    LogLine,
    count_of,
    noun_of,
    shortened,
    some_of,
    type_name,
)
from fsxds.resources import Key, RowsChange
from fsxds.rollout import (
    Client,
    Completed,
    Held,
    LingeringEnded,
    LingeringStarted,
    Rejection,
    Removal,
    RolledBack,
    Step,
    StepStarted,
    StepTimedOut,
    Stopped,
    Superseded,
)
from fsxds.values import PlainValue

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
            text = f"{step.step_kind.value}: {some_of(names)} did not take it in time; it goes on without them"
            worded = Level.WARNING, "step_timed_out", text, {"step": step.step_kind.value, **_clients(names)}
        case Completed():
            worded = Level.DEBUG, "rollout_completed", "completed", {}
        case Superseded():
            worded = Level.DEBUG, "rollout_superseded", "a newer change takes its place", {}
        case RolledBack() | Stopped() | Held():
            worded = _decision(event, event.happened)
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


def _decision(event: RolloutChanged, happened: RolledBack | Stopped | Held) -> _Worded:
    match happened:
        case RolledBack(_, good_id, ()):
            text = f"aborted: {good_id} is served again until the tree changes"
            return Level.WARNING, "rolled_back", text, {"good": good_id}
        case RolledBack(_, good_id, rejections):
            words, details = _rejections(event, rejections)
            text = f"taken back, {good_id} is served again until the tree changes: {words}"
            return Level.ERROR, "rolled_back", text, {"good": good_id, **details}
        case Stopped(_, rejections):
            words, details = _rejections(event, rejections)
            text = f"stays as far as it got until the tree changes, or `fsxds rollout approve` or `abort`: {words}"
            return Level.ERROR, "rollout_stopped", text, details
        case Held(version, removals):
            text = f"held: it removes {shares_of(removals)}; if that is meant, run `fsxds rollout approve {version}`"
            counts: PlainValue = {
                type_name(one.type_url): {"removed": one.removed, "before": one.before} for one in removals
            }
            return Level.WARNING, "rollout_held", text, {"removals": counts}


def _line(event: RolloutChanged, worded: _Worded) -> LogLine:
    level, name, text, details = worded
    where = f" of {', '.join(event.layers)}" if event.layers else ""
    cohort = " (canary)" if event.is_canary else ""
    version = event.happened.snapshot_id
    facts: Details = {
        "layers": [*event.layers],
        "cohort": "canary" if event.is_canary else "all",
        "version": version,
        **details,
    }
    return LogLine(level, name, f"rollout {version}{where}{cohort}: {text}", facts)


def _names(event: RolloutChanged, clients: Iterable[Client]) -> list[str]:
    return sorted({event.names[client][:LONGEST_NAME] for client in clients})


def _clients(names: list[str]) -> Details:
    return {"client_count": len(names), "clients": [*names[:MOST_NAMES]]}


def _rejections(event: RolloutChanged, rejections: Collection[tuple[Client, Rejection]]) -> tuple[str, Details]:
    """Word who rejected what, and why: the reason of the first stands for all."""
    names = _names(event, (client for client, _ in rejections))
    first = next(rejection for _, rejection in rejections)
    reason = shortened(mask_reason(first.reason or NO_REASON))
    resources = sorted(first.names)
    text = f"{some_of(names)} rejected {type_name(first.type_url)} {some_of(resources)}: {reason}"
    shown: PlainValue = [*resources[:MOST_RESOURCES]]
    return text, {**_clients(names), "type": type_name(first.type_url), "resources": shown, "reason": reason}


def shares_of(removals: Iterable[Removal]) -> str:
    """Word how much of each type is removed: `6 of 10 clusters, 1 of 2 routes`."""
    return ", ".join(f"{one.removed} of {one.before} {noun_of(one.type_url)}" for one in removals)


def resources_of(keys: Collection[Key]) -> str:
    """Name a few resources, or say how many there are."""
    return some_of(written_keys(keys)) if len(keys) <= MOST_NAMES else count_of(len(keys), "resource")


def written_keys(keys: Iterable[Key]) -> list[str]:
    """Return resources as the log names them, sorted: `cds web`."""
    return sorted(f"{type_name(type_url)} {name[:LONGEST_NAME]}" for type_url, name in keys)


def _keys(keys: Collection[Key]) -> Details:
    return {"count": len(keys), "resources": [*written_keys(keys)[:MOST_RESOURCES]]}
