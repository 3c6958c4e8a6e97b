"""All upstreams, their links, and the names that the file tree needs or shadows."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import is_
from secrets import token_hex
from typing import TYPE_CHECKING, Never

from rpds import HashTrieMap

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.secrets import mask_reason, mask_text
from fsxds.client.updates import ConnectionLostError
from fsxds.events.event import Event, Observer
from fsxds.events.upstream_events import UpstreamEvent, UpstreamExpired, UpstreamShadowed, UpstreamUnanswered
from fsxds.model.relay_ids import RelayIds
from fsxds.model.resource_names import is_glob
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, Snapshot
from fsxds.model.tree_trust import SeenManifests, TrustedSigners
from fsxds.model.values import OfferedManifest, TypeUrl, Version
from fsxds.protocol.messages import ClientResourceStatus, ConfigStatus, Node, OwnStatus, ResourceStatus
from fsxds.protocol.subscription import WILDCARD
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import RejectingNode
from fsxds.runtime.asked_names import AskedNames
from fsxds.runtime.row_source import RowSource, UpstreamKeeper, UpstreamStatus, rules_of
from fsxds.runtime.supervisor import Supervisor
from fsxds.settings.options import Settings
from fsxds.snapshots.loaded_views import LoadedViews
from fsxds.snapshots.locators import Followed
from fsxds.snapshots.proposals import Check, Elsewhere, UpstreamScope
from fsxds.snapshots.resolution import Resolved
from fsxds.snapshots.upstream_content import HeldResource, UpstreamContent
from fsxds.snapshots.upstream_rows import MergedView, Shadowed, Shadowing, shadowing_of
from fsxds.upstream.holdings import NO_TABLE, ResponseReader
from fsxds.upstream.intake import LateNacks, LinkContext, ServerAccess
from fsxds.upstream.link import Link
from fsxds.upstream.subscriptions import NO_NAMES, Names, NameScope, targets_of_locator
from fsxds.upstream.trusted import TrustedContent
from fsxds.upstream.upstream import Upstream

if TYPE_CHECKING:
    from fsxds.upstream.keeping import UpstreamKeeping


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
    """Shared by all upstreams; `on_offered` is called when `offered` changes."""

    settings: Callable[[], Settings]
    observer: Observer
    catalogue: Catalogue
    check: Check
    seen: SeenManifests
    on_offered: Callable[[], object]


class Upstreams(RowSource):
    """A relay's upstreams, by precedence; `keep_connected` is a task."""

    def __init__(self, context: UpstreamContext) -> None:
        """Make upstreams without resources. Raises UsageError as `rules_of`, and for unusable credentials."""
        super().__init__()
        settings, observer = context.settings, context.observer
        self.upstreams = tuple(_upstreams_of(settings(), context.catalogue, context.check))
        self.asked = self._asked = AskedNames(self.upstreams)
        self.tree_needs = TreeNeeds(self.upstreams, self._asked, observer)
        by_name = {upstream.rule.name: upstream for upstream in self.upstreams}
        self.late_nacks = LateNacks(settings, observer, by_name, lambda name: by_name[name].rows)
        self.contents.replace(self._current())
        self.relays = RelayIds(token_hex(8) if self.upstreams else "")
        self.trusted_content = {name: TrustedContent(name, context.seen, context.on_offered) for name in by_name}
        converter = Converter(context.catalogue)
        shared = LinkContext(
            settings, observer, self.late_nacks, self.relays, converter, trusted_content=self.trusted_content
        )
        self._links = tuple(Link(upstream, shared) for upstream in self.upstreams)
        self._settings = settings
        self._catalogue = context.catalogue
        self._observer = observer
        self._keeping: UpstreamKeeping | None = None

    def change_rules(self, check: Check, anchors: TrustedSigners | None) -> None:
        """See `RowSource`."""
        settings = self._settings()
        for upstream in self.upstreams:
            reader = ResponseReader(self._catalogue, check, upstream.rule.name, settings.authority)
            upstream.change_rules(reader, settings.upstream_max_names)
        for trusted_content in self.trusted_content.values():
            trusted_content.trust(anchors, time.time())

    @property
    def offered(self) -> tuple[OfferedManifest, ...]:
        """All manifests, for relays downstream."""
        return tuple(offered for each in self.trusted_content.values() for offered in each.offered)

    def keep_in(self, keeper: UpstreamKeeper, served: Snapshot | None) -> None:
        """See `RowSource`."""
        from fsxds.upstream.keeping import UpstreamKeeping  # noqa: PLC0415 - needs the state directory, a capability

        self._keeping = UpstreamKeeping(self.upstreams, keeper, self._observer)
        self._keeping.restore(served, time.time())
        self.contents.replace(self._current())

    @property
    def answered_within_s(self) -> float:
        """How long a start awaits answers: until each server was asked in vain."""
        most = max((len(upstream.rule.servers) for upstream in self.upstreams), default=0)
        return most * self._settings().upstream_patience_s

    def elsewhere(self) -> Elsewhere:
        """See `RowSource`."""
        return self.tree_needs.elsewhere()

    def receive_loaded(self, views: LoadedViews) -> None:
        """See `RowSource`; reports shadowed resources."""
        self.tree_needs.receive_loaded(views)

    def receive_held(self, versions: Collection[ResourceVersion], nodes: Collection[RejectingNode]) -> None:
        """See `RowSource`: late NACKs."""
        self.late_nacks.receive_held(versions, nodes)

    def receive_released(self, versions: Collection[ResourceVersion]) -> None:
        """See `RowSource`."""
        self.late_nacks.receive_released(versions)

    def statuses(self) -> tuple[UpstreamStatus, ...]:
        """See `RowSource`."""
        return tuple(upstream.status() for upstream in self.upstreams)

    def is_concerned_by(self, event: Event) -> bool:
        """See `RowSource`."""
        return isinstance(event, UpstreamEvent)

    def own_statuses(self) -> Iterator[OwnStatus]:
        """See `RowSource`."""
        announced = self._settings().upstream_node
        return own_statuses(
            self.upstreams, self.late_nacks.rejected, lambda upstream: ServerAccess(upstream.rule, announced).node()
        )

    async def keep_connected(self, supervisor: Supervisor) -> None:
        """Keep each upstream's link and resources, as a component."""
        async with asyncio.TaskGroup() as tasks:
            for upstream, link in zip(self.upstreams, self._links, strict=True):
                tasks.create_task(supervisor.run(f"upstream {upstream.rule.name}", partial(self._keep, upstream, link)))

    async def _keep(self, upstream: Upstream, link: Link) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._keeping is not None:
                    tasks.create_task(self._keeping.keep_noted(upstream))
                tasks.create_task(self._keep_content(upstream))
                tasks.create_task(self._asked.changed.run_with(partial(_ask, upstream)))
                tasks.create_task(self._expire(upstream))
                tasks.create_task(link.keep_connected())
        except BaseExceptionGroup:
            upstream.lost(ConnectionLostError("an internal error of fsxds; its log has it", "INTERNAL"), time.time())
            raise

    async def _keep_content(self, upstream: Upstream) -> Never:
        seen, elsewhere = -1, NO_NAMES
        while True:
            seen = await upstream.changed.other_than(seen)
            if upstream.elsewhere is not elsewhere:
                elsewhere = upstream.elsewhere
                for type_url, names in elsewhere.items():
                    self.asked.ask(upstream, type_url, names)
            self._asked.answered()
            # By identity: comparing resources would cost as much as there are.
            contents, current = self._current(), self.contents.current
            has_changed = any(one is not other for one, other in zip(contents, current, strict=True))
            if has_changed or self.tree_needs.has_changed():
                self.contents.replace(contents)

    async def _expire(self, upstream: Upstream) -> Never:
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


