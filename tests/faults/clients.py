"""Clients that vanish, that all come back at once, and that never answer."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.transports.grpc_streams.stream_requests import AGGREGATED
from tests.end_to_end.test_rest_envoy import bootstrap
from tests.faults.site import BY_REST, URLS, PollWitness, Site, StreamWitness
from tests.support.departures import wire
from tests.support.envoy import Envoy
from tests.support.grpc_departures import begin, call
from tests.support.grpc_envoy import DELTA_ADS, SOTW_ADS
from tests.support.server import write_file

_STREAM, _DELTA = (f"/{AGGREGATED}/{word}AggregatedResources" for word in ("Stream", "Delta"))
_OWN_POOL = (("grpc.use_local_subchannel_pool", 1),)
# Those of the threads and files of a moment.
_LEEWAY = 8
# The clusters of a file that fills every buffer of a socket.
_LARGE = frozenset(f"big-{number}" for number in range(5000))


def descriptors(pid: int) -> int:
    """Return how many files and sockets a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208, an iterator of paths would be counted by hand


def resident_bytes(pid: int) -> int:
    """Return how much memory a process has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def envoys_of(folder: Path) -> tuple[Envoy, ...]:
    """Return an Envoy of each transport that asks the fsxds of a site over unix sockets, to be started."""
    by_rest = bootstrap(0, node="envoy-rest")
    (cluster,) = by_rest["static_resources"]["clusters"]
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    endpoint["endpoint"]["address"] = {"pipe": {"path": str(folder / "h")}}
    by_streams = [
        variant.bootstrap(f"unix:{folder / 'g'}", node=f"envoy-{variant}") for variant in (SOTW_ADS, DELTA_ADS)
    ]
    return tuple(Envoy(each, wait="admin") for each in (by_rest, *by_streams))


def has(envoy: Envoy, number: int) -> bool:
    """Whether an Envoy has all of an edit."""
    with suppress(OSError):
        dump = envoy.get("/config_dump?include_eds")[1]
        return dump.count(f"number-{number}-") >= 4
    return False


async def envoys_vanish(folder: Path, rng: Random, times: int) -> None:
    """Three real Envoys are killed with streams and polls open: others get each edit, and nothing of them is left."""
    site = Site(folder, "--ads-config-sources", "--linger", "0s", source=BY_REST)
    async with site.running():
        await site.until_all()
        open_before = descriptors(site.server.pid)
        for _ in range(times):
            envoys = envoys_of(folder)
            try:
                for envoy in envoys:
                    await asyncio.to_thread(envoy.start)
                for envoy in envoys:
                    await site.until(partial(has, envoy, site.number), f"an Envoy at {site.number}")
                for envoy in rng.sample(envoys, len(envoys)):
                    site.edit()
                    await asyncio.sleep(rng.random() * 0.1)
                    os.kill(envoy.pid, 9)
                    await site.until_all()
            finally:
                for envoy in envoys:
                    await asyncio.to_thread(envoy.stop)
            await site.until(
                lambda: descriptors(site.server.pid) <= open_before + _LEEWAY, f"{open_before} descriptors"
            )


@asynccontextmanager
async def following(site: Site, count: int) -> AsyncIterator[tuple[StreamWitness | PollWitness, ...]]:
    """Run so many clients: half of them poll, the others have streams, ten on a connection."""
    polls = [PollWitness(f"poll-{number}") for number in range(count // 2)]
    streams = [
        StreamWitness(number % 2 == 1, Random(number), node=f"stream-{number}") for number in range(count - len(polls))
    ]
    async with asyncio.TaskGroup() as tasks, AsyncExitStack() as stack:
        running = [tasks.create_task(poll.follow(site.folder / "h")) for poll in polls]
        for number in range(0, len(streams), 10):
            options = (*_OWN_POOL, ("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 200))
            channel = grpc.aio.insecure_channel(f"unix:{site.folder / 'g'}", options=options)
            await stack.enter_async_context(channel)
            some = streams[number : number + 10]
            running += [tasks.create_task(_follow_again(stream, channel)) for stream in some]
        yield (*polls, *streams)
        for task in running:
            task.cancel()


async def _follow_again(stream: StreamWitness, channel: grpc.aio.Channel) -> None:
    while True:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.follow_on(channel)
        await asyncio.sleep(0.02)


async def all_reconnect(folder: Path, rng: Random, times: int, count: int = 1000) -> None:
    """So many clients come back at once, to a new process and to one that serves others: all end on the last edit."""
    site = Site(folder)
    async with site.running():
        await site.until_all()
        open_before = descriptors(site.server.pid)
        for _ in range(times):
            async with following(site, count) as clients:

                def are_at(number: int, clients: Any = clients) -> bool:
                    return all(each.numbers == {number} for each in clients)

                await site.until(lambda: are_at(site.number), "all clients, which came at once")
                await asyncio.to_thread(site.server.kill)
                site.edit()
                await asyncio.to_thread(site.server.start)
                await asyncio.sleep(rng.random())
                site.edit()
                await site.until(lambda: are_at(site.number), "all clients, which came back at once")
                await site.until_all()
            assert [line for each in clients for line in each.broken] == []
            await site.until(
                lambda: descriptors(site.server.pid) <= open_before + _LEEWAY, f"{open_before} descriptors"
            )


async def nobody_answers(folder: Path, _rng: Random, times: int, count: int = 200) -> None:
    """Of each sort of silent client there are so many: all others get each edit, and the memory that it takes is bounded."""
    site = Site(folder, "--max-removal", "off")
    large = "".join(f"- {{name: {name}, alt_stat_name: number-0-, connect_timeout: 1s}}\n" for name in sorted(_LARGE))
    async with site.running():
        await site.until_all()
        pid = site.server.pid
        open_before = descriptors(pid)
        for _ in range(times):
            write_file(folder / "tree" / "large-cds.yaml", large)
            async with AsyncExitStack() as stack:
                sockets = [stack.enter_context(each) for each in _silent_sockets(site, count)]
                await _silent_streams(site, stack, count)
                used = resident_bytes(pid)
                for _ in range(5):
                    site.edit()
                    await site.until(lambda: 0 not in site.polls.numbers or site.number in site.polls.numbers, "REST")
                    await site.until(
                        lambda: all(site.number in each.numbers for each in site.streams), f"streams at {site.number}"
                    )
                assert len(sockets) == 3 * count
                # Five versions of half a megabyte for hundreds of clients would be more than that.
                assert resident_bytes(pid) - used < 200e6
            (folder / "tree" / "large-cds.yaml").unlink()
            site.edit()
            await site.until(
                lambda: b"big-" not in (site.out / "cds.pb").read_bytes(), "a mirror without the large file"
            )
            # It is written behind what is served.
            await site.until(
                lambda: not _LARGE & site.kept_snapshot().resources(URLS["cds"]).keys(), "a state without it"
            )
            await site.until_all()
            await site.until(lambda: descriptors(pid) <= open_before + _LEEWAY, f"{open_before} descriptors")


def _silent_sockets(site: Site, count: int) -> list[socket.socket]:
    """Connect those that read nothing: a stream without a window, a poll, and half a request."""
    first = discovery_pb2.DiscoveryRequest(node={"id": "silent"}, type_url=URLS["cds"]).SerializeToString()
    streaming = begin(window=0) + call(1, _STREAM, first)
    polling = wire("/v3/discovery:clusters", b'{"node": {"id": "silent"}}', "Content-Type: application/json")
    sockets = []
    for path, content in (("g", streaming), ("h", polling), ("h", polling[:40])):
        for _ in range(count):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(site.folder / path))
            connection.sendall(content)
            sockets.append(connection)
    return sockets


async def _silent_streams(site: Site, stack: AsyncExitStack, count: int) -> None:
    """Open streams that never ACK what they are sent, and some that never ask for anything."""
    for _ in range(0, count, 50):
        channel = grpc.aio.insecure_channel(f"unix:{site.folder / 'g'}", options=_OWN_POOL)
        await stack.enter_async_context(channel)
        for number in range(50):
            opened = channel.stream_stream(_DELTA if number % 2 else _STREAM)()
            if number % 3:
                kind = discovery_pb2.DeltaDiscoveryRequest if number % 2 else discovery_pb2.DiscoveryRequest
                request = kind(node={"id": f"silent-{number}"}, type_url=URLS["cds"])
                await opened.write(request.SerializeToString())
                await opened.read()
