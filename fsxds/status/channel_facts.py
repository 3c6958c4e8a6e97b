"""What is served to whom: the views, and the clients with their states, as the channels know them."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import fields
from typing import TypeVar

from fsxds.model.errors import ProtocolError
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.protocol.messages import SyncState, combined_state
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher
from fsxds.runtime.channels import ChannelClient, ChannelKey
from fsxds.status.type_reports import subscribed_types, type_detail, type_report
from fsxds.transports.admin.rollout_paths import is_called
from fsxds.transports.admin.status_reports import (
    MOST_VIEWS,
    ClientCount,
    ClientDetail,
    ClientList,
    ClientReport,
    NodeReport,
    RowQuery,
    ServedType,
    ViewReport,
)

# Clients are counted again when so much time has passed for each of them: ten thousand take 0.1 s, at most once a second.
COUNTED_FOR_EACH_S = 100e-6

# The worst first.
_RANKS = {state: rank for rank, state in enumerate(SyncState)}

_Followed = tuple[ChannelRollout, ChannelClient]


class ChannelFacts:
    """Knows views and clients.

    Args:
        publisher: has the channels.
        channels: says which view a node has.
    """

    def __init__(self, publisher: Publisher, channels: NodeChannels) -> None:
        self._publisher = publisher
        self._channels = channels
        self._counts: tuple[ClientCount, ...] = ()
        self._counted_until_s = 0.0

    @property
    def generation(self) -> int:
        """Rises whenever something else is served."""
        return self._publisher.generation

    async def views(self) -> tuple[tuple[ViewReport, ...], int]:
        """Return the first views, and how many there are. Where they are too many, those with clients come first."""
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
        """Return how many clients of each transport are in each state; as it was lately, where there are very many."""
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
        """Return the clients that are asked for, the worst first, then by their names."""
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
        """Return the clients of a node with their details. Raises ProtocolError where there is none."""
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
    """Return what is served of a view, by the rollouts of its layers."""
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
    """Return what a client is served."""
    channel = rollout.channel
    return (channel.streams if client.transport == "gRPC" else channel.store).current


def _searched(client: ChannelClient) -> str:
    """Return the text that a search looks at."""
    return f"{client.name}\n{client.node.cluster}\n{client.node.peer}".casefold()


Value = TypeVar("Value")

SLICE_S = 0.005


async def in_slices(values: Iterable[Value]) -> AsyncIterator[Value]:
    """Yield values, and let other work go on whenever 5 ms have passed; they must not change meanwhile."""
    clock = asyncio.get_running_loop().time
    end_s = clock() + SLICE_S
    for value in values:
        yield value
        if clock() >= end_s:
            await asyncio.sleep(0)
            end_s = clock() + SLICE_S
