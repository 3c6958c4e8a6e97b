"""The interface to resources from elsewhere than files."""

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
from fsxds.protocol.subscription import NoUpstreams, OnDemand
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import RejectingNode
from fsxds.runtime.channels import Latest
from fsxds.runtime.supervisor import Supervisor
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import UpstreamRule
from fsxds.snapshots.loaded_views import LoadedViews
from fsxds.snapshots.proposals import NOWHERE, Check, Elsewhere
from fsxds.snapshots.upstream_content import Held, UpstreamContent

UpstreamState: TypeAlias = Literal["connected", "connecting", "away", "refused"]
"""The state of a connection; `refused` if another attempt would end in the same way."""


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """An upstream's status. Times are seconds since 1970.

    Attributes:
        servers: in order.
        server: the connected one, or empty.
        wire: `Delta ADS`, `SotW ADS`, `REST`; empty without a connection.
        since_s: when `state` changed; 0 if no server was asked yet.
        trouble: why it is not connected, or its responses' fault, or empty.
        resources: the number by type, without zeros.
        pending: types with an awaited answer.
        last_update_s: the last response's, and so held resources' age, or None.
        rejected: in its last response, a text each, bounded.
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
    """An upstream and its held resources."""

    name: str
    servers: tuple[str, ...]
    held: Held = MappingProxyType({})


class RestoredUpstreams(NamedTuple):
    """The database's upstream resources.

    Resources of `dropped` upstreams, no longer configured, and `damaged` ones, counted by upstream, are removed.
    """

    held: Mapping[str, Held]
    dropped: tuple[str, ...] = ()
    damaged: Mapping[str, int] = MappingProxyType({})


class UpstreamKeeper(Protocol):
    """Keeps upstream resources across restarts.

    `read_upstreams` returns all current ones.
    """

    read_upstreams: Callable[[], Collection[KeptUpstream]]

    @property
    def directory(self) -> Path:
        """The database's directory."""

    def restored_upstreams(
        self, upstreams: Collection[KeptUpstream], near: Snapshot | None = None
    ) -> RestoredUpstreams:
        """Return the last written upstream resources; blocking, for the start.

        Upstreams not configured in `upstreams` are dropped. `near` shares its equal bodies.
        """

    def note_upstreams(self) -> None:
        """Schedule a write of the upstream resources."""


class RowSource:
    """Resources beside the files; this base class has none."""

    def __init__(self) -> None:
        self.asked: OnDemand = NoUpstreams()
        self.contents: Latest[tuple[UpstreamContent, ...]] = Latest(())
        self.relays = RelayIds()

    @property
    def answered_within_s(self) -> float:
        """How long a start awaits first answers."""
        return 0.0

    @property
    def offered(self) -> Sequence[OfferedManifest]:
        """Manifests of its resources, for relays below."""
        return ()

    def statuses(self) -> Sequence[UpstreamStatus]:
        """Return each upstream's status."""
        return ()

    def is_concerned_by(self, _: Event) -> bool:
        """Whether an event may have changed a status."""
        return False

    def own_statuses(self) -> Iterable[OwnStatus]:
        """Return this process's status as a client."""
        return ()

    def elsewhere(self) -> Elsewhere:
        """Return the resources that it has, and may have."""
        return NOWHERE

    def keep_in(self, keeper: UpstreamKeeper, served: Snapshot | None) -> None:
        """Load an earlier process's resources, and keep current ones; blocking, for the start."""
        # Drops the resources of upstreams that are not configured any more.
        keeper.restored_upstreams(())

    def receive_loaded(self, views: LoadedViews) -> None:
        """Request resources that loaded files reference."""

    def receive_held(self, versions: Collection[ResourceVersion], nodes: Collection[RejectingNode]) -> None:
        """Process versions held back from all nodes, with their rejecters."""

    def receive_released(self, versions: Collection[ResourceVersion]) -> None:
        """Process versions no longer held back."""

    async def keep_connected(self, supervisor: Supervisor) -> None:
        """Keep its resources current."""

    def change_rules(self, check: Check, anchors: TrustedSigners | None) -> None:
        """Apply changed settings to later resources; of trusted signers only, or of all if `anchors` is None."""


def rules_of(settings: Settings) -> tuple[UpstreamRule, ...]:
    """Return the upstream settings by precedence: `upstream`, then authorities.

    Raises:
        UsageError: two have one name, one names a server twice, or a certificate has no key.
    """
    if (settings.upstream_cert is None) != (settings.upstream_key is None):
        raise UsageError("upstream_cert and upstream_key belong together; give both, or neither")
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
    has_own = rule.cert is not None
    return UpstreamRule(
        rule.servers,
        rule.authority,
        rule.ca or settings.upstream_ca,
        rule.cert if has_own else settings.upstream_cert,
        rule.key if has_own else settings.upstream_key,
        rule.token or settings.upstream_token,
    )
