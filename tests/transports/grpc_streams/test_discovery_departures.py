"""Clients of gRPC that go away, at any byte of what they send or are sent."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path

import pytest

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.settings.forms import Address, TcpAddress, UnixAddress
from tests.support.departures import many_go_away
from tests.support.grpc_clients import LOCALHOST, names_in, serving_grpc
from tests.support.grpc_departures import HEADERS, begin, call, calls, conversations
from tests.support.patience import PATIENCE_S
from tests.support.polls import envoy_catalogue, until

DEPARTURES = 150
LARGE = dict.fromkeys((f"c-{number}" for number in range(100)), "x" * 10_000)


@pytest.mark.parametrize("is_unix", [False, True], ids=["tcp", "unix"])
async def test_clients_may_go_away_at_any_byte(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], *, is_unix: bool
) -> None:
    """Of their calls or of what they are sent: nothing is logged, nothing stays behind, and others are served all the time."""
    address: Address = UnixAddress(tmp_path / "x.sock") if is_unix else LOCALHOST
    served = 0
    with caplog.at_level(logging.INFO):
        async with serving_grpc(address, catalogue=envoy_catalogue()) as server:
            server.publish({"CDS": LARGE, "EDS": {"stays": "0"}})
            stays = server.delta("EDS")
            await stays.ask(node="stays", resource_names_subscribe=["stays"])
            await stays.take(await stays.answer())
            server.publish({"CDS": LARGE, "EDS": {"stays": "first"}})
            # gRPC makes its task for the next call when it likes: one more is nobody who went away.
            most_tasks = len(asyncio.all_tasks()) + 2
            async with asyncio.TaskGroup() as tasks:
                going = tasks.create_task(many_go_away(server.address, conversations, DEPARTURES, seed=7))
                while not going.done():
                    response = await stays.answer()
                    assert names_in(response) == ["stays"]
                    await stays.take(response)
                    served += 1
                    server.publish({"CDS": LARGE, "EDS": {"stays": str(served)}})
            await until(lambda: server.services.open_streams == 1)
            await until(lambda: len(asyncio.all_tasks()) <= most_tasks)
            assert len(server.recorder.opened) - len(server.recorder.closed) == 1
            assert [status.node.id for status in server.clients.statuses()] == ["stays"]

    assert served > 1
    assert not server.recorder.rejected
    assert not server.recorder.nacks
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


async def test_those_who_go_away_would_be_answered() -> None:
    """The frames that they send are calls: who stays gets the headers of a response to each."""
    async with serving_grpc(catalogue=envoy_catalogue()) as server:
        server.publish({row.short_name.upper(): {"a": "1"} for row in RESOURCE_TYPES})
        assert isinstance(server.address, TcpAddress)
        for path, message, is_unary in calls(random.Random(1)):
            reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
            writer.write(begin() + call(1, path, message, is_last=is_unary))
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readexactly(9)
                while head[3] != HEADERS:
                    await reader.readexactly(int.from_bytes(head[:3], "big"))
                    head = await reader.readexactly(9)
            writer.close()
