"""Servers of a fleet in one process and in virtual time: each publishes to clients of its own, and loads a tree or none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from fsxds.events.event import Event
from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import KeyValues
from fsxds.fleet.member import Member, MemberContext
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.sealing import Cleartext
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.protocol.messages import Node
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.rollout.machine import RolloutOptions
from fsxds.runtime.supervisor import Supervisor
from fsxds.runtime.views import NodeRules, Views
from tests.fleet.made import KEYS
from tests.support.errors import AT_ONCE, Recorder
from tests.support.publishing import Client
from tests.support.rollouts import Tree, tree_snapshot

RULES = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=5.0))


class Trees:
    """The tree of a server: what loads its views.

    Attributes:
        dropped: the views that are not loaded any more.
    """

    def __init__(self) -> None:
        self.existing: frozenset[str] = frozenset()
        self.dropped: list[Layers] = []

    def is_loaded_by(self, views: Views) -> bool:
        """Return True: the rules stay."""
        return True

    def want(self, layers: Layers) -> None:
        """Do nothing: the whole tree is loaded."""

    def drop(self, layers: Layers) -> None:
        """Note which view is dropped."""
        self.dropped.append(layers)


class FleetServer:
    """One server."""

    def __init__(self, engine: KeyValues, name: str, rules: PublishRules, *, has_source: bool) -> None:
        self.recorder = Recorder()
        self.engine = engine
        content = FleetContent(engine, KEYS, Cleartext())
        self.member = Member(MemberContext(content, self.recorder, has_source), name)
        self.publisher = Publisher(self.member.rules(rules), self.recorder)
        self._targets = self.member.targets(self.publisher)
        self.trees = Trees()
        views = self.member.views(self.trees)
        self.channels = self.member.channels(NodeChannels(self.publisher, views, NodeRules(Views(None), rules.canary)))
        self._tree: Snapshot | None = None
        self._number = 0
        self._running: list[asyncio.Task[None]] = []

    async def come(self, client: Client, *, is_here: bool = False) -> Snapshot:
        """Let the node of a client come with what it holds, from another server or from here; return what it is served then."""
        held = {url: {name: one.version for name, one in rows.items()} for url, rows in client.held.items()}

        def holds_of(snapshot: Snapshot) -> bool:
            return all(
                {name: one.version for name, one in snapshot.resources(url).items()} == versions
                for url, versions in held.items()
            )

        channel = await self.channels.channel_of(Node(client.name), holds=True, holds_of=holds_of, is_here=is_here)
        assert channel.store.current is not None
        return channel.store.current

    def start(self) -> None:
        """Run it."""
        supervisor = Supervisor(self.recorder, AT_ONCE)
        works = supervisor.run("publisher", self.publisher.keep_publishing), self.member.run(supervisor)
        self._running = [asyncio.create_task(work) for work in works]

    async def stop(self, *, is_killed: bool = False) -> None:
        """End it; one that is killed gives nothing back."""
        if is_killed:
            self.member._lease.current.current = 0
        for one in self._running:
            one.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def save(self, tree: Tree, *views: Layers) -> None:
        """Load a tree, for all nodes and for those of some views."""
        self._number += 1
        self._tree = replace(tree_snapshot(tree, self._tree), generation=self._number)
        self._targets.receive(dict.fromkeys(((), *views), self._tree), asyncio.get_running_loop().time())

    async def join(self, name: str, *, is_quick: bool = True) -> Client:
        """Let a node come, when there is something to serve."""
        client = Client(await self.channels.channel_of(Node(name), holds=False), name, is_quick=is_quick)
        client.node = Node(name)
        return client

    def events(self, *kinds: type[Event]) -> list[str]:
        """Return the names of the events of some classes, in turn."""
        return [type(event).__name__ for event in self.recorder.events if isinstance(event, kinds)]


async def _inline(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return work(*args, **kwargs)


@asynccontextmanager
async def fleet_of(
    sources: int, followers: int = 1, rules: PublishRules = RULES, engines: list[KeyValues] | None = None
) -> AsyncIterator[list[FleetServer]]:
    """Run so many servers with a tree, and so many without one; the first is elected first."""
    engine = MemoryKeyValues()
    count = sources + followers
    given = engines or [engine] * count
    servers = [
        FleetServer(given[number], f"server-{number}", rules, has_source=number < sources) for number in range(count)
    ]
    # In virtual time, nobody waits for threads.
    with patch("asyncio.to_thread", _inline):
        for server in servers:
            server.start()
        try:
            yield servers
        finally:
            for server in servers:
                await server.stop()
