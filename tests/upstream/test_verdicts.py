"""What upstreams are told of their responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fsxds.channels import ChannelClient, ChannelKey
from fsxds.protocol.messages import Node
from fsxds.resources import RowsChange, Snapshot
from fsxds.rollout import Rejection, Step, StepKind
from fsxds.settings.options import Settings
from fsxds.store import Latest
from fsxds.upstream.upstream import Received
from fsxds.upstream.verdicts import Verdicts
from fsxds.upstream_events import UpstreamNacked
from fsxds.values import WHOLE_TREE, Layers
from tests.support.snapshots import snapshot, type_url

CDS = type_url("cds")
UPSTREAM = "10.0.0.1:18000"
PATIENCE_S = 30.0


@dataclass
class Client:
    """One that is called so."""

    name: str

    @property
    def node(self) -> Node:
        """The client as it described itself."""
        return Node(self.name)


@dataclass
class Rollout:
    """A rollout that completes when a test says so."""

    has_completed: bool = False


class Published:
    """What a test publishes, in one channel."""

    def __init__(self) -> None:
        self.published: Latest[Mapping[Layers, Snapshot] | None] = Latest(None)
        self.rollout = Rollout()
        self.on_progress: Callable[[], object] = lambda: None
        self.on_rejected: Callable[[ChannelClient, Rejection, Step], object] = lambda *_: None

    @property
    def rollouts(self) -> Mapping[ChannelKey, Rollout]:
        """That of the channel."""
        return {ChannelKey(): self.rollout}

    def publish(self, sequence: int, **clusters: str) -> Snapshot:
        """Publish clusters that came with a response of this number."""
        current = replace(snapshot({"CDS": clusters}), upstreams={UPSTREAM: sequence})
        self.rollout.has_completed = False
        self.published.replace({WHOLE_TREE: current})
        return current

    def complete(self) -> None:
        """Say that all clients have it."""
        self.rollout.has_completed = True
        self.on_progress()

    def reject(self, current: Snapshot, reason: str | None, *names: str, client: str = "n1") -> None:
        """Let a client reject clusters."""
        step = Step(StepKind.WHOLE, current, {CDS: RowsChange(frozenset(names))})
        rejection = Rejection(CDS, current.versions[CDS], frozenset(names), reason)
        self.on_rejected(Client(client), rejection, step)  # type: ignore[arg-type]


class Relay:
    """Verdicts of one upstream, and what is published."""

    def __init__(self, verdict: str = "clients", within_s: float = PATIENCE_S) -> None:
        self.events: list[UpstreamNacked] = []
        self.held = snapshot({"CDS": {}})
        self.publishing = Published()
        settings = replace(Settings(), upstream_verdict=verdict, upstream_verdict_within_s=within_s)
        self.verdicts = Verdicts(lambda: settings, self.receive, [UPSTREAM], lambda _: self.held.by_type)
        self.verdicts.follow(self.publishing)

    def receive(self, event: object) -> None:
        """Note an event."""
        assert isinstance(event, UpstreamNacked)
        self.events.append(event)

    def take(self, sequence: int, **clusters: str) -> asyncio.Task[str | None]:
        """Take in a response with clusters; return what its server is told."""
        self.held = snapshot({"CDS": clusters})
        received = Received(sequence, frozenset((CDS, name) for name in clusters))
        return asyncio.ensure_future(self.verdicts.of(UPSTREAM, received))


async def told(task: asyncio.Task[str | None]) -> str | None:
    """Return what a server is told."""
    async with asyncio.timeout(PATIENCE_S):
        return await task


async def settle() -> None:
    """Let tasks go on that have something to do."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_ack_when_all_clients_have_it() -> None:
    """Not before it is published, and not before the rollouts have completed."""
    relay = Relay()
    task = relay.take(2, a="1")
    relay.publishing.publish(1)
    relay.publishing.complete()
    await settle()
    assert not task.done()
    relay.publishing.publish(2, a="1")
    await settle()
    assert not task.done()
    relay.publishing.complete()

    assert await told(task) is None


async def test_a_nack_when_one_client_rejects_it() -> None:
    """In the words of the first, at once; what comes again is NACKed again, until it is another one."""
    relay = Relay()
    task = relay.take(1, a="1", b="1")
    current = relay.publishing.publish(1, a="1", b="1")
    await settle()
    relay.publishing.reject(current, "a: no", "a", "b")
    relay.publishing.reject(current, "a: never", "a", "b", client="n2")
    assert await told(task) == "node n1: a: no"
    assert relay.verdicts.rejected == {(UPSTREAM, (CDS, "a")): "node n1: a: no"}
    assert [(each.was_nacked, each.names) for each in relay.events] == [(True, frozenset("a"))]

    again = relay.take(2, a="1", b="1")
    relay.publishing.publish(2, a="1", b="1")
    assert await told(again) == "node n1: a: no"
    mended = relay.take(3, a="2", b="1")
    relay.publishing.publish(3, a="2", b="1")
    await settle()
    relay.publishing.complete()
    assert await told(mended) is None
    assert not relay.verdicts.rejected


async def test_rejections_of_something_else() -> None:
    """What a client rejects of files, or of another version, is no reason to reject a response."""
    relay = Relay()
    task = relay.take(1, a="1")
    current = relay.publishing.publish(1, a="1", file="1")
    await settle()
    relay.publishing.reject(current, "file: no", "a", "file")
    relay.publishing.reject(snapshot({"CDS": {"a": "old"}}), None, "a")
    await settle()
    assert not task.done()
    relay.publishing.complete()

    assert await told(task) is None
    assert relay.events == []


async def test_who_is_not_waited_for() -> None:
    """Faults are told at once; with `relay` nobody is waited for, and otherwise nobody for longer than the settings say."""
    relay = Relay()
    assert await relay.verdicts.of(UPSTREAM, Received(1, faults=("x is wrong", "y too"))) == "x is wrong; y too"
    assert await relay.verdicts.of(UPSTREAM, Received(1)) is None
    for other in (Relay("relay"), Relay(within_s=0.01)):
        assert await told(other.take(1, a="1")) is None
        other.publishing.reject(other.publishing.publish(1, a="1"), "late", "a")
        assert [each.was_nacked for each in other.events] == [False]


async def test_a_rejection_after_the_words() -> None:
    """Keys and tokens that a client quotes are masked."""
    relay = Relay()
    task = relay.take(1, a="1")
    current = relay.publishing.publish(1, a="1")
    await settle()
    relay.publishing.reject(current, "a: -----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----", "a")

    words = await told(task)
    assert words is not None
    assert "MIIEvQ" not in words
