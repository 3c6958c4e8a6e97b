"""Keys and values that a fleet's servers share, as in etcd or in memory.

| word | meaning |
| --- | --- |
| revision | the number of a write; each has one more than the one before, whatever its keys |
| guard | a condition of a write: nothing is written if one does not hold |
| lease | its keys are removed when it was not kept alive for its time to live |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import NamedTuple, Protocol

from fsxds.model.errors import FsxdsError

# Within etcd's default limit for one write: 1.5 MiB, including the request itself.
MOST_CHANGES = 120
MOST_BYTES = 1_000_000


class UnreachableError(FsxdsError):
    """No server answered; a write may have succeeded."""


class RejectedRequestError(FsxdsError):
    """The engine rejects a request for good: no space, or no permission."""


class LeaseLostError(FsxdsError):
    """A lease has expired or was revoked."""


class CompactedError(FsxdsError):
    """Changes are no longer known."""


class KeyValue(NamedTuple):
    """A value, with the revisions of creation and last change."""

    value: bytes
    created: int
    modified: int


class Put(NamedTuple):
    """A value for a key; without a lease (0) it stays."""

    key: bytes
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """The removal of a key."""

    key: bytes


class Guard(NamedTuple):
    """A key's revisions of creation and last change; 0: it does not exist. None: any."""

    key: bytes
    created: int | None = None
    modified: int | None = None


class Found(NamedTuple):
    """The values of existing keys, as of a revision."""

    revision: int
    values: Mapping[bytes, KeyValue]


class Changed(NamedTuple):
    """The result of writes; None for a removed key."""

    revision: int
    values: Mapping[bytes, KeyValue | None]


class KeyValues(Protocol):
    """An engine. Each method may raise UnreachableError or RejectedRequestError."""

    async def read(self, keys: Sequence[bytes]) -> Found:
        """Read keys, including every write before the call."""

    async def read_range(self, first: bytes, end: bytes, *, is_keys_only: bool = False) -> Found:
        """Read from `first` to before `end`."""

    async def write(self, changes: Sequence[Put | Delete], guards: Collection[Guard] = ()) -> int | None:
        """Make all changes, or none if a guard does not hold; return the revision or None."""

    def watch(self, first: bytes, end: bytes, since: int) -> AsyncGenerator[Changed]:
        """Yield changes from `first` to before `end`, since a revision.

        Raises:
            CompactedError: they are no longer known.
        """

    async def grant(self, ttl_s: int) -> int:
        """Create a lease."""

    async def keep_alive(self, lease: int) -> None:
        """Restart a lease's time to live. LeaseLostError: there is no such lease."""

    async def revoke(self, lease: int) -> None:
        """Revoke a lease, if it exists."""


