"""Engines for tests: one in memory, the same at a socket, and a real etcd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fsxds.fleet.etcd import EtcdKeyValues, Members
from fsxds.fleet.key_values import KeyValues
from fsxds.fleet.memory_engine import MemoryKeyValues, served
from tests.support.etcd import ETCD, running_etcd

ENGINES = ("memory", "socket", *(("etcd",) if ETCD else ()))


@asynccontextmanager
async def running_engine(name: str, folder: Path) -> AsyncIterator[KeyValues]:
    """Run an engine, and end it."""
    if name == "memory":
        yield MemoryKeyValues()
        return
    if name == "socket":
        target = f"unix:{folder}/engine"
        async with served(MemoryKeyValues(), target), asked(target) as engine:
            yield engine
        return
    with running_etcd(folder) as etcd:
        async with asked(*etcd.targets) as engine:
            yield engine


@asynccontextmanager
async def asked(*targets: str) -> AsyncIterator[EtcdKeyValues]:
    """Ask members, and end the connections to them."""
    engine = EtcdKeyValues(Members(targets))
    try:
        yield engine
    finally:
        await engine.close()
