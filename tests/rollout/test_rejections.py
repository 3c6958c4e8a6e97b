"""Which node rejects what, when it is offered that again, and whose votes take it from everybody."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from fsxds.model.values import Version
from fsxds.rollout import rejections as rejections_module
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import (
    REMEMBERED_FOR_S,
    VOTES_FOR_S,
    Nack,
    Rejections,
    Votes,
    exceeds,
    nack_of,
)
from fsxds.settings.rollout_forms import NackLimit
from tests.support.rollouts import OneVoter, tree_snapshot
from tests.support.snapshots import type_url

LDS = type_url("LDS")
HALF = NackLimit()
SENT = tuple(tree_snapshot({"LDS": {"old": "1", "older": "1", "new": "1"}}).resources(LDS).values())


def version(name: str, content: str = "1") -> ResourceVersion:
    """Return a version of a listener."""
    return (LDS, name), Version(content)


def nack(*names: str, is_named: bool = False) -> Nack:
    """Return a NACK of listeners."""
    return Nack(frozenset(map(version, names)), is_named, "no")


def all_accept(count: int, first: int = 0) -> Mapping[str, int]:
    """Return the votes of so many nodes, numbered from the first one."""
    return {f"edge-{number}": 1 for number in range(first, first + count)}


def decide(rejections: Rejections, accepting: Votes, now_s: float = 0.0) -> set[str]:
    """Return the names of what is held back from all nodes, when these others were offered each version."""

    def others(versions: Collection[ResourceVersion]) -> Mapping[ResourceVersion, Votes]:
        return dict.fromkeys(versions, accepting)

    rejections.decide(others, now_s)
    return {name for (_, name), _ in rejections.held}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("Error adding/updating listener(s) old: cannot bind", ["old"]),
        ("Error adding/updating listener(s) old: cannot bind\nnew: cannot bind\n", ["new", "old"]),
        ("Error adding/updating listener(s) old: cannot bind, older: cannot bind", ["old", "older"]),
        ("Error adding/updating listener(s) old: the one that new has", ["old"]),
        ("Error adding/updating scoped route(s) old: no", ["old"]),
        ("Error adding/updating listener(s) unknown: cannot bind", None),
        ("listener new has no address", ["new"]),
        ("listener newest has no address", None),
        ("old: cannot bind", None),
        ("", None),
        (None, None),
    ],
)
def test_what_a_nack_is_about(words: str | None, named: list[str] | None) -> None:
    """An Envoy names what it rejects; of other words, and none, all that was new in the response may be meant."""
    found = nack_of(SENT, ["new"], words)

    assert sorted(name for (_, name), _ in found.versions) == (named or ["new"])
    assert (found.is_named, found.words) == (named is not None, words or None)


def test_a_nack_has_no_more_suspects_than_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response with a hundred thousand resources is not remembered by each of its names."""
    monkeypatch.setattr(rejections_module, "MOST_SUSPECTS", 2)

    assert len(nack_of(SENT, ["old", "older", "new"], None).versions) == 2


@pytest.mark.parametrize(
    ("limit", "rejecting", "accepting", "expected"),
    [
        pytest.param(HALF, {"a": 1}, {}, True, id="one alone"),
        pytest.param(HALF, {"a": 1}, {"b": 1}, False, id="one of two"),
        pytest.param(HALF, {"a": 1}, {"b": 1, "c": 1}, False, id="one of three"),
        pytest.param(HALF, {"a": 1, "b": 1}, {"c": 1}, True, id="two of three"),
        pytest.param(HALF, {"team": 9}, {"b": 1, "c": 1}, False, id="nine nodes of one identity are one vote"),
        pytest.param(HALF, {"team": 1}, {"team": 2}, False, id="one of three nodes of the only identity"),
        pytest.param(HALF, {"team": 2}, {"team": 2}, False, id="half of the nodes of the only identity"),
        pytest.param(NackLimit(0.1), {"a": 1}, all_accept(9), False, id="a tenth"),
        pytest.param(NackLimit(0.1), {"a": 1}, all_accept(8), True, id="more than a tenth"),
        pytest.param(NackLimit(0.29), all_accept(29), all_accept(71, 29), False, id="29 of 100, with floats"),
        pytest.param(NackLimit(0.0), {"a": 1}, all_accept(99), True, id="any"),
        pytest.param(NackLimit(count=0), {"a": 1}, all_accept(99), True, id="any, as a count"),
        pytest.param(NackLimit(count=1), {"a": 1}, {}, False, id="one, where one is allowed"),
        pytest.param(NackLimit(count=1), {"a": 1, "b": 1}, all_accept(99), True, id="two of many"),
        pytest.param(None, {"a": 1}, {}, False, id="off"),
        pytest.param(HALF, {}, {}, False, id="nobody"),
    ],
)
def test_votes_that_exceed_the_limit(
    limit: NackLimit | None, rejecting: Votes, accepting: Votes, *, expected: bool
) -> None:
    """A share or a count of identities, of those that were offered the version."""
    assert exceeds(limit, rejecting, accepting) is expected


