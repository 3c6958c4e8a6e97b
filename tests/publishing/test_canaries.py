"""Canaries: which nodes they are, and when the others follow."""

from __future__ import annotations

from math import inf

import pytest

from fsxds.publishing.canaries import CanaryGate, is_in_share
from fsxds.rollout import NodeKey

Canaries = dict[NodeKey, bool | None]


def test_a_share_of_all_nodes() -> None:
    """Always the same ones, about as many as asked for, and of a larger share all of a smaller one."""
    names = [f"node-{number}" for number in range(2000)]
    shares = {share: {name for name in names if is_in_share(name, share)} for share in (0.0, 0.1, 0.5, 1.0)}

    assert (len(shares[0.0]), len(shares[1.0])) == (0, 2000)
    assert 120 < len(shares[0.1]) < 280
    assert shares[0.1] < shares[0.5]
    assert is_in_share("\ud800", 1.0)


def test_nothing_is_held_before_a_change() -> None:
    """There is nothing to wait for."""
    gate = CanaryGate(30.0, 1.0, inf)

    assert gate.is_open(0.0)
    assert (gate.wait_s(0.0), gate.opens_at_s) == (0.0, -inf)


@pytest.mark.parametrize(
    ("looks", "opens_at_s"),
    [
        pytest.param([], None, id="nobody looked"),
        pytest.param([(0, {})], None, id="no canary is connected"),
        pytest.param([(1, {"a": False})], None, id="the only one is silent"),
        pytest.param([(1, {"a": True})], 31, id="the only one has it"),
        pytest.param([(1, {"a": True, "b": False})], None, id="one of two has it"),
        pytest.param([(1, {"a": True, "b": False}), (9, {"a": True, "b": True})], 39, id="the last one takes it"),
        pytest.param([(1, {"a": True}), (9, {})], None, id="it left"),
        pytest.param([(1, {"a": True}), (9, {}), (20, {"a": True})], 50, id="it left and came back"),
        pytest.param([(1, {"a": True}), (9, {"a": False}), (20, {"a": True})], 50, id="it rejected it meanwhile"),
        pytest.param([(1, {"a": True}), (9, {"a": True, "new": False})], None, id="a new one has not taken it yet"),
        pytest.param([(1, {"a": True}), (9, {"a": True, "b": True})], 31, id="another one comes that has it"),
        pytest.param([(1, {"a": True, "b": True}), (9, {"a": True})], None, id="one of two left"),
        pytest.param([(1, {"a": True, "b": None})], None, id="one of two rejects it"),
    ],
)
def test_the_gate_opens_when_all_canaries_lived_with_the_change(
    looks: list[tuple[float, Canaries]], opens_at_s: float | None
) -> None:
    """All that were connected since it was offered have to have it for as long as it bakes."""
    gate = CanaryGate(30.0, 1.0, inf)
    gate.close(0.0)
    for now_s, canaries in looks:
        gate.look(canaries, now_s)

    assert gate.opens_at_s == opens_at_s
    assert not gate.is_open(30.9)
    assert gate.is_open(1e9) is (opens_at_s is not None)


@pytest.mark.parametrize(
    ("quorum", "taken", "count", "expected"),
    [(0.8, 8, 10, True), (0.8, 7, 10, False), (0.5, 1, 2, True), (0.01, 0, 10, False), (1.0, 9, 10, False)],
)
def test_the_share_that_has_to_have_it_is_a_setting(quorum: float, taken: int, count: int, *, expected: bool) -> None:
    """One at the least."""
    gate = CanaryGate(0.0, quorum, inf)
    gate.close(0.0)
    gate.look({f"n{number}": number < taken for number in range(count)}, 1.0)

    assert (gate.has_enough, gate.count, gate.missing) == (expected, count, count - taken)


def test_patience_may_end() -> None:
    """For those who ask for it."""
    gate = CanaryGate(30.0, 1.0, 600.0)
    gate.close(100.0)

    assert (gate.opens_at_s, gate.wait_s(160.0)) == (700.0, 60.0)
    assert not gate.is_open(699.0)
    assert gate.is_open(700.0)
    assert gate.waits_since_s is None


def test_patience_does_not_end_a_bake() -> None:
    """Canaries answered: they get their time."""
    gate = CanaryGate(30.0, 1.0, 60.0)
    gate.close(0.0)
    gate.look({"a": True}, 50.0)

    assert gate.opens_at_s == 80.0


def test_patience_is_no_consent_to_a_rejected_change() -> None:
    """Nor after the canary that rejected it left; if it is back without that, the time counts."""
    gate = CanaryGate(30.0, 1.0, 60.0)
    gate.close(0.0)
    gate.look({"a": None, "b": False}, 1.0)
    assert gate.opens_at_s is None
    gate.look({}, 2.0)
    assert (gate.opens_at_s, gate.missing) == (None, 2)
    gate.look({"a": False}, 3.0)

    assert gate.opens_at_s == 60.0


def test_promotion_opens_it_for_this_change() -> None:
    """The next one waits again, and for canaries that have that."""
    gate = CanaryGate(30.0, 1.0, inf)
    gate.close(0.0)
    gate.look({"a": True}, 1.0)
    gate.promote()
    assert gate.is_open(2.0)
    gate.close(3.0)

    assert (gate.is_open(40.0), gate.count, gate.opens_at_s) == (False, 0, None)


def test_a_look_without_a_change_says_nothing() -> None:
    """What canaries have then does not count for the next one."""
    gate = CanaryGate(30.0, 1.0, inf)
    gate.look({"a": True}, 0.0)
    gate.close(100.0)

    assert not gate.is_open(1000.0)
