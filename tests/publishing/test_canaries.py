"""Canaries: which nodes they are, and when the others follow."""

from __future__ import annotations

import pytest

from fsxds.publishing.canaries import Answers, Bake, BakeRules
from fsxds.settings.rollout_forms import is_in_share

NOWHERE: frozenset[str] = frozenset()
LONG = BakeRules(30.0)


def looked(bake: Bake, looks: list[tuple[float, Answers]], rules: BakeRules = LONG) -> list[bool]:
    """Let a bake have answers, each at a time; return when it opened."""
    return [bake.receive(answers, NOWHERE, rules, now_s) for now_s, answers in looks]


def test_a_share_of_all_nodes() -> None:
    """Always the same ones, about as many as asked for, and of a larger share all of a smaller one."""
    names = [f"node-{number}" for number in range(2000)]
    shares = {share: {name for name in names if is_in_share(name, share)} for share in (0.0, 0.1, 0.5, 1.0)}

    assert (len(shares[0.0]), len(shares[1.0])) == (0, 2000)
    assert 120 < len(shares[0.1]) < 280
    assert shares[0.1] < shares[0.5]
    assert is_in_share("\ud800", 1.0)


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
def test_it_opens_when_all_canaries_lived_with_the_change(
    looks: list[tuple[float, Answers]], opens_at_s: float | None
) -> None:
    """All that were connected since it was offered have to have it for as long as it bakes."""
    bake = Bake(frozenset(), 0.0)
    assert not any(looked(bake, looks))
    last = [(30.9, looks[-1][1]), (1e9, looks[-1][1]), (2e9, looks[-1][1])] if looks else []

    assert bake.opens_at_s == opens_at_s
    assert looked(bake, last) == [False, opens_at_s is not None, False][: len(last)]
    assert bake.is_open is (opens_at_s is not None)


@pytest.mark.parametrize(
    ("quorum", "taken", "count", "expected"),
    [(0.8, 8, 10, True), (0.8, 7, 10, False), (0.5, 1, 2, True), (0.01, 0, 10, False), (1.0, 9, 10, False)],
)
def test_the_share_that_has_to_have_it_is_a_setting(quorum: float, taken: int, count: int, *, expected: bool) -> None:
    """One at the least."""
    bake = Bake(frozenset(), 0.0)
    looked(bake, [(1.0, {f"n{number}": number < taken for number in range(count)})], BakeRules(0.0, quorum))

    assert (bake.is_open, bake.is_short, len(bake.nodes), bake.missing) == (
        expected,
        not expected,
        count,
        count - taken,
    )


def test_patience_may_end() -> None:
    """For those who ask for it."""
    bake, rules = Bake(frozenset(), 100.0), BakeRules(30.0, patience_s=600.0)

    assert looked(bake, [(160.0, {}), (699.0, {}), (700.0, {})], rules) == [False, False, True]


def test_patience_does_not_end_a_bake() -> None:
    """Canaries answered: they get their time."""
    bake, rules = Bake(frozenset(), 0.0), BakeRules(30.0, patience_s=60.0)
    looked(bake, [(50.0, {"a": True})], rules)

    assert bake.opens_at_s == 80.0


def test_patience_is_no_consent_to_a_rejected_change() -> None:
    """Nor after the canary that rejected it left; if it is back without that, the time counts."""
    bake, rules = Bake(frozenset(), 0.0), BakeRules(30.0, patience_s=60.0)
    looked(bake, [(1.0, {"a": None, "b": False})], rules)
    assert bake.opens_at_s is None
    looked(bake, [(2.0, {})], rules)
    assert (bake.opens_at_s, bake.missing) == (None, 2)
    looked(bake, [(3.0, {"a": False})], rules)

    assert bake.opens_at_s == 60.0


def test_promotion_opens_it() -> None:
    """Whoever is there."""
    bake = Bake(frozenset(), 0.0)
    assert looked(bake, [(1.0, {"a": None})]) == [False]
    bake.is_promoted = True

    assert looked(bake, [(2.0, {"a": None}), (3.0, {})]) == [True, False]
    assert not bake.is_short


def test_it_closes_when_a_canary_leaves_before_the_others_have_it() -> None:
    """Something else that it needs may wait still."""
    bake = Bake(frozenset(), 0.0)
    assert looked(bake, [(1.0, {"a": True}), (31.0, {"a": True}), (32.0, {})]) == [False, True, False]

    assert not bake.is_open


def test_who_is_no_canary_any_more_has_no_say() -> None:
    """It is connected, as one of the others or in another view."""
    bake = Bake(frozenset(), 0.0)
    looked(bake, [(1.0, {"a": True, "b": False})])
    bake.receive({"a": True}, {"b"}, LONG, 2.0)

    assert (bake.nodes, bake.opens_at_s) == ({"a": True}, 32.0)
