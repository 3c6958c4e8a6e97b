from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from contextlib import suppress

import pytest

from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import Delete, Guard, Put, UnreachableError
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.publication import NoPublisherError
from tests.fleet.made import KEYS, WHOLE, FaultyEngine, elected
from tests.history.made import assert_same, clusters, snapshot_of


class SlowEngine(FaultyEngine):
    """An engine of which removals get no answer, and come about before what is published next."""

    def __init__(self, engine: MemoryKeyValues) -> None:
        super().__init__(engine, random.Random(0), 0.0)
        self.removals: list[tuple[Sequence[Put | Delete], Collection[Guard]]] = []

    async def write(self, changes: Sequence[Put | Delete], guards: Collection[Guard] = ()) -> int | None:
        """Write, unless it is a removal of objects."""
        if changes and all(isinstance(one, Delete) and one.key.startswith(KEYS.objects) for one in changes):
            self.removals.append((changes, guards))
            raise UnreachableError("no member answers")
        if any(one.key == KEYS.pointers for one in changes):
            while self.removals:
                await super().write(*self.removals.pop())
        return await super().write(changes, guards)


async def test_a_late_removal_removes_nothing_that_is_needed_again() -> None:
    """What was served comes back after its objects were to be removed, and before they are."""
    engine = MemoryKeyValues()
    slow = SlowEngine(engine)
    publication = await elected(slow)
    first = snapshot_of(clusters(300))
    then = snapshot_of(clusters(300, {7: b"edited"}), first)
    await publication.publish(WHOLE, first)
    await publication.publish(WHOLE, then)
    with suppress(UnreachableError):
        await publication.collect(publication.order)
    assert slow.removals

    again = snapshot_of(clusters(300), then)
    await publication.publish(WHOLE, again)
    assert not slow.removals
    content = FleetContent(engine, KEYS)
    pointer = (await content.published()).pointers[WHOLE]
    assert pointer is not None
    assert_same(again, await content.snapshot(pointer, None))


async def test_the_same_is_not_published_again() -> None:
    """Equal content has equal objects: no server hears of it."""
    engine = MemoryKeyValues()
    publication = await elected(engine)
    order = await publication.publish(WHOLE, snapshot_of(clusters(30)))
    revision = engine.revision

    assert await publication.publish(WHOLE, snapshot_of(clusters(30))) == order
    assert engine.revision == revision


async def test_what_somebody_else_wrote_ends_a_publication() -> None:
    """Nothing is written over it, though the lease lasts."""
    engine = MemoryKeyValues()
    publication = await elected(engine)
    await publication.publish(WHOLE, snapshot_of(clusters(3)))
    await engine.write([Put(KEYS.pointers, b"something")])

    with pytest.raises(NoPublisherError, match="another server wrote"):
        await publication.publish(WHOLE, snapshot_of(clusters(4)))
