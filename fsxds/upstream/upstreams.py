"""All upstreams: what each holds, what clients ask of them, what they are told, and the links to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Never

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.events.event import Event, Observer
from fsxds.events.upstream_events import UpstreamEvent, UpstreamExpired, UpstreamUnanswered
from fsxds.model.relay_ids import RelayIds
from fsxds.model.resources import Snapshot
from fsxds.model.tree_trust import SeenManifests, TrustedSigners
from fsxds.model.values import OfferedManifest
from fsxds.protocol.messages import OwnStatus
from fsxds.rollout import RejectingNode, ResourceVersion
from fsxds.runtime.row_source import RowSource, UpstreamKeeper, UpstreamStatus, rules_of
from fsxds.runtime.supervisor import Supervisor
from fsxds.settings.options import Settings
from fsxds.snapshots.check_protocol import Check
from fsxds.snapshots.loaded_views import LoadedViews
from fsxds.snapshots.upstream_content import Elsewhere, UpstreamContent
from fsxds.upstream.asked_names import AskedNames
from fsxds.upstream.intake import LinkContext
from fsxds.upstream.late_nacks import LateNacks
from fsxds.upstream.link import Link
from fsxds.upstream.responses import ResponseReader
from fsxds.upstream.server_access import ServerAccess
from fsxds.upstream.subscriptions import NO_NAMES, Names, NameScope
from fsxds.upstream.tree_needs import TreeNeeds
from fsxds.upstream.trusted import VouchedContent
from fsxds.upstream.upstream import Upstream

if TYPE_CHECKING:
    from fsxds.upstream.keeping import UpstreamKeeping
from collections.abc import Iterable, Mapping
from itertools import islice

from fsxds.api.secrets import mask_reason, mask_text
from fsxds.model.resource_names import is_glob
from fsxds.model.resources import Key
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.messages import ClientResourceStatus, ConfigStatus, Node, ResourceStatus
from fsxds.protocol.subscription import WILDCARD
from fsxds.snapshots.upstream_content import HeldResource
from fsxds.upstream.holdings import NO_TABLE

# Between two looks at what expires.
SHORTEST_WAIT_S = 0.05


def _upstreams_of(settings: Settings, catalogue: Catalogue, check: Check) -> Iterator[Upstream]:
    rules = rules_of(settings)
    authorities = {rule.authority for rule in rules if rule.authority}
    for rule in rules:
        reader = ResponseReader(catalogue, check, rule.name, settings.authority)
        scope = NameScope(
            rule.authority,
            frozenset(authorities - {rule.authority}),
            is_asked_only=settings.upstream_names == "asked",
            most_names=settings.upstream_max_names,
        )
        yield Upstream(rule, reader, scope)


async def _ask(upstream: Upstream, names: Names) -> None:
    upstream.ask(names, time.time())


@dataclass(frozen=True, slots=True)
class UpstreamContext:
    """What all upstreams share.

    Attributes:
        settings: returns those in use.
        observer: receives what happens.
        catalogue: the message types of the Envoy in use.
        check: judges resources as it does those of files.
        seen: remembers which manifests were trusted.
        on_offered: is called when other manifests are `offered`.
    """

    settings: Callable[[], Settings]
    observer: Observer
    catalogue: Catalogue
    check: Check
    seen: SeenManifests
    on_offered: Callable[[], object]


class Upstreams(RowSource):
    """All upstreams of a relay. `keep_connected` is to be run.

    Attributes:
        upstreams: in the order of their precedence.
        contents: what each of them holds, in the same order.
        asked: what clients ask for.
        late_nacks: says what upstreams are to get of what nodes reject.
        tree_needs: asks for what files of the tree need, and says what of it upstreams may have.
        relays: knows the relays that are above and below.
        vouched: decides what may be taken from each upstream, by its name.
    """

    def __init__(self, context: UpstreamContext) -> None:
        """Make the upstreams, of which nothing is held.

        Raises:
            UsageError: as `rules_of`; or a file of credentials cannot be used.
        """
        super().__init__()
        settings, observer = context.settings, context.observer
        self.upstreams = tuple(_upstreams_of(settings(), context.catalogue, context.check))
        self.asked = self._asked = AskedNames(self.upstreams)
        self.tree_needs = TreeNeeds(self.upstreams, self._asked, observer)
        by_name = {upstream.rule.name: upstream for upstream in self.upstreams}
        self.late_nacks = LateNacks(settings, observer, by_name, lambda name: by_name[name].rows)
        self.contents.replace(self._current())
        self.relays = RelayIds(token_hex(8) if self.upstreams else "")
        self.vouched = {name: VouchedContent(name, context.seen, context.on_offered) for name in by_name}
        converter = Converter(context.catalogue)
        shared = LinkContext(settings, observer, self.late_nacks, self.relays, converter, vouched=self.vouched)
        self._links = tuple(Link(upstream, shared) for upstream in self.upstreams)
        self._settings = settings
        self._observer = observer
        self._keeping: UpstreamKeeping | None = None

    def trust(self, anchors: TrustedSigners | None) -> None:
        """Take from upstreams, from now on, only what is signed by one who is trusted; without anybody, everything."""
        for vouched in self.vouched.values():
            vouched.trust(anchors, time.time())

    @property
    def offered(self) -> tuple[OfferedManifest, ...]:
        """The manifests of all upstreams, for relays below."""
        return tuple(offered for each in self.vouched.values() for offered in each.offered)

    def keep_in(self, keeper: UpstreamKeeper, served: Snapshot | None) -> None:
        """Hold what an earlier process held, and have what is held kept from now on; blocking, for the start."""
        from fsxds.upstream.keeping import UpstreamKeeping  # noqa: PLC0415 - needs the state directory, a capability

        self._keeping = UpstreamKeeping(self.upstreams, keeper, self._observer)
        self._keeping.restore(served, time.time())
        self.contents.replace(self._current())

    @property
    def answered_within_s(self) -> float:
        """In which time each server of an upstream was asked in vain, where none answers: so long a start waits for it."""
        most = max((len(upstream.rule.servers) for upstream in self.upstreams), default=0)
        return most * self._settings().upstream_patience_s

    def elsewhere(self) -> Elsewhere:
        """Return what upstreams have, and may have."""
        return self.tree_needs.elsewhere()

    def receive_loaded(self, views: LoadedViews) -> None:
        """Ask for what files need that were loaded, and report what goes before resources of upstreams."""
        self.tree_needs.receive_loaded(views)

    def receive_held(self, versions: Collection[ResourceVersion], nodes: Collection[RejectingNode]) -> None:
        """Let upstreams get the NACK of versions that are held back from all nodes from now on."""
        self.late_nacks.receive_held(versions, nodes)

    def receive_released(self, versions: Collection[ResourceVersion]) -> None:
        """Take versions that are not held back any more."""
        self.late_nacks.receive_released(versions)

    def statuses(self) -> tuple[UpstreamStatus, ...]:
        """Return how each of them stands."""
        return tuple(upstream.status() for upstream in self.upstreams)

    def is_concerned_by(self, event: Event) -> bool:
        """Whether an event may have changed the status of an upstream."""
        return isinstance(event, UpstreamEvent)

    def own_statuses(self) -> Iterator[OwnStatus]:
        """Yield the state of this process as a client of each upstream."""
        announced = self._settings().upstream_node
        return own_statuses(
            self.upstreams, self.late_nacks.rejected, lambda upstream: ServerAccess(upstream.rule, announced).node()
        )

    async def keep_connected(self, supervisor: Supervisor) -> None:
        """Keep a link to each, each as a component of its own, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._keeping is not None:
                tasks.create_task(self._keeping.keep_noted())
            for upstream, link in zip(self.upstreams, self._links, strict=True):
                tasks.create_task(self._keep_content(upstream))
                tasks.create_task(self._asked.changed.run_with(partial(_ask, upstream)))
                tasks.create_task(self._expire(upstream))
                tasks.create_task(supervisor.run(f"upstream {upstream.rule.name}", link.keep_connected))

    async def _keep_content(self, upstream: Upstream) -> Never:
        seen, elsewhere = -1, NO_NAMES
        while True:
            seen = await upstream.changed.other_than(seen)
            if upstream.elsewhere is not elsewhere:
                elsewhere = upstream.elsewhere
                for type_url, names in elsewhere.items():
                    self.asked.ask(upstream, type_url, names)
            self._asked.answered()
            # One by one by identity: to compare their resources would cost as much as there are.
            contents, current = self._current(), self.contents.current
            has_changed = any(one is not other for one, other in zip(contents, current, strict=True))
            if has_changed or self.tree_needs.has_changed():
                self.contents.replace(contents)

    async def _expire(self, upstream: Upstream) -> Never:
        """Let time pass for an upstream."""
        while True:
            at_s = upstream.next_expiry_s
            with suppress(TimeoutError):
                async with asyncio.timeout(None if at_s is None else max(at_s - time.time(), SHORTEST_WAIT_S)):
                    await upstream.changed.replaced()
            if at_s is not None and at_s <= time.time():
                before = upstream.unanswered
                if expired := upstream.expire(time.time()):
                    self._observer(UpstreamExpired(upstream.rule.name, tuple(sorted(expired))))
                if before != upstream.unanswered:
                    self._observer(UpstreamUnanswered(upstream.rule.name, tuple(sorted(upstream.unanswered))))

    def _current(self) -> tuple[UpstreamContent, ...]:
        return tuple(upstream.content for upstream in self.upstreams)