MOST_AT_ONCE = 1000

Rejected = Mapping[tuple[str, Key], str]
"""Clients' rejections with reasons, by upstream and resource."""


def own_statuses(
    upstreams: Iterable[Upstream], rejected: Rejected, node: Callable[[Upstream], Node]
) -> Iterator[OwnStatus]:
    """Yield this process's upstream client states, with its `node` for each."""
    for upstream in upstreams:
        status = upstream.status()
        by_clients = {key: words for (name, key), words in rejected.items() if name == status.name}
        words = {key: mask_reason(each) for key, each in (by_clients | dict(upstream.rejected)).items()}
        wanted = sum(map(len, upstream.wanted().values()))
        count = sum(map(len, upstream.held.values())) + len(words) + wanted
        facts = (status.state, status.server, status.wire)
        scope = mask_text(f"upstream {status.name}: {' '.join(filter(None, facts))}")
        yield OwnStatus(node(upstream), scope, count, _resources(upstream, words))


def _resources(upstream: Upstream, rejected: Mapping[Key, str]) -> Iterator[ResourceStatus]:
    """Held ones, rejected ones that were never good, names without a resource."""
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
        # In parts, so that the caller can yield to other work; names may be a million.
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
    # An answered wildcard is not a missing name.
    groups = {name for name in names if name == WILDCARD or is_glob(name)}
    missing = upstream.absent_names(type_url, names)
    for name in sorted(names):
        if name not in missing:
            yield ResourceStatus(type_url, name, ConfigStatus.UNKNOWN, ClientResourceStatus.REQUESTED)
        elif name not in groups:
            yield ResourceStatus(type_url, name, ConfigStatus.UNKNOWN, ClientResourceStatus.DOES_NOT_EXIST)


