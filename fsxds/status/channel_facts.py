"""Views and clients, with the clients' states.

A client's state for a type follows from its versions and the current one:

| state | of a type |
| --- | --- |
| NACK | the client rejected a version, and accepted no replacement since |
| STALE | it has not answered the version sent, or there is a newer one |
| NOT SENT | it subscribes, and there is nothing for it |
| SYNCED | it accepted the current version |

A client's state is its worst type's; NOT SENT counts only if nothing was sent at all.

Source: `istioctl proxy-status`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, fields
from dataclasses import fields as fields_of
from typing import TypeVar

from fsxds.api.secrets import mask_reason
from fsxds.model.errors import ProtocolError
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers, TypeUrl, Version
from fsxds.protocol.messages import ClientStatus, SyncState, WatchStatus, combined_state, without_message
from fsxds.protocol.subscription import WILDCARD, Subscription, has_any, version_of
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher
from fsxds.runtime.channels import ChannelClient, ChannelKey
from fsxds.transports.admin.admin_reports import (
    MOST_NAMES,
    MOST_VIEWS,
    ClientCount,
    ClientDetail,
    ClientList,
    ClientReport,
    ListedNames,
    NodeReport,
    RowQuery,
    ServedType,
    TypeDetail,
    TypeReport,
    ViewReport,
)
from fsxds.transports.admin.status_paths import is_called

# Ten thousand clients take 0.1 s, so are counted at most once a second.
COUNTED_FOR_EACH_S = 100e-6

# The worst first.
_RANKS = {state: rank for rank, state in enumerate(SyncState)}

_Followed = tuple[ChannelRollout, ChannelClient]


class ChannelFacts:
    """Knows views and clients."""

    def __init__(self, publisher: Publisher, channels: NodeChannels) -> None:
        self._publisher = publisher
        self._channels = channels
        self._counts: tuple[ClientCount, ...] = ()
        self._counted_until_s = 0.0

    @property
    def generation(self) -> int:
        """Rises with each publication."""
        return self._publisher.generation

    async def views(self) -> tuple[tuple[ViewReport, ...], int]:
        """Return the first views, preferably with clients, and the number of all."""
        by_layers: dict[Layers, list[ChannelRollout]] = defaultdict(list)
        for key, rollout in self._publisher.rollouts.items():
            by_layers[key.layers].append(rollout)
        views = list(self._channels.views)
        if len(views) > MOST_VIEWS:
            views.sort(
                key=lambda view: (
                    not any(one.channel.clients or one.channel.absent for one in by_layers.get(view[1], ()))
                )
            )
        reports = [
            _view_report(name, layers, by_layers.get(layers, ()))
            async for name, layers in in_slices(views[:MOST_VIEWS])
        ]
        return tuple(reports), len(views)

    async def counts(self) -> tuple[ClientCount, ...]:
        """Count clients by transport and state, rarely if many."""
        if asyncio.get_running_loop().time() >= self._counted_until_s:
            clients = tuple(client for _, client in self._followed())
            found = Counter([(client.transport, client.sync_state()) async for client in in_slices(clients)])
            self._counts = tuple(
                ClientCount(transport, state.value, count)
                for (transport, state), count in sorted(
                    found.items(), key=lambda each: (each[0][0], _RANKS[each[0][1]])
                )
            )
            self._counted_until_s = asyncio.get_running_loop().time() + len(clients) * COUNTED_FOR_EACH_S
        return self._counts

    async def clients(self, query: RowQuery) -> ClientList:
        """Return matching clients, the worst first, then by name."""
        search, total = query.search.casefold(), 0
        found: list[tuple[int, str, int, _Followed]] = []
        async for followed in in_slices(tuple(self._followed())):
            client = followed[1]
            if (search and search not in _searched(client)) or not self._is_in_view(followed, query.view):
                continue
            state = client.sync_state()
            if query.state is None or query.state == state.value:
                total += 1
                found.append((_RANKS[state], client.name, total, followed))
        rows = heapq.nsmallest(query.offset + query.limit, found)[query.offset :]
        return ClientList(total, tuple([self._report(*followed) async for _, _, _, followed in in_slices(rows)]))

    async def node(self, name: str) -> NodeReport:
        """Return a node's clients. Raises ProtocolError for none."""
        found = [each for each in self._followed() if name in (each[1].name, each[1].node.id)]
        if not found:
            raise ProtocolError(
                f"no client with the node id {name[:80]!r} is connected; /api/clients lists all", "NOT_FOUND"
            )
        return NodeReport(tuple([self._detail(*followed) async for followed in in_slices(found)]))

    def _followed(self) -> Iterator[_Followed]:
        for rollout in self._publisher.rollouts.values():
            for client in rollout.channel.known:
                yield rollout, client

    def _is_in_view(self, followed: _Followed, view: str | None) -> bool:
        rollout, client = followed
        if view is None:
            return True
        return is_called(view, self._channels.view_of(client.node), rollout.channel.key.layers)

    def _report(self, rollout: ChannelRollout, client: ChannelClient) -> ClientReport:
        status, snapshot, now_s = client.status(), _served(rollout, client), asyncio.get_running_loop().time()
        types = tuple(
            type_report(each, status, snapshot, rollout.published_s, now_s)
            for each in subscribed_types(status, snapshot)
        )
        return ClientReport(
            node=client.name,
            cluster=status.node.cluster,
            transport=client.transport,
            service=status.service,
            peer=status.node.peer,
            view=self._channels.view_of(status.node),
            since_s=max(0.0, now_s - status.since_s),
            state=combined_state(SyncState(each.state) for each in types).value,
            types=types,
        )

    def _detail(self, rollout: ChannelRollout, client: ChannelClient) -> ClientDetail:
        report, snapshot = self._report(rollout, client), _served(rollout, client)
        details = (
            type_detail(subscribed, each, snapshot)
            for subscribed, each in zip(subscribed_types(client.status(), snapshot), report.types, strict=True)
        )
        plain = {each.name: getattr(report, each.name) for each in fields(report)}
        return ClientDetail(**{**plain, "types": tuple(details)})


