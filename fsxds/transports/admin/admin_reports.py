"""The admin address's interfaces to status and rollouts, and their values: names and versions, no content.

Fields are the JSON's. Ages are in seconds: processes' clocks differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Protocol

from fsxds.model.errors import ProtocolError
from fsxds.model.values import Layers

# Of each list in an answer; its count is beside it.
MOST_PROBLEMS = 200
MOST_VIEWS = 500
MOST_ROLLOUTS = 100
MOST_NAMES = 100
MOST_ROWS = 500
DEFAULT_ROWS = 100


@dataclass(frozen=True, slots=True)
class ListenerReport:
    """A listening address: `REST`, `gRPC` or `admin`."""

    name: str
    address: str
    tls: bool


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Files served as they are, were (`held`), or not (`broken`)."""

    good: int
    held: int
    broken: int


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line without secrets and names beyond the API."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class ProblemReport:
    """A problem.

    Attributes:
        path: in the tree; `upstream NAME` for an upstream's resource.
        severity: `error`, `warning` or `note`.
        state: of the file: `good`, `held`, `broken`, or `ignored`; `upstream` without a file; `rejected` if nodes
            reject a resource in it; `kept` if an older version of one is served for another reason.
        source: lines around it, none of files with secrets.
    """

    path: str
    line: int
    column: int
    severity: str
    rule: str
    message: str
    remedy: str
    state: str
    since_s: float
    source: tuple[SourceLine, ...] = ()


@dataclass(frozen=True, slots=True)
class ProblemCounts:
    """All problems' number by severity, also of those left out."""

    error: int = 0
    warning: int = 0
    note: int = 0


@dataclass(frozen=True, slots=True)
class ServedType:
    """A type's version and number of resources."""

    type: str
    version: str
    resources: int


@dataclass(frozen=True, slots=True)
class ViewReport:
    """A view; empty until requested.

    Without views, `name` is empty. `types` do not describe canaries.
    """

    name: str
    layers: Layers
    clients: int
    types: tuple[ServedType, ...]


@dataclass(frozen=True, slots=True)
class ClientCount:
    """A transport's (`REST`, `gRPC`, `mirror`) clients in a state."""

    transport: str
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class HeldType:
    """An upstream's number of resources."""

    type: str
    resources: int


