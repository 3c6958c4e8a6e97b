"""Snapshots, and servers of a fleet that follow and publish, for the tests of fleets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fsxds.events.event import Event
from fsxds.fleet.content import FleetContent, Keys
from fsxds.fleet.following import Following
from fsxds.fleet.key_values import Changed, CompactedError, Delete, Found, Guard, KeyValues, Put, UnreachableError
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.pointers import ViewKey
from fsxds.fleet.publication import Publication
from fsxds.fleet.sealing import Cleartext, Sealing
from fsxds.model.resources import Snapshot
from tests.history.made import CDS

KEYS = Keys(b"/fsxds/")
WHOLE = ViewKey()


class FaultyEngine:
    """An engine as one server sees it: answers are lost, or come late; each as a seed says.

    Attributes:
        is_away: no call comes through.
        lag_s: what is watched comes so much later.
    """

    def __init__(self, engine: MemoryKeyValues, chance: random.Random, share: float) -> None:
        self.is_away = False
        self.lag_s = 0.0
        self._engine = engine
        self._chance = chance
        self._share = share
        self._late: set[asyncio.Future[int | None]] = set()

    def _may_fail(self) -> None:
        if self.is_away or self._chance.random() < self._share:
            raise UnreachableError("no member answers")

    async def read(self, keys: Sequence[bytes]) -> Found:
        """Read, or fail before or after it."""
        self._may_fail()
        found = await self._engine.read(keys)
        self._may_fail()
        return found

    async def read_prefix(self, prefix: bytes, *, is_keys_only: bool = False) -> Found:
        """Read a range, or fail."""
        self._may_fail()
        return await self._engine.read_prefix(prefix, is_keys_only=is_keys_only)

    async def write(self, changes: Sequence[Put | Delete], guards: Collection[Guard] = ()) -> int | None:
        """Write, or fail before or after it came about."""
        self._may_fail()
        if self._chance.random() < self._share / 2:
            # It comes about when nobody reckons with it any more.
            asyncio.get_running_loop().call_later(self._chance.random() * 0.05, self._write_late, changes, guards)
            raise UnreachableError("no member answers")
        revision = await self._engine.write(changes, guards)
        self._may_fail()
        return revision

    def _write_late(self, changes: Sequence[Put | Delete], guards: Collection[Guard]) -> None:
        self._late.add(late := asyncio.ensure_future(self._engine.write(changes, guards)))
        late.add_done_callback(self._end)

    def _end(self, late: asyncio.Future[int | None]) -> None:
        self._late.discard(late)
        # Its lease may be lost; nobody waits for it.
        late.exception()

    async def watch(self, prefix: bytes, since: int) -> AsyncGenerator[Changed]:
        """Watch until it fails, or says that too much was missed."""
        watching = self._engine.watch(prefix, since)
        while True:
            coming = asyncio.ensure_future(anext(watching))
            try:
                while not (await asyncio.wait([coming], timeout=1.0))[0]:
                    if self.is_away:
                        raise UnreachableError("no member answers")
            finally:
                coming.cancel()
            await asyncio.sleep(self.lag_s)
            if self._chance.random() < self._share:
                raise CompactedError(since)
            self._may_fail()
            yield coming.result()

    async def grant(self, ttl_s: int) -> int:
        """Return a lease, or fail."""
        self._may_fail()
        return await self._engine.grant(ttl_s)

    async def keep_alive(self, lease: int) -> None:
        """Keep a lease alive, or fail."""
        self._may_fail()
        await self._engine.keep_alive(lease)

    async def revoke(self, lease: int) -> None:
        """Give a lease back, or fail."""
        self._may_fail()
        await self._engine.revoke(lease)


@dataclass
class Follower:
    """A server that follows; `served` has what it served of the whole tree, in turn."""

    engine: KeyValues
    events: list[Event] = field(default_factory=list)
    served: list[Snapshot] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.following = Following(FleetContent(self.engine, KEYS), self.events.append, self._receive)

    def _receive(self, snapshots: Mapping[ViewKey, Snapshot]) -> None:
        if WHOLE in snapshots and (not self.served or snapshots[WHOLE] is not self.served[-1]):
            self.served.append(snapshots[WHOLE])

    @property
    def names(self) -> list[str]:
        """The clusters that it serves, each with its content."""
        return [f"{name}={row.body.decode()}" for name, row in self.served[-1].resources(CDS).items()]


async def elected(engine: KeyValues, name: str = "a", sealing: Sealing | Cleartext | None = None) -> Publication:
    """Return what publishes as the publisher from now on, whoever was before."""
    await engine.write([Delete(KEYS.publisher)])
    created = await engine.write([Put(KEYS.publisher, name.encode())])
    assert created is not None
    content = FleetContent(engine, KEYS, sealing)
    publication = Publication(content, Guard(KEYS.publisher, created=created), name)
    await publication.begin(await content.published(), {})
    return publication
