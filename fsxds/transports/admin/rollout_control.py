"""What the admin address needs of rollouts, and the values that it shows: names and ids, never content.

The fields of the values are the fields of the JSON that is sent. Ages are in seconds, since clocks of two processes differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Protocol

from fsxds.model.errors import ProtocolError
from fsxds.model.values import Layers

_NUMBER = re.compile("@?([1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class WaitingReport:
    """A client that a step waits for.

    Attributes:
        client: its node id, or the directory of a mirror.
        transport: how it is served: `REST`, `gRPC` or `mirror`.
        since_s: for how long it is waited for.
    """

    client: str
    transport: str
    since_s: float


@dataclass(frozen=True, slots=True)
class StepReport:
    """The step that a channel is at.

    Attributes:
        name: `whole`, `grow`, `switch` or `shrink`.
        since_s: how long ago it was published.
        ends_within_s: it times out in so many seconds.
        waits_for: the clients that have not taken it.
    """

    name: str
    since_s: float
    ends_within_s: float
    waits_for: tuple[WaitingReport, ...]


@dataclass(frozen=True, slots=True)
class LingeringReport:
    """A resource that the tree does not have any more, and that connections of draining listeners may use.

    Attributes:
        type: the short name of its type, such as `cds`.
        name: its name.
        listeners: those that are drained.
        left_s: it goes in so many seconds; None while clients have not taken what replaces it.
    """

    type: str
    name: str
    listeners: tuple[str, ...]
    left_s: float | None


@dataclass(frozen=True, slots=True)
class HeldReport:
    """A resource that is not served as the tree has it, or that nodes reject.

    Attributes:
        type: the short name of its type, such as `cds`.
        name: its name.
        reason: `rejected`, `pinned`, `waits for approval`, `in use`, `names an undefined resource`, `names a held resource` or `claims what another one has`.
        place: the file and the line that have it, or had it.
        message: what is the matter with it; with the words of a node that rejects it.
        remedy: what to do about it.
        nodes: the first nodes that reject it, by their names.
        since_s: for how long; None where that is not known.
    """

    type: str
    name: str
    reason: str
    place: str
    message: str
    remedy: str
    nodes: tuple[str, ...] = ()
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class ApprovalReport:
    """A removal that waits until an operator approves it.

    Attributes:
        id: approves it.
        removal: completes the sentence "the tree removes …": `6 of 10 clusters`.
    """

    id: str
    removal: str


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """What is served to the nodes with the same layers, of one cohort.

    Attributes:
        views: the names of the views with these layers; `("",)` where there are no views.
        layers: the layers; empty for the whole tree.
        cohort: `main`, `canary`, `rejecting` for nodes that reject something, or `catching up` for those that are slower than
            the others or on their way to another view.
        clients: how many there are.
        served: the id of the snapshot that is served; None before the first.
        target: the id of the snapshot that is to be reached, None before the first.
        asked: the id of the snapshot that the tree asks for, None before the first.
        is_done: clients that are waited for have what the tree asks for, except for what is held back.
        step: None while no client is waited for.
        waits_for_canary: canaries have not taken what the tree asks for, or are not there.
        baking_s: what the canaries have taken follows here in so many seconds; None where nothing bakes.
        lingering: what is kept for draining listeners.
        held: what of the tree is held back, and what nodes reject of it; the first hundred.
        approval: a removal that waits for approval; None for none.
        pinned: how many resources are rolled back.
        pinned_for_s: for how long; None where none is.
    """

    views: tuple[str, ...]
    layers: Layers
    cohort: str
    clients: int
    served: str | None
    target: str | None
    asked: str | None
    is_done: bool
    step: StepReport | None = None
    waits_for_canary: bool = False
    baking_s: float | None = None
    lingering: tuple[LingeringReport, ...] = ()
    held: tuple[HeldReport, ...] = ()
    approval: ApprovalReport | None = None
    pinned: int = 0
    pinned_for_s: float | None = None


@dataclass(frozen=True, slots=True)
class FleetServerReport:
    """A server of a fleet.

    Attributes:
        name: its id.
        is_publisher: it publishes.
        publication: the number of its publisher, and of what that published, up to which it serves all: `3.17`.
        is_behind: something was published since.
        clients: how many nodes it serves.
    """

    name: str
    is_publisher: bool
    publication: str
    is_behind: bool
    clients: int


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What `GET /rollout` answers; `state` is the directory of the history, None without `--state`."""

    channels: tuple[ChannelReport, ...]
    state: str | None


@dataclass(frozen=True, slots=True)
class DecisionReport:
    """What a decision is answered with: in how many channels it changed something."""

    channels: int


@dataclass(frozen=True, slots=True)
class RetryReport:
    """What a retry is answered with: how many rejected versions are offered again."""

    versions: int


def snapshot_number(written: str) -> int:
    """Return the number that `@3` or `3` is.

    Raises:
        ProtocolError: it is none.
    """
    if match := _NUMBER.fullmatch(written):
        return int(match[1])
    raise ProtocolError(f"number: {written[:80]!r} is no number of a snapshot; fsxds history lists them")


