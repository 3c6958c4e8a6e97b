"""Events of rollouts, and of operators' decisions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from fsxds.api.secrets import mask_reason
from fsxds.events.event import (
    LONGEST_NAME,
    MOST_NAMES,
    MOST_RESOURCES,
    NO_REASON,
    Details,
    Event,
    LogMessage,
    Measure,
    count_of,
    log_row,
    noun_of,
    resources_of,
    shortened,
    single_row,
    some_of,
    type_name,
    written_keys,
)
from fsxds.model.resources import Key, RowsChange
from fsxds.model.values import Layers, PlainValue, Problem
from fsxds.rollout import Client, Held, Step
from fsxds.rollout.holding import Removal
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import RejectingNode
from fsxds.rollout.step import (
    Completed,
    LingeringEnded,
    LingeringStarted,
    PinsChanged,
    RolloutEvent,
    StepStarted,
    StepTimedOut,
    Superseded,
)

_ROLLOUT = "layers cohort version"


@dataclass(frozen=True, slots=True)
class RolloutCommanded(Event):
    """An operator's decision, from `peer`, empty for a unix socket."""

    rows = single_row(
        "rollout_commanded", "info", "An operator made a decision at the admin address.", "command peer words"
    )

    command: str
    words: Mapping[str, str]
    peer: str

    def _message(self) -> str:
        said = "".join(f" {name}={word}" for name, word in self.words.items())
        return f"admin: {self.command}{said}, from {self.peer or 'the unix socket'}"


@dataclass(frozen=True, slots=True)
class RolloutChanged(Event):
    """An event in a channel's rollout.

    `layers` are empty for the whole tree; `cohort` is `main`, `canary`, `rejecting` or `catching up`; `names` are
    clients'.
    """

    rows = (
        log_row("step_started", "debug", "A step of a rollout was published.", f"{_ROLLOUT} step changes"),
        log_row(
            "step_timed_out",
            "warning",
            "Clients did not ACK a step of a rollout in time: they catch up, and the rollout goes on without them.",
            f"{_ROLLOUT} step client_count clients",
        ),
        log_row("rollout_completed", "debug", "All clients of a rollout have ACKed its change.", _ROLLOUT),
        log_row("rollout_superseded", "debug", "A newer change replaced one that was being rolled out.", _ROLLOUT),
        log_row(
            "removal_held",
            "warning",
            "A removal takes so large a share of a type that it waits for approval.",
            f"{_ROLLOUT} removals",
        ),
        log_row(
            "rolled_back",
            "warning",
            "An operator rolled resources back to an earlier version.",
            f"{_ROLLOUT} count",
        ),
        log_row(
            "rollback_reduced",
            "info",
            "Rolled-back resources changed in the tree, and follow it again.",
            f"{_ROLLOUT} count",
        ),
        log_row("rollback_ended", "info", "The rollback ended: all resources follow the tree.", f"{_ROLLOUT} count"),
        log_row(
            "lingering_started",
            "info",
            "Removed resources stay for connections of draining listeners.",
            f"{_ROLLOUT} count resources",
        ),
        log_row(
            "lingering_ended",
            "info",
            "Resources kept for draining listeners were removed.",
            f"{_ROLLOUT} count resources",
        ),
    )

    layers: Layers
    cohort: str
    happened: RolloutEvent
    names: Mapping[Client, str]

    def _message(self) -> LogMessage:
        name, text, details = self._happened()
        where = f" of {', '.join(self.layers)}" if self.layers else ""
        cohort = "" if self.cohort == "main" else f" ({self.cohort})"
        version = self.happened.snapshot_id
        return LogMessage(f"rollout {version}{where}{cohort}: {text}", {"version": version, **details}, event=name)

    def _happened(self) -> tuple[str, str, Details]:
        match self.happened:
            case StepStarted(_, step):
                worded = _started(step)
            case StepTimedOut(_, step, clients):
                names = sorted({self.names[client][:LONGEST_NAME] for client in clients})
                text = (
                    f"{step.step_kind.value}: {some_of(names)} did not ACK it in time; the rollout goes on without them"
                )
                worded = "step_timed_out", text, {"step": step.step_kind.value, **_clients(names)}
            case Completed():
                worded = "rollout_completed", "completed", {}
            case Superseded():
                worded = "rollout_superseded", "replaced by a newer change", {}
            case Held(version, removals):
                remedy = f"if this is intended, run `fsxds rollout approve {version}`"
                counts: PlainValue = {
                    type_name(one.type_url): {"removed": one.removed, "before": one.before} for one in removals
                }
                worded = (
                    "removal_held",
                    f"{shares_of(removals)} removed: waiting for approval; {remedy}",
                    {"removals": counts},
                )
            case PinsChanged(_, count, before):
                worded = _pinned(count, before)
            case LingeringStarted(_, keys):
                text = f"{resources_of(keys)} stay for connections of draining listeners"
                worded = "lingering_started", text, _keys(keys)
            case LingeringEnded(_, keys):
                text = f"{resources_of(keys)} stayed for connections of draining listeners, and are removed now"
                worded = "lingering_ended", text, _keys(keys)
            case _:
                raise TypeError(f"{self.happened} has no wording")
        return worded


