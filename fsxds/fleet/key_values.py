"""Keys and values that a fleet's servers share, as in etcd or memory, and a server's lease.

| word | meaning |
| --- | --- |
| revision | the number of a write: one more than the one before, whatever its keys |
| guard | a condition of a write: if one fails, nothing is written |
| lease | if not kept alive for its time to live, its keys are removed; a server without one is absent |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple, Never, Protocol

from fsxds.model.errors import FsxdsError
from fsxds.runtime.channels import Latest

# Within etcd's default limit for one write: 1.5 MiB, including the request itself.
MOST_CHANGES = 120
MOST_BYTES = 1_000_000


class EngineError(FsxdsError):
    """A request was not done."""


class UnreachableError(EngineError):
    """No server answered; a write may have succeeded."""


class RejectedRequestError(EngineError):
    """A request is rejected for good: no space, or no permission."""


class LeaseLostError(EngineError):
    """A lease has expired or was revoked."""


class CompactedError(EngineError):
    """Changes before a revision are no longer known."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"what changed before revision {revision} was compacted")
        self.revision = revision


class KeyValue(NamedTuple):
    """A value, with revisions of creation and last change."""

    value: bytes
    created: int
    modified: int


class Put(NamedTuple):
    """Without a lease (0) it stays."""

    key: bytes
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """The removal of a key."""

    key: bytes


class Guard(NamedTuple):
    """Revisions of creation and last change; 0: there is no such key. None: any."""

    key: bytes
    created: int | None = None
    modified: int | None = None


class Found(NamedTuple):
    """The values of existing keys, as of a revision."""

    revision: int
    values: Mapping[bytes, KeyValue]


class Changed(NamedTuple):
    """The result of writes; None for removed keys."""

    revision: int
    values: Mapping[bytes, KeyValue | None]


class KeyValues(Protocol):
    """An engine. Each method may raise EngineError."""

    async def read(self, keys: Sequence[bytes]) -> Found:
        """Read keys, with every write before."""

    async def read_prefix(self, prefix: bytes, *, is_keys_only: bool = False) -> Found:
        """Read all keys with a prefix."""

    async def write(self, changes: Sequence[Put | Delete], guards: Collection[Guard] = ()) -> int | None:
        """Make all changes, or none if a guard fails; return the revision or None."""

    def watch(self, prefix: bytes, since: int) -> AsyncGenerator[Changed]:
        """Yield changes of keys with a prefix, since a revision. Raises CompactedError."""

    async def grant(self, ttl_s: int) -> int:
        """Create a lease."""

    async def keep_alive(self, lease: int) -> None:
        """Restart a lease's time to live. Raises LeaseLostError."""

    async def revoke(self, lease: int) -> None:
        """Revoke a lease, if any."""


async def followed(engine: KeyValues, prefix: bytes) -> AsyncGenerator[tuple[Mapping[bytes, KeyValue | None], bool]]:
    """Yield all keys with a prefix (True), then changes (False), without end; after a compaction all again."""
    while True:
        found = await engine.read_prefix(prefix)
        yield found.values, True
        with suppress(CompactedError):
            async with aclosing(engine.watch(prefix, found.revision + 1)) as watching:
                async for changed in watching:
                    yield changed.values, False


# The time after which a killed server leaves the fleet, and another one publishes.
TTL_S = 3
KEEP_EVERY_S = 1.0


class Lease:
    """A lease kept alive and replaced; `current` is 0 without one. Run `keep_alive`."""

    def __init__(self, engine: KeyValues) -> None:
        self.current = Latest(0)
        self.reason = ""
        self._engine = engine
        self._kept_s = 0.0

    async def keep_alive(self) -> Never:
        """Keep the lease alive until cancelled."""
        while True:
            began_s = asyncio.get_running_loop().time()
            try:
                if self.current.current:
                    await self._engine.keep_alive(self.current.current)
                else:
                    self._change(await self._engine.grant(TTL_S), "")
                # The time to live began after this.
                self._kept_s = began_s
            except LeaseLostError as error:
                self._change(0, str(error))
                continue
            except EngineError as error:
                if self.current.current and asyncio.get_running_loop().time() - self._kept_s > TTL_S:
                    self._change(0, str(error))
            await asyncio.sleep(KEEP_EVERY_S)

    def _change(self, lease: int, reason: str) -> None:
        self.reason = reason
        self.current.replace(lease)

    async def revoke(self) -> None:
        """Other servers need not wait then."""
        if lease := self.current.current:
            self._change(0, "it was given back")
            with suppress(EngineError):
                await self._engine.revoke(lease)
