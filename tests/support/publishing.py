"""A publisher that runs, clients that answer as a test says, and trees of clusters and routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from fsxds.channels import Channel
from fsxds.events import RolloutChanged
from fsxds.history.state_writer import StateWriter
from fsxds.protocol.messages import ClientStatus, Node
from fsxds.protocol.sync_states import SyncState
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.resources import Snapshot
from fsxds.rollout import Rejection, RolloutOptions, Standing, Step
from fsxds.settings.rollout_forms import Canary
from fsxds.supervisor import Supervisor
from fsxds.values import Layers
from fsxds.views import Views
from tests.support.errors import AT_ONCE, Recorder
from tests.support.polls import named, snapshot_of, until
from tests.support.snapshots import type_url

CDS, RDS = type_url("CDS"), type_url("RDS")
NUMBERS = count(1)


class Client:
    """A client that takes steps when a test says so, and remembers those that it was asked about."""

    def __init__(self, channel: Channel, name: str = "edge-1", answer: Standing | Rejection = Standing.PENDING) -> None:
        self.name = name
        self.node = Node(name)
        self.transport = "REST"
        self.answer = answer
        self.taken = 0
        self.asked: list[Step] = []
        self.channel = channel
        channel.join(self)

    def standing(self, step: Step) -> Standing | Rejection:
        """Return the answer; a step that was taken stays so."""
        self.asked.append(step)
        return Standing.TAKEN if step.snapshot.generation <= self.taken else self.answer

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

    def take(self) -> None:
        """Take the step that it was asked about last."""
        self.taken = max((step.snapshot.generation for step in self.asked), default=0)
        self.channel.progressed(self)


class Publishing:
    """A publisher that runs, what it reports, and views that are loaded by `load` alone."""

    def __init__(self, publisher: Publisher, recorder: Recorder, canary: Canary | None = None) -> None:
        self.publisher = publisher
        self.recorder = recorder
        self.store = publisher.whole.store
        self.existing: frozenset[str] = frozenset()
        self.wanted: set[Layers] = set()
        self.channels = NodeChannels(publisher, Views(None), self, canary)

    def see(self, views: Views, *existing: str) -> None:
        """Let nodes have these views, of layers that exist."""
        self.existing = frozenset(existing)
        self.channels.change_rules(views, None)

    def want(self, layers: Layers) -> None:
        """Remember a view."""
        self.wanted.add(layers)

    def drop(self, layers: Layers) -> None:
        """Forget a view."""
        self.wanted.discard(layers)

    def load_views(self, *existing: str) -> None:
        """Load the views that are wanted: each has a cluster for each of its layers."""
        self.existing = frozenset(existing)
        clusters = {layers: [named("cds", name) for name in layers if name in existing] for layers in self.wanted}
        number = next(NUMBERS)
        self.publisher.receive({layers: snapshot_of(number, *each) for layers, each in clusters.items()}, 1.0)

    def load(self, clusters: Mapping[str, object] | tuple[str, ...], route: str | None = None) -> Snapshot:
        """Load a tree with these clusters, and a route to one."""
        routes = [] if route is None else [named("rds", "routes", virtual_hosts=[host(route)])]
        loaded = snapshot_of(next(NUMBERS), *(named("cds", name) for name in clusters), *routes)
        self.publisher.receive({(): loaded}, float(loaded.generation))
        return loaded

    async def settled(self) -> None:
        """Wait until everything that is due was done."""
        targets = self.publisher._targets
        await until(lambda: self.publisher.published.current is targets and not self.publisher._due)

    def clusters(self) -> list[str]:
        """Return what is served."""
        assert self.store.current is not None
        return list(self.store.current.resources(CDS))

    def is_waiting(self) -> bool:
        """Whether clients are waited for."""
        return self.publisher.whole.step is not None

    def happened(self) -> list[Any]:
        """Return the events of rollouts."""
        return [event.happened for event in self.recorder.events if isinstance(event, RolloutChanged)]


def host(cluster: str) -> dict[str, object]:
    """Return a virtual host whose one route leads to a cluster."""
    return {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}]}


RULES = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=60.0))


@asynccontextmanager
async def publishing(rules: PublishRules = RULES, keeper: StateWriter | None = None) -> AsyncIterator[Publishing]:
    """Run a publisher, and what keeps its rollouts, if something does."""
    recorder = Recorder()
    publisher = Publisher(rules, recorder, keeper)
    works = {"publisher": publisher.keep_publishing} | ({"state": keeper.keep_written} if keeper else {})
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(Supervisor(recorder, AT_ONCE).run(name, work)) for name, work in works.items()]
        await asyncio.sleep(0)
        yield Publishing(publisher, recorder, rules.canary)
        for task in running:
            task.cancel()