# Names that are looked up together.
MOST_AT_ONCE = 1000

Rejected = Mapping[tuple[str, Key], str]
"""What clients rejected, with their words: by the name of the upstream, and the resource."""


def own_statuses(
    upstreams: Iterable[Upstream], rejected: Rejected, node: Callable[[Upstream], Node]
) -> Iterator[OwnStatus]:
    """Yield the state of this process as a client of each upstream.

    Args:
        upstreams: all of them.
        rejected: what clients rejected.
        node: returns how this process shows itself to an upstream.
    """
    for upstream in upstreams:
        status = upstream.status()
        by_clients = {key: words for (name, key), words in rejected.items() if name == status.name}
        words = {key: mask_reason(each) for key, each in (by_clients | dict(upstream.rejected)).items()}
        wanted = sum(map(len, upstream.wanted().values()))
        count = sum(map(len, upstream.held.values())) + len(words) + wanted
        yield OwnStatus(node(upstream), _scope(status), count, _resources(upstream, words))


def _scope(status: UpstreamStatus) -> str:
    facts = (status.state, status.server, status.wire)
    return mask_text(f"upstream {status.name}: {' '.join(filter(None, facts))}")


def _resources(upstream: Upstream, rejected: Mapping[Key, str]) -> Iterator[ResourceStatus]:
    """Yield what is held, then what was rejected and never good, then names without a resource."""
    held, wanted = upstream.held, upstream.wanted()
    for type_url, table in held.items():
        for name, each in table.items():
            yield _held(each, rejected.get((type_url, name)))
    for (type_url, name), words in rejected.items():
        if name not in held.get(type_url, NO_TABLE):
            yield ResourceStatus(type_url, name, ConfigStatus.UNKNOWN, ClientResourceStatus.NACKED, reason=words)
    for type_url, names in wanted.items():
        table = held.get(type_url, NO_TABLE)
        without = (name for name in names if name not in table and (type_url, name) not in rejected)
        # Whoever takes them lets other work go on between two; all at once may be a million.
        while some := frozenset(islice(without, MOST_AT_ONCE)):
            yield from _without_resource(upstream, type_url, some)


def _held(each: HeldResource, rejected: str | None) -> ResourceStatus:
    client_status = ClientResourceStatus.ACKED if rejected is None else ClientResourceStatus.NACKED
    resource = each.resource
    return ResourceStatus(
        resource.type_url,
        resource.name,
        ConfigStatus.UNKNOWN,
        client_status,
        Version(each.version),
        resource,
        reason=rejected,
        updated_s=each.received_s,
    )


def _without_resource(upstream: Upstream, type_url: TypeUrl, names: frozenset[str]) -> Iterator[ResourceStatus]:
    # A wildcard that was answered is no name that does not exist.
    groups = {name for name in names if name == WILDCARD or is_glob(name)}
    missing = upstream.denies(type_url, names)
    for name in sorted(names):
        if name not in missing:
            yield ResourceStatus(type_url, name, ConfigStatus.UNKNOWN, ClientResourceStatus.REQUESTED)
        elif name not in groups:
            yield ResourceStatus(type_url, name, ConfigStatus.UNKNOWN, ClientResourceStatus.DOES_NOT_EXIST)