def _view_report(name: str, layers: Layers, rollouts: Iterable[ChannelRollout]) -> ViewReport:
    clients, shown = 0, None
    for rollout in rollouts:
        clients += len(rollout.channel.clients) + len(rollout.channel.absent)
        key = rollout.channel.key
        if shown is None or key == ChannelKey(key.layers):
            shown = rollout.channel.store.current
    return ViewReport(name, layers, clients, () if shown is None else tuple(_served_types(shown)))


def _served_types(snapshot: Snapshot) -> Iterator[ServedType]:
    for row in RESOURCE_TYPES:
        rows = snapshot.resources(row.type_url)
        if rows and row.type_url not in snapshot.withheld:
            version = snapshot.authored.get(row.type_url, rows.version)
            yield ServedType(row.short_name, version, len(rows))


def _served(rollout: ChannelRollout, client: ChannelClient) -> Snapshot | None:
    channel = rollout.channel
    return (channel.streams if client.transport == "gRPC" else channel.store).current


def _searched(client: ChannelClient) -> str:
    return f"{client.name}\n{client.node.cluster}\n{client.node.peer}".casefold()


Value = TypeVar("Value")

SLICE_S = 0.005


async def in_slices(values: Iterable[Value]) -> AsyncIterator[Value]:
    """Yield values, and to the event loop every 5 ms; values must not change."""
    clock = asyncio.get_running_loop().time
    end_s = clock() + SLICE_S
    for value in values:
        yield value
        if clock() >= end_s:
            await asyncio.sleep(0)
            end_s = clock() + SLICE_S


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A client's subscriptions to a type, many if it polls."""

    type_url: TypeUrl
    watches: tuple[WatchStatus, ...]
    states: tuple[SyncState, ...]


def subscribed_types(status: ClientStatus, snapshot: Snapshot | None) -> tuple[Subscribed, ...]:
    """Return subscribed types, in push order; snapshot None: before the first."""
    by_type: dict[TypeUrl, list[WatchStatus]] = defaultdict(list)
    for watch in status.watches:
        if watch.names is None or watch.names or watch.sent is not None:
            by_type[watch.type_url].append(watch)
    return tuple(
        Subscribed(row.type_url, tuple(watches), tuple(state_of(watch, snapshot) for watch in watches))
        for row in RESOURCE_TYPES
        if (watches := by_type.get(row.type_url))
    )