def end_of(prefix: bytes) -> bytes:
    """Return the first key after a prefix, whose last byte is not 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


async def followed(engine: KeyValues, prefix: bytes) -> AsyncGenerator[tuple[Mapping[bytes, KeyValue | None], bool]]:
    """Yield all keys with a prefix (True), then changes (False); after a compaction, all keys again.

    UnreachableError, RejectedRequestError: the engine cannot be read.
    """
    while True:
        found = await engine.read_range(prefix, end_of(prefix))
        yield found.values, True
        with suppress(CompactedError):
            async with aclosing(engine.watch(prefix, end_of(prefix), found.revision + 1)) as watching:
                async for changed in watching:
                    yield changed.values, False


@dataclass(slots=True)
class _Lease:
    ttl_s: float
    timer: asyncio.TimerHandle
    keys: set[bytes] = field(default_factory=set)


class MemoryKeyValues:
    """An engine in memory, used from the event loop only."""

    def __init__(self) -> None:
        self.revision = 1
        self._values: dict[bytes, KeyValue] = {}
        self._owners: dict[bytes, int] = {}
        self._leases: dict[int, _Lease] = {}
        self._numbers = count(1)
        # The last changes by revision, for watches; and the last revision that is no longer in it.
        self._log: dict[int, Mapping[bytes, KeyValue | None]] = {}
        self._forgotten = 0
        self._written = asyncio.Event()

    async def read(self, keys: Sequence[bytes]) -> Found:
        """Read keys."""
        return Found(self.revision, {key: self._values[key] for key in keys if key in self._values})

    async def read_range(self, first: bytes, end: bytes, *, is_keys_only: bool = False) -> Found:
        """Read a range of keys."""
        within = {key: one for key, one in sorted(self._values.items()) if first <= key < end}
        if is_keys_only:
            within = {key: one._replace(value=b"") for key, one in within.items()}
        return Found(self.revision, within)

    async def write(self, changes: Sequence[Put | Delete], guards: Collection[Guard] = ()) -> int | None:
        """Make all changes, or none."""
        if not all(map(self._holds, guards)):
            return None
        if any(isinstance(one, Put) and one.lease and one.lease not in self._leases for one in changes):
            raise LeaseLostError("the lease is no more")
        self._change(changes)
        return self.revision

    def _holds(self, guard: Guard) -> bool:
        found = self._values.get(guard.key, KeyValue(b"", 0, 0))
        return guard.created in {None, found.created} and guard.modified in {None, found.modified}

    def _change(self, changes: Sequence[Put | Delete]) -> None:
        self.revision += 1
        changed: dict[bytes, KeyValue | None] = {}
        for one in changes:
            if (owner := self._leases.get(self._owners.pop(one.key, 0))) is not None:
                owner.keys.discard(one.key)
            before = self._values.pop(one.key, None)
            if isinstance(one, Delete):
                changed |= {} if before is None else {one.key: None}
                continue
            created = self.revision if before is None else before.created
            self._values[one.key] = changed[one.key] = KeyValue(one.value, created, self.revision)
            if one.lease:
                self._owners[one.key] = one.lease
                self._leases[one.lease].keys.add(one.key)
        self._log[self.revision] = MappingProxyType(changed)
        while len(self._log) > MOST_LOGGED:
            self._forgotten = next(iter(self._log))
            del self._log[self._forgotten]
        written, self._written = self._written, asyncio.Event()
        written.set()

    async def watch(self, first: bytes, end: bytes, since: int) -> AsyncGenerator[Changed]:
        """Yield changes of a range."""
        while True:
            if since <= self._forgotten:
                raise CompactedError("what changed is not known any more")
            changed = {
                key: one
                for revision in range(since, self.revision + 1)
                for key, one in self._log[revision].items()
                if first <= key < end
            }
            since = self.revision + 1
            if changed:
                yield Changed(self.revision, changed)
            elif since > self.revision:
                await self._written.wait()

    async def grant(self, ttl_s: int) -> int:
        """Create a lease."""
        lease = next(self._numbers)
        self._leases[lease] = _Lease(ttl_s, self._timer(lease, ttl_s))
        return lease

    async def keep_alive(self, lease: int) -> None:
        """Restart its time to live."""
        if (found := self._leases.get(lease)) is None:
            raise LeaseLostError("the lease is no more")
        found.timer.cancel()
        found.timer = self._timer(lease, found.ttl_s)

    async def revoke(self, lease: int) -> None:
        """Revoke a lease."""
        self._end(lease)

    def _timer(self, lease: int, ttl_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(ttl_s, self._end_soon, lease)

    def _end_soon(self, lease: int) -> None:
        """End a lease unless it is kept alive right now: this process may have been frozen."""
        if (found := self._leases.get(lease)) is not None:
            found.timer = asyncio.get_running_loop().call_later(LEASE_GRACE_S, self._end, lease)

    def _end(self, lease: int) -> None:
        if (found := self._leases.get(lease)) is not None:
            found.timer.cancel()
            if found.keys:
                self._change([Delete(key) for key in sorted(found.keys)])
            del self._leases[lease]


# What was sent to this process while it did not run is read within this time.
LEASE_GRACE_S = 0.5

# Writes that watches can resume from.
MOST_LOGGED = 1000
