"""What the admin address shows of the whole server: who is served what, and what is wrong. Names and versions, no content.

The fields of the values are the fields of the JSON that is sent. Ages are in seconds, since clocks of two processes differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fsxds.model.values import Layers
from fsxds.transports.admin.rollout_control import ChannelReport, FleetServerReport

# So many of each are in one answer; each list has its count beside it.
MOST_PROBLEMS = 200
MOST_VIEWS = 500
MOST_ROLLOUTS = 100
MOST_NAMES = 100
MOST_ROWS = 500
DEFAULT_ROWS = 100


@dataclass(frozen=True, slots=True)
class ListenerReport:
    """Where clients, or operators, are served: `name` is `REST`, `gRPC` or `admin`."""

    name: str
    address: str
    tls: bool


@dataclass(frozen=True, slots=True)
class FileCounts:
    """How many files are as they are, of how many something older is served (`held`), and of how many nothing (`broken`)."""

    good: int
    held: int
    broken: int


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a file; its secrets, and all names that are not those of the API, are cut out."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class ProblemReport:
    """A problem.

    Attributes:
        path: its file, from the top of the tree; `upstream NAME` where it is about what an upstream holds.
        line: counts from 1.
        column: counts from 1.
        severity: `error`, `warning` or `note`.
        rule: that which was broken.
        message: the fact.
        remedy: what to do; may be empty.
        state: that of the file: `good`, `held`, `broken`, or `ignored` for one that is not read; `upstream` where there is none;
            `rejected` where nodes reject a resource in it; `kept` where one is served as it was, for another reason.
        since_s: for how long it has been there.
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
    """What is served of a type: the version of all of it, and how many resources that is."""

    type: str
    version: str
    resources: int


@dataclass(frozen=True, slots=True)
class ViewReport:
    """A view: its layers, how many clients have these, and what they are served; nothing before somebody wants it.

    `name` is empty for the whole tree. Where a canary is served something else, `types` are those of the others.
    """

    name: str
    layers: Layers
    clients: int
    types: tuple[ServedType, ...]


@dataclass(frozen=True, slots=True)
class ClientCount:
    """How many clients of a transport (`REST`, `gRPC`, `mirror`) are in a state."""

    transport: str
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class HeldType:
    """How many resources of a type are held of an upstream."""

    type: str
    resources: int


@dataclass(frozen=True, slots=True)
class UpstreamReport:
    """How an upstream stands. What is held of it is served, whether it is connected or not.

    Attributes:
        name: what it is called.
        servers: the addresses of its servers, in order.
        server: the one that it is connected with; empty for none.
        wire: how that is asked; empty while there is none.
        state: `connected`, `connecting`, `away`, or `refused` where another attempt would end in the same way.
        since_s: for how long it has been so.
        trouble: why it is not connected; empty for nothing.
        resources: what is held.
        pending: the types of which an answer is awaited.
        age_s: the time since it sent something last, also to an earlier process; None where it never did.
        rejected: what it sent last and could not be taken in, a text for each resource, bounded.
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
    """What `GET /api/status` answers.

    Attributes:
        version: that of fsxds.
        pid: the process.
        uptime_s: for how long it has run.
        directory: the tree; empty where upstreams are all there is.
        state: the directory of the history; None without `--state`.
        generation: rises whenever something else is served.
        listeners: where it listens.
        is_ready: whether the start is over.
        waits_for: what the start waits for; empty when it is over.
        degraded: the components that failed, and have not run well since.
        files: how many there are.
        problems: the first of them, errors first.
        problem_count: how many there are.
        views: the first of them.
        view_count: how many there are.
        clients: how many there are, by transport and state.
        rollouts: the first of them, those at work or with something to decide first.
        rollout_count: how many there are.
        upstreams: all of them, in the order of their precedence.
        fleet: the servers of the fleet; none if the server is alone, or the fleet cannot be asked.
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
    """How a client stands with one type.

    Attributes:
        type: its short name.
        state: `SYNCED`, `STALE`, `NACK` or `NOT SENT`.
        subscriptions: how many it has; a node that polls has one for each list of names. The rest is of the worst of them.
        resources: how many resources it was sent.
        sent: the version that it was sent last.
        acked: the version that it accepted last.
        nacked: the version that it rejects; None where it does not.
        current: the version of what it is to have.
        reason: why it rejects that, in its words.
        since_s: for how long it has been in this state.
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
    """A client: a stream, a node that polls, or a directory of mirrored files.

    Attributes:
        node: its node id; of a stream without one its address, of a mirror the directory.
        cluster: its `node.cluster`.
        transport: `REST`, `gRPC` or `mirror`.
        service: the method of its stream, such as `StreamAggregatedResources`, or the transport.
        peer: its IP address; empty on a unix socket.
        view: the name of its view; empty for the whole tree.
        since_s: for how long it has been connected.
        state: the worst of its types.
        types: each that it subscribes to, in push order.
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
    """Some clients, the worst first, of `total` that were asked for."""

    total: int
    clients: tuple[ClientReport, ...]


@dataclass(frozen=True, slots=True)
class ListedNames:
    """The first of `count` names, in order."""

    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypeDetail(TypeReport):
    """How a client stands with one type, and what it has of it against what is current.

    Attributes:
        lacks: names that it is to have, and never confirmed.
        outdated: names of which it may still have something older.
        surplus: names that it may have, and that are gone.
        missing: names that it asked for, and that no file has.
    """

    lacks: ListedNames
    outdated: ListedNames
    surplus: ListedNames
    missing: ListedNames


@dataclass(frozen=True, slots=True)
class ClientDetail(ClientReport):
    """A client, with the details of its types."""

    types: tuple[TypeDetail, ...]


@dataclass(frozen=True, slots=True)
class NodeReport:
    """All clients of one node."""

    clients: tuple[ClientDetail, ...]


@dataclass(frozen=True, slots=True)
class FileReport:
    """A file of the tree.

    Attributes:
        path: from the top of the tree.
        state: `good`; `held`: something older is served; `broken`: it was never good, and nothing is served.
        since_s: for how long it has been so, with the content that it has.
        resources: how many of it are served.
        problems: how many it has.
    """

    path: str
    state: str
    since_s: float
    resources: int
    problems: int


@dataclass(frozen=True, slots=True)
class FileList:
    """Some files, the worst first, of `total` that were asked for."""

    total: int
    files: tuple[FileReport, ...]


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Which rows of a list are asked for: those with a state and a text in them, from `offset` on."""

    state: str | None = None
    search: str = ""
    view: str | None = None
    offset: int = 0
    limit: int = field(default=DEFAULT_ROWS)


class StatusFacts(Protocol):
    """What knows all of this. Its methods are called on the event loop, which they never keep for long."""

    async def report(self) -> ServerReport:
        """Return what `GET /api/status` answers."""

    async def clients(self, query: RowQuery) -> ClientList:
        """Return some clients."""

    async def node(self, name: str) -> NodeReport:
        """Return all clients that are called so, or have this node id. Raises ProtocolError where there is none."""

    async def files(self, query: RowQuery) -> FileList:
        """Return some files."""
