"""The nodes that poll, as clients of the channels that they follow: each is one, whatever it polls for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

from fsxds.channels import Channel
from fsxds.protocol.messages import ClientStatus, Node
from fsxds.protocol.poll import PollRequest
from fsxds.protocol.polling_node import PollingNode
from fsxds.protocol.sync_states import SyncState, combined_state
from fsxds.resources import Snapshot
from fsxds.rollout import Standing, Step
from fsxds.store import end_wait
from fsxds.values import TypeUrl


class ReportedClients(Protocol):
    """What remembers what was sent to nodes that poll."""

    def status_of(self, node: Node) -> ClientStatus | None:
        """Return the status of a client; None where nothing is known of it."""

    def sync_states(self, node: Node, snapshot: Snapshot) -> Iterator[SyncState]:
        """Yield how a client stands with each of its subscriptions, where this snapshot is served."""


class RestClient:
    """One node that polls.

    Attributes:
        polls: what is known of its polls.
        channel: what it is served.
        identity: whose vote it has a part of, as of its last poll.
        limits: the time limits of its polls that are held.
    """

    __slots__ = ("_reported", "channel", "identity", "limits", "polls")

    transport: Final = "REST"

    def __init__(self, polls: PollingNode, channel: Channel, reported: ReportedClients) -> None:
        self._reported = reported
        self.identity = polls.node.id
        self.polls = polls
        self.channel = channel
        self.limits: set[asyncio.Timeout] = set()

    @property
    def node(self) -> Node:
        """The client as it described itself."""
        return self.polls.node

    @property
    def name(self) -> str:
        """What the client is called in the log."""
        return self.node.id

    @property
    def has_returned(self) -> bool:
        """Whether the client has shown that it stays: it polled again after an answer."""
        return self.polls.has_returned

    @property
    def is_away(self) -> bool:
        """Whether nothing can be sent to the client before its next poll."""
        return not self.polls.has_open_polls

    def standing(self, step: Step) -> Standing:
        """Return where the client is with a step."""
        return self.polls.standing(step)

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return those of some names of a type that the client subscribes to."""
        return self.polls.selected(type_url, names)

    def sync_state(self) -> SyncState:
        """Return how the client stands with what its channel serves."""
        snapshot = self.channel.store.current
        return combined_state(() if snapshot is None else self._reported.sync_states(self.node, snapshot))

    def status(self) -> ClientStatus:
        """Return what the client was sent, ACKed and NACKed."""
        return self._reported.status_of(self.node) or ClientStatus(self.node, self.transport)

    def wake(self) -> None:
        """Do nothing: polls that are held wait for what is served by themselves."""

    def follow(self, channel: Channel) -> None:
        """Have all polls that are held look at another channel, which the client has joined already."""
        self.channel = channel
        now_s = asyncio.get_running_loop().time()
        for limit in self.limits:
            end_wait(limit, now_s)


class RestClients:
    """Knows the client of each node, as long as it polls; `reported` knows what was sent to each."""

    def __init__(self, reported: ReportedClients) -> None:
        self._reported = reported
        self._clients: dict[PollingNode, RestClient] = {}

    def __len__(self) -> int:
        """How many nodes poll."""
        return len(self._clients)

    def receive_poll(self, poll: PollRequest, polls: PollingNode | None, channel: Channel, identity: str) -> RestClient:
        """Return the client of a poll, which follows a channel from now on; one that is not remembered joins none."""
        if polls is None:
            return RestClient(PollingNode(poll.node), channel, self._reported)
        client = self._clients.get(polls)
        if client is None:
            client = self._clients[polls] = RestClient(polls, channel, self._reported)
            channel.join(client)
        elif client.channel is not channel or client not in channel.clients:
            client.channel.leave(client)
            channel.join(client)
            client.follow(channel)
        client.identity = identity
        nack, polls.nack = polls.nack, None
        if nack is not None:
            client.channel.on_nack(client, nack)
        client.channel.progressed(client)
        return client

    def receive_recognized(self, polls: PollingNode) -> None:
        """Note that a node holds what it is served now: another process sent it that."""
        client = self._clients.get(polls)
        if client is not None:
            client.channel.progressed(client)

    def receive_end(self, client: RestClient) -> None:
        """Note that one of a client's polls ended; a client that polls no more leaves its channel."""
        if client.polls.is_polling:
            client.channel.progressed(client)
        else:
            self.forget(client.polls)

    def forget(self, polls: PollingNode) -> None:
        """Let the client of a node leave its channel."""
        client = self._clients.pop(polls, None)
        if client is not None:
            client.channel.leave(client)
