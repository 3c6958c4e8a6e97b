"""What the load of `tests.end_to_end.traffic` takes for a failed request, and what it does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from tests.end_to_end.traffic.load import Load, bound_sockets
from tests.support.faulty_server import until

FINE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
LAST = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answering(*answers: bytes) -> Serve:
    """Return a server that gives these answers on each connection, and closes it then."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            if not await reader.readline():
                break
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        writer.close()

    return serve


async def load_on(serve: Serve, requests: int = 40) -> Load:
    """Ask a server until so many requests are over."""
    (bound,) = bound_sockets(1)
    server = await asyncio.start_server(serve, sock=bound)
    load = Load(bound.getsockname()[1], 400)
    async with server, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(load.run())
        await until(lambda: load.record.requests.total() >= requests)
        load.stop()
        await running
    return load


def reasons(load: Load) -> set[str]:
    """Return how requests failed."""
    return {failure.reason.partition(" (")[0] for failure in load.record.failures}


async def test_answers_are_no_failures() -> None:
    """Requests that are answered are counted, and nothing else."""
    load = await load_on(answering(*[FINE] * 1000))

    assert (load.record.failures, load.record.repeated.total()) == ([], 0)


async def test_a_connection_that_ends_as_announced_is_no_failure() -> None:
    """After `connection: close` the client opens a new connection, and sends nothing twice."""
    load = await load_on(answering(LAST), requests=120)

    assert (load.record.failures, load.record.repeated.total()) == ([], 0)


async def test_a_kept_connection_that_is_closed_early_is_no_failure() -> None:
    """A request on a kept-alive connection that ends without any answer is sent again, and counted so."""
    load = await load_on(answering(FINE), requests=120)

    assert load.record.failures == []
    assert load.record.repeated.total() > 0


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ((), "reset"),
        ((FINE[:-1],), "closed"),
        ((FINE[:20],), "closed"),
        ((UNAVAILABLE,) * 1000, "503 no"),
    ],
    ids=["none", "no-body", "half-a-head", "503"],
)
async def test_whatever_is_no_complete_200_fails(answers: tuple[bytes, ...], reason: str) -> None:
    """A new connection that ends without an answer, half an answer, and another status are failures."""
    load = await load_on(answering(*answers))

    # An end without any answer may come before the request, or after it.
    assert reasons(load) <= ({"reset", "closed"} if reason == "reset" else {reason})
    assert len(load.record.failures) == load.record.requests.total()


async def test_an_answer_that_breaks_off_on_a_kept_connection_fails() -> None:
    """A request of which a part of the answer came is not sent again."""
    load = await load_on(answering(FINE, FINE[:-1]), requests=120)

    assert reasons(load) == {"closed"}
    assert load.record.repeated.total() == 0


async def test_nobody_listening_fails() -> None:
    """A connection that cannot be made is a failure."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        load = Load(nobody.getsockname()[1], 100)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            await until(lambda: bool(load.record.failures))
            load.stop()

    assert all(reason.startswith("connect: ") for reason in reasons(load))
