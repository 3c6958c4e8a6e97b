from __future__ import annotations

import asyncio
import random

from fsxds.fleet import key_values as lease_module
from fsxds.fleet.key_values import Lease, Put
from fsxds.fleet.memory_engine import MemoryKeyValues
from tests.fleet.made import FaultyEngine
from tests.support.patience import PATIENCE_S


async def test_a_lost_lease_is_replaced(monkeypatch) -> None:
    """Whether somebody else ended it, or nobody could keep it alive: then there is none until one can be had."""
    monkeypatch.setattr(lease_module, "KEEP_EVERY_S", 0.01)
    monkeypatch.setattr(lease_module, "TTL_S", 1)
    engine = MemoryKeyValues()
    link = FaultyEngine(engine, random.Random(0), 0.0)
    lease = Lease(link)
    keeping = asyncio.create_task(lease.keep_alive())
    async with asyncio.timeout(PATIENCE_S):
        first = await lease.current.other_than(0)
        await engine.write([Put(b"k", b"", first)])
        await engine.revoke(first)
        while (second := lease.current.current) in {0, first}:
            await lease.current.replaced()

        link.is_away = True
        assert await lease.current.other_than(second) == 0
        assert lease.reason == "no member answers"
        link.is_away = False
        third = await lease.current.other_than(0)

        await engine.write([Put(b"k", b"", third)])
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await lease.revoke()
        assert not (await engine.read([b"k"])).values
        await lease.revoke()
