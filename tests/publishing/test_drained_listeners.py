"""When nothing drains in an Envoy, as a real one says it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Reference, Snapshot
from fsxds.model.values import Severity, Version
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.publishing.drained_listeners import _FILTER, DrainWatch, has_drained
from fsxds.publishing.publisher import PublishRules
from fsxds.rollout.machine import RolloutOptions
from fsxds.settings.forms import TcpAddress, UnixAddress
from fsxds.transports.mirror.envoy_reader import EnvoyPage
from tests.end_to_end.test_draining_envoy import LONG_S, ask, clusters, connection, inline
from tests.end_to_end.test_mirror_envoy import BACKENDS, LDS, Out
from tests.support.envoy import Envoy
from tests.support.polls import named, snapshot_of
from tests.support.ports import free_port
from tests.support.publishing import CDS, NUMBERS, Client, Publishing, publishing

LISTENERS = BY_SHORT_NAME["lds"].type_url

DRAINED = """\
listener_manager.total_filter_chains_draining: 0
listener_manager.total_listeners_draining: 0
listener_manager.total_listeners_warming: 0
server.parent_connections: 0
listener_manager.lds.version_text: "7"
"""


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        (DRAINED, True),
        (DRAINED.replace('"7"', '"6"'), False),
        (DRAINED.replace('"7"', '""'), False),
        (DRAINED.replace("listeners_draining: 0", "listeners_draining: 1"), False),
        (DRAINED.replace("chains_draining: 0", "chains_draining: 1"), False),
        (DRAINED.replace("warming: 0", "warming: 1"), False),
        (DRAINED.replace("connections: 0", "connections: 1"), False),
        (DRAINED.replace("server.parent_connections: 0\n", ""), False),
        ("", False),
        ("<html>", False),
    ],
)
def test_has_drained(statistics: str, *, expected: bool) -> None:
    """Everything has to be said, and nothing may speak against it."""
    values = dict(line.split(": ", 1) for line in statistics.splitlines() if ": " in line)
    assert has_drained(values, Version("7")) is expected


@pytest.mark.parametrize(("drain_s", "expected"), [(LONG_S, False), (1, True)])
async def test_an_envoy_that_drains(drain_s: int, tmp_path: Path, *, expected: bool) -> None:
    """While a connection of a replaced listener is open it has not drained, and once the drain is over it has."""
    out = Out(tmp_path / "out")
    out.write(lds=BACKENDS)
    with Envoy(out.bootstrap(), drain_s=drain_s) as envoy:
        page = TcpAddress(*envoy.admin)
        a, b = clusters(envoy, "a", "b")
        before = out.write(cds=[a, b], lds=[*BACKENDS, inline("a")])
        envoy.wait_converged(before)
        assert has_drained(await EnvoyPage(page).statistics(_FILTER), Version(before[LDS]))
        with connection(envoy) as old:
            assert ask(old) == ("200 one", "")
            after = out.write(cds=[a, b], lds=[*BACKENDS, inline("b")])
            envoy.wait_converged(after)
            if expected:
                assert old.sock.recv(1) == b""
                envoy.wait(lambda: envoy.stat("listener_manager.total_listeners_draining") == 0, what="the end")

            assert has_drained(await EnvoyPage(page).statistics(_FILTER), Version(after[LDS])) is expected
            assert not has_drained(await EnvoyPage(page).statistics(_FILTER), Version(before[LDS]))


async def test_a_page_that_does_not_answer(tmp_path: Path) -> None:
    """It says nothing: nobody, and one that sends something else."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno")
        writer.close()

    path = tmp_path / "admin.sock"
    async with await asyncio.start_unix_server(answer, path):
        assert await EnvoyPage(UnixAddress(path)).statistics(_FILTER) == {}
    assert await EnvoyPage(TcpAddress("127.0.0.1", free_port())).statistics(_FILTER) == {}
    assert await EnvoyPage(UnixAddress(tmp_path / "none")).statistics(_FILTER) == {}


def with_listener(cluster: str, *clusters: str) -> Snapshot:
    """Return a snapshot of clusters, and of a listener that leads to one of them."""
    reference = Reference(CDS, cluster, ("filter_chains",), Severity.WARNING)
    web = replace(named("lds", "web", stat_prefix=cluster), references=(reference,))
    return snapshot_of(next(NUMBERS), web, *(named("cds", name) for name in clusters))


@asynccontextmanager
async def lingering() -> AsyncIterator[Publishing]:
    """Publish a listener that leads to `a`, and then to `b`, without `a`, which lingers."""
    async with publishing(PublishRules(RolloutOptions(linger_s=600))) as run:
        for made in (with_listener("a", "a", "b"), with_listener("b", "b")):
            run.publisher.receive({(): made}, 1.0)
            await run.settled()
        assert run.clusters() == ["a", "b"]
        yield run


@asynccontextmanager
async def page(path: Path, version: str) -> AsyncIterator[UnixAddress]:
    """Serve statistics in which nothing drains."""
    body = DRAINED.replace('"7"', f'"{version}"').encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    async with await asyncio.start_unix_server(answer, path):
        yield UnixAddress(path)


def mirror(run: Publishing) -> Client:
    """Let a directory of mirrored files follow what is served."""
    client = Client(run.publisher.whole, "/out")
    client.transport = "mirror"
    return client


async def test_what_lingers_goes_when_all_clients_have_drained(tmp_path: Path) -> None:
    """The page of the one client there is says so, of the listeners that are served."""
    async with lingering() as run, page(tmp_path / "old", "7") as old:
        version = version_of(run.store.current, Subscription(LISTENERS)) if run.store.current else ""
        async with page(tmp_path / "new", version) as new:
            mirror(run)
            await DrainWatch(run.publisher, {"/out": old}).look()
            await run.settled()
            assert run.clusters() == ["a", "b"]
            await DrainWatch(run.publisher, {"/out": new}).look()
            await run.settled()
            assert run.clusters() == ["b"]


async def test_clients_without_a_page_have_their_time(tmp_path: Path) -> None:
    """Without clients nobody knows; and one that left may have connections that drain still."""
    async with lingering() as run:
        version = version_of(run.store.current, Subscription(LISTENERS)) if run.store.current else ""
        async with page(tmp_path / "page", version) as drained:
            watch = DrainWatch(run.publisher, {"/out": drained})
            await watch.look()
            # It calls itself like the directory.
            other = Client(run.publisher.whole, "/out")
            mirror(run)
            await watch.look()
            run.publisher.whole.leave(other)
            await watch.look()
            await run.settled()

            assert run.clusters() == ["a", "b"]
