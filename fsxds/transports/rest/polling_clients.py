"""Polling nodes as clients of their channels: one client per node."""

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

# A node without an open poll has no connection that could end.
GONE_AFTER_S = 600.0
LOOK_EVERY_S = 30.0


class RestClient:
    """One polling node, with the `identity` of its last poll and the `limits` of held polls."""

    __slots__ = ("channel", "identity", "limits", "polls")

    transport: Final = POLLING

    def __init__(self, polls: PollingNode, channel: Channel) -> None:
        self.identity = polls.node.id
        self.polls = polls
        self.channel = channel
        self.limits: set[asyncio.Timeout] = set()

    @property
    def node(self) -> Node:
        """The node as described by itself."""
        return self.polls.node

    @property
    def name(self) -> str:
        """The name for the log."""
        return self.node.id

    node_count = 1

    @property
    def has_returned(self) -> bool:
        """Whether the client polled after an answer."""
        return self.polls.has_returned

    @property
    def is_away(self) -> bool:
        """Whether the client is unreachable, without an open poll."""
        return not self.polls.has_open_polls

    def standing(self, step: Step) -> Standing:
        """Return the client's position in a step."""
        return self.polls.standing(step)

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return the subscribed subset of `names`."""
        return self.polls.selected(type_url, names)

    def sync_state(self) -> SyncState:
        """Return the state relative to the channel's snapshot."""
        snapshot = self.channel.store.current
        return combined_state(() if snapshot is None else self.polls.sync_states(snapshot))

    def status(self) -> ClientStatus:
        """Return the resources sent, ACKed and NACKed."""
        return self.polls.status(self.channel.store.current)

    def wake(self) -> None:
        """Do nothing: held polls wait themselves."""

    def follow(self, channel: Channel) -> None:
        """Wake held polls to check another channel, already joined."""
        self.channel = channel
        now_s = asyncio.get_running_loop().time()
        for limit in self.limits:
            end_wait(limit, now_s)


class RestClients:
    """Knows the client of each polling node."""

    def __init__(self) -> None:
        self._clients: dict[PollingNode, RestClient] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of polling nodes."""
        return len(self._clients)

    def statuses(self) -> Iterator[ClientStatus]:
        """Yield each client's status, maybe of gone ones."""
        for client in tuple(self._clients.values()):
            yield client.status()

    def channel_of(self, polls: PollingNode | None, channel: Channel) -> Channel:
        """Return the followed channel if it has the view of `channel`, else `channel`.

        The node belongs to `channel`; rollout steps move it there.
        """
        client = None if polls is None else self._clients.get(polls)
        if client is None or client not in client.channel.clients:
            return channel
        followed, wanted = client.channel.key, channel.key
        is_same = followed.layers == wanted.layers and followed.is_canary == wanted.is_canary
        return client.channel if is_same else channel

    def receive_poll(self, poll: PollRequest, polls: PollingNode | None, channel: Channel, identity: str) -> RestClient:
        """Return a poll's client, joined to `channel` if remembered."""
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
        """Record that another process sent the current version."""
        client = self._clients.get(polls)
        if client is not None:
            client.channel.progressed(client)

    def receive_end(self, client: RestClient) -> None:
        """Record a poll's end, maybe the client's last."""
        if client.polls.is_polling:
            client.channel.progressed(client)
        else:
            self.forget(client.polls)

    def forget(self, polls: PollingNode) -> None:
        """Remove a node's client from its channel."""
        client = self._clients.pop(polls, None)
        if client is not None:
            client.channel.leave(client)

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._forget_silent)

    def _forget_silent(self) -> None:
        self._timer = None
        silent_since_s = asyncio.get_running_loop().time() - GONE_AFTER_S
        for polls in [one for one in self._clients if one.is_silent_since(silent_since_s)]:
            self.forget(polls)
        if self._clients:
            self._look_later()