def _started(step: Step) -> tuple[str, str, Details]:
    counts = [
        f"+{_updated(change)} -{len(change.removed)} {type_name(type_url)}" for type_url, change in step.changed.items()
    ]
    changes: PlainValue = {
        type_name(type_url): {"changed": _updated(change), "removed": len(change.removed)}
        for type_url, change in step.changed.items()
    }
    text = f"{step.step_kind.value}: {', '.join(counts) or 'no change for clients'}"
    return "step_started", text, {"step": step.step_kind.value, "changes": changes}


def _updated(change: RowsChange) -> int:
    return len(change.fresh | change.renewed)


def _pinned(count: int, before: int) -> tuple[str, str, Details]:
    resources, details = count_of(count, "resource"), Details(count=count)
    if not count:
        return "rollback_ended", "rollback: ended; all resources follow the tree", details
    if count < before:
        text = f"rollback: {resources} still rolled back; the others changed in the tree, and follow it"
        return "rollback_reduced", text, details
    text = f"rolled back: {resources}, each until it changes in the tree, or until `fsxds rollout resume`"
    return "rolled_back", text, details


def _clients(names: list[str]) -> Details:
    return {"client_count": len(names), "clients": [*names[:MOST_NAMES]]}


def _keys(keys: Collection[Key]) -> Details:
    return {"count": len(keys), "resources": [*written_keys(keys)[:MOST_RESOURCES]]}


def shares_of(removals: Iterable[Removal]) -> str:
    """Word removals: `6 of 10 clusters, 1 of 2 routes`."""
    return ", ".join(f"{one.removed} of {one.before} {noun_of(one.type_url)}" for one in removals)


@dataclass(frozen=True, slots=True)
class HoldsChanged(Event):
    """Held and rejected versions changed."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class VersionsHeld(Event):
    """Rejected versions are held back from all."""

    rows = single_row(
        "versions_held",
        "error",
        "Too many nodes reject versions of resources: all nodes get the last good versions, if known.",
        "count resources client_count clients reason",
    )
    measures = (Measure("version_holds_total", "versions"),)

    versions: frozenset[ResourceVersion]
    nodes: tuple[RejectingNode, ...]

    def _message(self) -> LogMessage:
        keys, nodes = [key for key, _ in self.versions], sorted(node.name[:LONGEST_NAME] for node in self.nodes)
        reasons = (each for node in self.nodes for each in node.reasons.items())
        reason = next((words for version, (words, _) in reasons if version in self.versions), None)
        shown = shortened(mask_reason(reason or NO_REASON))
        fact = "held back from all nodes if a good version is known"
        text = f"{resources_of(keys)}: {fact}, because {some_of(nodes) or 'nodes'} rejected them: {shown}"
        return LogMessage(text, {**_keys(keys), **_clients(nodes), "reason": shown})


@dataclass(frozen=True, slots=True)
class VersionsReleased(Event):
    """Held versions are offered again, or gone."""

    rows = single_row(
        "versions_released",
        "info",
        "Versions that were held back are offered to all nodes again, or are gone.",
        "count resources",
    )

    versions: frozenset[ResourceVersion]

    def _message(self) -> LogMessage:
        keys = [key for key, _ in self.versions]
        return LogMessage(f"{resources_of(keys)}: no longer held back from all nodes", _keys(keys))


@dataclass(frozen=True, slots=True)
class CanaryAwaited(Event):
    """A change waits for `missing` of the `count` canaries connected since its offer."""

    rows = single_row(
        "canary_awaited",
        "warning",
        "A change waits for canaries that are not connected, or have not ACKed it.",
        "missing count",
    )

    missing: int
    count: int

    def _message(self) -> str:
        who = (
            f"{self.missing} of {self.count} canaries have not ACKed it, or left"
            if self.count
            else "no canary is connected"
        )
        return f"a change waits: {who}; check the canaries, or run `fsxds rollout promote`"
