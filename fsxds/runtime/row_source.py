"""Resources from elsewhere than the files, as the application sees their source: other servers, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, TypeAlias

from fsxds.events.event import Event
from fsxds.model.errors import UsageError
from fsxds.model.relay_ids import RelayIds
from fsxds.model.resources import Snapshot
from fsxds.model.tree_trust import TrustedSigners
from fsxds.model.values import OfferedManifest, TypeUrl
from fsxds.protocol.messages import OwnStatus
from fsxds.protocol.on_demand import NoUpstreams, OnDemand
from fsxds.rollout import RejectingNode, ResourceVersion
from fsxds.runtime.store import Latest
from fsxds.runtime.supervisor import Supervisor
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import UpstreamRule
from fsxds.snapshots.loaded_views import LoadedViews
from fsxds.snapshots.upstream_content import NOWHERE, Elsewhere, Held, UpstreamContent

UpstreamState: TypeAlias = Literal["connected", "connecting", "away", "refused"]
"""How the connection with an upstream is: `refused` where another attempt would end in the same way."""


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """How an upstream stands. Times are seconds since 1970.

    Attributes:
        name: what it is called.
        servers: the addresses of its servers, in order.
        server: the one that it is connected with; empty for none.
        wire: how that is asked: `Delta ADS`, `SotW ADS`, `REST`; empty while there is none.
        state: how the connection is.
        since_s: since when; 0 where no server was asked yet.
        trouble: why it is not connected, or what is wrong with what it sends; empty for nothing.
        resources: how many are held, by type; only types that have some.
        pending: the types of which an answer is awaited.
        last_update_s: when it sent something last; None for never. What is held is so old.
        rejected: what it sent last and could not be taken in, a text for each resource, bounded.
    """

    name: str
    servers: tuple[str, ...]
    server: str = ""
    wire: str = ""
    state: UpstreamState = "connecting"
    since_s: float = 0.0
    trouble: str = ""
    resources: Mapping[TypeUrl, int] = field(default_factory=lambda: MappingProxyType({}))
    pending: tuple[TypeUrl, ...] = ()
    last_update_s: float | None = None
    rejected: tuple[str, ...] = ()


class KeptUpstream(NamedTuple):
    """An upstream and what is held of it.

    Attributes:
        name: what it is called.
        servers: its addresses.
        held: all that is held of it.
    """

    name: str
    servers: tuple[str, ...]
    held: Held = MappingProxyType({})


class RestoredUpstreams(NamedTuple):
    """What the database had of upstreams.

    Attributes:
        held: what each one holds, by its name; only those that had anything.
        dropped: the names of upstreams that are none any more; what was kept of them is removed.
        damaged: of how many resources what is there is not what was kept, by upstream; they are removed, too.
    """

    held: Mapping[str, Held]
    dropped: tuple[str, ...] = ()
    damaged: Mapping[str, int] = MappingProxyType({})


class UpstreamKeeper(Protocol):
    """Keeps what upstreams hold across restarts.

    Attributes:
        read_upstreams: returns what upstreams hold, at this moment.
    """

    read_upstreams: Callable[[], Collection[KeptUpstream]]

    @property
    def directory(self) -> Path:
        """Where it is kept."""

    def restored_upstreams(
        self, upstreams: Collection[KeptUpstream], near: Snapshot | None = None
    ) -> RestoredUpstreams:
        """Return what upstreams held, as a process wrote it last; blocking, for the start.

        Args:
            upstreams: those of the settings; of others nothing is kept any more.
            near: what is served again already, whose bodies are shared; None for nothing.
        """

    def note_upstreams(self) -> None:
        """Have what upstreams hold written soon, as it is then."""


class RowSource:
    """A source of resources beside the files; this one has none. Others derive from it.

    Attributes:
        asked: has its servers asked for what clients ask for.
        contents: what it holds.
        relays: knows the relays that are above and below.
    """

    def __init__(self) -> None:
        self.asked: OnDemand = NoUpstreams()
        self.contents: Latest[tuple[UpstreamContent, ...]] = Latest(())
        self.relays = RelayIds()

    @property
    def answered_within_s(self) -> float:
        """How long a start waits for its first answers."""
        return 0.0

    @property
    def offered(self) -> Sequence[OfferedManifest]:
        """The manifests that vouch for what it has, for relays below."""
        return ()

    def statuses(self) -> Sequence[UpstreamStatus]:
        """Return how each of its servers stands."""
        return ()

    def is_concerned_by(self, _: Event) -> bool:
        """Whether an event may have changed the status of a server."""
        return False

    def own_statuses(self) -> Iterable[OwnStatus]:
        """Return the state of this process as a client of each of its servers."""
        return ()

    def elsewhere(self) -> Elsewhere:
        """Return what it has, and may have."""
        return NOWHERE

    def keep_in(self, keeper: UpstreamKeeper, served: Snapshot | None) -> None:
        """Hold what an earlier process held, and have what is held kept from now on; blocking, for the start."""
        # What was kept of upstreams that are none any more goes.
        keeper.restored_upstreams(())

    def receive_loaded(self, views: LoadedViews) -> None:
        """Ask for what files need that were loaded."""

    def receive_held(self, versions: Collection[ResourceVersion], nodes: Collection[RejectingNode]) -> None:
        """Take versions that are held back from all nodes from now on, and the nodes that reject them."""

    def receive_released(self, versions: Collection[ResourceVersion]) -> None:
        """Take versions that are not held back any more."""

    async def keep_connected(self, supervisor: Supervisor) -> None:
        """Keep what it holds current, until cancelled."""

    def trust(self, anchors: TrustedSigners | None) -> None:
        """Take, from now on, only what is signed by one who is trusted; without anybody, everything."""


def rules_of(settings: Settings) -> tuple[UpstreamRule, ...]:
    """Return what the settings say about upstreams, in the order of their precedence: those of `upstream`, then authorities.

    Raises:
        UsageError: two have one name, one names a server twice, or a certificate has no key.
    """
    if (settings.upstream_cert is None) != (settings.upstream_key is None):
        raise UsageError("--upstream-cert and --upstream-key belong together; give both, or neither")
    of_authorities = (
        UpstreamRule(each.upstream, name) for name, each in (settings.authorities or {}).items() if each.upstream
    )
    rules = tuple(_with_defaults(rule, settings) for rule in (*(settings.upstream or ()), *of_authorities))
    for rule in rules:
        if len(set(rule.servers)) < len(rule.servers):
            raise UsageError(f"--upstream: {rule.name} names a server twice; give each server once")
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"--upstream: {name} is given twice; give each upstream once, its servers with commas between"
            )
    return rules


def _with_defaults(rule: UpstreamRule, settings: Settings) -> UpstreamRule:
    """Return a rule that has the files of the settings where it has none of its own."""
    has_own = rule.cert is not None
    return UpstreamRule(
        rule.servers,
        rule.authority,
        rule.ca or settings.upstream_ca,
        rule.cert if has_own else settings.upstream_cert,
        rule.key if has_own else settings.upstream_key,
        rule.token or settings.upstream_token,
    )
