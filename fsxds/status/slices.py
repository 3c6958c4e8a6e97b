"""Work on many clients or views that does not keep the event loop from others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

Value = TypeVar("Value")

SLICE_S = 0.005


async def in_slices(values: Iterable[Value]) -> AsyncIterator[Value]:
    """Yield values, and let other work go on whenever 5 ms have passed; they must not change meanwhile."""
    clock = asyncio.get_running_loop().time
    end_s = clock() + SLICE_S
    for value in values:
        yield value
        if clock() >= end_s:
            await asyncio.sleep(0)
            end_s = clock() + SLICE_S
