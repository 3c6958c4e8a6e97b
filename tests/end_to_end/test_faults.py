"""Errors of fsxds itself, raised from within every component and every handler: everybody else is served on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc.aio
import pytest

from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.sotw import SotwStream
from fsxds.runtime.channels import Latest
from fsxds.runtime.supervisor import Supervisor
from fsxds.server import reload
from fsxds.settings.forms import UnixAddress
from fsxds.transports.client_status.status_service import CLIENT_STATUS_PATH, ClientReports, client_status_handlers
from fsxds.transports.exchange import Clients, Exchange
from fsxds.transports.grpc_streams.discovery import GrpcServices
from fsxds.transports.grpc_streams.grpc_server import listening_grpc
from fsxds.transports.grpc_streams.stream import StreamContext
from fsxds.transports.rest.application import ROWS
from fsxds.transports.rest.poll_responses import INTERNAL
from tests.end_to_end import chaos
from tests.support.channels import OneChannel
from tests.support.errors import AT_ONCE, Recorder
from tests.support.faulty_server import CDS_URL, Boom, Faults, FaultyServer, following, serving_with_faults, until
from tests.support.grpc_clients import LOCALHOST, channel_to, serving_grpc
from tests.support.patience import PATIENCE_S
from tests.support.polls import envoy_catalogue, running

# What raises within each component. Those that work once, or when another one fails, raise when the server starts.
COMPONENTS: dict[str, tuple[Any, ...]] = {
    "watcher": ("fsxds.source.scan.Scanner.look",),
    "parser": ("fsxds.server.parsing.Parsing._change_until",),
    "parse cache": ("fsxds.server.parsing.Parsing.keep_written",),
    "reload": ("fsxds.server.reload.load",),
    "publisher": ("fsxds.publishing.channel_rollout.ChannelRollout.advance",),
    "log": ("fsxds.observe.log.PublishedChange.line",),
    "ADS rewriting": ("fsxds.transports.config_sources.AdsConfigSources.rewrite",),
    "streams": ("fsxds.transports.grpc_streams.stream.StreamCall.wake",),
    "mirror": ("fsxds.transports.mirror.writer.Mirror.write",),
    "health": ("fsxds.transports.grpc_streams.discovery.GrpcServices._report_health",),
    "resets": ("fsxds.transports.grpc_streams.grpc_server.process_time",),
    "ready file": ("fsxds.server.readiness.ReadyFile.write",),
    "settings": ("fsxds.settings.reading.SettingsReader.wanted",),
    "start-up": ("fsxds.server.serving.report_waits",),
    "readiness": ("fsxds.server.readiness.Readiness.look",),
    "certificates": ("fsxds.transports.credentials.ListenerSecurity.keep_current",),
    "tokens": ("fsxds.transports.credentials.Credentials._receive",),
    "REST listener": ("fsxds.transports.sockets.until_lost", lambda address: not isinstance(address, UnixAddress)),
    "gRPC listener": ("fsxds.transports.sockets.until_lost", lambda address: isinstance(address, UnixAddress)),
    "admin listener": ("fsxds.server.admin_serving.is_local",),
    "members": ("fsxds.disk_cache.member_names.MemberNames.keep_written",),
}
AT_START = (
    *("parse cache", "health", "ready file", "settings", "start-up", "certificates", "members"),
    *("REST listener", "gRPC listener", "admin listener"),
)


def mirrored(server: FaultyServer) -> bytes:
    """Return the file of clusters."""
    return (server.out / "cds.pb").read_bytes()


async def test_every_component_comes_back(tmp_path: Path) -> None:
    """Each fails once; all clients and the mirror get the next edit, and the failure is counted, logged and over."""
    faults = Faults()
    for name in AT_START:
        faults.arm(name)
    patches = [faults.plant(name, *target) for name, target in COMPONENTS.items()]
    async with serving_with_faults(tmp_path, *patches) as server, following(server) as followers:
        for version, name in enumerate(COMPONENTS, 1):
            await until(lambda: {f"v{version - 1}"} == {follower.name for follower in followers})  # noqa: B023
            if name not in AT_START:
                faults.arm(name)
            server.edit(version)
            await until(lambda: faults.raised.get(name) == 1)  # noqa: B023
            await until(lambda: {f"v{version}"} == {follower.name for follower in followers})  # noqa: B023
            await until(lambda: f"v{version}".encode() in mirrored(server))  # noqa: B023
        supervisor = server.application.supervisor

        assert set(COMPONENTS) == supervisor.components
        assert dict.fromkeys(COMPONENTS, 1) == supervisor.failures
        await until(lambda: not supervisor.degraded.current)
        await until(lambda: server.ready_file.exists() and server.ready["degraded"] == [])
        assert dict.fromkeys(COMPONENTS, 1) == server.log.internal_errors.counts
        assert server.ready["pid"] == os.getpid()


async def test_every_grpc_handler_is_an_edge() -> None:
    """An error within any method that is registered is INTERNAL for its client, reported, and nobody else's."""
    channels, recorder = OneChannel(), Recorder()
    reports = ClientReports(Clients(), envoy_catalogue())
    services = GrpcServices(
        StreamContext(Exchange.of_streams(channels), recorder, Clients()),
        client_status_handlers(reports),
        unready=Latest("starting"),
    )
    methods = [
        (name, method) for handler in services.handlers for name, method in _inner(handler)._method_handlers.items()
    ]
    faults = Faults(share=1.0)
    supervisor = Supervisor(recorder, AT_ONCE)
    async with listening_grpc(services, LOCALHOST, supervisor, grace_s=1.0) as bound, channel_to(bound) as channel:
        with (
            faults.plant("parse", "fsxds.transports.grpc_streams.stream_requests._parsed"),
            faults.plant("status", "fsxds.transports.client_status.status_service.ClientReports.answer"),
        ):
            for path, method in methods:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await _call(channel, path, method)
                assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INTERNAL, INTERNAL.message), (
                    path
                )
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await health(b"", timeout=PATIENCE_S) == b"\x08\x02"

    assert len(methods) > 30
    assert [f"gRPC {path.rpartition('/')[2]}" for path, _ in methods] == [where for where, _ in recorder.errors]


