"""Read list collections by their names at a server that a test writes."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import pytest

from fsxds.client.listed import PROTOBUF, Fetched, NamedReader
from fsxds.client.updates import ConnectionLostError
from fsxds.model.resource_types import BY_SHORT_NAME

LCDS = BY_SHORT_NAME["lcds"]
ONE, TWO = (f"xdstp://east/{LCDS.message_type}/{path}" for path in ("one", "two"))


class Server:
    """What a server has by name, and what was asked of it."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.status = 200
        self.form = PROTOBUF
        self.asked: list[tuple[str, bool, str]] = []

    async def fetch(self, path: str, headers: Mapping[str, str]) -> Fetched:
        """Answer a GET, by the tag if there is one."""
        names = {f"/{LCDS.message_type}/{quote(name, '')}": name for name in (ONE, TWO)}
        name, tag = names[path], headers.get("If-None-Match", "")
        assert headers["Accept"] == PROTOBUF
        self.asked.append((name, bool(tag), headers.get("Prefer", "")))
        if self.status != 200 or name not in self.bodies:
            return Fetched(404 if self.status == 200 else self.status, {}, b"")
        body = self.bodies[name]
        if tag == f'"{body.hex()}"':
            return Fetched(304, {}, b"")
        return Fetched(200, {"etag": f'"{body.hex()}"', "content-type": self.form}, body)


@pytest.fixture
def server() -> Server:
    """A server that has nothing."""
    return Server()


@pytest.fixture
def reader(server: Server) -> NamedReader:
    """Reads list collections there."""
    return NamedReader(LCDS, server.fetch)


async def bodies_of(reader: NamedReader) -> dict[str, bytes] | None:
    """Return the content of the next update; None for nothing new."""
    answer = await reader.read(30.0)
    return None if answer is None else answer[0].bodies


async def test_collections_come_change_and_go(server: Server, reader: NamedReader) -> None:
    """The serialized message under the name that was asked for; what is not there is left out."""
    reader.names = frozenset({ONE, TWO})
    answer = await reader.read(0.0)
    assert answer is not None
    assert (answer[0].bodies, answer[0].unpopulated, answer[0].is_full) == ({}, (ONE, TWO), True)
    server.bodies = {ONE: b"\n\x00", TWO: b""}
    assert await bodies_of(reader) == {ONE: b"\n\x00", TWO: b""}
    assert await bodies_of(reader) is None
    server.bodies = {ONE: b""}
    assert await bodies_of(reader) == {ONE: b""}
    assert server.asked[-2:] == [(ONE, True, ""), (TWO, True, "")]


async def test_one_name_may_be_held(server: Server, reader: NamedReader) -> None:
    """Where there are more, one after another would wait for all before it."""
    reader.names, server.bodies = frozenset({ONE}), {ONE: b""}
    await reader.read(30.0)
    await reader.read(30.0)
    reader.names = frozenset({ONE, TWO})
    await reader.read(30.0)

    assert [hold for _, _, hold in server.asked] == ["", "wait=30", "", ""]


async def test_everything_is_not_answered(server: Server, reader: NamedReader) -> None:
    """No answer says that there is nothing beside the names that were read."""
    assert await reader.read(0.0) is None
    reader.names = frozenset({"*"})
    assert await reader.read(0.0) is None
    reader.names, server.bodies = frozenset({"*", ONE}), {ONE: b""}
    answer = await reader.read(0.0)

    assert answer is not None
    assert (list(answer[0].resources), answer[0].is_full) == ([ONE], False)


async def test_another_form_is_a_fault(server: Server, reader: NamedReader) -> None:
    """As of a server of files, which has JSON alone."""
    reader.names, server.bodies, server.form = frozenset({ONE}), {ONE: b"[]"}, "application/json; charset=utf-8"
    answer = await reader.read(0.0)

    assert answer is not None
    assert (answer[1].rejected, list(answer[0].resources)) == ({ONE}, [])


async def test_an_error_of_the_server_is_no_answer(server: Server, reader: NamedReader) -> None:
    """It ends the attempt, and takes nothing away."""
    reader.names, server.status = frozenset({ONE}), 503

    with pytest.raises(ConnectionLostError, match="status 503") as lost:
        await reader.read(0.0)
    assert lost.value.code == "503"