def unix_time(written: str) -> float:
    """Return the seconds since 1970 of a time: a number, or a date and time of ISO 8601, which is UTC if it does not say.

    Raises:
        ProtocolError: it is neither.
    """
    try:
        found = float(written)
        if isfinite(found):
            return found
    except ValueError:
        with suppress(ValueError):
            moment = datetime.fromisoformat(written)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    raise ProtocolError(f"time: {written[:80]!r} is no time; write 2026-01-31T14:05:00Z or seconds since 1970")


def no_snapshot(number: int) -> ProtocolError:
    """Return the error that the history does not have a snapshot."""
    return ProtocolError(f"@{number}: the history has no such snapshot; fsxds history lists them", "NOT_FOUND")


class KeptSnapshot(Protocol):
    """A snapshot of the history: a dataclass, whose fields are shown. These are looked at."""

    @property
    def number(self) -> int:
        """`@3` is the one with the number 3; no other one has it, of whatever layers."""

    @property
    def layers(self) -> Layers:
        """Of which nodes it is."""

    @property
    def time_s(self) -> float:
        """When it was kept, in seconds since 1970."""


class Action(StrEnum):
    """What operators may decide."""

    APPROVE = "approve"
    RETRY = "retry"
    PROMOTE = "promote"
    ABORT = "abort"
    RESUME = "resume"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class OperatorDecision:
    """What an operator decides.

    Attributes:
        action: what is to be done.
        name: the id of an approval, or the name of resources to retry; None: all.
        layers: those of the views to abort or resume; None: all.
        number: that of a snapshot of the history to roll back to.
        time_s: roll back to what was served then, in seconds since 1970.
    """

    action: Action
    name: str | None = None
    layers: tuple[Layers, ...] | None = None
    number: int | None = None
    time_s: float | None = None


class RolloutControl(Protocol):
    """What drives the rollouts. Its methods are called on the event loop.

    What cannot be done is a ProtocolError with the remedy: `NOT_FOUND` for a number that the history does not have,
    `FAILED_PRECONDITION` where there is no `--state`.
    """

    @property
    def state_directory(self) -> Path | None:
        """Where the history is; None without `--state`."""

    async def channels(self) -> Sequence[ChannelReport]:
        """Return what becomes of each channel."""

    async def decide(self, decision: OperatorDecision) -> int:
        """Do what an operator decides; return in how many channels that changed something, or how many versions are retried."""

    async def history(self) -> Sequence[KeptSnapshot]:
        """Return the snapshots of all layers, the newest first."""

    async def servers(self) -> Sequence[FleetServerReport]:
        """Return the servers of the fleet, none if there is no fleet, or nobody who knows them answers."""

    def views(self) -> Sequence[tuple[str, Layers]]:
        """Return each name of a view with layers that it has; a name comes again where nodes have different layers.

        Without views it is the one name ``, for the whole tree.
        """

    def layers_of_node(self, node_id: str) -> Layers | None:
        """Return the layers that a connected client with this node id has; None where there is none."""


class Deciding(Protocol):
    """What does what operators decide, one method for each action."""

    def approve(self, approval_id: str) -> int:
        """Let a removal go on that waits for approval under an id; return in how many channels."""

    def retry(self, name: str | None) -> int:
        """Offer rejected versions of resources of a name, or all, to all nodes again; return how many."""

    def promote(self) -> int:
        """Let the others follow the canary now; return in how many channels."""

    def abort(self, layers: frozenset[Layers] | None) -> int:
        """Take back the rollouts that go on; None means in all. Return in how many channels."""

    async def rollback(self, number: int) -> int:
        """Serve a snapshot of the history in place of what differs from it in the tree; return in how many channels."""

    async def rollback_all(self, time_s: float) -> int:
        """Serve in each view what was served there at a time, in seconds since 1970; return in how many channels."""

    def resume(self, layers: frozenset[Layers] | None) -> int:
        """Follow the tree again after `rollback`; None means in all. Return in how many channels."""


async def carry_out(decision: OperatorDecision, deciding: Deciding) -> int:
    """Do what an operator decides, and return what the method for that does."""
    layers = None if decision.layers is None else frozenset(decision.layers)
    if decision.action is Action.ROLLBACK and decision.time_s is not None:
        return await deciding.rollback_all(decision.time_s)
    if decision.action is Action.ROLLBACK:
        return await deciding.rollback(decision.number or 0)
    acts: Mapping[Action, Callable[[], int]] = {
        Action.APPROVE: lambda: deciding.approve(decision.name or ""),
        Action.RETRY: lambda: deciding.retry(decision.name),
        Action.PROMOTE: deciding.promote,
        Action.ABORT: lambda: deciding.abort(layers),
        Action.RESUME: lambda: deciding.resume(layers),
    }
    return acts[decision.action]()
