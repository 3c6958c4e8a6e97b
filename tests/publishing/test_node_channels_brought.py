"""What is held for a node when it moves to a view that nobody had before."""

from __future__ import annotations

import asyncio

from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers, TypeUrl
from fsxds.protocol.messages import ClientStatus, Node, SyncState
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.rollout import Step
from fsxds.rollout.machine import RolloutOptions
from fsxds.rollout.step import Standing
from fsxds.runtime.channels import Channel
from fsxds.runtime.views import NodeRules, Views
from fsxds.settings.options import BY_NAME
from tests.support.errors import Recorder
from tests.support.mentions import load_mentions
from tests.support.polls import until
from tests.support.snapshots import type_url

CDS = type_url("CDS")


class Taker:
    """A client that takes every step at once, and remembers the clusters of each."""

    def __init__(self, channel: Channel) -> None:
        self.name, self.transport = "a", "REST"
        self.node = Node("a", "edge")
        self.identity, self.has_returned, self.is_away, self.node_count = "a", True, False, 1
        self.channel = channel
        self.clusters: list[list[str]] = []
        channel.join(self)

    def standing(self, step: Step) -> Standing:
        """Take it."""
        self.clusters.append(list(step.snapshot.resources(CDS)))
        return Standing.TAKEN

    def selected(self, _: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """It has subscribed to everything."""
        return names

    reachable = selected

    def sync_state(self) -> SyncState:
        """It is not known."""
        return SyncState.NOT_SENT

    def status(self) -> ClientStatus:
        """Nothing is known of it."""
        return ClientStatus(self.node, self.transport)

    def wake(self) -> None:
        """Nothing waits."""

    def follow(self, channel: Channel) -> None:
        """Follow another channel."""
        self.channel = channel


class Loading:
    """Loads views when a test says so."""

    def __init__(self, *existing: str) -> None:
        self.existing = frozenset(existing)
        self.wanted: set[Layers] = set()

    def is_loaded_by(self, _: Views) -> bool:
        """All rules have the same layers."""
        return True

    def want(self, layers: Layers) -> None:
        """Remember a view."""
        self.wanted.add(layers)

    def drop(self, layers: Layers) -> None:
        """Forget a view."""
        self.wanted.discard(layers)


def views_of(*layers: str) -> Views:
    """Return the one view of all nodes."""
    return Views(BY_NAME["views"].form.read([{"name": "edge", "layers": [*layers]}]))


def tree(text: str) -> Snapshot:
    """Return what a view with these resources holds."""
    return load_mentions({"a": text}).snapshot


async def test_a_removed_cluster_in_use_stays_when_its_user_moves() -> None:
    """The route that names it is in the new view as well: the node keeps the cluster, all the way."""
    publisher = Publisher(PublishRules(RolloutOptions(linger_s=0, step_timeout_s=60.0)), Recorder())
    loading = Loading("common", "more")
    channels = NodeChannels(publisher, loading, NodeRules(views_of("common")))
    publishing = asyncio.ensure_future(publisher.keep_publishing())
    try:
        publisher.receive({("common",): tree("CDS c\nCDS d\nRDS r CDS:c")}, 1.0)
        asked = asyncio.ensure_future(channels.channel_of(Node("a", "edge")))
        await until(lambda: ("common",) in loading.wanted)
        publisher.receive({("common",): tree("CDS c\nCDS d\nRDS r CDS:c")}, 2.0)
        client = Taker(await asked)
        publisher.receive({("common",): tree("CDS d\nRDS r CDS:c")}, 3.0)
        await until(lambda: publisher.rollouts[client.channel.key].has_completed)
        before = client.channel
        channels.change_rules(NodeRules(views_of("common", "more")))
        views = {("common",): tree("CDS d\nRDS r CDS:c"), ("common", "more"): tree("CDS d\nCDS more\nRDS r CDS:c")}
        publisher.receive(views, 4.0)
        await until(lambda: client.channel is not before and client.channel.key.lane == 0)

        assert client.channel.key.layers == ("common", "more")
        assert client.channel.store.current is not None
        assert list(client.channel.store.current.resources(CDS)) == ["c", "d", "more"]
        assert all("c" in clusters for clusters in client.clusters)
    finally:
        publishing.cancel()
