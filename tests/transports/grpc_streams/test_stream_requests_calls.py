from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from fsxds.runtime.supervisor import Supervisor
from fsxds.transports.grpc_streams.grpc_server import listening_grpc
from fsxds.transports.grpc_streams.stream_requests import STOPPING, LongLivedCalls
from tests.support.errors import Recorder, make_supervisor
from tests.support.grpc_clients import LOCALHOST, channel_to
from tests.support.patience import NEVER_S, PATIENCE_S


class _Told(bytearray):
    """What goes in and out once it was read, to see that the service reads and writes it."""


class Patient:
    """A service whose calls wait for what never comes, each in its own way."""

    open_streams = 0

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.lasting = LongLivedCalls(Recorder())
        forms = {"request_deserializer": _Told, "response_serializer": bytes}
        methods = {
            "Tell": grpc.unary_stream_rpc_method_handler(self._tell, **forms),
            "Talk": grpc.stream_stream_rpc_method_handler(self._talk, **forms),
            "Write": grpc.unary_stream_rpc_method_handler(self._write, **forms),
            "Say": grpc.unary_unary_rpc_method_handler(self._say, **forms),
        }
        handler = grpc.method_handlers_generic_handler("Patient", methods)
        self.handlers = (self.lasting.adapt(handler),)

    async def _tell(self, request: _Told, _: object) -> AsyncIterator[_Told]:
        try:
            yield _Told(b"told " + request)
            await asyncio.Event().wait()
        finally:
            self.ended.append("Tell")

    async def _talk(self, requests: AsyncIterator[_Told], _: object) -> AsyncIterator[_Told]:
        try:
            async for request in requests:
                yield _Told(b"told " + request)
        finally:
            self.ended.append("Talk")

    async def _write(self, request: _Told, context: Any) -> None:
        try:
            await context.write(_Told(b"told " + request))
            await asyncio.Event().wait()
        finally:
            self.ended.append("Write")

    async def _say(self, request: _Told, _: object) -> _Told:
        return _Told(b"told " + request)

    @asynccontextmanager
    async def running(self, supervisor: Supervisor) -> AsyncIterator[None]:
        """Do nothing."""
        yield

    async def drain(self) -> None:
        """End all calls."""
        await self.lasting.end()


@pytest.mark.parametrize("name", ["Tell", "Talk", "Write"])
async def test_calls_end_when_the_server_stops(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, whatever they wait for, and with a status that makes their clients connect again."""
    monkeypatch.setattr("fsxds.transports.sockets.STALLED_AFTER_S", NEVER_S)
    monkeypatch.setattr("fsxds.transports.grpc_streams.grpc_server.STALLED_AFTER_S", NEVER_S)
    service = Patient()
    async with asyncio.timeout(PATIENCE_S):
        async with listening_grpc(service, LOCALHOST, make_supervisor(), grace_s=NEVER_S) as bound:
            channel = await channel_to(bound).__aenter__()
            if name == "Talk":
                call = channel.stream_stream(f"/Patient/{name}")()
                await call.write(b"x")
            else:
                call = channel.unary_stream(f"/Patient/{name}")(b"x")
            assert await call.read() == b"told x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        await channel.close()

    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, STOPPING)
    assert service.ended == [name]
    assert caplog.records == []


async def test_other_calls_are_as_they_were() -> None:
    """A unary one answers, a streaming one ends by itself, an unknown one is unknown."""
    service = Patient()
    async with (
        listening_grpc(service, LOCALHOST, make_supervisor(), grace_s=1.0) as bound,
        channel_to(bound) as channel,
    ):
        assert await channel.unary_unary("/Patient/Say")(b"x", timeout=PATIENCE_S) == b"told x"
        call = channel.stream_stream("/Patient/Talk")()
        await call.write(b"y")
        assert await call.read() == b"told y"
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/Patient/Shout")(b"x", timeout=PATIENCE_S)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert service.ended == ["Talk"]