def _inner(handler: Any) -> Any:
    while hasattr(handler, "_handler"):
        handler = handler._handler
    return handler


async def _call(channel: grpc.aio.Channel, path: str, method: Any) -> None:
    if not method.response_streaming:
        await channel.unary_unary(path)(b"", timeout=PATIENCE_S)
        return
    call = (
        channel.stream_stream(path)(timeout=PATIENCE_S) if method.request_streaming else channel.unary_stream(path)(b"")
    )
    if method.request_streaming:
        await call.write(b"")
        await call.done_writing()
    await call.read()
    await call.read()


@pytest.mark.parametrize("is_delta", [False, True])
async def test_a_stream_that_fails_when_it_is_woken(*, is_delta: bool) -> None:
    """News on which the core of one stream fails end that stream alone; the others get them."""
    core = DeltaStream if is_delta else SotwStream
    receive = core.receive_snapshot

    def faulty(stream: Any, *arguments: Any) -> Any:
        if stream.node.id == "bad":
            raise Boom
        return receive(stream, *arguments)

    async with serving_grpc() as server:
        server.publish({"CDS": {"a": "1"}})
        clients = {name: server.stream("CDS", is_delta=is_delta) for name in ("bad", "good")}
        for name, client in clients.items():
            await client.ask("CDS", node=name)
            await client.take(await client.answer())
        with patch.object(core, "receive_snapshot", faulty):
            server.publish({"CDS": {"a": "2"}})
            await clients["good"].answer()
            assert await clients["bad"].end() == (grpc.StatusCode.INTERNAL, INTERNAL.message)

        assert [type(error) for _, error in server.recorder.errors] == [Boom]
        await until(lambda: server.services.open_streams == 1)


async def test_every_rest_path_is_an_edge() -> None:
    """An error within a request is a 500 for its client, reported, and nobody else's."""
    paths = [*ROWS, CLIENT_STATUS_PATH]
    async with running() as server:
        with Faults(share=1.0).plant("request", "fsxds.transports.rest.application.is_json"):
            statuses = [(await server.ask("POST", path, json={})).status for path in paths]
        assert (await server.ask("POST", CLIENT_STATUS_PATH, json={})).status == 200

    assert [500] * len(paths) == statuses
    assert ["REST request"] * len(paths) == [where for where, _ in server.recorder.errors]


async def test_an_input_on_which_loading_fails_is_set_aside(tmp_path: Path) -> None:
    """A file on which merging fails three times is a problem of its own; others are served, and its next edit too."""
    load = reload.__dict__["load"]

    def faulty(tree: Any, *arguments: Any) -> Any:
        if any(b"poison" in file.content for file in tree.files):
            raise Boom
        return load(tree, *arguments)

    async with serving_with_faults(tmp_path, patch.object(reload, "load", faulty)) as server:
        problems = server.log._problems
        async with following(server) as followers:
            (server.tree / "lds.yaml").write_text("[] # poison")
            server.edit(1)
            await until(lambda: {"v1"} == {follower.name for follower in followers})
            await until(
                lambda: any("internal-error" in line or "itself fails on this file" in line for line in server.lines)
            )
            (server.tree / "lds.yaml").write_text("[]")
            server.edit(2)
            await until(lambda: {"v2"} == {follower.name for follower in followers})

    assert not problems.held
    assert server.log.internal_errors.counts["reload"] == 3


async def test_a_snapshot_on_which_the_mirror_fails_is_set_aside(tmp_path: Path) -> None:
    """It is tried three times and left; the next edit is written."""
    faults = Faults(share=1.0)
    target = "fsxds.transports.mirror.layout.LayoutMaker.lay_out"
    poisoned = faults.plant("mirror", target, lambda _, snapshot, *__: "v1" in snapshot.resources(CDS_URL))
    async with serving_with_faults(tmp_path, poisoned) as server:
        server.edit(1)
        await until(lambda: any("set aside after 3 failures" in line for line in server.lines))
        assert b"v0" in mirrored(server)
        server.edit(2)
        await until(lambda: b"v2" in mirrored(server))
        await asyncio.sleep(0)

    assert faults.raised == {"mirror": 3}


async def test_chaos(tmp_path: Path) -> None:
    """Whatever raises at random, each client and the mirror end on the last version, and nothing ends the process."""
    outcome = await chaos.run(tmp_path, duration_s=2.0, seed=7)

    assert outcome.held == {outcome.expected}
    assert sum(outcome.raised.values()) > 20
