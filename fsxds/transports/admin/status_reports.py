"""The server's status at the admin address: names and versions, no content.

The fields of the values are the JSON's. Ages are in seconds, since clocks of processes differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    """A listening address; `name` is `REST`, `gRPC` or `admin`."""

    name: str
    address: str
    tls: bool


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Files served as they are, as they were (`held`), or not at all (`broken`)."""

    good: int
    held: int
    broken: int


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a file, without secrets and names that are not of the API."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class ProblemReport:
    """A problem.

    Attributes:
        path: from the top of the tree; `upstream NAME` for an upstream's resource.
        severity: `error`, `warning` or `note`.
        remedy: may be empty.
        state: of the file: `good`, `held`, `broken`, or `ignored` if it is not read; `upstream` without a file;
            `rejected` if nodes reject a resource in it; `kept` if an older version of one is served for another reason.
        source: lines around the place; none of files with secrets.
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
class ServedType:
    """A type's served version and number of resources."""

    type: str
    version: str
    resources: int


@dataclass(frozen=True, slots=True)
class ViewReport:
    """A view with its clients and served types; empty until requested.

    `name` is empty for the whole tree. `types` do not describe a canary.
    """

    name: str
    layers: Layers
    clients: int
    types: tuple[ServedType, ...]


@dataclass(frozen=True, slots=True)
class ClientCount:
    """The clients of a transport (`REST`, `gRPC`, `mirror`) in a state."""

    transport: str
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class HeldType:
    """The number of resources that an upstream has."""

    type: str
    resources: int


@dataclass(frozen=True, slots=True)
class UpstreamReport:
    """The state of an upstream, whose resources are served even while it is away.

    Attributes:
        servers: addresses, in order.
        server: the connected one; empty for none.
        wire: the protocol; empty for none.
        state: `connected`, `connecting`, `away`, or `refused` if another attempt would end the same way.
        trouble: why it is not connected; may be empty.
        pending: the types with an awaited answer.
        age_s: since its last message, also to an earlier process; None for none.
        rejected: texts for rejected resources of its last message, bounded.
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
        version: of fsxds.
        directory: the tree; empty for upstreams alone.
        state: the history's directory; None without `--state`.
        generation: rises with each publication.
        waits_for: what the start waits for; empty when it is over.
        degraded: failed components that have not run well since.
        problems: the first, errors first.
        rollouts: the first, beginning with active ones and awaited decisions.
        upstreams: in order of precedence.
        fleet: empty without one, or if it cannot be reached.
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


@dataclass(frozen=True, slots=True)
class TypeReport:
    """A client's state for one type.

    Attributes:
        state: `SYNCED`, `STALE`, `NACK` or `NOT SENT`.
        subscriptions: a polling node has one per list of names; the other fields are of the worst.
        sent: the last version.
        nacked: None for none.
        current: the version that it should have.
        reason: the client's message for the rejection.
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
        node: the node id; a stream's address without one; a mirror's directory.
        transport: `REST`, `gRPC` or `mirror`.
        service: the stream's method, such as `StreamAggregatedResources`, or the transport.
        peer: the IP address; empty on a unix socket.
        view: empty for the whole tree.
        since_s: the age of the connection.
        state: the worst of its types.
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
    """A client's state for one type, with differences from the current resources.

    Attributes:
        lacks: names that it never confirmed.
        outdated: names that it may have in an older version.
        surplus: gone names that it may have.
        missing: subscribed names that no file has.
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

    `path` is from its top. `state` is `good`; `held`: an older content is served; `broken`: it was never good.
    `since_s` is the age of state and content; `resources` counts the served ones.
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
    """Selects rows by state and text, from `offset` on."""

    state: str | None = None
    search: str = ""
    view: str | None = None
    offset: int = 0
    limit: int = field(default=DEFAULT_ROWS)


class StatusFacts(Protocol):
    """Has these facts. For the event loop, which it never blocks for long."""

    async def report(self) -> ServerReport:
        """Return the answer of `GET /api/status`."""

    async def clients(self, query: RowQuery) -> ClientList:
        """Return some clients."""

    async def node(self, name: str) -> NodeReport:
        """Return all clients with this name or node id. Raises ProtocolError for none."""

    async def files(self, query: RowQuery) -> FileList:
        """Return some files."""
