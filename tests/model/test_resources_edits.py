"""One edit of many resources is answered without a walk over them, whatever a client subscribed to by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Never

import pytest

from fsxds.model.name_table import Chunk, NameTable
from fsxds.model.resources import Resource, Rows, RowsChange, Snapshot
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import DeltaRequest, Node, SotwRequest
from fsxds.protocol.poll import PollMemory, PollRequest, Send, Wait
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import SharedMemory, Subscription
from fsxds.protocol.ttl import TtlMode
from fsxds.rollout.machine import Rollout, RolloutOptions
from fsxds.rollout.step import StepKind
from tests.support.snapshots import resource, type_url

CDS, LDS = type_url("CDS"), type_url("LDS")
COUNT = 5000
NAMES = tuple(f"c{number:04d}" for number in range(COUNT))
WANTED = NAMES[:10]


def _walk(_: object) -> Never:
    raise AssertionError("the cost of an edit follows what it changed")


class _TableByName(NameTable[Resource]):
    """Resources that may be asked for by name, and not be walked over."""

    __iter__ = values = items = _walk


class _RowsByName(Rows):
    """The same with what is worked out from them."""

    __iter__ = values = items = _walk

    @property
    def by_name(self) -> NameTable[Resource]:
        """The resources alone."""
        return _TableByName(self)


def _following(rows: Rows, *updated: Resource, removed: tuple[str, ...] = ()) -> Rows:
    changed = rows.with_changes(updated, removed)
    return _RowsByName(CDS, changed, (rows, changed.changes_since(rows)))


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Return many clusters, of which all is known that clients may have asked."""
    rows = Rows(CDS, {name: resource("CDS", name) for name in NAMES}).prepared()
    assert not rows.timed
    return rows


def _edits(rows: Rows) -> Iterator[tuple[Rows, bool]]:
    """Yield rows after edits, one after the other, and whether a client that wants ten of them is to be told."""
    for updated, removed, is_told in (
        ([resource("CDS", NAMES[3], "2")], (), True),
        ([resource("CDS", NAMES[4000], "2")], (), False),
        ([resource("CDS", "new")], (), False),
        ((), (NAMES[4001],), False),
    ):
        rows = _following(rows, *updated, removed=removed)
        yield rows, is_told


def test_what_an_edit_makes_anew(rows: Rows) -> None:
    """Of many chunks, an edit makes two anew at most, and reads the names and versions of no others."""
    for after, _ in _edits(rows):
        before, rows = rows, after
        fresh = set[Chunk[Resource]](after.chunks) - set(before.chunks)

        assert len(before.chunks) > 20
        assert len(fresh) <= 2
        assert after.version != before.version
        assert not after.timed


@pytest.mark.parametrize("names", [WANTED, (*WANTED, "missing")])
def test_delta_clients(rows: Rows, names: tuple[str, ...]) -> None:
    """A Delta client by names is sent what it wants of an edit, and a wildcard client the edit."""
    named, everything = (DeltaStream(SharedMemory(), TtlMode.ENVOY, is_aggregated=False) for _ in range(2))
    first = Snapshot(1, {CDS: rows})
    for stream, wanted in ((named, names), (everything, ())):
        _acked(stream, stream.receive_request(DeltaRequest(CDS, wanted, node=Node("n")), first, 0.0).responses)
    for generation, (after, is_told) in enumerate(_edits(rows), 2):
        snapshot = Snapshot(generation, {CDS: after})
        responses = named.receive_snapshot(snapshot, 0.0)

        assert bool(responses) == is_told
        (response,) = everything.receive_snapshot(snapshot, 0.0)
        assert len(response.resources) + len(response.removed) == 1
        _acked(named, responses)


def _acked(stream: DeltaStream, responses: tuple[Any, ...]) -> None:
    for response in responses:
        stream.receive_request(DeltaRequest(CDS, nonce=response.nonce), None, 0.0)


def test_sotw_clients(rows: Rows) -> None:
    """A SotW client by names is sent what it wants, and nothing because of others."""
    stream = SotwStream(SharedMemory(), TtlMode.ENVOY, is_aggregated=False)
    request = SotwRequest(CDS, WANTED, node=Node("n"))
    assert len(stream.receive_request(request, Snapshot(1, {CDS: rows}), 0.0).responses) == 1
    for generation, (after, is_told) in enumerate(_edits(rows), 2):
        responses = stream.receive_snapshot(Snapshot(generation, {CDS: after}), 0.0)

        assert [len(response.resources) for response in responses] == [10] * is_told


def test_polls(rows: Rows) -> None:
    """A held poll by names is answered when one of its names changed, and held on because of others."""
    memory, poll = PollMemory(), PollRequest(Node("n"), Subscription.for_request(CDS, WANTED))
    decision, _ = memory.receive_request(poll, Snapshot(1, {CDS: rows}), 0.0)
    for generation, (after, is_told) in enumerate(_edits(rows), 2):
        if isinstance(decision, Send):
            poll = PollRequest(poll.node, poll.subscription, decision.selection.version)
            memory.receive_request(poll, Snapshot(generation - 1, {CDS: rows}), 0.0)
        decision = memory.receive_snapshot(poll, Snapshot(generation, {CDS: after}), 0.0)
        rows = after

        assert isinstance(decision, Send if is_told else Wait)


def test_rows_that_keep_some_of_earlier_ones(rows: Rows) -> None:
    """They know how they differ from these, share their chunks with the later ones, and know what did not change."""
    wanted = frozenset(WANTED)
    before = _following(rows, resource("CDS", NAMES[7]))
    selected = before.select(wanted)
    after = _following(before, resource("CDS", "new"), removed=(NAMES[4000], NAMES[4001]))
    both = after.with_rows_of(before, frozenset((NAMES[4000],)))

    assert {"new", NAMES[4000]} == both.among(("new", NAMES[4000], NAMES[4001]))
    assert RowsChange(frozenset(("new",)), removed=frozenset((NAMES[4001],))) == both.changes_since(before)
    assert RowsChange(removed=frozenset((NAMES[4000],))) == after.changes_since(both)
    assert len(set(both.chunks) - set(after.chunks)) <= 2
    assert both.select(wanted) is selected
    gone = _following(before, removed=(NAMES[4000],))
    assert gone.with_rows_of(before, frozenset((NAMES[4000],))) is before


def test_rollouts(rows: Rows) -> None:
    """Steps are planned by what an edit changed."""
    listeners = Rows(LDS, {"l": resource("LDS", "l", "1")})
    targets = [Snapshot(1, {CDS: rows, LDS: listeners})]
    for edit, (after, _) in enumerate(_edits(rows)):
        listeners = listeners.with_changes([resource("LDS", "l", str(edit))], ())
        targets.append(Snapshot(1, {CDS: after, LDS: listeners}))
    rollout, found = Rollout(RolloutOptions(linger_s=0)), []
    for target in targets:
        rollout.receive_target(target, 0.0)
        while rollout.step is not None:
            found.append(rollout.step.step_kind)
            rollout.receive_waiting(frozenset(), 0.0)
        assert rollout.served is target

    grow, switch, shrink = StepKind.GROW, StepKind.SWITCH, StepKind.SHRINK
    assert found[1:] == [grow, switch, grow, switch, grow, switch, switch, shrink]
