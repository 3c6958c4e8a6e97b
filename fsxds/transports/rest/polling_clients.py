"""The nodes that poll, as clients of the channels that they follow: each is one, whatever it polls for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import ClientStatus, Node, SyncState, combined_state
from fsxds.protocol.poll import PollRequest
from fsxds.protocol.polling_node import POLLING, PollingNode
from fsxds.rollout import Standing, Step
from fsxds.runtime.channels import Channel
from fsxds.runtime.store import end_wait

# A node without an open poll has no connection that could end: it is taken as gone after this time.
GONE_AFTER_S = 600.0
LOOK_EVERY_S = 30.0


class RestClient:
    """One node that polls.

    Attributes:
        polls: what is known of its polls.
        channel: what it is served.
        identity: whose vote it has a part of, as of its last poll.
        limits: the time limits of its polls that are held.
    """

    __slots__ = ("channel", "identity", "limits", "polls")

    transport: Final = POLLING

    def __init__(self, polls: PollingNode, channel: Channel) -> None:
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

    node_count = 1

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
        return combined_state(() if snapshot is None else self.polls.sync_states(snapshot))

    def status(self) -> ClientStatus:
        """Return what the client was sent, ACKed and NACKed."""
        return self.polls.status(self.channel.store.current)

    def wake(self) -> None:
        """Do nothing: polls that are held wait for what is served by themselves."""

    def follow(self, channel: Channel) -> None:
        """Have all polls that are held look at another channel, which the client has joined already."""
        self.channel = channel
        now_s = asyncio.get_running_loop().time()
        for limit in self.limits:
            end_wait(limit, now_s)


class RestClients:
    """Knows the client of each node, as long as it polls."""

    def __init__(self) -> None:
        self._clients: dict[PollingNode, RestClient] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many nodes poll."""
        return len(self._clients)

    def statuses(self) -> Iterator[ClientStatus]:
        """Yield the status of each client; one that leaves while the iterator is used may be among them."""
        for client in tuple(self._clients.values()):
            yield client.status()

    def channel_of(self, polls: PollingNode | None, channel: Channel) -> Channel:
        """Return what a node is served: what it follows, as long as it is of the view of `channel`, to which it belongs now.

        Whoever decides that it belongs there has it move, by steps.
        """
        client = None if polls is None else self._clients.get(polls)
        if client is None or client not in client.channel.clients:
            return channel
        followed, wanted = client.channel.key, channel.key
        is_same = followed.layers == wanted.layers and followed.is_canary == wanted.is_canary
        return client.channel if is_same else channel

    def receive_poll(self, poll: PollRequest, polls: PollingNode | None, channel: Channel, identity: str) -> RestClient:
        """Return the client of a poll, which follows a channel from now on; one that is not remembered joins none."""
        if polls is None:
            return RestClient(PollingNode(poll.node), channel)
        client = self._clients.get(polls)
        if client is None:
            client = self._clients[polls] = RestClient(polls, channel)
            channel.join(client)
            self._look_later()
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

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._forget_silent)

    def _forget_silent(self) -> None:
        """Forget the clients that have not polled for long; look again later, if any are left."""
        self._timer = None
        silent_since_s = asyncio.get_running_loop().time() - GONE_AFTER_S
        for polls in [one for one in self._clients if one.is_silent_since(silent_since_s)]:
            self.forget(polls)
        if self._clients:
            self._look_later()
