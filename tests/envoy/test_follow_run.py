"""A real Envoy beside a store: what is told of it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path, PurePosixPath

import pytest

from fsxds.envoy.follow import EndedEnvoy, run_envoy
from fsxds.envoy.snapshot_status import EnvoyNack
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Origin
from tests.envoy.beside import (
    Beside,
    Listens,
    Recorder,
    Started,
    TookTypes,
    cluster,
    eds_cluster,
    endpoints,
    envoy_beside,
    listener,
    plan_of,
)
from tests.support.envoy import find_envoy
from tests.support.envoy_admin import EnvoyAdmin


async def test_start_is_told_with_the_ports_that_are_really_bound(tmp_path: Path) -> None:
    """A listener on port 0 is told with the port that it got, and the first snapshot's status follows."""
    async with envoy_beside(tmp_path) as beside:
        beside.publish({"cds": {"a": cluster("a")}, "lds": {"l": listener("l", "a")}})
        started = await beside.heard.started()
        host, _, port = started.listeners["l"].rpartition(":")

        assert host == "127.0.0.1"
        assert int(port) > 0
        assert await beside.heard.next() == TookTypes(("cds", "lds"))


async def test_edit_is_taken(tmp_path: Path) -> None:
    """Only the types that changed are told."""
    async with envoy_beside(tmp_path) as beside:
        assignments = beside.path_of("eds", "a")
        clusters = {"a": eds_cluster("a", assignments)}
        beside.publish({"cds": clusters, "eds": {"a": endpoints("a", 9)}})
        await beside.heard.started()

        assert await beside.heard.next() == TookTypes(("cds", "eds"))

        beside.publish({"cds": clusters, "eds": {"a": endpoints("a", 9, 10)}})

        assert await beside.heard.next() == TookTypes(("eds",))


async def test_refused_cluster_is_told_with_reason_and_place(tmp_path: Path) -> None:
    """Envoy's own words, and the line where the cluster was written; the repair is told as well."""
    async with envoy_beside(tmp_path) as beside:
        beside.publish({"cds": {"a": cluster("a")}})
        await beside.heard.started()
        await beside.heard.next()
        beside.publish({"cds": {"a": cluster("a", "nowhere")}}, {"cds": "cds.yaml"})
        nack = await beside.heard.next()

        assert isinstance(nack, EnvoyNack)
        assert (nack.resource_type.short_name, nack.resource_name) == ("cds", "a")
        assert (nack.reason or "").startswith("malformed IP address: nowhere")
        assert nack.origins == (Origin(PurePosixPath("cds/a.yaml"), 7),)

        beside.publish({"cds": {"a": cluster("a"), "b": cluster("b")}})

        assert await beside.heard.next() == TookTypes(("cds",))


async def test_going_back_after_a_refusal_is_told(tmp_path: Path) -> None:
    """The version is the one that Envoy shows all the time; that it took the content again is told."""
    async with envoy_beside(tmp_path) as beside:
        beside.publish({"cds": {"a": cluster("a")}})
        await beside.heard.started()
        await beside.heard.next()
        beside.publish({"cds": {"a": cluster("a", "nowhere")}})

        assert isinstance(await beside.heard.next(), EnvoyNack)

        beside.publish({"cds": {"a": cluster("a")}})

        assert await beside.heard.next() == TookTypes(("cds",))


async def test_refused_endpoints_are_at_their_resource(tmp_path: Path) -> None:
    """The log of a file says neither type nor name; the statistics of the subscription do."""
    async with envoy_beside(tmp_path) as beside:
        clusters = {"a": eds_cluster("a", beside.path_of("eds", "a"))}
        beside.publish({"cds": clusters, "eds": {"a": endpoints("a", 9)}})
        await beside.heard.started()
        await beside.heard.next()
        beside.publish({"cds": clusters, "eds": {"a": endpoints("a", 99999)}})
        nack = await beside.heard.next()
        reason = (
            "Proto constraint validation failed (ClusterLoadAssignmentValidationError.Endpoints[0]: embedded message "
            "failed validation | caused by LocalityLbEndpointsValidationError.LbEndpoints[0]: embedded message failed "
            "validation | caused by LbEndpointValidationError.Endpoint: embedded message failed validation | caused by "
            "EndpointValidationError.Address: embedded message failed validation | caused by "
            "AddressValidationError.SocketAddress: embedded message failed validation | caused by "
            "SocketAddressValidationError.PortValue: value must be less than or equal to 65535)"
        )
        origins = (Origin(PurePosixPath("eds/a.yaml"), 7),)

        assert nack == EnvoyNack(BY_SHORT_NAME["eds"], "a", reason, origins)


