"""A publisher that runs, clients on real streams that answer as a test says, and trees of clusters and routes.

The clock of a `virtually` run test is virtual: minutes of back-off take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import wraps
from itertools import count
from typing import ParamSpec

from fsxds.events.event import Event
from fsxds.events.rollout_events import HoldsChanged, RolloutChanged
from fsxds.history.state_writer import StateWriter
from fsxds.model.resources import Resource, Snapshot, TypeChange
from fsxds.model.values import Layers, Problem, TypeUrl, Version
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import ClientStatus, DeltaRequest, DeltaResponse, Node, SyncState, combined_state
from fsxds.protocol.subscription import SharedMemory
from fsxds.protocol.ttl import TtlMode
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.rollout import Step
from fsxds.rollout.machine import RolloutOptions
from fsxds.rollout.step import RolloutEvent, Standing
from fsxds.runtime.channels import Channel
from fsxds.runtime.supervisor import Supervisor
from fsxds.runtime.views import NodeRules, Views
from fsxds.settings.options import BY_NAME
from fsxds.settings.rollout_forms import Canary
from tests.simulation.virtual_time import run_virtually
from tests.support.errors import AT_ONCE, Recorder
from tests.support.polls import ORIGIN, named, snapshot_of, until
from tests.support.rollouts import Tree, tree_of, tree_snapshot
from tests.support.snapshots import type_url

CDS, EDS, RDS, LDS = (type_url(name) for name in ("CDS", "EDS", "RDS", "LDS"))
NUMBERS = count(1)

# So many turns of the event loop without anything to do are the end of what was to be done.
QUIET_TURNS = 10

Arguments = ParamSpec("Arguments")


def virtually(test: Callable[Arguments, Coroutine[object, object, None]]) -> Callable[Arguments, None]:
    """Have a test run in virtual time."""

    @wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        run_virtually(test(*args, **kwargs))

    return run


class Client:
    """A node with one Delta stream, which it answers when a test says so; it has ACKed what was served when it came.

    Attributes:
        rejects: contents that it NACKs, such as `2` of a resource that has that.
        is_named: its words name what it rejects, as those of an Envoy do.
        is_quick: it answers at once.
        asked: the steps that it was asked about.
        held: what it holds, by type and name.
        offers: what it was sent, in turn: the name and the content.
    """

    transport = "gRPC"
    has_returned = True
    node_count = 1
    is_away = False

    def __init__(
        self, channel: Channel, name: str = "edge-1", *, is_quick: bool = False, types: Collection[TypeUrl] = (CDS, RDS)
    ) -> None:
        self.name = self.identity = name
        self.node = Node(name)
        self.rejects: set[str] = set()
        self.is_named, self.is_quick = True, True
        self.asked: list[Step] = []
        self.held: dict[TypeUrl, dict[str, Resource]] = {url: {} for url in types}
        self.offers: list[tuple[str, str]] = []
        self.channel = channel
        self._core = DeltaStream(SharedMemory(), TtlMode.ENVOY, is_aggregated=True)
        self._unanswered: list[DeltaResponse] = []
        self._generation = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = True
        channel.join(self)
        self._listen()
        for url in types:
            self._receive(DeltaRequest(url, ("*",), node=self.node))
        self.is_quick = is_quick

    def clusters(self) -> dict[str, str]:
        """Return the clusters that it holds, with their contents."""
        return {name: content_of(one) for name, one in self.held[CDS].items()}

    def take(self) -> None:
        """ACK, or NACK, what it was sent, and what follows at once."""
        while self._unanswered:
            self._answer(self._unanswered.pop(0))

    def quicken(self) -> None:
        """Answer at once from now on."""
        self.is_quick = True
        self.take()

    def leave(self) -> None:
        """End the stream."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self.channel.streams.listeners.pop(self, None)
        self.channel.leave(self)

    def standing(self, step: Step) -> Standing:
        """Return where it is with a step."""
        self.asked.append(step)
        return self._core.standing(step)

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return those of some names of a type that it subscribes to."""
        return self._core.selected(type_url, names)

    reachable = selected

    def sync_state(self) -> SyncState:
        """Return how it stands with what its channel serves."""
        snapshot = self.channel.streams.current
        return combined_state(self._core.sync_states(0 if snapshot is None else snapshot.generation))

    def status(self) -> ClientStatus:
        """Return what it was sent, ACKed and NACKed."""
        return ClientStatus(self.node, self.transport, self._core.statistics())

    def wake(self) -> None:
        """Look at what is served now."""
        snapshot, now_s = self.channel.streams.current, _now_s()
        if not self._is_open or snapshot is None:
            return
        if snapshot.generation != self._generation:
            self._generation = snapshot.generation
            self._deliver(self._core.receive_snapshot(snapshot, now_s))
        else:
            self._deliver(self._core.receive_timer(now_s))
        self.channel.progressed(self)

    def follow(self, channel: Channel) -> None:
        """Look at another channel from now on."""
        self.channel.streams.listeners.pop(self, None)
        self.channel = channel
        self._listen()
        self.wake()

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self.channel.streams.listeners[self] = lambda: loop.call_soon(self.wake)

    def _receive(self, request: DeltaRequest) -> None:
        snapshot = self.channel.streams.current
        self._generation = 0 if snapshot is None else snapshot.generation
        reaction = self._core.receive_request(request, snapshot, _now_s())
        if reaction.acknowledgement is not None and reaction.acknowledgement.nack is not None:
            self.channel.on_nack(self, reaction.acknowledgement.nack)
        self.channel.progressed(self)
        self._deliver(reaction.responses)

    def _deliver(self, responses: Iterable[DeltaResponse]) -> None:
        self._unanswered += responses
        if self._timer is not None:
            self._timer.cancel()
        at_s = self._core.timer_at_s
        loop = asyncio.get_running_loop()
        self._timer = None if at_s is None else loop.call_at(max(at_s, loop.time()), self.wake)
        if self.is_quick:
            self.take()

    def _answer(self, response: DeltaResponse) -> None:
        self.offers += [(one.name, content_of(one)) for one in response.resources]
        rejected = [one.name for one in response.resources if content_of(one) in self.rejects]
        error = None
        if rejected:
            listed = ", ".join(f"{name}: no such thing" for name in rejected)
            error = f"Error adding/updating cluster(s) {listed}" if self.is_named else "no such thing"
        held = self.held[response.type_url]
        held.update((one.name, one) for one in response.resources if one.name not in rejected)
        for name in response.removed:
            held.pop(name, None)
        self._receive(DeltaRequest(response.type_url, nonce=response.nonce, error_detail=error))


class Publishing:
    """A publisher that runs, what it reports, and views that are loaded by `load_views` alone."""

    def __init__(self, publisher: Publisher, recorder: Recorder, canary: Canary | None, views: Views) -> None:
        self.publisher = publisher
        self.recorder = recorder
        self.store = publisher.whole.store
        self.existing: frozenset[str] = frozenset()
        self.wanted: set[Layers] = set()
        self._views = self._loaded_by = views
        self._tree: Snapshot | None = None
        self.channels = NodeChannels(publisher, self, NodeRules(self._views, canary))

    def see(self, views: Views) -> None:
        """Let nodes have these views, when they are loaded; layers exist as before."""
        self._views = views
        self.channels.change_rules(NodeRules(views))

    def is_loaded_by(self, views: Views) -> bool:
        """Whether the tree that was loaded last was loaded by these rules."""
        return self._loaded_by is views

    def want(self, layers: Layers) -> None:
        """Remember a view."""
        self.wanted.add(layers)

    def drop(self, layers: Layers) -> None:
        """Forget a view."""
        self.wanted.discard(layers)

    def load_views(self, *existing: str) -> None:
        """Load the views that are wanted, of layers that exist: each has a cluster for each of its layers."""
        self.existing, self._loaded_by = frozenset(existing), self._views
        clusters = {layers: [named("cds", name) for name in layers if name in existing] for layers in self.wanted}
        number = next(NUMBERS)
        self.publisher.receive({layers: snapshot_of(number, *each) for layers, each in clusters.items()}, float(number))

    def load(self, clusters: Iterable[str], route: str | None = None) -> Snapshot:
        """Load a tree with these clusters, and a route to one."""
        return self.save({"CDS": dict.fromkeys(clusters, "1"), "RDS": {"r": f"1 CDS:{route}"} if route else {}})

    def save(self, tree: Tree) -> Snapshot:
        """Load a tree."""
        number, made = next(NUMBERS), tree_snapshot(tree, self._tree)
        change = TypeChange(number, files=(ORIGIN.path,))
        self._tree = replace(made, generation=number, changes=dict.fromkeys(made.by_type, change))
        self.publisher.receive({(): self._tree}, float(number))
        return self._tree

    async def join(self, name: str, cluster: str = "", *, is_quick: bool = False) -> Client:
        """Let a node come, when what it is served is loaded."""
        client = Client(await self.channels.channel_of(Node(name, cluster), holds=False), name, is_quick=is_quick)
        client.node = Node(name, cluster)
        return client

    async def settled(self) -> None:
        """Wait until everything that is due was done."""
        targets, publisher = self.publisher._targets, self.publisher
        await until(lambda: publisher.published.current is targets or not targets)
        quiet = 0
        while quiet < QUIET_TURNS:
            # In virtual time, turns alone would let none pass.
            await asyncio.sleep(0.0001)
            is_quiet = not publisher._due and publisher.verdicts._changed is None and publisher._inbox.empty()
            quiet = quiet + 1 if is_quiet else 0

    async def passed(self, time_s: float) -> None:
        """Let so much time pass."""
        await asyncio.sleep(time_s)
        await self.settled()

    def clusters(self) -> list[str]:
        """Return the clusters that are served."""
        assert self.store.current is not None
        return list(self.store.current.resources(CDS))

    def served(self) -> Tree:
        """Return what is served."""
        assert self.store.current is not None
        return tree_of(self.store.current)

    def is_waiting(self) -> bool:
        """Whether clients are waited for."""
        return self.publisher.whole.step is not None

    def happened(self) -> list[RolloutEvent]:
        """Return the events of rollouts."""
        return [event.happened for event in self.recorder.of(RolloutChanged)]

    def names_of(self, *kinds: type[Event]) -> list[str]:
        """Return the names of the events of some classes, in turn."""
        return [type(event).__name__ for event in self.recorder.events if isinstance(event, kinds)]

    def problems(self) -> tuple[Problem, ...]:
        """Return what is held, and rejected, as it was reported last."""
        reports = self.recorder.of(HoldsChanged)
        return reports[-1].problems if reports else ()


def content_of(resource: Resource) -> str:
    """Return the first word of the content of a resource of a tree."""
    return resource.body.decode(errors="replace").partition("=")[2].partition(" ")[0]


def version_of_content(name: str, content: str, short_name: str = "CDS") -> Version:
    """Return the version that a resource of a tree has with some content."""
    url = type_url(short_name)
    return tree_snapshot({short_name: {name: content}}).resources(url)[name].version


RULES = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=60.0))
WHOLE_TREE_ALONE = Views(None)
VIEWS = Views(
    BY_NAME["views"].form.read(
        [
            {"name": "edge", "match": {"cluster": "edge"}, "layers": ["common", "nodes/{node.id}"]},
            {"name": "inner", "match": {"cluster": "inner"}, "layers": ["common"]},
        ]
    )
)


@asynccontextmanager
async def publishing(
    rules: PublishRules = RULES,
    keeper: StateWriter | None = None,
    *,
    views: Views = WHOLE_TREE_ALONE,
    may_fail: bool = False,
) -> AsyncIterator[Publishing]:
    """Run a publisher, and what keeps its rollouts, if something does."""
    recorder = Recorder()
    publisher = Publisher(rules, recorder, keeper)
    works = {"publisher": publisher.keep_publishing} | ({"state": keeper.keep_written} if keeper else {})
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(Supervisor(recorder, AT_ONCE).run(name, work)) for name, work in works.items()]
        await asyncio.sleep(0)
        yield Publishing(publisher, recorder, rules.canary, views)
        for task in running:
            task.cancel()
    assert may_fail or not recorder.errors, recorder.errors


def _now_s() -> float:
    return asyncio.get_running_loop().time()
