"""Gets the manifests that a server offers: by a gRPC stream, or by GET."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Never

import aiohttp
import grpc.aio

from fsxds.client.polls import base_of, open_session, read_body
from fsxds.client.streams import credentials_of
from fsxds.client.updates import ConnectionLostError
from fsxds.model.relay_ids import HEADER
from fsxds.signing.offered import METHOD, PATH
from fsxds.upstream.intake import Intake

# Before a server without manifests is asked again.
PAUSE_S = 5.0
# For a server that does not know of manifests.
UNKNOWN_S = 300.0
# Over REST.
POLL_S = 1.0
_OK, _NOT_FOUND = 200, 404


async def follow_stream(channel: grpc.aio.Channel, intake: Intake) -> Never:
    """Apply a server's manifests until cancelled; ask again after an end."""
    call = channel.unary_stream(METHOD)
    while True:
        metadata = (*credentials_of(intake.access.token()), (HEADER, intake.context.relays.upwards))
        pause_s = PAUSE_S
        try:
            async for content in call(b"", metadata=metadata):
                await intake.take_manifests(content)
        except grpc.aio.AioRpcError as error:
            # Other errors end the connection too.
            pause_s = UNKNOWN_S if error.code() is grpc.StatusCode.UNIMPLEMENTED else PAUSE_S
        await asyncio.sleep(pause_s)


async def follow_polls(intake: Intake) -> Never:
    """Poll a REST server's manifests until cancelled."""
    before: bytes | None = None
    async with open_session(intake.server, PAUSE_S, intake.access.tls()) as session:
        while True:
            pause_s = PAUSE_S
            with suppress(aiohttp.ClientError, TimeoutError, ConnectionLostError):
                status, content = await _fetch(session, intake)
                pause_s = POLL_S if status == _OK else UNKNOWN_S if status == _NOT_FOUND else PAUSE_S
                if status == _OK and content != before:
                    await intake.take_manifests(content)
                    before = content
            await asyncio.sleep(pause_s)


async def _fetch(session: aiohttp.ClientSession, intake: Intake) -> tuple[int, bytes]:
    headers = dict((*credentials_of(intake.access.token()), (HEADER, intake.context.relays.upwards)))
    url = f"{base_of(intake.server)}{PATH}"
    async with session.get(url, headers=headers, allow_redirects=False) as response:
        if response.status != _OK:
            return response.status, b""
        return _OK, await read_body(response, intake.context.settings().upstream_max_response_bytes)
