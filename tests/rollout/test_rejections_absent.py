"""Whose votes count against a rejection when clients leave, and when nobody is offered the version any more."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fsxds.model.values import Version
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import VOTES_FOR_S, Nack, Rejections, Votes
from fsxds.settings.rollout_forms import NackLimit
from tests.support.rollouts import OneVoter
from tests.support.snapshots import type_url

REJECTED: ResourceVersion = (type_url("LDS"), "web"), Version("1")


def rejected_by(node: str) -> Rejections:
    """Return the rejections of one node."""
    rejections = Rejections(NackLimit())
    rejections.receive_nack(node, OneVoter(node, node), Nack(frozenset((REJECTED,))), 0.0)
    return rejections


def decide(rejections: Rejections, accepting: Votes | None, now_s: float) -> bool:
    """Return whether the version is held back, when these accept it; None if nobody is offered it."""

    def others(versions: Collection[ResourceVersion]) -> Mapping[ResourceVersion, Votes]:
        return {} if accepting is None else dict.fromkeys(versions, accepting)

    rejections.decide(others, now_s)
    return bool(rejections.held)


def test_one_that_rejects_does_not_decide_while_the_others_reconnect() -> None:
    """Those that accept count as long as one that rejects after they left; then they do not."""
    rejections = rejected_by("a")
    assert not decide(rejections, {"b": 1, "c": 1}, 1.0)
    assert not decide(rejections, {}, 2.0)
    assert rejections.next_s(2.0) == 2.0 + VOTES_FOR_S
    assert not decide(rejections, {"b": 1}, 3.0)

    assert not decide(rejections, {}, 4.0)
    assert decide(rejections, {}, 4.0 + VOTES_FOR_S)


def test_one_that_accepted_and_rejects_now_does_not_count_twice() -> None:
    """Of two nodes both reject it."""
    rejections = rejected_by("a")
    rejections.limit = NackLimit(share=0.6)
    assert not decide(rejections, {"b": 1}, 1.0)
    rejections.receive_nack("b", OneVoter("b", "b"), Nack(frozenset((REJECTED,))), 2.0)

    assert decide(rejections, {}, 2.0)


def test_what_nobody_is_offered_is_not_held_back() -> None:
    """A version that another one replaced was good for the others."""
    assert not decide(rejected_by("a"), None, 1.0)
    assert decide(rejected_by("a"), {}, 1.0)
