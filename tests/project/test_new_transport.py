"""A new transport is a package below `fsxds.transports`, and a row of the table in `fsxds.server.app`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.server import app
from fsxds.settings.forms import Address, TcpAddress
from tests.support.faulty_server import serving_with_faults, until


@asynccontextmanager
async def listening(application: app.Application, _: Address) -> AsyncIterator[Address]:
    """Send the name of each cluster in a line to whoever connects: all that the package of a transport has to be."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        snapshot = await application.store.newer_than(0)
        clusters = snapshot.resources(BY_SHORT_NAME["cds"].type_url)
        writer.write("".join(f"{name}\n" for name in clusters).encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield TcpAddress(host, port)


async def test_a_new_transport_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started, reported and served like the others."""
    row = app.Transport("lines", lambda _: "127.0.0.1:0", listening)
    monkeypatch.setattr(app, "TRANSPORTS", (*app.TRANSPORTS, row))
    async with serving_with_faults(tmp_path) as server:
        await until(lambda: any("lines" in line for line in server.lines))
        [line] = [line for line in server.lines if "lines" in line]
        port = int(line.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        assert await reader.read() == b"v0\n"
        writer.close()
