"""The removed members of collections on disk."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from fsxds.events.event import Event
from fsxds.events.process_events import StateIgnored
from fsxds.history import rollout_rows
from fsxds.history.state import State
from fsxds.history.state_directory import DATABASE
from fsxds.model.errors import StateError
from fsxds.protocol.absence import NO_TOMBSTONES, Tombstones, after_change
from tests.history.made import reopened
from tests.support.snapshots import snapshot, type_url

LEDS, CDS = type_url("LEDS"), type_url("CDS")
EDGE = ("common", "edge")


def removed(known: Tombstones, names: str, short_name: str = "LEDS") -> Tombstones:
    """Return what is noted when these members went, too."""
    members = {f"xdstp://x/t/d/{name}": "1" for name in names}
    return after_change(known, snapshot({short_name: members}), snapshot({}))


def names_of(known: Tombstones) -> dict[str, str]:
    """Return by type the names of the members that are noted, in their order."""
    return {type_url: "".join(name[-1] for name in names) for (type_url, _), names in known.items()}


def test_another_process_knows_them(state: State) -> None:
    """By view, type and collection, in the order in which they went, as often as something changes."""
    whole, edge = removed(removed(NO_TOMBSTONES, "ab"), "q", "CDS"), removed(NO_TOMBSTONES, "z")
    state.save({}, None, 0.0, {(): whole, EDGE: edge})
    state = reopened(state)
    assert {layers: names_of(known) for layers, known in state.removed_members().items()} == {
        (): {LEDS: "ab", CDS: "q"},
        EDGE: {LEDS: "z"},
    }
    whole = removed(removed(state.removed_members()[()], "c"), "a")
    state.save({}, None, 0.0, {(): whole})
    state.save({}, None, 0.0, {(): whole})
    state = reopened(state)
    assert names_of(state.removed_members()[()]) == names_of(whole) == {CDS: "q", LEDS: "bca"}
    assert names_of(state.removed_members()[EDGE]) == {LEDS: "z"}


def test_what_is_forgotten_goes(state: State) -> None:
    """What the process does not note any more is removed from the disk."""
    whole = removed(NO_TOMBSTONES, "abc")
    state.save({}, None, 0.0, {(): whole})
    ((key, names),) = whole.items()
    state.save({}, None, 0.0, {(): {key: {name: number for name, number in names.items() if number > 1}}})
    assert names_of(reopened(state).removed_members()[()]) == {LEDS: "bc"}


def test_views_in_bounds(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many views, those that changed last are kept."""
    monkeypatch.setattr(rollout_rows, "MOST_VIEWS", 2)
    for name in "abac":
        known = state.removed_members().get((name,), NO_TOMBSTONES)
        state.save({}, None, 0.0, {(name,): removed(known, name)})

    assert reopened(state).removed_members().keys() == {("a",), ("c",)}


def test_failed_write_is_written_later(state: State) -> None:
    """What could not be written is not taken for written."""
    state.save({}, None, 0.0, {(): removed(NO_TOMBSTONES, "a")})
    with closing(sqlite3.connect(state.path / DATABASE)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StateError):
            _with_little_patience(state).save({}, None, 0.0, {(): removed(NO_TOMBSTONES, "ab")})
    state.save({}, None, 0.0, {(): removed(NO_TOMBSTONES, "ab")})

    assert names_of(reopened(state).removed_members()[()]) == {LEDS: "ab"}


def _with_little_patience(state: State) -> State:
    assert state._opened is not None
    state._opened.connection.execute("PRAGMA busy_timeout = 1")
    return state


def test_database_of_an_earlier_version(state: State, events: list[Event]) -> None:
    """A database without the table gets it, and keeps what it has."""
    state.save({}, None, 0.0)
    state.close()
    with closing(sqlite3.connect(state.path / DATABASE)) as database:
        database.execute("DROP TABLE removed_members")
        database.commit()
    state = State.open(state.path, events.append)
    assert state.removed_members() == {}
    state.save({}, None, 0.0, {(): removed(NO_TOMBSTONES, "a")})

    assert names_of(reopened(state).removed_members()[()]) == {LEDS: "a"}
    assert events == []


@pytest.mark.parametrize("layers", ["oops", "3", b"\xff"])
def test_damage(state: State, events: list[Event], layers: str | bytes) -> None:
    """Rows that are something else are set aside with the database, and reported."""
    state.save({}, None, 0.0, {(): removed(NO_TOMBSTONES, "a")})
    state.close()
    with closing(sqlite3.connect(state.path / DATABASE)) as database:
        database.execute("UPDATE removed_members SET layers = ?", (layers,))
        database.commit()
    state = State.open(state.path, events.append)
    with pytest.raises(StateError):
        state.removed_members()

    assert state.removed_members() == {}
    assert any(isinstance(event, StateIgnored) for event in events)
