"""What is remembered of removed members: by view, by the next process, and of views that nobody follows."""

from __future__ import annotations

from pathlib import Path

from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.protocol.absence import removed_members
from fsxds.publishing.publisher import PublishRules
from fsxds.rollout import RolloutOptions
from fsxds.runtime.channels import ChannelKey
from tests.publishing.test_publisher_kept import process
from tests.support.polls import until
from tests.support.publishing import CDS, Publishing, publishing

CLUSTER = "xdstp://x/envoy.config.cluster.v3.Cluster"
GLOB = f"{CLUSTER}/*"
WHOLE = ChannelKey()
EDGE: Layers = ("common", "edge")
# What was restored rests for as long as a step may take.
RULES = PublishRules(RolloutOptions(linger_s=0, step_timeout_s=0.05))


def members(names: str) -> tuple[str, ...]:
    """Return the names of members, of which each letter is one."""
    return tuple(f"{CLUSTER}/{name}" for name in names)


def told(run: Publishing, key: ChannelKey = WHOLE) -> set[str]:
    """Return which members a client is told that connects now, by their letters."""
    snapshot = run.publisher.rollouts[key].channel.streams.current
    assert snapshot is not None
    return {name[-1] for name in removed_members(snapshot, CDS, [GLOB])}


async def load(run: Publishing, names: str, **views: str) -> None:
    """Load a tree with these members, and views that are others."""
    snapshot = run.load(members(names))
    targets: dict[Layers, Snapshot] = {(): snapshot}
    for layer, others in views.items():
        targets["common", layer] = run.load(members(others))
    run.publisher.receive(targets, float(snapshot.generation))
    await run.settled()


async def test_members_of_one_view_are_not_told_another() -> None:
    """What goes in one view is told its clients alone, and by all its channels."""
    async with publishing(RULES) as run:
        keys = ChannelKey(EDGE), ChannelKey(EDGE, is_canary=True)
        for key in keys:
            run.publisher.rollout_of(key)
        await load(run, "abc", edge="abc")
        await load(run, "ab", edge="bc")
        await load(run, "ab", edge="c")

        assert told(run) == {"c"}
        assert [told(run, key) for key in keys] == [{"a", "b"}] * 2


async def test_next_process_knows_them(tmp_path: Path) -> None:
    """What went before it started, and while no process was there, is told; whatever ended the one before."""
    async with process(tmp_path, RULES) as run:
        await load(run, "abc")
        await load(run, "ab")
        assert told(run) == {"c"}
    async with process(tmp_path, RULES) as run:
        assert told(run) == {"c"}
        await load(run, "a")
        await until(lambda: told(run) == {"b", "c"})
    async with process(tmp_path, RULES) as run:
        await load(run, "ac")
        await until(lambda: told(run) == {"b"})


async def test_members_of_a_view_that_nobody_followed(tmp_path: Path) -> None:
    """What goes while nobody follows a view is told who comes back."""
    async with process(tmp_path, RULES) as run:
        rollout = run.publisher.rollout_of(ChannelKey(EDGE))
        await load(run, "", edge="ab")
        run.publisher.drop(rollout)
        await load(run, "x", edge="ab")
    async with process(tmp_path, RULES) as run:
        run.publisher.rollout_of(ChannelKey(EDGE))
        await load(run, "x", edge="b")

        await until(lambda: told(run, ChannelKey(EDGE)) == {"a"})
        assert told(run) == set()


async def test_nothing_is_kept_of_plain_names() -> None:
    """Where no name is structured, nothing is noted."""
    async with publishing(RULES) as run:
        run.load(("a", "b"))
        await run.settled()
        run.load(("a",))
        await run.settled()
        served = run.publisher.whole.store.current

        assert served is not None
        assert not served.tombstones
        assert run.publisher._removed.by_layers == {}
