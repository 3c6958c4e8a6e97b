"""(o): how soon the client of a large collection of endpoints has the bytes of a change of one of them."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator

from tests.bench import processes
from tests.bench.figures import Figure
from tests.bench.stream_clients import Channels, time_of_last
from tests.bench.streaming import median_push_ms

GLOB = "xdstp://fleet/envoy.config.endpoint.v3.LbEndpoint/web/*"
FEW, MANY = 1000, 20_000
ROUNDS = 30


def measure() -> Iterator[Figure]:
    """Measure the running server, with a collection of 1000 endpoints and one of 20 000."""
    bare_ms = median_push_ms("bare", 1, is_delta=False)
    for name, change in (("members", "one changes"), ("churn", "one goes, one comes")):
        few_ms, many_ms = (_median_ms(name, count) for count in (FEW, MANY))
        detail = f"publish to bytes: {many_ms:.2f} ms; bare grpc.aio with one cluster {bare_ms:.2f} ms"
        yield Figure(f"(o) collection of 20 000 endpoints, {change}", many_ms, 5, "ms", detail)
        detail = f"{many_ms:.2f} ms against {few_ms:.2f} ms"
        yield Figure(f"(o) the same / of 1000, {change}", many_ms / few_ms, 2, "", detail)


def _median_ms(name: str, count: int) -> float:
    async def push(server: processes.StreamServer) -> float:
        async with Channels(server.port, 1) as channels:
            stream = channels.open_members(GLOB)
            await stream.subscribe("n1")
            times = [await time_of_last([stream], server.publish) for _ in range(ROUNDS)]
        return statistics.median(times[2:]) * 1e3

    with processes.stream_server(name, count) as server:
        return asyncio.run(push(server))
