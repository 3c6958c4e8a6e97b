"""The server's status at the admin address: names and versions, no content.

Fields are the JSON's. Ages are in seconds: processes' clocks differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fsxds.model.values import Layers
from fsxds.transports.admin.rollout_control import ChannelReport, FleetServerReport

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