def state_of(watch: WatchStatus, snapshot: Snapshot | None) -> SyncState:
    """Return the state of one subscription."""
    if watch.state is not SyncState.SYNCED or snapshot is None:
        return watch.state
    if watch.generation is None:
        subscription = _subscription_of(watch)
        is_current = watch.sent == version_of(snapshot, subscription)
        if not (is_current or has_any(snapshot, subscription)):
            return SyncState.NOT_SENT
    else:
        is_current = watch.generation >= snapshot.generation
    return SyncState.SYNCED if is_current else SyncState.STALE


def type_report(
    types: Subscribed, status: ClientStatus, snapshot: Snapshot | None, published_s: float, now_s: float
) -> TypeReport:
    """Return a type's report, by its worst subscription; `published_s` is the snapshot's."""
    state = combined_state(types.states)
    watches = [watch for watch, one in zip(types.watches, types.states, strict=True) if one is state]
    shown = watches[0]
    since_s = min(status.since_s if watch.since_s is None else watch.since_s for watch in watches)
    if state is SyncState.STALE and shown.state is SyncState.SYNCED:
        # Current until then.
        since_s = max(since_s, published_s)
    return TypeReport(
        type=BY_TYPE_URL[types.type_url].short_name,
        state=state.value,
        subscriptions=len(types.watches),
        resources=sum(len(watch.resources) for watch in types.watches),
        sent=shown.sent,
        acked=shown.acked,
        nacked=shown.nacked,
        current=_current(shown, state, status, snapshot),
        reason=mask_reason(without_message(shown.reason)) if shown.reason else None,
        since_s=max(0.0, now_s - since_s),
    )


def type_detail(types: Subscribed, report: TypeReport, snapshot: Snapshot | None) -> TypeDetail:
    """Add the differences from the current resources."""
    lacks, outdated, surplus, missing = set[str](), set[str](), set[str](), set[str]()
    for watch, state in zip(types.watches, types.states, strict=True):
        held = {resource.name: resource.version for resource in watch.resources}
        (lacks if watch.acked is None else outdated).update(watch.unconfirmed & held.keys())
        # Their removal was sent.
        surplus |= (watch.unconfirmed | watch.rejected) - held.keys() - {WILDCARD, *watch.missing}
        missing |= set(watch.missing)
        if state is SyncState.STALE and snapshot is not None:
            current = dict(_current_names(watch, snapshot))
            lacks |= current.keys() - held.keys()
            outdated |= {name for name, version in current.items() if held.get(name, version) != version}
            surplus |= held.keys() - current.keys()
    lists = map(_some_of, (lacks, outdated - lacks, surplus - lacks, missing))
    return TypeDetail(*(getattr(report, each.name) for each in fields_of(report)), *lists)


def _some_of(names: set[str]) -> ListedNames:
    return ListedNames(len(names), tuple(sorted(names)[:MOST_NAMES]))


def _current_names(watch: WatchStatus, snapshot: Snapshot) -> Iterable[tuple[str, Version]]:
    rows = snapshot.resources(watch.type_url)
    if watch.names is None:
        return ((resource.name, resource.version) for resource in rows.everything)
    names = watch.names | {resource.name for resource in watch.resources}  # aliases lead to other names
    return ((resource.name, resource.version) for resource in rows.select(names))


def _current(watch: WatchStatus, state: SyncState, status: ClientStatus, snapshot: Snapshot | None) -> Version | None:
    if state is SyncState.SYNCED or snapshot is None:
        return watch.sent
    if status.service.startswith("Delta"):
        return snapshot.resources(watch.type_url).version
    return version_of(snapshot, _subscription_of(watch))


def _subscription_of(watch: WatchStatus) -> Subscription:
    return Subscription(watch.type_url, watch.names or frozenset(), wildcard=watch.names is None)
