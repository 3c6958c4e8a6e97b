"""Each server's report, under its lease; also on its clients: rejections, and canaries.

| rule | reason |
| --- | --- |
| A rejection is reported until the node takes that version or leaves. | The publisher holds it back meanwhile, and would offer it again. |
| Nodes with equal rejections are one group, some of them named. | All of ten thousand may reject. |
| Each canary is named. | The silence of one that left is no consent. |
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Never, TypeAlias

from fsxds.api.secrets import mask_reason
from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import EngineError, Lease, followed
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Order, ViewKey
from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.messages import SyncState
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.publisher import Publisher
from fsxds.publishing.verdicts import has_version
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import NodeKey
from fsxds.rollout.step import Standing
from fsxds.runtime.channels import ChannelClient, node_key
from fsxds.snapshots.encoding import DamagedBytesError, decoding

# The least time between two reports.
LEAST_PAUSE_S = 0.05
RETRY_S = 0.3

# A server checks its clients at this interval: a client that comes or leaves is not urgent.
CHECK_INTERVAL_S = 3.0


@dataclass(frozen=True, slots=True)
class MemberReport:
    """A server's standing.

    Attributes:
        order: up to this one, it has all publications of its views.
        taken: the orders that all awaited clients of views have taken.
    """

    order: Order = NOTHING_PUBLISHED
    taken: Mapping[ViewKey, Order] = field(default_factory=lambda: MappingProxyType({}))
    clients: Mapping[ViewKey, ViewClients] = field(default_factory=lambda: MappingProxyType({}))

    def encoded(self) -> bytes:
        """Return bytes."""
        taken = {key.text: order for key, order in sorted(self.taken.items())}
        clients = {key.text: one.row() for key, one in sorted(self.clients.items())}
        row = {"order": self.order, "taken": taken, "clients": clients}
        return json.dumps(row, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, encoded: bytes) -> MemberReport:
        """Decode a report. Raises DamagedBytesError."""
        with decoding("a report"):
            row = json.loads(encoded)
            taken = {ViewKey.of(text): Order.of(each) for text, each in row["taken"].items()}
            clients = {ViewKey.of(text): ViewClients.of(each) for text, each in row["clients"].items()}
            return cls(Order.of(row["order"]), taken, clients)


class MemberReporter:
    """Reports this server after changes. Run `keep_reported`."""

    def __init__(self, content: FleetContent, key: bytes, lease: Lease, report: Callable[[], MemberReport]) -> None:
        self._content = content
        self._key = key
        self._lease = lease
        self._report = report
        self._is_due = asyncio.Event()

    def note(self) -> None:
        """The report may have changed."""
        self._is_due.set()

    async def keep_reported(self) -> Never:
        """Report until cancelled."""
        reported: tuple[int, bytes] | None = None
        while True:
            self._is_due.clear()
            lease = self._lease.current.current
            made = lease, self._report().encoded()
            if lease and made != reported:
                with suppress(EngineError):
                    await self._content.engine.write([self._content.put(self._key, made[1], lease)])
                    reported = made
                await asyncio.sleep(LEAST_PAUSE_S)
            await self._until_due(lease, CHECK_INTERVAL_S if reported == made else RETRY_S)

    async def _until_due(self, lease: int, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + within_s
        while loop.time() < ends_s and self._lease.current.current == lease:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._is_due.wait()
                    return


class Servers:
    """The reports of servers with leases. Run `keep_current`."""

    def __init__(self, content: FleetContent, on_changed: Callable[[], object]) -> None:
        """Call `on_changed` after the first read, and each change."""
        self.reports: dict[str, MemberReport] = {}
        self._content = content
        self._prefix = content.keys.servers
        self._on_changed = on_changed

    async def keep_current(self) -> None:
        """Follow until cancelled. Raises EngineError."""
        async with aclosing(followed(self._content.engine, self._prefix)) as following:
            async for values, is_all in following:
                if is_all:
                    self.reports.clear()
                for key, one in values.items():
                    name = key[len(self._prefix) :].decode(errors="replace")
                    if one is None:
                        self.reports.pop(name, None)
                    else:
                        self.reports[name] = read_report(self._content, key, one.value)
                self._on_changed()


def read_report(content: FleetContent, key: bytes, sealed: bytes) -> MemberReport:
    """Read a report; empty from another version or key."""
    try:
        return MemberReport.decoded(content.sealing.opened(key, sealed))
    except DamagedBytesError:
        # The server is present, but is not waited for.
        return MemberReport()


# Limits per view (groups, named nodes, canaries) and per group or version.
MOST_GROUPS, MOST_VERSIONS, MOST_NAMED, MOST_CANARIES, LONGEST_WORDS = 16, 32, 8, 64, 300

NodeName: TypeAlias = tuple[str, str]
"""The id and the cluster of a node; of a node without an id, its client's name."""


