"""(f) to (i): what a push by gRPC costs, what an idle stream takes, and how soon thousands of them are told."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

from tests.bench import processes
from tests.bench.figures import Figure
from tests.bench.stream_clients import Channels, Stream, time_of_last

ROUNDS = 15
CONNECTIONS = 20


def measure(streams: int) -> Iterator[Figure]:
    """Measure the running server; `streams` is how many are open at once."""
    yield from _delta_push()
    yield _sotw_push()
    yield _idle_memory()
    yield _all_woken(streams)


def _delta_push() -> Iterator[Figure]:
    few_ms, many_ms = (median_push_ms("fsxds", count, is_delta=True) for count in (100, 10_000))
    bare_ms = median_push_ms("bare", 1, is_delta=False)
    detail = f"publish to bytes: {many_ms:.2f} ms against {bare_ms:.2f} ms for one cluster"
    yield Figure("(f) Delta push of 1 of 10 000 / bare grpc.aio", many_ms / bare_ms, 2, "", detail)
    yield Figure("(f) the same / of 100", many_ms / few_ms, 2, "", f"{many_ms:.2f} ms against {few_ms:.2f} ms")


def _sotw_push() -> Figure:
    with processes.stream_server("fsxds", 10_000) as ours, processes.stream_server("bare", 10_000) as bare:
        ours_ms, bare_ms = (time_s * 1e3 for time_s in asyncio.run(_tell_in_turn((ours, bare), 1)))
    detail = f"10 000 clusters, 10 MB: {ours_ms:.0f} ms against {bare_ms:.0f} ms"
    return Figure("(g) SotW push / bare grpc.aio, same bytes", ours_ms / bare_ms, 1.5, "", detail)


def median_push_ms(name: str, count: int, *, is_delta: bool) -> float:
    """Return the milliseconds from a publication to the last byte at the one client of a server."""
    with processes.stream_server(name, count) as server:
        return asyncio.run(_push_ms(server, is_delta=is_delta))


async def _push_ms(server: processes.StreamServer, *, is_delta: bool) -> float:
    async with Channels(server.port, 1) as channels:
        streams = await channels.subscribe(1, is_delta=is_delta)
        times = [await time_of_last(streams, server.publish) for _ in range(ROUNDS)]
    return statistics.median(times[2:]) * 1e3


def _idle_memory() -> Figure:
    ours, bare = (_memory_of_stream(name, 1000) for name in ("fsxds", "bare"))
    detail = f"1000 streams over {CONNECTIONS} connections, 1000 clusters each: {ours / 1024:.1f} kB against {bare / 1024:.1f} kB"
    return Figure("(h) memory of an idle SotW stream / bare grpc.aio", ours / bare, 1.5, "", detail)


def _memory_of_stream(name: str, count: int) -> float:
    """Return the bytes that one more stream takes, after as many as that were there before."""

    async def grow(server: processes.StreamServer) -> float:
        async with Channels(server.port, CONNECTIONS) as channels:
            first = await channels.subscribe(200, is_delta=False)
            before = await _settled(server.memory_bytes)
            more = await channels.subscribe(count, is_delta=False)
            after = await _settled(server.memory_bytes)
            assert len(first) + len(more) == 200 + count
            return (after - before) / count

    with processes.stream_server(name, 1000) as server:
        return asyncio.run(grow(server))


async def _settled(read: Callable[[], int]) -> int:
    await asyncio.sleep(2)
    return read()


def _all_woken(streams: int) -> Figure:
    with processes.stream_server("fsxds", 10) as ours, processes.stream_server("bare", 10) as bare:
        ours_s, bare_s = asyncio.run(_tell_in_turn((ours, bare), streams))
    detail = f"{streams} streams, 9 kB each: {ours_s * 1e3:.0f} ms against {bare_s * 1e3:.0f} ms"
    return Figure("(i) all woken, last byte / bare grpc.aio", ours_s / bare_s, 1.5, "", detail)


async def _tell_in_turn(servers: tuple[processes.StreamServer, ...], count: int) -> list[float]:
    """Tell all streams of each server, one server after the other: what else the machine does concerns them alike."""
    async with AsyncExitStack() as stack:
        opened: list[list[Stream]] = []
        for server in servers:
            channels = await stack.enter_async_context(Channels(server.port, min(count, CONNECTIONS)))
            opened.append(await channels.subscribe(count, is_delta=False))
        times: list[list[float]] = [[] for _ in servers]
        for _ in range(ROUNDS):
            for server, streams, taken in zip(servers, opened, times, strict=True):
                taken.append(await time_of_last(streams, server.publish))
    return [statistics.median(taken[2:]) for taken in times]
