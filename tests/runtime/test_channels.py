"""What transports make of channels: each node is served its own, and a change in one wakes nobody else."""

from __future__ import annotations

from collections import defaultdict
from unittest.mock import patch

import grpc
import pytest

from fsxds.model.errors import ProtocolError
from fsxds.model.values import Version
from fsxds.protocol.messages import Node
from fsxds.protocol.sotw import SotwStream
from fsxds.runtime.channels import Channel, ChannelKey, HoldsOf, holds_nothing, node_key
from tests.support.channels import OneChannel
from tests.support.grpc_clients import GrpcServer, names_in, serving_grpc
from tests.support.polls import Server, named, running, snapshot_of
from tests.support.publishing import Client
from tests.support.snapshots import snapshot, type_url

REASON = "no view is for this node"


class ChannelPerNode(OneChannel):
    """Serves each node its own, and one not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.by_node: defaultdict[str, Channel] = defaultdict(lambda: Channel(ChannelKey()))

    async def channel_of(
        self, node: Node, *, holds: bool | None = None, holds_of: HoldsOf = holds_nothing, is_here: bool = False
    ) -> Channel:
        """Return the channel of a node; there is none for `nobody`."""
        if node.id == "nobody":
            raise ProtocolError(REASON, "NOT_FOUND")
        return self.by_node[node.id]

    def publish(self, node: str, generation: int = 1) -> None:
        """Serve a node the cluster of its own name."""
        self.by_node[node].store.publish(snapshot({"CDS": {node: str(generation)}}, generation=generation))


def with_channels(server: GrpcServer | Server) -> ChannelPerNode:
    """Let a server serve each node its own."""
    channels = ChannelPerNode()
    if isinstance(server, Server):
        server.rest.exchange.channels = channels
    else:
        server.services._shared.exchange.channels = channels
    return channels


HELD = frozenset({((type_url("CDS"), "a"), Version("1"))})


@pytest.mark.parametrize(
    ("key", "cohort", "is_main"),
    [
        (ChannelKey(), "main", True),
        (ChannelKey(is_canary=True), "canary", True),
        (ChannelKey(held=HELD), "rejecting", False),
        (ChannelKey(is_canary=True, held=HELD), "rejecting", False),
        (ChannelKey(held=frozenset()), "rejecting", False),
        (ChannelKey(lane=1), "catching up", False),
        (ChannelKey(is_canary=True, held=HELD, lane=2), "catching up", False),
    ],
)
def test_what_the_nodes_of_a_channel_are_called(key: ChannelKey, cohort: str, *, is_main: bool) -> None:
    """One word for each cohort, in the log, the metrics and the status."""
    assert (key.cohort, key.is_main) == (cohort, is_main)


async def test_streams_of_one_node_are_one_node() -> None:
    """They have one vote; without a node id, each is a node of its own."""
    async with serving_grpc() as server:
        server.publish({"CDS": {"a": "1"}})
        streams = [server.stream("CDS") for _ in range(4)]
        for stream, node in zip(streams, ("n1", "n1", "", ""), strict=True):
            await stream.ask(node=node)
            await stream.answer()
        clients = tuple(server.channels.channel.clients)

        assert len(clients) == 4
        assert len(set(map(node_key, clients))) == 3


@pytest.mark.parametrize("is_delta", [False, True])
async def test_streams_follow_the_channel_of_their_node(is_delta: bool) -> None:
    """Each is sent its own resources, and a change for one node is not looked at for another."""
    async with serving_grpc() as server:
        channels = with_channels(server)
        channels.publish("a")
        channels.publish("b")
        streams = {node: server.stream("CDS", is_delta=is_delta) for node in ("a", "b")}
        for node, stream in streams.items():
            await stream.ask(node=node)
            response = await stream.answer()
            assert names_in(response) == [node]
            await stream.take(response)
        with patch.object(
            SotwStream, "receive_snapshot", autospec=True, side_effect=SotwStream.receive_snapshot
        ) as woken:
            channels.publish("a", generation=2)
            assert names_in(await streams["a"].answer()) == ["a"]
            assert await streams["b"].is_silent()
        assert is_delta or [call.args[0].node.id for call in woken.call_args_list] == ["a"]
        await streams["a"].call.done_writing()
        await streams["a"].end()

        assert [not channel.clients for channel in channels.by_node.values()] == [True, False]


async def test_polls_follow_the_channel_of_their_node() -> None:
    """Each is answered its own resources, and a poll is held while those of another node change."""
    async with running(max_hold_s=5.0) as server:
        channels = with_channels(server)
        for node in ("a", "b"):
            channels.by_node[node].store.publish(snapshot_of(1, named("cds", node)))
        first = await server.poll(node={"id": "a"})
        assert first.content["resources"][0]["name"] == "a"
        channels.by_node["b"].store.publish(snapshot_of(2, named("cds", "c")))
        held = await server.poll(timeout_ms=500, node={"id": "a"}, version_info=first.content["version_info"])

        assert held.status == 304


async def test_a_node_without_a_channel() -> None:
    """It is refused with the reason, on each transport: 404 and NOT_FOUND."""
    async with running() as rest, serving_grpc() as server:
        with_channels(rest)
        with_channels(server)
        answer = await rest.poll(node={"id": "nobody"})
        stream = server.stream("CDS")
        await stream.ask(node="nobody")
        with pytest.raises(grpc.aio.AioRpcError) as fetched:
            await server.fetch("CDS", node={"id": "nobody"})

        assert (answer.status, answer.content["code"]) == (404, 5)
        assert REASON in answer.content["message"]
        assert await stream.end() == (grpc.StatusCode.NOT_FOUND, REASON)
        assert fetched.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("key", "cohort"),
    [
        (ChannelKey(), "main"),
        (ChannelKey(("edge",)), "main"),
        (ChannelKey(is_canary=True), "canary"),
        (ChannelKey(held=frozenset()), "rejecting"),
        (ChannelKey(is_canary=True, held=frozenset()), "rejecting"),
        (ChannelKey(lane=1), "catching up"),
        (ChannelKey(held=frozenset(), lane=1), "catching up"),
    ],
)
def test_cohorts(key: ChannelKey, cohort: str) -> None:
    """Each channel of a view has its word; the main ones are those of most nodes."""
    assert key.cohort == cohort
    assert key.is_main is (cohort in {"main", "canary"})


async def test_clients_of_one_node() -> None:
    """Those with its id and cluster; one without an id is a node of its own."""
    channel = Channel(ChannelKey())
    streams = [Client(channel, name) for name in ("a", "a", "b", "", "")]

    assert len(set(map(node_key, streams))) == 4
