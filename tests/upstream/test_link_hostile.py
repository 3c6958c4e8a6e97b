"""Servers that misbehave: nothing ends but the connection, nothing that is held goes, and the words say what is wrong."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.support.hostile_upstream import (
    DATA,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    Behaviour,
    HostileConnection,
    frame,
    hostile,
    message_head,
)
from tests.upstream.linked import SETTINGS, linked, rule_of

MB = 1 << 20
SILENT = "it gave no response within 0.4 s"


async def close(_: HostileConnection) -> None:
    """Close the connection at once."""


async def be_silent(connection: HostileConnection) -> None:
    """Take all that comes, and say nothing."""
    while await connection.reader.read(65536):
        pass


async def never_read(_: HostileConnection) -> None:
    """Do nothing at all."""
    await asyncio.Event().wait()


async def speak_http1(connection: HostileConnection) -> None:
    """Answer as an HTTP/1.1 server does."""
    await connection.say(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
    await be_silent(connection)


async def speak_noise(connection: HostileConnection) -> None:
    """Send what means nothing."""
    await connection.say(bytes(range(256)) * 4)
    await be_silent(connection)


async def shake_hands_only(connection: HostileConnection) -> None:
    """Be a server of HTTP/2, on which no call is answered."""
    await connection.shake_hands()
    await connection.read_on()


async def open_only(connection: HostileConnection) -> None:
    """Answer the call, and send nothing on it."""
    await connection.open_stream()
    await connection.read_on()


async def send_noise(connection: HostileConnection) -> None:
    """Send a message that is no response."""
    stream = await connection.open_stream()
    await connection.say(frame(DATA, message_head(4) + b"\xff\xff\xff\xff", stream=stream))
    await connection.read_on()


async def send_a_gigabyte(connection: HostileConnection) -> None:
    """Begin a message of a gigabyte on each stream."""
    await connection.shake_hands()
    while True:
        stream = await connection.next_call()
        await connection.say(frame(DATA, message_head(1 << 30) + bytes(1000), stream=stream))


async def send_byte_by_byte(connection: HostileConnection) -> None:
    """Send a message of a thousand bytes, one each 20 ms."""
    stream = await connection.open_stream()
    await connection.say(frame(DATA, message_head(1000), stream=stream))
    while True:
        await connection.say(frame(DATA, b"\x0a", stream=stream))
        await asyncio.sleep(0.02)


async def go_away(connection: HostileConnection) -> None:
    """Answer the call, and end the connection as servers do that restart."""
    await connection.open_stream()
    await connection.say(frame(GOAWAY, bytes(8)))


async def send_frames_without_a_stream(connection: HostileConnection) -> None:
    """Break the rules of HTTP/2."""
    await connection.shake_hands()
    await connection.say(frame(DATA, b"x" * 100, stream=77) + frame(0x9, b"x" * 100, stream=0))
    await connection.read_on()


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (close, "cannot connect"),
        (be_silent, SILENT),
        (never_read, SILENT),
        (speak_http1, "the server there does not speak gRPC"),
        (speak_noise, "the server there does not speak gRPC"),
        (shake_hands_only, SILENT),
        (open_only, SILENT),
        (send_noise, "the response is no DeltaDiscoveryResponse; is this an xDS server?"),
        (send_a_gigabyte, f"a message of {1 << 30} bytes is larger than {MB}"),
        (send_byte_by_byte, SILENT),
        (go_away, "the server ended the stream: UNAVAILABLE"),
        (send_frames_without_a_stream, "the server ended the stream: "),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_server_of_grpc(behaviour: Behaviour, words: str) -> None:
    """Each is told in words, is asked again with pauses, and takes nothing away."""
    settings = replace(SETTINGS, upstream_patience_s=0.4, upstream_max_response_bytes=MB)
    async with hostile(behaviour) as server, linked(rule_of(server.address), settings, holds="a") as relay:
        lost = await relay.until_lost(words)
        await relay.until(lambda: server.connections >= 2)

    assert (["a"], 1, server.address) == (relay.names, lost.resources, lost.server)
    assert relay.upstream.status().state == "away"
    assert relay.relays.downwards == relay.relays.own


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (close, "cannot connect: Server disconnected"),
        (be_silent, SILENT),
        (speak_noise, "the server there does not speak HTTP"),
        (speak_http1, "the server responds with status 400"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_server_of_rest(behaviour: Behaviour, words: str) -> None:
    """The same over REST, whatever comes back."""
    settings = replace(SETTINGS, upstream_patience_s=0.4)
    async with hostile(behaviour) as server, linked(rule_of(f"http://{server.address}"), settings, holds="a") as relay:
        await relay.until_lost(words)

    assert ["a"] == relay.names
    # Who answers, but not as an xDS server does, will not do so soon.
    assert relay.upstream.status().state == ("refused" if behaviour is speak_http1 else "away")


async def test_pings_that_a_server_does_not_like() -> None:
    """A server that ends the connection for them is pinged as rarely as servers allow by default."""

    async def calm_down(connection: HostileConnection) -> None:
        await connection.open_stream()
        error = ENHANCE_YOUR_CALM.to_bytes(4, "big")
        await connection.say(frame(GOAWAY, bytes(4) + error + b"too_many_pings"))

    async with hostile(calm_down) as server, linked(rule_of(server.address)) as relay:
        lost = await relay.until_lost("too_many_pings")

    assert "too_many_pings" in lost.reason