@dataclass(frozen=True, slots=True)
class UpstreamReport:
    """An upstream's state; its resources are served even without connection.

    Attributes:
        servers: in order.
        server: the connected one, or empty.
        wire: the protocol, or empty.
        state: `connected`, `connecting`, `away`, or `refused` if another attempt would end the same way.
        trouble: why it is not connected.
        pending: types with an awaited answer.
        age_s: since its last message, also to an earlier process.
        rejected: texts for resources of its last message, bounded.
    """

    name: str
    servers: tuple[str, ...]
    server: str
    wire: str
    state: str
    since_s: float
    trouble: str
    resources: tuple[HeldType, ...]
    pending: tuple[str, ...]
    age_s: float | None
    rejected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The answer of `GET /api/status`.

    Attributes:
        directory: the tree; empty for upstreams alone.
        state: the history's directory; None without `--state`.
        generation: rises with each publication.
        waits_for: what the start waits for; empty afterwards.
        degraded: failed components that have not run well since.
        problems: the first, errors first.
        rollouts: the first, active ones and awaited decisions first.
        upstreams: in order of precedence.
        fleet: empty without one, or if unreachable.
    """

    version: str
    pid: int
    uptime_s: float
    directory: str
    state: str | None
    generation: int
    listeners: tuple[ListenerReport, ...]
    is_ready: bool
    waits_for: str
    degraded: tuple[str, ...]
    files: FileCounts
    problems: tuple[ProblemReport, ...]
    problem_count: int
    views: tuple[ViewReport, ...]
    view_count: int
    clients: tuple[ClientCount, ...]
    rollouts: tuple[ChannelReport, ...]
    rollout_count: int
    upstreams: tuple[UpstreamReport, ...]
    fleet: tuple[FleetServerReport, ...] = ()
    problem_counts: ProblemCounts = ProblemCounts()


@dataclass(frozen=True, slots=True)
class TypeReport:
    """A client's state for one type.

    Attributes:
        state: `SYNCED`, `STALE`, `NACK` or `NOT SENT`.
        subscriptions: one per list of names of a polling node; other fields are of the worst.
        sent: the last version.
        current: the version that it should have.
        reason: of the rejection.
    """

    type: str
    state: str
    subscriptions: int
    resources: int
    sent: str | None
    acked: str | None
    nacked: str | None
    current: str | None
    reason: str | None
    since_s: float


@dataclass(frozen=True, slots=True)
class ClientReport:
    """A client: a stream, a polling node, or a mirror's directory.

    Attributes:
        node: the node id; a stream's address without one; a directory.
        transport: `REST`, `gRPC` or `mirror`.
        service: a stream's method, such as `StreamAggregatedResources`, or the transport.
        peer: the IP address; empty on a unix socket.
        view: empty for the whole tree.
        since_s: of the connection.
        state: its types' worst.
        types: in push order.
    """

    node: str
    cluster: str
    transport: str
    service: str
    peer: str
    view: str
    since_s: float
    state: str
    types: tuple[TypeReport, ...]


@dataclass(frozen=True, slots=True)
class ClientList:
    """The worst of `total` matching clients."""

    total: int
    clients: tuple[ClientReport, ...]


@dataclass(frozen=True, slots=True)
class ListedNames:
    """The first of `count` names, in order."""

    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypeDetail(TypeReport):
    """A client's differences from a type's current resources.

    Attributes:
        lacks: names never confirmed.
        outdated: possibly old.
        surplus: gone, possibly kept.
        missing: subscribed, without a file.
    """

    lacks: ListedNames
    outdated: ListedNames
    surplus: ListedNames
    missing: ListedNames


@dataclass(frozen=True, slots=True)
class ClientDetail(ClientReport):
    """A client with details."""

    types: tuple[TypeDetail, ...]


@dataclass(frozen=True, slots=True)
class NodeReport:
    """All clients of one node."""

    clients: tuple[ClientDetail, ...]


@dataclass(frozen=True, slots=True)
class FileReport:
    """A file of the tree.

    `state` is `good`; `held`: older content is served; `broken`: it was never good. `since_s` is of state and content.
    """

    path: str
    state: str
    since_s: float
    resources: int
    problems: int


@dataclass(frozen=True, slots=True)
class FileList:
    """The worst of `total` matching files."""

    total: int
    files: tuple[FileReport, ...]


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Selects rows by state and text."""

    state: str | None = None
    search: str = ""
    view: str | None = None
    offset: int = 0
    limit: int = DEFAULT_ROWS


class StatusFacts(Protocol):
    """Has these facts. For the event loop: never blocks long."""

    async def report(self) -> ServerReport:
        """Return `GET /api/status`'s answer."""

    async def clients(self, query: RowQuery) -> ClientList:
        """Return some clients."""

    async def node(self, name: str) -> NodeReport:
        """Return a node's clients. Raises ProtocolError for none."""

    async def files(self, query: RowQuery) -> FileList:
        """Return some files."""


