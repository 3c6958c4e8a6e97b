"""Content that is made once for all who ask for it, and kept as long as there is room.

What takes long is made in one thread, one after the other. What was begun is made to its end, and is there for others; what
nobody waits for any more is not begun. So clients that ask for everything in every format, and go, take the time of one thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from fsxds.memo import Lru

# Some thousand resources in some representations; the largest one stays beside it, whatever its size is.
MOST_KEPT_BYTES = 64 * 1024 * 1024
MOST_KEPT = 100_000
# What an object takes beside its bytes.
_OBJECT_BYTES = 200

Key: TypeAlias = tuple[Hashable, ...]
Make: TypeAlias = Callable[[], bytes]


@dataclass(slots=True)
class _Making:
    """Content that is being made or is to be made, for how many requests, and what came of it."""

    has_ended: asyncio.Event
    work: Future[bytes] | None = None
    waiting: int = 0
    content: bytes = b""
    error: BaseException | None = None


class KeptContent:
    """Keeps content by what it is of. Touched from the event loop only; what is given to `find` may run in a thread.

    `made` counts what was made.
    """

    def __init__(self, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self.made = 0
        self._kept: Lru[Key, bytes] = Lru(MOST_KEPT, lambda content: len(content) + _OBJECT_BYTES, most_bytes)
        self._making: dict[Key, _Making] = {}
        self._executor = ThreadPoolExecutor(1, "fsxds-content")

    def close(self) -> None:
        """Make nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def find(self, key: Key, make: Make, *, takes_long: bool) -> bytes:
        """Return the content that is kept, or make it. Safe to cancel.

        Args:
            key: what it is of, to the last byte.
            make: returns it; it may be called in a thread.
            takes_long: it is made in one.

        Raises:
            Exception: what `make` raises, for all who wait for it.
        """
        content = self._kept.get(key)
        if content is not None:
            return content
        if not takes_long:
            self.made += 1
            return self._keep(key, make())
        making = self._making.get(key) or self._begin(key, make)
        making.waiting += 1
        try:
            await making.has_ended.wait()
        finally:
            making.waiting -= 1
            if not making.waiting and making.work is not None and making.work.cancel():
                # Somebody may ask for it before the thread finds that it was cancelled.
                self._making.pop(key, None)
        if making.error is not None:
            raise making.error
        return making.content

    def _keep(self, key: Key, content: bytes) -> bytes:
        self._kept.put(key, content)
        return content

    def _begin(self, key: Key, make: Make) -> _Making:
        loop = asyncio.get_running_loop()
        making = self._making[key] = _Making(asyncio.Event())
        self.made += 1

        def end(done: Future[bytes]) -> None:
            if self._making.get(key) is making:
                del self._making[key]
            making.error = CancelledError() if done.cancelled() else done.exception()
            if making.error is None:
                making.content = self._keep(key, done.result())
            making.has_ended.set()

        def receive(done: Future[bytes]) -> None:
            # The server may have ended meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(end, done)

        making.work = self._executor.submit(make)
        making.work.add_done_callback(receive)
        return making