@dataclass(frozen=True, slots=True)
class RejectingGroup:
    """Nodes with equal rejections, some named; `reasons` are the first one's."""

    reasons: Mapping[ResourceVersion, str]
    named: tuple[NodeName, ...]
    count: int


@dataclass(frozen=True, slots=True)
class ViewClients:
    """A view's nodes at one server.

    Attributes:
        canaries: whether each has taken all it is served.
    """

    count: int = 0
    rejecting: tuple[RejectingGroup, ...] = ()
    canaries: Mapping[NodeName, bool] = field(default_factory=lambda: MappingProxyType({}))

    def row(self) -> list[Any]:
        """Return the row for JSON."""
        rejecting = [
            [[[*key, version, words] for (key, version), words in one.reasons.items()], one.named, one.count]
            for one in self.rejecting
        ]
        return [self.count, rejecting, [[*node, has_taken] for node, has_taken in self.canaries.items()]]

    @classmethod
    def of(cls, row: Any) -> ViewClients:
        """Read JSON. Raises ValueError, TypeError."""
        count, rejecting, canaries = row
        groups = tuple(
            RejectingGroup(
                {
                    ((TypeUrl(str(url)), str(name)), Version(str(digest))): str(words)
                    for url, name, digest, words in each
                },
                tuple((str(node), str(cluster)) for node, cluster in named),
                int(number),
            )
            for each, named, number in rejecting
        )
        return cls(int(count), groups, {(str(node), str(cluster)): bool(taken) for node, cluster, taken in canaries})


class ClientsReporter:
    """Reports on this server's clients."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        # The reasons of each node's rejections that it has not taken since.
        self._rejected: dict[NodeKey, dict[ResourceVersion, str]] = {}

    def by_view(self, published: Mapping[ViewKey, Snapshot]) -> dict[ViewKey, ViewClients]:
        """Report on each view."""
        counts, nodes = Counter[ViewKey](), dict[ViewKey, dict[NodeKey, ChannelClient]]()
        # There may be a hundred thousand clients, and mostly none rejects anything.
        are_needed = bool(self._rejected or self._publisher.verdicts.rejections.nodes)
        for key, rollout in self._publisher.rollouts.items():
            view = ViewKey(key.layers, key.is_canary)
            counts[view] += len(rollout.channel.clients) + len(rollout.channel.absent)
            if are_needed:
                nodes.setdefault(view, {}).update((node_key(client), client) for client in rollout.channel.known)
        self._note({node: view for view, each in nodes.items() for node in each}, published)
        return {
            view: ViewClients(
                count, tuple(self._groups(nodes.get(view, {}))), self._canaries(view) if view.is_canary else {}
            )
            for view, count in counts.items()
        }

    def _note(self, views: Mapping[NodeKey, ViewKey], published: Mapping[ViewKey, Snapshot]) -> None:
        rejecting = self._publisher.verdicts.rejections.nodes
        for node, one in rejecting.items():
            known = self._rejected.setdefault(node, {})
            known.update((version, words or "") for version, (words, _) in one.reasons.items())
        for node, known in tuple(self._rejected.items()):
            served = published.get(views[node]) if node in views else None
            current = rejecting[node].reasons if node in rejecting else {}
            left = {
                version: words
                for version, words in known.items()
                if version in current or not (served is not None and has_version(served, version))
            }
            if node in views and left:
                self._rejected[node] = left
            else:
                del self._rejected[node]

    def _groups(self, nodes: Mapping[NodeKey, ChannelClient]) -> Iterator[RejectingGroup]:
        if self._rejected.keys().isdisjoint(nodes):
            return
        versions = {node: frozenset(known) for node, known in self._rejected.items() if node in nodes}
        for rejected, count in Counter(versions.values()).most_common(MOST_GROUPS):
            members = [node for node, each in versions.items() if each == rejected]
            reasons = {
                version: mask_reason(words)[:LONGEST_WORDS]
                for version, words in sorted(self._rejected[members[0]].items())[:MOST_VERSIONS]
            }
            yield RejectingGroup(reasons, tuple(_name(nodes[node]) for node in members[:MOST_NAMED]), count)

    def _canaries(self, view: ViewKey) -> dict[NodeName, bool]:
        found: dict[NodeName, bool] = {}
        for key, rollout in self._publisher.rollouts.items():
            if ViewKey(key.layers, key.is_canary) == view:
                for client in rollout.channel.known:
                    found[_name(client)] = found.get(_name(client), True) and _has_taken(client, rollout)
        return dict(sorted(found.items())[:MOST_CANARIES])


def _has_taken(client: ChannelClient, rollout: ChannelRollout) -> bool:
    if rollout.goal is not None or client not in rollout.channel.clients:
        return False
    is_taken = rollout.asked is None or client.standing(rollout.asked) is Standing.TAKEN
    return is_taken and client.sync_state() in {SyncState.SYNCED, SyncState.NOT_SENT}


def _name(client: ChannelClient) -> NodeName:
    return (client.node.id, client.node.cluster) if client.node.id else (client.name, "")
