"""An event loop whose time passes only when everything waits: a minute takes as long as what happens in it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class StuckError(Exception):
    """Nothing will ever happen again."""


class _TimeSelector(selectors.BaseSelector):
    """Has no file that is ever ready; waiting lets time pass."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Take a file, which is never looked at."""
        self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return self._keys[fileobj]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget a file."""
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let so much time pass."""
        if timeout is None:
            raise StuckError
        if timeout > 0:
            # A smaller step might not change the number.
            self.now_s += max(timeout, 1e-6)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return the files."""
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which begins at 0."""

    def __init__(self) -> None:
        self._passing = _TimeSelector()
        super().__init__(self._passing)
        # Shorter than any step of the time.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._passing.now_s

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call a function later, and not within the resolution before its time: that would never pass."""
        return super().call_at(when + 2 * self._clock_resolution, callback, *args, context=context)


def run_virtually(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
