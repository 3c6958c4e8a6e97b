"""The fleet's servers, and some of their nodes, as clients of the publisher's channels.

| rule | reason |
| --- | --- |
| A server is one client of each of its views, with a vote for each node that rejects nothing. | It reports when all have taken a step. |
| A node that rejects versions is a separate client, and is not waited for. | The rules of verdicts are those of a single server. |
| Each canary is a separate client. | Other nodes follow when canaries have lived with a change. |
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from fsxds.fleet.client_reports import NodeName, RejectingGroup, ViewClients
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Order, ViewKey
from fsxds.fleet.reports import MemberReport
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import ClientStatus, Node, SyncState
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.publisher import Publisher
from fsxds.rollout import Step
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import Nack
from fsxds.rollout.step import Standing
from fsxds.runtime.channels import Channel, ChannelKey, node_key

# Limit of the nodes of a server with equal rejections that become clients; more make no difference to any share.
MOST_OF_GROUP = 1000

OrderOf: TypeAlias = Callable[[ViewKey, int], "Order | None"]
"""Returns the order of a view's publication with this generation; None while it is not published."""


class RemoteClient:
    """A client at another server, or that server; `taken` by all of its clients."""

    transport = "fleet"
    has_returned = True
    is_away = False

    def __init__(self, name: NodeName, view: ViewKey, order_of: OrderOf) -> None:
        self.node = Node(*name)
        self.node_count = 1
        self.taken = NOTHING_PUBLISHED
        self._view = view
        self._order_of = order_of

    @property
    def name(self) -> str:
        """The id of the node or server."""
        return self.node.id

    @property
    def identity(self) -> str:
        """The name."""
        return self.node.id

    def has_taken(self, generation: int) -> bool:
        """Whether a generation was taken."""
        order = self._order_of(self._view, generation)
        return order is not None and self.taken >= order

    def standing(self, step: Step) -> Standing:
        """Return TAKEN or PENDING."""
        return Standing.TAKEN if self.has_taken(step.snapshot.generation) else Standing.PENDING

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return all names: clients may subscribe to any."""
        return names

    def sync_state(self) -> SyncState:
        """Return SYNCED: subclasses report problems."""
        return SyncState.SYNCED

    def status(self) -> ClientStatus:
        """Return the node and the transport."""
        return ClientStatus(self.node, self.transport)

    def wake(self) -> None:
        """Do nothing: servers follow publications."""

    def follow(self, channel: Channel) -> None:
        """Do nothing: servers follow publications."""


class RejectingClient(RemoteClient):
    """A node that rejects versions."""

    def __init__(self, name: NodeName, view: ViewKey, order_of: OrderOf) -> None:
        super().__init__(name, view, order_of)
        self.reasons: Mapping[ResourceVersion, str] = {}

    def standing(self, step: Step) -> Standing:
        """Return TAKEN: its server leads it apart."""
        return Standing.TAKEN

    def sync_state(self) -> SyncState:
        """Return NACK."""
        return SyncState.NACK


class CanaryClient(RemoteClient):
    """A canary; `is_synced` if it has taken everything it is served."""

    is_synced = False

    def sync_state(self) -> SyncState:
        """Return SYNCED or STALE."""
        return SyncState.SYNCED if self.is_synced else SyncState.STALE


class FleetClients:
    """Keeps the publisher's clients as servers report them."""

    def __init__(
        self, publisher: Publisher, order_of: OrderOf, rollout_of: Callable[[ViewKey], ChannelRollout]
    ) -> None:
        self._publisher = publisher
        self._order_of = order_of
        self._rollout_of = rollout_of
        # By server, view, and the client's place there: the server itself, or one of its nodes.
        self._clients: dict[tuple[str, ViewKey, Hashable], RemoteClient] = {}

    def receive(self, reports: Mapping[str, MemberReport]) -> None:
        """Update the clients from reports."""
        seen = set[tuple[str, ViewKey, Hashable]]()
        for name, report in reports.items():
            for view, taken in report.taken.items():
                clients = report.clients.get(view, ViewClients())
                for place, client in self._clients_of(name, view, clients):
                    seen.add((name, view, place))
                    client.taken = taken
        for key in self._clients.keys() - seen:
            rollout = self._publisher.rollouts.get(ChannelKey(*key[1]))
            client = self._clients.pop(key)
            if rollout is not None:
                rollout.channel.leave(client)
        self.ask()

    def ask(self, view: ViewKey | None = None) -> None:
        """Query a view's clients, or all, again."""
        for (_, each, _), client in tuple(self._clients.items()):
            rollout = self._publisher.rollouts.get(ChannelKey(*each))
            if rollout is not None and view in {None, each}:
                rollout.channel.progressed(client)

    def _clients_of(self, server: str, view: ViewKey, clients: ViewClients) -> Iterator[tuple[Hashable, RemoteClient]]:
        rejecting = set[NodeName]()
        for group in clients.rejecting:
            for name in _members(server, group):
                rejecting.add(name)
                yield ("rejects", name), self._rejecting(server, view, name, group)
        if not view.is_canary:
            found = self._client(server, view, "server", partial(RemoteClient, (server, ""), view, self._order_of))
            found.node_count = max(clients.count - sum(group.count for group in clients.rejecting), 0)
            yield "server", found
        for name, has_taken in clients.canaries.items():
            if name not in rejecting:
                place = "canary", name
                canary = self._client(server, view, place, partial(CanaryClient, name, view, self._order_of))
                if isinstance(canary, CanaryClient):
                    canary.is_synced = has_taken
                yield place, canary

    def _rejecting(self, server: str, view: ViewKey, name: NodeName, group: RejectingGroup) -> RemoteClient:
        client = self._client(server, view, ("rejects", name), partial(RejectingClient, name, view, self._order_of))
        if isinstance(client, RejectingClient) and client.reasons != group.reasons:
            before, client.reasons = client.reasons, group.reasons
            channel, verdicts = self._rollout_of(view).channel, self._publisher.verdicts
            taken = before.keys() - client.reasons.keys()
            if taken and verdicts.rejections.receive_taken(node_key(client), taken.__contains__):
                verdicts.decide_soon({node_key(client)})
            for version in client.reasons.keys() - before.keys():
                channel.on_nack(
                    client, Nack(frozenset({version}), is_named=True, words=client.reasons[version] or None)
                )
        return client

    def _client(self, server: str, view: ViewKey, place: Hashable, make: Callable[[], RemoteClient]) -> RemoteClient:
        key = server, view, place
        if key not in self._clients:
            self._clients[key] = made = make()
            channel = self._rollout_of(view).channel
            channel.join(made)
            channel.progressed(made)
        return self._clients[key]


def _members(server: str, group: RejectingGroup) -> Iterator[NodeName]:
    """Unnamed nodes get names of the server's."""
    yield from group.named
    for number in range(len(group.named), min(group.count, MOST_OF_GROUP)):
        yield f"{server}, node {number}", ""