_NUMBER = re.compile("@?([1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class WaitingReport:
    """A node id or mirror's directory that a step waits for, by `REST`, `gRPC` or `mirror`."""

    client: str
    transport: str
    since_s: float


@dataclass(frozen=True, slots=True)
class StepReport:
    """A channel's step: `whole`, `grow`, `switch` or `shrink`.

    `since_s` counts from its publication; `ends_within_s` until its timeout.
    """

    name: str
    since_s: float
    ends_within_s: float
    waits_for: tuple[WaitingReport, ...]


@dataclass(frozen=True, slots=True)
class LingeringReport:
    """A removed resource that draining listeners may use.

    `left_s` until it goes; None while clients have no replacement.
    """

    type: str
    name: str
    listeners: tuple[str, ...]
    left_s: float | None


@dataclass(frozen=True, slots=True)
class HeldReport:
    """A resource with a held or rejected version.

    Attributes:
        reason: `rejected`, `pinned`, `waits for approval`, `in use`, `names an undefined resource`, `names a held
            resource` or `claims what another one has`.
        place: its present or last file and line.
        message: the fact, with a node's message.
        nodes: the first rejecting ones.
        since_s: None if unknown.
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
    """A removal that waits for approval by `id`.

    `removal` completes "the tree removes ...": `6 of 10 clusters`.
    """

    id: str
    removal: str


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """One channel: nodes with the same layers, of one cohort.

    Attributes:
        views: `("",)` without views.
        layers: empty for the whole tree.
        cohort: `main`, `canary`, `rejecting` for nodes that reject a version, or `catching up` for slower nodes and
            those on their way to another view.
        served: the snapshot's id; None before the first, as the next two.
        target: the snapshot to reach.
        asked: the tree's snapshot.
        is_done: awaited clients have the tree's snapshot, except for held versions.
        step: None while no client is awaited.
        waits_for_canary: canaries lack the tree's snapshot, or do not exist.
        baking_s: until it follows the canaries, or None.
        lingering: for draining listeners.
        held: the first hundred.
        pinned: the number of rolled back resources.
        pinned_for_s: None without a rollback.
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
    """A fleet's server; `publication`: the publisher's number and its last publication here: `3.17`."""

    name: str
    is_publisher: bool
    publication: str
    is_behind: bool
    clients: int


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The answer of `GET /rollout`; without `--state`, `state` is None."""

    channels: tuple[ChannelReport, ...]
    state: str | None


@dataclass(frozen=True, slots=True)
class DecisionReport:
    """How many channels a decision changed."""

    channels: int


@dataclass(frozen=True, slots=True)
class RetryReport:
    """How many versions are offered again."""

    versions: int


def snapshot_number(written: str) -> int:
    """Return the number in `@3` or `3`. Raises ProtocolError."""
    if match := _NUMBER.fullmatch(written):
        return int(match[1])
    raise ProtocolError(f"number: {written[:80]!r} is no number of a snapshot; fsxds history lists them")


def unix_time(written: str) -> float:
    """Parse seconds since 1970, or an ISO 8601 time, UTC by default. Raises ProtocolError."""
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
    """Return an unknown snapshot's error."""
    return ProtocolError(f"@{number}: the history has no such snapshot; fsxds history lists them", "NOT_FOUND")


class KeptSnapshot(Protocol):
    """A snapshot of the history, a dataclass."""

    @property
    def number(self) -> int:
        """3 for `@3`, unique over all layers."""

    @property
    def layers(self) -> Layers:
        """Of its nodes."""

    @property
    def time_s(self) -> float:
        """When kept, in seconds since 1970."""


class Action(StrEnum):
    """Kinds of decisions."""

    APPROVE = "approve"
    RETRY = "retry"
    PROMOTE = "promote"
    ABORT = "abort"
    RESUME = "resume"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class OperatorDecision:
    """An operator's decision.

    `name`: an approval's id, or resources to retry, None for all; `layers` to abort or resume, None for all; `number` or
    `time_s` (since 1970) to roll back to.
    """

    action: Action
    name: str | None = None
    layers: tuple[Layers, ...] | None = None
    number: int | None = None
    time_s: float | None = None


class RolloutControl(Protocol):
    """Drives rollouts; for the event loop.

    Raises:
        ProtocolError: with the remedy: `NOT_FOUND` for an unknown number, `FAILED_PRECONDITION` without `--state`.
    """

    @property
    def state_directory(self) -> Path | None:
        """The history's directory; None without `--state`."""

    async def channels(self) -> Sequence[ChannelReport]:
        """Return each channel's status."""

    async def decide(self, decision: OperatorDecision) -> int:
        """Carry out a decision; return how many channels changed or versions are retried."""

    async def history(self) -> Sequence[KeptSnapshot]:
        """Return all layers' snapshots, the newest first."""

    async def servers(self) -> Sequence[FleetServerReport]:
        """Return the fleet's servers; none if unreachable."""

    def views(self) -> Sequence[tuple[str, Layers]]:
        """Return views' names and layers, several layers for some names; the name is empty without views."""

    def layers_of_node(self, node_id: str) -> Layers | None:
        """Return a connected node's layers, or None."""
