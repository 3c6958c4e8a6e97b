"""State-of-the-world streams: what no written dialogue shows."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from fsxds.model.resources import Snapshot
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.acks import MOST_UNANSWERED
from fsxds.protocol.messages import Node, SotwRequest, SotwResponse
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import SharedMemory, Subscription
from fsxds.protocol.ttl import TtlMode
from tests.support.costs import cost_s
from tests.support.snapshots import snapshot, type_url

CDS, EDS, SDS, VHDS = (type_url(name) for name in ("CDS", "EDS", "SDS", "VHDS"))


@pytest.fixture
def stream() -> SotwStream:
    """An aggregated stream."""
    return make_stream()


def make_stream(memory: SharedMemory | None = None) -> SotwStream:
    """Open a stream beside others that share `memory`."""
    return SotwStream(memory or SharedMemory(), TtlMode.ENVOY, is_aggregated=True)


def ack(response: SotwResponse, *names: str) -> SotwRequest:
    """Accept a response, and ask for the same names."""
    return SotwRequest(response.type_url, names, response.version, response.nonce)


def test_node_is_kept_from_the_first_request(stream: SotwStream) -> None:
    """Later requests may bear no node, or another one: the first stays."""
    assert stream.node is None
    stream.receive_request(SotwRequest(CDS, node=Node("first")), None, 0.0)
    stream.receive_request(SotwRequest(CDS), None, 0.0)
    stream.receive_request(SotwRequest(CDS, node=Node("second")), None, 0.0)

    assert stream.node == Node("first")


def test_node_may_come_late(stream: SotwStream) -> None:
    """A client that leaves out its node at first may send it later."""
    stream.receive_request(SotwRequest(CDS), None, 0.0)
    stream.receive_request(SotwRequest(EDS, ("a",), node=Node("late")), None, 0.0)

    assert stream.node == Node("late")


@pytest.mark.parametrize("url", [TypeUrl("type.googleapis.com/unknown.Message"), VHDS])
def test_other_types_are_ignored(stream: SotwStream, url: TypeUrl) -> None:
    """A request for a type that these streams do not have is answered by nothing, and leaves no trace."""
    current = snapshot({"VHDS": {"a": "1"}})

    assert not stream.receive_request(SotwRequest(url), current, 0.0).responses
    assert not stream.receive_snapshot(replace(current, generation=2), 0.0)
    assert not stream.statistics()


def test_nonces_are_unique_within_a_stream(stream: SotwStream) -> None:
    """No two responses of a stream have the same nonce, of whatever type they are."""
    current = snapshot({"CDS": {"a": "1"}, "EDS": {"a": "1"}, "LDS": {"a": "1"}})
    nonces = [
        response.nonce
        for short_name in ("CDS", "EDS", "LDS")
        for response in stream.receive_request(SotwRequest(type_url(short_name), ("a",)), current, 0.0).responses
    ]

    assert len(nonces) == len(set(nonces)) == 3


def test_statistics_tell_where_each_type_stands(stream: SotwStream) -> None:
    """The status of a type has what its client asked for, was sent, accepted, and does not find."""
    current = snapshot({"CDS": {"a": "1"}, "EDS": {"x": "1"}})
    stream.receive_request(SotwRequest(EDS, ("x", "y")), current, 0.0)
    (clusters,) = stream.receive_request(SotwRequest(CDS), current, 0.0).responses
    stream.receive_request(ack(clusters), current, 0.0)
    first, second = stream.statistics()

    assert (first.type_url, first.names, first.sent, first.acked) == (CDS, None, clusters.version, clusters.version)
    assert [resource.name for resource in first.resources] == ["a"]
    assert (second.type_url, second.names, second.acked) == (EDS, frozenset("xy"), None)
    assert second.missing == ("y",)


def test_statistics_of_a_rejection(stream: SotwStream) -> None:
    """What was NACKed is there with its error, until something later is ACKed."""
    current = snapshot({"CDS": {"a": "1"}})
    (sent,) = stream.receive_request(SotwRequest(CDS), current, 0.0).responses
    stream.receive_request(replace(ack(sent), error_detail="bad"), current, 0.0)
    (status,) = stream.statistics()

    assert (status.nacked, status.reason, status.rejected) == (sent.version, "bad", frozenset("a"))
    assert status.acked is None

    (sent,) = stream.receive_snapshot(snapshot({"CDS": {"a": "2"}}, generation=2), 0.0)
    stream.receive_request(ack(sent), None, 0.0)
    (status,) = stream.statistics()
    assert (status.nacked, status.reason, status.rejected) == (None, None, frozenset())
    assert status.acked == sent.version


def test_statistics_before_anything_was_told(stream: SotwStream) -> None:
    """A type that was asked for before a tree was loaded has nothing, and misses nothing."""
    stream.receive_request(SotwRequest(EDS, ("a",), Version("old")), None, 0.0)
    (status,) = stream.statistics()

    assert (status.sent, status.acked, status.missing, tuple(status.resources)) == (None, None, (), ())


def test_statistics_of_what_was_held_already(stream: SotwStream) -> None:
    """A client that reconnects with all it should hold counts as one that was sent that, and accepted it."""
    current = snapshot({"CDS": {"a": "1"}})
    stream.receive_request(SotwRequest(CDS, (), current.versions[CDS]), current, 0.0)
    (status,) = stream.statistics()

    assert status.sent == status.acked == current.versions[CDS]
    assert [resource.name for resource in status.resources] == ["a"]


def test_clients_that_never_answer_are_not_remembered_forever(stream: SotwStream) -> None:
    """Of a client that answers nothing only the last responses can be rejected still."""
    contents = {"EDS": {"a": "1"}}
    (first,) = stream.receive_request(SotwRequest(EDS, ("a",)), snapshot(contents), 0.0).responses
    sent = [first]
    for generation in range(2, 2 + MOST_UNANSWERED):
        sent += stream.receive_snapshot(snapshot({"EDS": {"a": str(generation)}}, generation=generation), 0.0)

    assert len(sent) == MOST_UNANSWERED + 1
    assert stream.receive_request(replace(ack(sent[0], "a"), error_detail="bad"), None, 0.0).acknowledgement is None
    assert stream.receive_request(replace(ack(sent[1], "a"), error_detail="bad"), None, 0.0).acknowledgement is not None


def test_streams_share_what_they_send() -> None:
    """Two streams that ask the same are sent the same objects, so that the bytes of these are made once."""
    memory, current = SharedMemory(), snapshot({"CDS": {"a": "1", "b": "1"}, "EDS": {"a": "1", "b": "1"}})
    streams = [make_stream(memory) for _ in range(2)]
    for request in (SotwRequest(CDS), SotwRequest(EDS, ("a", "b"))):
        first, second = (stream.receive_request(request, current, 0.0).responses[0] for stream in streams)
        assert first.resources is second.resources
    after = snapshot({"CDS": {"a": "1", "b": "1"}, "EDS": {"a": "2", "b": "1"}}, generation=2)
    first, second = (stream.receive_snapshot(after, 0.0)[0] for stream in streams)

    assert first.resources is second.resources


def _sizes(value: object, seen: set[int]) -> int:
    """Sum up what an object keeps of its own: what is shared by all streams is left out by `seen`."""
    if id(value) in seen or isinstance(value, (type, SharedMemory, Snapshot)):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(_sizes(key, seen) + _sizes(kept, seen) for key, kept in value.items())
    if isinstance(value, (tuple, frozenset)):
        return size + sum(_sizes(kept, seen) for kept in value)
    slots = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
    return size + sum(_sizes(getattr(value, name, None), seen) for name in slots)


def test_an_idle_stream_is_small() -> None:
    """A stream keeps no names of its own where others asked for the same: a few kilobytes, however much it is sent."""
    names = [f"name-{number}" for number in range(1000)]
    contents = {short: dict.fromkeys(names, "1") for short in ("CDS", "EDS", "LDS", "RDS")}
    memory, current = SharedMemory(), snapshot(contents)
    streams = [make_stream(memory) for _ in range(2)]
    for stream in streams:
        for short in contents:
            asked = tuple(names) if short in ("EDS", "RDS") else ()
            (sent,) = stream.receive_request(SotwRequest(type_url(short), asked), current, 0.0).responses
            stream.receive_request(ack(sent, *asked), current, 0.0)
    seen: set[int] = set()
    _sizes(streams[0], seen)

    assert _sizes(streams[1], seen) < 6000


def test_cost_of_an_update_follows_the_change() -> None:
    """One changed endpoint of many is found without looking at the others, on every stream."""
    few, many = (min(_cost_of_an_update(count) for _ in range(3)) for count in (100, 10_000))

    # Comparing all names costs a hundred times as much.
    assert many < 10 * few


def _cost_of_an_update(count: int) -> float:
    """Return what it costs to push one changed endpoint of so many to a hundred streams, in seconds."""
    names = [f"name-{number}" for number in range(count)]
    before = snapshot({"EDS": dict.fromkeys(names, "1")})
    changed = snapshot({"EDS": {names[0]: "2"}}).resources(EDS)
    rows = before.resources(EDS).with_changes(changed.values(), ()).prepared()
    after = replace(before, generation=2, by_type={**before.by_type, EDS: rows})
    memory = SharedMemory()
    streams = [make_stream(memory) for _ in range(100)]
    for stream in streams:
        (sent,) = stream.receive_request(SotwRequest(EDS, ("*",)), before, 0.0).responses
        stream.receive_request(ack(sent, "*"), before, 0.0)
    pushed: list[tuple[SotwResponse, ...]] = []
    spent_s = cost_s(lambda: pushed.extend(stream.receive_snapshot(after, 0.0) for stream in streams), 1)

    assert all([resource.name for resource in response.resources] == [names[0]] for (response,) in pushed)
    return spent_s


def test_foreign_words_do_not_break_a_stream(stream: SotwStream) -> None:
    """Whatever a client says of versions and nonces, it is answered or ignored."""
    current = snapshot({"SDS": {"a": "1"}})
    for nonce in (None, Nonce("1"), Nonce("x"), Nonce("")):
        for detail in (None, "", "bad"):
            request = SotwRequest(SDS, ("a", "*", ""), Version("x"), nonce, detail)
            stream.receive_request(request, current, 0.0)
    (status,) = stream.statistics()

    assert [resource.name for resource in status.resources] == ["a"]


def test_subscription_of_each_type(stream: SotwStream) -> None:
    """What a stream subscribed to is known by type; a type that it never requested is one of which it wants nothing."""
    stream.receive_request(SotwRequest(EDS, ("a",)), None, 0.0)

    assert Subscription(EDS, frozenset("a"), wildcard=False) == stream.subscription_of(EDS)
    assert Subscription(CDS, wildcard=False) == stream.subscription_of(CDS)