async def test_unknown_type_is_refused_though_envoy_counts_a_failure(tmp_path: Path) -> None:
    """A file with a message that Envoy does not know is a failed update to it; the log tells it from a lost poll."""
    async with envoy_beside(tmp_path) as beside:
        beside.publish({"cds": {"a": cluster("a")}})
        await beside.heard.started()
        await beside.heard.next()
        beside.publish({"cds": {"a": {**cluster("a"), "transport_socket": {"typed_config": {"@type": "x.y/nope"}}}}})
        nack = await beside.heard.next()

        assert isinstance(nack, EnvoyNack)
        assert "could not find @type 'x.y/nope'" in (nack.reason or "")


async def test_new_listener_is_told_with_its_address(tmp_path: Path) -> None:
    """Where traffic can go is told when it changes."""
    async with envoy_beside(tmp_path) as beside:
        clusters = {"a": cluster("a")}
        beside.publish({"cds": clusters, "lds": {"l": listener("l", "a")}})
        started = await beside.heard.started()
        await beside.heard.next()
        beside.publish({"cds": clusters, "lds": {"l": listener("l", "a"), "m": listener("m", "a")}})

        assert await beside.heard.next() == TookTypes(("lds",))

        listens = await beside.heard.next()

        assert isinstance(listens, Listens)
        assert listens.listeners == {**started.listeners, "m": listens.listeners["m"]}


async def test_another_runtime_layer_starts_envoy_anew(tmp_path: Path) -> None:
    """The bootstrap asks for each layer by its name, so a new one needs a new bootstrap."""
    async with envoy_beside(tmp_path) as beside:
        layer: dict[str, object] = {"name": "one", "layer": {"a.b": 1}}
        beside.publish({"rtds": {"one": layer}})
        first = await beside.heard.started()
        await beside.heard.next()
        beside.publish({"rtds": {"one": layer, "two": {"name": "two", "layer": {"a.b": 2}}}})
        second = await beside.heard.started()

        assert first.admin != second.admin
        assert _runtime_value(second.admin, "a.b") == "2"


async def test_end_of_envoy_is_told_and_the_next_snapshot_starts_another(tmp_path: Path) -> None:
    """An Envoy that is killed is told with its status, and does not end fsxds."""
    async with envoy_beside(tmp_path) as beside:
        beside.publish({"cds": {"a": cluster("a")}})
        os.kill(_pid(await beside.heard.started()), signal.SIGKILL)
        ended = await _next_of(beside, EndedEnvoy)

        assert isinstance(ended, EndedEnvoy)
        assert ended.status == -signal.SIGKILL
        assert any("starting main dispatch loop" in message for message in ended.tail)

        beside.publish({"cds": {"b": cluster("b")}})
        await beside.heard.started()

        assert await beside.heard.next() == TookTypes(("cds",))


async def test_envoy_that_cannot_start_is_told_with_its_log(tmp_path: Path) -> None:
    """A bootstrap that Envoy rejects ends it at once; what it said is told."""
    beside = Beside(tmp_path)
    plan = plan_of(Path(find_envoy()), lambda _: {"no_such_field": 1})
    beside.publish({"cds": {"a": cluster("a")}})
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run_envoy(beside.store, plan, beside.heard))
        ended = await beside.heard.next()
        running.cancel()

    assert isinstance(ended, EndedEnvoy)
    assert ended.status == 1
    assert "no_such_field" in "\n".join(ended.tail)


async def test_nothing_is_left_when_it_is_cancelled(tmp_path: Path) -> None:
    """The process is gone, and its bootstrap with it."""
    async with envoy_beside(tmp_path) as beside:
        beside.publish({"cds": {"a": cluster("a")}})
        pid = _pid(await beside.heard.started())

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_executable_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    """The message names it and the option."""
    beside = Beside(tmp_path)
    beside.publish({"cds": {"a": cluster("a")}})
    plan = plan_of(tmp_path / "no-envoy", beside.bootstrap_for)

    with pytest.raises(ExceptionGroup) as caught:
        await run_envoy(beside.store, plan, Recorder())

    assert caught.group_contains(UsageError, match="no-envoy: is no executable file; --envoy names", depth=1)


def _pid(started: Started) -> int:
    """Return the process id, which Envoy tells of itself nowhere: found by the port of its admin page."""
    port = int(started.admin.rpartition(":")[2])
    inodes = {
        fields[9]
        for fields in (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == "0A"
    }
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if any(target == f"socket:[{inode}]" for inode in inodes):
            return int(link.parts[2])
    raise AssertionError(port)


def _runtime_value(address: str, key: str) -> str:
    host, _, port = address.rpartition(":")
    values = EnvoyAdmin((host, int(port))).get_json("/runtime")["entries"]
    return str(values[key]["final_value"])


async def _next_of(beside: Beside, kind: type[EndedEnvoy]) -> object:
    while not isinstance(event := await beside.heard.next(), kind):
        pass
    return event
