"""What `fsxds watch` says for itself, and what it does where messages are not known."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from fsxds.api.catalogue import Catalogue
from fsxds.client.connection import Trouble
from fsxds.client.updates import ELSEWHERE, Update, UpdateContents
from fsxds.model.errors import UsageError
from fsxds.model.resources import Resource, version_of_body
from fsxds.model.values import Nonce, Version
from fsxds.tools import watch_output
from fsxds.tools.watch_output import Holdings, JsonOutput, TextOutput, TroubleReporter
from tests.support.snapshots import type_url

CDS = type_url("CDS")
# The files that every catalogue has, and none of Envoy's.
NOTHING_KNOWN = Catalogue.of(
    FileDescriptorSet(file=[FileDescriptorProto(name="x.proto")]).SerializeToString(), "a set without types"
)


def updates(*contents: dict[str, bytes]) -> list[Update]:
    """Return updates with these resources."""
    made = []
    for bodies in contents:
        resources = UpdateContents(CDS)
        for name, body in bodies.items():
            resources.add(Resource(CDS, name, body, version_of_body(CDS, body), ELSEWHERE))
        made.append(Update(CDS, Version("1"), Nonce("1"), resources.frozen(), is_full=True))
    return made


def test_unknown_messages_are_compared_as_bytes(capfd: pytest.CaptureFixture[str]) -> None:
    """Where the types are not known, names are told, and on stderr why there are no fields."""
    holdings, output = Holdings(), TextOutput(NOTHING_KNOWN, ())
    for update in updates({"a": b"1", "b": b"1", "c": b"1"}, {"a": b"2", "b": b"1", "d": b"1"}):
        output.step(holdings.take(update))
    out, err = capfd.readouterr()
    lines = [line[9:] if line[0].isdigit() else line for line in out.splitlines()]

    assert [
        "clusters: 1 added, 1 changed, 1 removed  version 1",
        "  + d",
        "  - c",
        "  ~ a",
        "      the same fields in other bytes",
    ] == lines[4:]
    assert "give the server's Envoy by --envoy, or its types by --descriptors" in err


def test_unknown_messages_have_no_json(capfd: pytest.CaptureFixture[str]) -> None:
    """A program gets whole resources or none: the command ends."""
    (update,) = updates({"a": b"1"})
    with pytest.raises(UsageError, match="give the server's Envoy by --envoy"):
        JsonOutput(NOTHING_KNOWN).step(Holdings().take(update))

    assert "" == capfd.readouterr().out


async def test_the_same_trouble_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    """Trouble is told with what to do, once until it is over; then that it is over."""
    troubles = TroubleReporter()
    lost, other = Trouble("cannot connect: x", "UNAVAILABLE"), Trouble("no gRPC", "WRONG_PROTOCOL")
    troubles.connected()
    for trouble in (lost, lost, other):
        troubles.happened(trouble)
    troubles.connected()
    troubles.connected()
    troubles.happened(lost)

    assert [
        "cannot connect: x; trying again until a server is there",
        "no gRPC; if it is the address of REST, add --rest",
        "connected again",
        "cannot connect: x; trying again until a server is there",
    ] == [line[9:] for line in capfd.readouterr().err.splitlines()]


async def test_trouble_for_good_ends_the_command() -> None:
    """What cannot heal is wrong use."""
    with pytest.raises(UsageError, match="no method; another way may be: --ads"):
        TroubleReporter().happened(Trouble("no method", "UNIMPLEMENTED", is_final=True))


async def test_silence_is_explained(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that says nothing for a while is told of, with what it may mean; one that does is not."""
    monkeypatch.setattr(watch_output, "QUIET_S", 0.0)
    TroubleReporter()
    TroubleReporter().updated()
    await asyncio.sleep(0.01)

    assert 1 == capfd.readouterr().err.count("no response so far: ")