def test_one_of_many_decides_for_itself_alone() -> None:
    """It is not served what it rejects, and all others are."""
    rejections = Rejections(HALF)
    rejections.receive_nack("odd", OneVoter("odd", "odd"), nack("new"), 0.0)

    assert decide(rejections, all_accept(9)) == set()
    assert rejections.held_for("odd") == {version("new")}
    assert rejections.held_for("edge-1") == frozenset()


def test_what_many_reject_is_served_nobody() -> None:
    """Until one of them takes it after all, and the votes are below the limit."""
    rejections = Rejections(HALF)
    for node in ("a", "b"):
        rejections.receive_nack(node, OneVoter(node, node), nack("new"), 0.0)
    assert decide(rejections, all_accept(1), 5.0) == {"new"}
    assert rejections.held_for("other") == {version("new")}
    assert rejections.held[version("new")].since_s == 5.0

    rejections.receive_taken("a", lambda _: True)
    assert decide(rejections, {}) == set()
    assert rejections.held_for("b") == {version("new")}


def test_those_who_were_offered_what_is_held_stay_counted() -> None:
    """Nobody is offered it any more, so that nobody else would be there."""
    rejections = Rejections(HALF)
    for node in "ab":
        rejections.receive_nack(node, OneVoter(node, node), nack("new"), 0.0)
    decide(rejections, all_accept(1))

    assert decide(rejections, all_accept(1000)) == {"new"}
    assert rejections.held[version("new")].accepting == all_accept(1)


def test_a_node_rejects_a_version_once() -> None:
    """However often it NACKs it, on whatever streams, leaves and comes back."""
    rejections = Rejections(NackLimit(count=1))
    for now_s in range(3):
        rejections.receive_nack("a", OneVoter("a", "a"), nack("new"), now_s)
        rejections.receive_presence("a", now_s, is_there=False)
        rejections.receive_presence("a", now_s, is_there=True)

    assert decide(rejections, {}) == set()
    rejections.receive_nack("b", OneVoter("b", "b"), nack("new"), 3.0)
    assert decide(rejections, {}) == {"new"}


def test_a_version_is_the_same_in_all_views() -> None:
    """Nodes that reject the same content vote together; other content of the name is another matter."""
    rejections = Rejections(NackLimit(count=1))
    rejections.receive_nack("a", OneVoter("a", "a"), Nack(frozenset({version("new", "1")})), 0.0)
    rejections.receive_nack("b", OneVoter("b", "b"), Nack(frozenset({version("new", "2")})), 0.0)
    assert decide(rejections, {}) == set()
    rejections.receive_nack("c", OneVoter("c", "c"), Nack(frozenset({version("new", "1")})), 0.0)
    assert decide(rejections, {}) == {"new"}


def test_a_node_that_left_takes_its_vote_along() -> None:
    """After a while, so that a reconnection changes nothing; what it rejected is remembered for longer."""
    rejections = Rejections(HALF)
    rejections.receive_nack("a", OneVoter("a", "a"), nack("new"), 0.0)
    assert decide(rejections, {}) == {"new"}
    rejections.receive_presence("a", 1.0, is_there=False)
    assert decide(rejections, {}, VOTES_FOR_S) == {"new"}
    assert rejections.next_s(VOTES_FOR_S) == 1.0 + VOTES_FOR_S
    assert decide(rejections, {}, 1.0 + VOTES_FOR_S) == set()

    assert rejections.offer(1.0 + VOTES_FOR_S) == []
    assert rejections.held_for("a") == {version("new")}
    assert rejections.next_s(1.0 + VOTES_FOR_S) == 1.0 + REMEMBERED_FOR_S
    rejections.offer(1.0 + REMEMBERED_FOR_S)
    assert rejections.nodes == {}


