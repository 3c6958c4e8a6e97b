"""Ask a server which manifests vouch for what it serves: by a gRPC stream beside that of resources, or by GET."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Never

import aiohttp
import grpc.aio

from fsxds.client.polls import base_of, open_session, read_body
from fsxds.client.streams import credentials_of
from fsxds.client.updates import ConnectionLostError
from fsxds.relay_ids import HEADER
from fsxds.signing.offered import METHOD, PATH
from fsxds.upstream.intake import Intake

# A server that offers none is asked again so often.
PAUSE_S = 5.0
# Over REST, manifests are asked for so often.
POLL_S = 1.0
_OK = 200


async def follow_stream(channel: grpc.aio.Channel, intake: Intake) -> Never:
    """Take in each manifest that a server offers, until cancelled; when it has none, or ends, ask again."""
    call = channel.unary_stream(METHOD)
    while True:
        metadata = (*credentials_of(intake.access.token()), (HEADER, intake.context.relays.upwards))
        with suppress(grpc.aio.AioRpcError):
            async for content in call(b"", metadata=metadata):
                await intake.take_manifests(content)
        await asyncio.sleep(PAUSE_S)


async def follow_polls(intake: Intake) -> Never:
    """Ask a REST server for its manifests, again and again, until cancelled."""
    before: bytes | None = None
    async with open_session(intake.server, PAUSE_S, intake.access.tls()) as session:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError, ConnectionLostError):
                content = await _fetch(session, intake)
                if content is not None and content != before:
                    await intake.take_manifests(content)
                    before = content
            await asyncio.sleep(POLL_S)


async def _fetch(session: aiohttp.ClientSession, intake: Intake) -> bytes | None:
    headers = dict((*credentials_of(intake.access.token()), (HEADER, intake.context.relays.upwards)))
    url = f"{base_of(intake.server)}{PATH}"
    async with session.get(url, headers=headers, allow_redirects=False) as response:
        if response.status != _OK:
            return None
        return await read_body(response, intake.context.settings().upstream_max_response_bytes)
