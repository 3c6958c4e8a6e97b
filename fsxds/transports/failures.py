"""Errors of our own, carried out of handlers that a library calls and would only log."""

from __future__ import annotations

import asyncio
from typing import Never


class Failures:
    """Carries the first error of our own out of a handler, where its library would only log it."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()
        self._first: Exception | None = None

    def report(self, error: Exception) -> None:
        """Take in an error."""
        self._first = self._first or error
        self._happened.set()

    async def wait(self) -> Never:
        """Wait for an error, and raise it: a task of the group that is to end with it."""
        await self._happened.wait()
        if self._first is None:
            raise RuntimeError("the event is set with the error")
        raise self._first
