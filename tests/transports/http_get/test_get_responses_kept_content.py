from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from fsxds.transports.http_get.get_responses import KeptContent
from tests.support.polls import until


@pytest.fixture
async def contents() -> AsyncIterator[KeptContent]:
    """Keeps a thousand bytes, with what objects take."""
    contents = KeptContent(1000)
    yield contents
    contents.close()


async def test_content_is_made_once(contents: KeptContent) -> None:
    """For all who ask while it is made, and after that."""
    go_on, made = threading.Event(), list[int]()

    def make() -> bytes:
        go_on.wait(60)
        made.append(1)
        return b"x"

    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(contents.find(("a",), make, takes_long=True)) for _ in range(5)]
        await until(lambda: contents.made == 1)
        go_on.set()

    assert [each.result() for each in asked] == [b"x"] * 5
    assert await contents.find(("a",), make, takes_long=False) == b"x"
    assert made == [1]


async def test_what_was_begun_is_kept_for_others_when_its_client_goes(contents: KeptContent) -> None:
    """And what was not begun is not made; who asks for it again gets it."""
    began, go_on = threading.Event(), threading.Event()

    def make_long() -> bytes:
        began.set()
        go_on.wait(60)
        return b"long"

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(contents.find(("long",), make_long, takes_long=True))
        await until(began.is_set)
        second = tasks.create_task(contents.find(("second",), lambda: b"never", takes_long=True))
        await until(lambda: contents.made == 2)
        first.cancel()
        second.cancel()
        again = tasks.create_task(contents.find(("second",), lambda: b"second", takes_long=True))
        await until(lambda: contents.made == 3)
        go_on.set()

    assert again.result() == b"second"
    assert await contents.find(("long",), lambda: b"again", takes_long=False) == b"long"


async def test_the_room_is_bounded(contents: KeptContent) -> None:
    """What was used last stays; one that is too large is made for who asks, and stays until there is another."""
    for name in "abcd":
        await contents.find((name,), lambda: b"x" * 200, takes_long=False)
    assert await contents.find(("d",), lambda: b"again", takes_long=False) == b"x" * 200
    assert await contents.find(("a",), lambda: b"again", takes_long=False) == b"again"
    large = await contents.find(("large",), lambda: b"x" * 5000, takes_long=True)
    await contents.find(("small",), lambda: b"", takes_long=True)

    assert len(large) == 5000
    assert await contents.find(("large",), lambda: b"again", takes_long=True) == b"again"
    assert await contents.find(("small",), lambda: b"again", takes_long=True) == b""


async def test_an_error_is_for_all_who_wait(contents: KeptContent) -> None:
    """And for nobody who asks again."""

    def fail() -> bytes:
        raise ZeroDivisionError

    asked = [contents.find(("a",), fail, takes_long=True) for _ in range(2)]
    for result in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(result, ZeroDivisionError)
    assert await contents.find(("a",), lambda: b"x", takes_long=True) == b"x"


async def test_after_the_end_nothing_is_made() -> None:
    """Who waits for what was not begun gets an error."""
    contents, go_on = KeptContent(), threading.Event()

    def make() -> bytes:
        go_on.wait(60)
        return b""

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(contents.find(("a",), make, takes_long=True))
        second = tasks.create_task(_error_of(contents))
        await until(lambda: contents.made == 2)
        contents.close()
        go_on.set()

    assert first.result() == b""
    assert second.result()


async def _error_of(contents: KeptContent) -> bool:
    try:
        await contents.find(("b",), lambda: b"", takes_long=True)
    except BaseException as error:  # noqa: BLE001 - of the library, which has it as an exception
        return type(error).__name__ == "CancelledError"
    return False
