from __future__ import annotations

import pytest

from fsxds.events.event import Event
from fsxds.events.process_events import StateIgnored
from fsxds.history.rejection_rows import encode_rejections, restore_rejections
from fsxds.history.state import State
from fsxds.model.errors import StateError
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import VOTES_FOR_S, HeldVersion, Nack, Rejections
from fsxds.settings.rollout_forms import NackLimit
from fsxds.snapshots.encoding import DamagedBytesError
from tests.support.publishing import CDS, version_of_content
from tests.support.rollouts import OneVoter

X, Y = (((CDS, name), version_of_content(name, "bad")) for name in "xy")
NODE = ("edge-1", "edge")


def rejected(*versions: ResourceVersion, times: int = 1) -> Rejections:
    """Return what a node rejects, so many times in a row, of which the first version is held back from all."""
    rejections = Rejections(NackLimit())
    for _ in range(times):
        rejections.receive_nack(NODE, OneVoter("edge-1", "team"), Nack(frozenset(versions), words="no port"), 100.0)
    rejections.held = {versions[0]: HeldVersion(90.0, {"other": 2})}
    return rejections


def restored(text: str, passed_s: float = 0.0) -> Rejections:
    """Return what the next process has so long after, whose clock begins elsewhere."""
    found = Rejections(NackLimit(0.3))
    restore_rejections(found, text.encode(), 5000.0, 1_000_000.0 + passed_s)
    return found


def test_what_nodes_reject_survives() -> None:
    """With the words, since when, whose vote it is, and what is held back from all."""
    found = restored(encode_rejections(rejected(X, Y), 110.0, 1_000_000.0), 30.0)

    node = found.nodes[NODE]
    assert (node.name, node.identity) == ("edge-1", "team")
    assert node.reasons == {X: ("no port", 4960.0), Y: ("no port", 4960.0)}
    assert node.pending.names == {X, Y}
    assert found.held == {X: HeldVersion(4950.0, {"other": 2})}
    assert found.held_for(NODE) == {X, Y}


def test_a_node_votes_until_it_had_time_to_come_back() -> None:
    """It is gone until it is seen again."""
    found = restored(encode_rejections(rejected(X), 100.0, 1_000_000.0))

    found.decide(lambda _: {}, 5000.0 + VOTES_FOR_S - 1)
    assert set(found.held) == {X}
    found.decide(lambda _: {}, 5000.0 + VOTES_FOR_S)
    assert not found.held


@pytest.mark.parametrize(("passed_s", "left_s"), [(0.0, 4.0), (3.0, 1.0), (100.0, 0.0), (-50.0, 4.0)])
def test_back_off_goes_on(passed_s: float, left_s: float) -> None:
    """By the time of day; a clock that was set back prolongs nothing."""
    found = restored(encode_rejections(rejected(X, times=3), 100.0, 1_000_000.0), passed_s)
    found.receive_presence(NODE, 5000.0, is_there=True)

    assert found.nodes[NODE].retry_at_s == pytest.approx(5000.0 + left_s)


def test_nodes_without_an_id_are_not_kept() -> None:
    """Nobody would know them again."""
    rejections = Rejections(NackLimit())
    rejections.receive_nack(object(), OneVoter("10.0.0.1", "10.0.0.1"), Nack(frozenset({X})), 100.0)

    assert restored(encode_rejections(rejections, 100.0, 1_000_000.0)).nodes == {}


def test_no_secret_is_kept() -> None:
    """A node may repeat what it was sent."""
    rejections = Rejections(NackLimit())
    words = "bad -----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n-----END PRIVATE KEY-----"
    rejections.receive_nack(NODE, OneVoter("edge-1", "edge-1"), Nack(frozenset({X}), words=words), 100.0)

    assert "MIIEvQIBADAN" not in encode_rejections(rejections, 100.0, 1_000_000.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"saved_s": "x"}', '{"saved_s": 1, "nodes": [{}], "held": []}'])
def test_damage_is_reported(text: str) -> None:
    """It is no reason to fail."""
    with pytest.raises(DamagedBytesError):
        restored(text)


def test_they_are_in_the_database(state: State) -> None:
    """In place of what was there before."""
    for versions in ((X,), (X, Y)):
        state.keep_rejections(encode_rejections(rejected(*versions), 100.0, 1_000_000.0))
    state.close()
    found = Rejections(NackLimit())
    state.restore_rejections(found, 5000.0, 1_000_000.0)

    assert found.versions == {X, Y}


def test_damaged_ones_are_reported(state: State, events: list[Event]) -> None:
    """What is in the database is set aside, and another one begun."""
    state.keep_rejections("nonsense")
    state.close()
    found = Rejections(NackLimit())
    with pytest.raises(StateError, match="the table of rejections is damaged"):
        state.restore_rejections(found, 5000.0, 1_000_000.0)
    state.restore_rejections(found, 5000.0, 1_000_000.0)

    assert not found.nodes
    assert [type(event) for event in events] == [StateIgnored]