class TreeNeeds:
    """Asks upstreams for resources that files lack."""

    def __init__(self, upstreams: Sequence[Upstream], asked: AskedNames, observer: Observer) -> None:
        self._upstreams = upstreams
        self._asked = asked
        self._observer = observer
        self._needed: frozenset[Key] = frozenset()
        self._denied: frozenset[Key] = frozenset()
        # By view and type, and the targets of those in files.
        self._redirects: list[HashTrieMap[str, Followed]] = []
        self._targets: frozenset[Key] = frozenset()
        # As last reported, by view.
        self._shadowed: list[Shadowed] = []
        self._shadowing: Mapping[str, Shadowing] = {}

    def elsewhere(self) -> Elsewhere:
        """Return resources that upstreams have, or may have."""
        self._denied = self._denied_now()
        return Elsewhere(
            tuple(upstream.content for upstream in self._upstreams),
            tuple(map(_named_scope, self._upstreams)),
            self._denied,
        )

    def has_changed(self) -> bool:
        """Whether upstreams now deny other names."""
        return self._denied_now() != self._denied

    def _denied_now(self) -> frozenset[Key]:
        return frozenset(
            (type_url, name)
            for type_url, names in _by_type(self._needed).items()
            for name in frozenset.intersection(*(each.absent_names(type_url, names) for each in self._upstreams))
        )

    def receive_loaded(self, views: LoadedViews) -> None:
        """Ask for resources that files need; report shadowed ones."""
        needed = frozenset(key for key in views.wanted if key[1] != WILDCARD and "#" not in key[1])
        needed |= self._targets_in(views)
        if needed != self._needed:
            now, before = _by_type(needed), _by_type(self._needed)
            self._needed = needed
            for type_url in now.keys() | before.keys():
                self._asked.ask(self, type_url, now.get(type_url, frozenset()))
        merged = views.results_of(MergedView)
        shadowed = [view.shadowed for view in merged]
        if len(shadowed) == len(self._shadowed) and all(map(is_, shadowed, self._shadowed)):
            return
        self._shadowed = shadowed
        shadowing = shadowing_of(merged)
        for name in shadowing.keys() | self._shadowing.keys():
            found = shadowing.get(name, Shadowing())
            if found != self._shadowing.get(name, Shadowing()):
                self._observer(UpstreamShadowed(name, found.count, found.examples))
        self._shadowing = shadowing

    def _targets_in(self, views: LoadedViews) -> frozenset[Key]:
        redirects = [each for one in views.results_of(Resolved) for each in one.redirects.by_type.values()]
        if len(redirects) != len(self._redirects) or not all(map(is_, redirects, self._redirects)):
            self._redirects = redirects
            written = (one.redirect for each in redirects for one in each.values())
            # Upstreams' own redirects are followed when they arrive.
            locators = {one.redirect for one in written if one.redirect and one.origin.line}
            self._targets = frozenset(key for locator in locators for key in targets_of_locator(locator))
        return self._targets


def _named_scope(upstream: Upstream) -> UpstreamScope:
    everything = frozenset({WILDCARD})
    complete = (type_url for type_url in BY_TYPE_URL if upstream.absent_names(type_url, everything))
    return UpstreamScope(upstream.covers, frozenset(complete))


def _by_type(keys: frozenset[Key]) -> Mapping[TypeUrl, frozenset[str]]:
    found: defaultdict[TypeUrl, set[str]] = defaultdict(set)
    for type_url, name in keys:
        found[type_url].add(name)
    return {type_url: frozenset(names) for type_url, names in found.items()}
