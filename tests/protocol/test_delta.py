"""What Delta streams cost, and their status. The rules are in `tests/conversations/delta`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Never

from fsxds.model.resources import Rows, RowsChange, Snapshot
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.acks import NOTHING
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import ENVOY, DeltaRequest, Node
from fsxds.protocol.subscription import SharedMemory, Subscription
from fsxds.protocol.ttl import TtlMode
from fsxds.rollout.pending import MOST_PARTS
from tests.support.costs import cost_s
from tests.support.rollouts import tree_snapshot
from tests.support.snapshots import resource, snapshot, type_url
from tests.support.written_files import WrittenFiles

CDS, EDS = type_url("CDS"), type_url("EDS")


class _Unwalked(Rows):
    """Rows that may be asked for by name, and not be walked over."""

    def _walk(self) -> Never:
        raise AssertionError("the cost of a push follows what changed")

    __iter__ = values = items = _walk
    version = Version("2")


def _stream(memory: SharedMemory | None = None) -> DeltaStream:
    return DeltaStream(memory or SharedMemory(), TtlMode.ENVOY, is_aggregated=True)


def _ask(stream: DeltaStream, current: Snapshot, *names: str, **fields: Any) -> Any:
    return stream.receive_request(DeltaRequest(CDS, names, node=Node("n"), **fields), current, 0.0)


def _contents(count: int) -> dict[str, str]:
    return {f"c{number}": "1" for number in range(count)}


def _next(before: Snapshot, name: str, content: str) -> Snapshot:
    """Return the snapshot that follows, with one changed cluster."""
    old = before.by_type[CDS]
    rows = _Unwalked(
        CDS, {**old, name: resource("CDS", name, content)}, since=(old, RowsChange(fresh=frozenset((name,))))
    )
    return replace(before, generation=before.generation + 1, by_type={**before.by_type, CDS: rows})


def test_a_push_costs_what_changed() -> None:
    """One changed cluster of many is sent without looking at the others."""
    first = snapshot({"CDS": {f"c{number}": "1" for number in range(100)}})
    stream = _stream()
    _ask(stream, first)

    (response,) = stream.receive_snapshot(_next(first, "c7", "2"), 0.0)

    assert ["c7"] == [each.name for each in response.resources]


def test_what_a_client_brings_stays_while_something_served_names_it() -> None:
    """A server that starts with a tree that lacks a cluster never had it to keep, but can let those keep it who have it."""
    broken = tree_snapshot({"CDS": {"a": "1"}, "RDS": {"r": "1 CDS:a CDS:gone"}})
    held = {name: Version("1") for name in ("gone", "unused")}
    stream = _stream()
    (first,) = _ask(stream, broken, initial_resource_versions=held).responses
    stream.receive_request(DeltaRequest(CDS, nonce=first.nonce), broken, 1.0)
    moved = replace(tree_snapshot({"CDS": {"a": "1"}, "RDS": {"r": "2 CDS:a"}}, broken), generation=2)

    assert (["a"], ("unused",)) == ([each.name for each in first.resources], first.removed)
    # Whether the client's routes have moved on is not known before it connects again.
    assert () == stream.receive_snapshot(moved, 2.0)
    (again,) = _ask(_stream(), moved, initial_resource_versions={"gone": Version("1")}).responses
    assert ("gone",) == again.removed


def test_equal_streams_share_what_they_are_told() -> None:
    """Two streams that are sent the same get the same object, so that its bytes are made once."""
    first = snapshot({"CDS": {"a": "1", "b": "1"}})
    second = snapshot({"CDS": {"a": "2", "b": "2"}}, generation=2)
    memory = SharedMemory()
    streams = [_stream(memory), _stream(memory)]

    for names in ((), ("+",)):
        sent = [_ask(stream, first, *names).responses[0].resources for stream in streams]
        assert sent[0] is sent[1]
    sent = [stream.receive_snapshot(second, 0.0)[0].resources for stream in streams]
    assert sent[0] is sent[1]


def test_equal_subscriptions_are_kept_once() -> None:
    """Streams that subscribe to the same names, in whatever steps, hold one set of them; it does not outlive them."""
    memory, current = SharedMemory(), snapshot({"CDS": {"a": "1"}})
    streams = [_stream(memory), _stream(memory)]
    _ask(streams[0], current, "a", "b")
    _ask(streams[1], current, "b")
    _ask(streams[1], current, "a", "c")
    _ask(streams[1], current, unsubscribe=("c",))

    held = [stream.subscription_of(CDS).names for stream in streams]

    assert held[0] is held[1]
    del streams, held
    names = frozenset({"a", "b"})
    assert memory.share(names) is names


def test_what_streams_nack_is_kept_once() -> None:
    """Ten thousand clients NACK the same mistake: what is pending is one set of names for all of them, also in parts."""
    memory, current = SharedMemory(), snapshot({"CDS": _contents(40)})
    streams = [_stream(memory), _stream(memory)]
    for stream in streams:
        first = _ask(stream, current).responses[0]
        _ask(stream, current, nonce=first.nonce, error_detail="no")
        stream.receive_timer(1.0)
    one, other = (stream._watches[CDS].acks.pending for stream in streams)

    assert one.names is other.names
    assert len(one._batches) > 1
    assert all(mine.names is theirs.names for mine, theirs in zip(one._batches, other._batches, strict=True))


def test_what_a_stream_is_said_to_hold() -> None:
    """The status of a watch has what was sent, accepted and rejected, and what is missing."""
    stream = _stream()
    current = snapshot({"CDS": {"a": "1", "b": "1"}})
    stream.receive_request(DeltaRequest(EDS, ("e",), node=Node("n")), current, 0.0)
    first = _ask(stream, current, "a", "x").responses[0]
    _ask(stream, current, nonce=first.nonce)
    changed = snapshot({"CDS": {"a": "2", "b": "1"}}, generation=2)
    (second,) = stream.receive_snapshot(changed, 0.0)
    acknowledgement = _ask(stream, changed, nonce=second.nonce, error_detail="bad").acknowledgement

    clusters, endpoints = stream.statistics()

    assert acknowledgement is not None
    assert (CDS, frozenset({"a", "x"})) == (clusters.type_url, clusters.names)
    assert (second.version, first.version, second.version) == (clusters.sent, clusters.acked, clusters.nacked)
    assert ("bad", frozenset({"a"}), ("x",)) == (clusters.reason, clusters.rejected, clusters.missing)
    assert ["a"] == [each.name for each in clusters.resources]
    assert EDS == endpoints.type_url
    assert 1.0 == stream.timer_at_s


def test_endpoints_that_follow_a_changed_cluster_are_rejected_like_others() -> None:
    """Only those that the client did not ask for are not offered again."""
    first = tree_snapshot({"CDS": {"c": "1 EDS:e"}, "EDS": {"e": "1"}})
    changed = replace(tree_snapshot({"CDS": {"c": "2 EDS:e"}, "EDS": {"e": "1"}}, first), generation=2)
    stream, envoy = _stream(), Node("n", agent=ENVOY)
    for url, names in ((CDS, ()), (EDS, ("e",))):
        (sent,) = stream.receive_request(DeltaRequest(url, names, node=envoy), first, 0.0).responses
        stream.receive_request(DeltaRequest(url, nonce=sent.nonce), first, 0.0)
    _, pushed = stream.receive_snapshot(changed, 1.0)
    stream.receive_request(DeltaRequest(EDS, nonce=pushed.nonce, error_detail="bad"), changed, 1.0)

    assert [NOTHING, {"e"}] == [watch.rejected for watch in stream.statistics()]


def test_a_wildcard_has_no_names() -> None:
    """The status of a watch for everything has no names, and all resources."""
    stream = _stream()
    _ask(stream, snapshot({"CDS": {"a": "1", "b": "1"}}))

    (watch,) = stream.statistics()

    assert (None, ["a", "b"], ()) == (watch.names, [each.name for each in watch.resources], watch.missing)


def test_a_watch_that_was_told_nothing_yet() -> None:
    """Before anything was loaded, a watch has its names and nothing else."""
    stream = _stream()
    stream.receive_request(DeltaRequest(CDS, ("a",), node=Node("n")), None, 0.0)

    (watch,) = stream.statistics()

    assert (frozenset({"a"}), None, ()) == (watch.names, watch.sent, watch.resources)


def test_what_a_stream_subscribes_to() -> None:
    """The subscription of a type is what its requests add up to, and nothing for one that was never asked for."""
    stream = _stream()
    current = snapshot({"CDS": {"a": "1"}})
    _ask(stream, current, "a", "b")

    assert Subscription(CDS, frozenset({"a", "b"}), wildcard=False) == stream.subscription_of(CDS)
    assert Subscription(EDS, wildcard=False) == stream.subscription_of(EDS)


def test_the_node_is_told_once() -> None:
    """The first node that a stream gets is the one that counts."""
    stream = _stream()
    stream.receive_request(DeltaRequest(CDS), None, 0.0)
    stream.receive_request(DeltaRequest(CDS, node=Node("first")), None, 0.0)
    stream.receive_request(DeltaRequest(CDS, node=Node("second")), None, 0.0)

    assert Node("first") == stream.node


def test_unknown_types_are_ignored() -> None:
    """A request for a type that is not served is not answered, and leaves nothing behind."""
    stream = _stream()
    reaction = stream.receive_request(DeltaRequest(TypeUrl("type.googleapis.com/none")), snapshot({}), 0.0)

    assert ((), None, ()) == (reaction.responses, reaction.acknowledgement, stream.statistics())


def test_a_client_that_never_answers() -> None:
    """So many responses are remembered for their ACKs; what is older counts as accepted."""
    stream = _stream()
    current = snapshot({"CDS": {"a": "1"}})
    for _ in range(100):
        _ask(stream, current, "a")

    assert _ask(stream, current, nonce=Nonce("1"), error_detail="late").acknowledgement is None
    assert _ask(stream, current, nonce=Nonce("100"), error_detail="bad").acknowledgement is not None
    assert 1.0 == stream.timer_at_s


def test_names_that_nobody_asks_for_are_forgotten() -> None:
    """What clusters referred to that are gone is not remembered for a client that never subscribes to endpoints."""
    files, stream = WrittenFiles(), DeltaStream(SharedMemory(), TtlMode.ENVOY, is_aggregated=True)
    for number in range(2000):
        files.say("files", "CDS", [f"c{number}=1>e{number}", f"c{number + 1}=1>e{number + 1}"])
        files.say("files", "EDS", [f"e{number + 1}=1"])
        if number == 0:
            _ask(stream, files.snapshot())
        for response in stream.receive_snapshot(files.snapshot(), 0.0):
            _ask(stream, files.snapshot(), nonce=response.nonce)

    assert len(stream._needed[EDS]) <= 101
    reaction = stream.receive_request(DeltaRequest(EDS, ("e2000",)), files.snapshot(), 0.0)
    assert [resource.name for response in reaction.responses for resource in response.resources] == ["e2000"]


def test_a_stream_with_enough_offers_sleeps() -> None:
    """While as many retries as may be await their ACK, the timer is not set for what else is due."""
    current = snapshot({"CDS": _contents(100)})
    stream = _stream()
    (response,) = _ask(stream, current).responses
    _ask(stream, current, nonce=response.nonce, error_detail="no")
    (pushed,) = stream.receive_snapshot(snapshot({"CDS": {**_contents(100), "x": "1"}}, generation=2), 0.0)
    stream.receive_request(DeltaRequest(CDS, nonce=pushed.nonce, error_detail="no"), None, 0.5)

    assert stream.timer_at_s == 1.0
    assert len(stream.receive_timer(1.0)) == MOST_PARTS
    assert stream.timer_at_s is None


def test_status_of_virtual_hosts() -> None:
    """Of virtual hosts a client should hold those of its hosts, and those that it brings from another stream."""
    vhds = type_url("VHDS")
    hosts = [replace(resource("VHDS", name, "1"), aliases=(f"{name}.com",)) for name in ("r/a", "r/b", "r/c")]
    current = snapshot({"VHDS": {"r/a": "1"}})
    current = replace(current, by_type={**current.by_type, vhds: Rows(vhds, {host.name: host for host in hosts})})
    stream = _stream()
    brought = {"r/b": hosts[1].version}
    request = DeltaRequest(vhds, ("r/a.com", "r/x.com"), initial_resource_versions=brought, node=Node("n"))
    stream.receive_request(request, current, 0.0)

    (status,) = stream.statistics()

    assert ["r/a", "r/b"] == [each.name for each in status.resources]
    assert ("r/x.com",) == status.missing


def test_a_missing_name_is_reported_when_it_is_certain() -> None:
    """A name that a broken file may have defined is reported as removed when that file is read, though nothing changed."""
    broken = snapshot({"CDS": {"a": "1"}}, incomplete=["CDS"])
    stream = _stream()
    (first,) = _ask(stream, broken, "a", "x").responses

    (second,) = stream.receive_snapshot(replace(broken, generation=2, incomplete=frozenset()), 0.0)

    assert () == first.removed
    assert (("x",), []) == (second.removed, list(second.resources))


def test_names_that_wait_are_counted() -> None:
    """A client cannot have more names kept than its limit, whatever it asks for before anything can be answered."""
    stream, names = _stream(), ("a", "b", "c")
    held = {"a": Version("1"), "x": Version("1")}

    stream.receive_request(DeltaRequest(CDS, names, initial_resource_versions=held), None, 0.0)
    assert 4 == stream.name_count
    stream.receive_request(DeltaRequest(CDS, ("*",), names), None, 0.0)
    assert 5 == stream.name_count
    for number in range(3):
        versions = {f"{number}-{one}": Version("1") for one in range(10)}
        stream.receive_request(DeltaRequest(EDS, unsubscribe=("x",), initial_resource_versions=versions), None, 0.0)
    assert 35 == stream.name_count
    stream.receive_snapshot(snapshot({"CDS": {"a": "1"}}), 0.0)
    assert 30 == stream.name_count


def test_spellings_are_counted() -> None:
    """Names that are kept as written count beside the name that they mean."""
    stream, written = _stream(), ("A", "aa", "a")

    stream.receive_request(DeltaRequest(CDS, written, canonical={"A": "a", "aa": "a"}), None, 0.0)
    assert 4 == stream.name_count
    stream.receive_request(DeltaRequest(CDS, unsubscribe=("A", "aa"), canonical={"A": "a", "aa": "a"}), None, 0.0)
    assert 2 == stream.name_count


def test_giving_up_nacked_names_costs_their_number() -> None:
    """A client that unsubscribes from NACKed names beside as many that do not exist makes no quadratic work."""

    def give_up(count: int) -> float:
        stream, contents = _stream(), _contents(count)
        current = snapshot({"CDS": contents})
        (first,) = _ask(stream, current, *contents, *(f"absent{number}" for number in range(count))).responses
        _ask(stream, current, nonce=first.nonce, error_detail="no")
        return cost_s(lambda: _ask(stream, current, unsubscribe=tuple(contents)), 1)

    assert give_up(4000) < 9 * give_up(1000)
