"""The nodes that poll, as clients of the channels that they follow: each is one, whatever it polls for."""

from __future__ import annotations

import asyncio
from typing import Final

from fsxds.channels import Channel
from fsxds.protocol.messages import Node
from fsxds.protocol.poll import PollRequest
from fsxds.protocol.polling_node import PollingNode
from fsxds.rollout import Rejection, Standing, Step


class RestClient:
    """One node that polls.

    Attributes:
        polls: what is known of its polls.
        channel: what it is served.
        limits: the time limits of its polls that are held.
    """

    __slots__ = ("channel", "limits", "polls")

    transport: Final = "REST"

    def __init__(self, polls: PollingNode, channel: Channel) -> None:
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

    def standing(self, step: Step) -> Standing | Rejection:
        """Return where the client is with a step."""
        return self.polls.standing(step)

    def wake(self) -> None:
        """Do nothing: polls that are held wait for what is served by themselves."""

    def follow(self, channel: Channel) -> None:
        """Have all polls that are held look at another channel, which the client has joined already."""
        self.channel = channel
        now_s = asyncio.get_running_loop().time()
        for limit in self.limits:
            limit.reschedule(now_s)


class RestClients:
    """Knows the client of each node, as long as it polls."""

    def __init__(self) -> None:
        self._clients: dict[PollingNode, RestClient] = {}

    def __len__(self) -> int:
        """How many nodes poll."""
        return len(self._clients)

    def receive_poll(self, poll: PollRequest, polls: PollingNode | None, channel: Channel) -> RestClient:
        """Return the client of a poll, which follows a channel from now on; one that is not remembered joins none."""
        if polls is None:
            return RestClient(PollingNode(poll.node), channel)
        client = self._clients.get(polls)
        if client is None:
            client = self._clients[polls] = RestClient(polls, channel)
            channel.join(client)
        elif client.channel is not channel:
            client.channel.leave(client)
            channel.join(client)
            client.follow(channel)
        client.channel.progressed(client)
        return client

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