def test_a_node_is_offered_again_what_it_rejects_with_back_off() -> None:
    """After 1, 2, 4 … and at most 60 s, and not again before it answered."""
    rejections, now_s, waits_s = Rejections(None), 0.0, []
    for _ in range(8):
        rejections.receive_nack("a", OneVoter("a", "a"), nack("new"), now_s)
        assert rejections.held_for("a") == {version("new")}
        at_s = rejections.next_s(now_s)
        assert at_s is not None
        assert rejections.offer(at_s - 0.1) == []
        assert rejections.offer(at_s) == ["a"]
        assert rejections.held_for("a") == frozenset()
        assert rejections.offer(at_s + 1000) == []
        waits_s.append(at_s - now_s)
        now_s = at_s

    assert waits_s == [1, 2, 4, 8, 16, 32, 60, 60]


def test_what_is_offered_to_one_is_still_held_from_the_others() -> None:
    """The rejecter alone shows whether it takes it now."""
    rejections = Rejections(HALF)
    rejections.receive_nack("a", OneVoter("a", "a"), nack("new"), 0.0)
    decide(rejections, {})
    rejections.offer(1.0)

    assert not rejections.held_for("a")
    assert rejections.held_for("b") == {version("new")}


def test_suspects_are_offered_in_ever_smaller_parts() -> None:
    """Until the culprit is alone; those that the client names are known at once."""
    rejections = Rejections(None)
    names = [f"n{number:02}" for number in range(40)]
    rejections.receive_nack("a", OneVoter("a", "a"), nack(*names), 0.0)
    now_s, offers = 0.0, 0
    while rejections.held_for("a") != {version("n07")} and offers < 100:
        now_s = max(rejections.next_s(now_s) or now_s, now_s)
        offers += 1
        assert rejections.offer(now_s) == ["a"]
        offered = rejections.nodes["a"].pending.offered
        if version("n07") in offered:
            rejections.receive_nack("a", OneVoter("a", "a"), Nack(offered), now_s)
        else:
            rejections.receive_taken("a", offered.__contains__)
    assert offers <= 20
    assert rejections.versions == {version("n07")}

    named = Rejections(None)
    named.receive_nack("a", OneVoter("a", "a"), nack("x", "y", is_named=True), 0.0)
    named.offer(1.0)
    assert named.nodes["a"].pending.offered == {version("x")}


def test_what_a_node_takes_it_does_not_reject_any_more() -> None:
    """Only what it was served counts; when nothing is left, the node is forgotten."""
    rejections = Rejections(HALF)
    rejections.receive_nack("a", OneVoter("a", "a"), nack("x", "y"), 0.0)
    rejections.receive_taken("a", lambda one: one == version("x"))
    assert rejections.nodes["a"].reasons.keys() == {version("y")}
    rejections.receive_taken("a", lambda _: True)

    assert rejections.nodes == {}
    rejections.receive_taken("a", lambda _: True)


def test_versions_that_are_forgotten_are_offered_to_all() -> None:
    """By `retry`, or because something changed: also those that were held, with their back-off."""
    rejections = Rejections(HALF)
    rejections.receive_nack("a", OneVoter("a", "a"), nack("x", "y"), 0.0)
    rejections.receive_nack("b", OneVoter("b", "b"), nack("x"), 0.0)
    decide(rejections, {})
    rejections.forget({version("x")})

    assert set(rejections.nodes) == {"a"}
    assert set(rejections.held) == {version("y")}
    assert rejections.held_for("a") == {version("y")}


def test_a_node_is_known_with_its_words() -> None:
    """The last that it said of a version, since when it rejects it, and whose vote it is."""
    rejections = Rejections(HALF)
    rejections.receive_nack("a", OneVoter("edge-1", "team"), Nack(frozenset({version("x")}), words="first"), 1.0)
    rejections.receive_nack("a", OneVoter("edge-1", "other"), Nack(frozenset({version("x")}), words="again"), 5.0)

    node = rejections.nodes["a"]
    assert (node.name, node.identity, node.reasons) == ("edge-1", "other", {version("x"): ("again", 1.0)})


def test_of_very_many_nodes_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash loop with new names does not fill the memory."""
    monkeypatch.setattr(rejections_module, "MOST_NODES", 3)
    rejections = Rejections(HALF)
    for node in "abcda":
        rejections.receive_nack(node, OneVoter(node, node), nack("x"), 0.0)

    assert list(rejections.nodes) == ["c", "d", "a"]


def test_nothing_is_due_where_nothing_is_rejected() -> None:
    """No timer is set."""
    assert (Rejections(HALF).next_s(0.0), Rejections(HALF).versions) == (None, frozenset())
