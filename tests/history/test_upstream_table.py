"""What upstreams hold, on disk: what is restored is what was kept last, whatever happened to the process and the database."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import pytest

from fsxds.events.event import Event
from fsxds.events.process_events import StateIgnored
from fsxds.history.state import State
from fsxds.history.state_directory import DATABASE
from fsxds.model.errors import StateError
from fsxds.model.resources import Reference, Resource
from fsxds.model.values import Severity, Version
from fsxds.runtime.row_source import KeptUpstream
from fsxds.snapshots.upstream_content import Held, HeldResource, origin_of
from tests.history.made import CDS, EDS, UPSTREAM, held_of, held_resource, reopened, resource_of, snapshot_of

TOP = (UPSTREAM, "10.0.0.2:18000")


def of_top(held: Held) -> list[KeptUpstream]:
    """Return the upstream TOP with what it holds."""
    return [KeptUpstream(TOP[0], TOP, held)]


NOTHING_OF_TOP = of_top({})


def plain(held: Held) -> dict[str, object]:
    """Return what is held as it can be compared, with all that equality of resources leaves out."""
    return {
        f"{type_url} {name}": (one, one.resource.references, str(one.resource.origin.path))
        for type_url, table in held.items()
        for name, one in table.items()
    }


def restored(state: State, upstream: str = TOP[0]) -> dict[str, object]:
    """Return what another process restores of an upstream."""
    other = reopened(state)
    try:
        return plain(other.restored_upstreams([KeptUpstream(upstream, TOP)]).held.get(upstream, {}))
    finally:
        other.close()


def run_sql(state: State, statement: str, *values: object) -> None:
    """Change a database behind the back of a process."""
    state.close()
    with closing(sqlite3.connect(state.path / DATABASE)) as connection:
        connection.execute(statement, values)
        connection.commit()


FULL = replace(
    held_resource("full", b"body" * 1000),
    resource=replace(
        resource_of("full", b"body" * 1000),
        aliases=("a", "ü"),
        ttl_s=2.5,
        references=(
            Reference(EDS, "x", ("a", 1, "b"), Severity.WARNING),
            Reference(CDS, "y", (), Severity.ERROR, is_static=True),
        ),
    ),
    expires_s=12.25,
)
REDIRECT = HeldResource(
    Resource(
        CDS, "from", b"", Version("0" * 32), origin_of(TOP[0]), redirect="xdstp://a/envoy.config.cluster.v3.Cluster/b"
    ),
    '"v1"',
    "http://10.0.0.1:18000",
    1.0,
)


def test_all_of_it_is_restored(state: State) -> None:
    """By another process: bodies of any size, versions of the upstream, times, aliases, references, redirects; nothing else."""
    held = held_of(FULL, REDIRECT, held_resource("empty", b""), held_resource("e", b"\0\xff", EDS))
    state.keep_upstreams(of_top(held))

    assert restored(state) == plain(held)


def test_what_changes_is_written_and_nothing_else(state: State) -> None:
    """New, changed, renewed and removed resources, and types, are as they were kept last; others are not touched."""
    first = held_of(*(held_resource(f"c{n}") for n in range(300)), FULL, held_resource("e", b"1", EDS))
    state.keep_upstreams(of_top(first))
    numbers = rows_of(state)
    changed = {"c7": held_resource("c7", b"22"), "full": replace(FULL, expires_s=99.0, version="v2"), "from": REDIRECT}
    second: Held = {CDS: first[CDS].changed(changed, {"c8", "c9"})}
    state.keep_upstreams(of_top(second))
    assert {name for name, number in rows_of(state).items() if numbers.get(name) != number} == {"c7", "from"}
    assert numbers.keys() - rows_of(state).keys() == {"c8", "c9", "e"}

    assert restored(state) == plain(second)


def rows_of(state: State) -> Mapping[str, int]:
    """Return the number of each row, which another one does not get, by the name of its resource."""
    with closing(sqlite3.connect(state.path / DATABASE)) as connection:
        return dict(connection.execute("SELECT name, rowid FROM held_resources"))


def test_nothing_is_written_again(state: State) -> None:
    """What another process restored, or what was kept just now, costs no write; one more server alone writes no resource."""
    held = held_of(FULL, held_resource("a"))
    state.keep_upstreams(of_top(held))
    state = reopened(state)
    found = state.restored_upstreams(NOTHING_OF_TOP).held[TOP[0]]
    before = (state.path / DATABASE).read_bytes()
    state.keep_upstreams(of_top(found))
    state.keep_upstreams(of_top(dict(found)))
    assert (state.path / DATABASE).read_bytes() == before
    numbers = rows_of(state)
    state.keep_upstreams([KeptUpstream(TOP[0], (*TOP, "c"), found)])

    assert (state.path / DATABASE).read_bytes() != before
    assert rows_of(state) == numbers


def test_bodies_are_shared_with_what_is_served(state: State) -> None:
    """A body that a restored snapshot has, too, is one object, so that memory is taken once."""
    held = held_of(FULL, held_resource("other", b"body"))
    state.keep_upstreams(of_top(held))
    served = snapshot_of([replace(FULL.resource, body=b"body" * 1000), resource_of("other", b"older")])
    found = reopened(state).restored_upstreams(NOTHING_OF_TOP, served).held[TOP[0]]

    assert found[CDS]["full"].resource.body is served.resources(CDS)["full"].body
    assert plain(found) == plain(held)


def test_upstreams_that_are_none_any_more(state: State) -> None:
    """What was kept of them is dropped; an upstream with another name and one of the servers is the same one."""
    state.keep_upstreams([*of_top(held_of(FULL)), KeptUpstream("b", ("b", "c"), held_of(held_resource("b")))])
    state = reopened(state)
    found = state.restored_upstreams([KeptUpstream("z", ("z", TOP[1])), KeptUpstream("x", ("x",))])
    assert found.dropped == ("b",)
    assert found.held.keys() == {"z"}
    assert {one.resource.origin for table in found.held["z"].values() for one in table.values()} == {origin_of("z")}
    state.keep_upstreams([KeptUpstream("z", ("z",), found.held["z"])])

    assert restored(state, "z") == plain(found.held["z"])
    assert rows_of(state).keys() == {"full"}


def test_upstreams_that_change_places(state: State) -> None:
    """Where names are those of other upstreams' servers, each keeps its own."""
    state.keep_upstreams([KeptUpstream("a", ("a", "b"), held_of(FULL)), KeptUpstream("b", ("b",), held_of(REDIRECT))])
    found = reopened(state).restored_upstreams([KeptUpstream("b", ("b", "a")), KeptUpstream("a", ("a",))])

    assert {name: list(held[CDS]) for name, held in found.held.items()} == {"a": ["full"], "b": ["from"]}


def test_what_could_not_be_read_stays_until_something_is_held(state: State) -> None:
    """A process that could not restore what is there does not remove it before its upstream answered."""
    state.keep_upstreams(of_top(held_of(FULL)))
    state = reopened(state)
    state.keep_upstreams(NOTHING_OF_TOP)
    assert restored(state) == plain(held_of(FULL))
    state = reopened(state)
    state.keep_upstreams(of_top(held_of(held_resource("a"))))

    assert restored(state) == plain(held_of(held_resource("a")))


def test_removed_directory(state: State) -> None:
    """Where somebody removed the database, or it is another one, all that is held is written again."""
    held = held_of(FULL, held_resource("a"))
    state.keep_upstreams(of_top(held))
    (state.path / DATABASE).unlink()
    state.keep_upstreams(of_top(held))
    assert restored(state) == plain(held)
    run_sql(state, "UPDATE upstreams SET mark = x'00'")
    run_sql(state, "UPDATE held_resources SET name = 'z' WHERE name = 'a'")
    state.keep_upstreams(of_top({CDS: held[CDS].changed({}, {"full"})}))

    assert restored(state) == plain(held_of(held_resource("a")))


def test_failed_write_changes_nothing(state: State) -> None:
    """What could not be written is written by the next write, on top of what is there."""
    first = held_of(FULL, held_resource("a"))
    state.keep_upstreams(of_top(first))
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, most))
    second: Held = {CDS: first[CDS].changed({f"n{n}": held_resource(f"n{n}", bytes(900)) for n in range(900)}, {"a"})}
    try:
        with pytest.raises(StateError):
            state.keep_upstreams(of_top(second))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    assert restored(state) == plain(first)
    state.keep_upstreams(of_top(second))

    assert restored(state) == plain(second)


def test_database_of_an_earlier_version(state: State, events: list[Event]) -> None:
    """A database without the tables gets them, and keeps what it has; one without upstreams has nothing of them."""
    snapshot = snapshot_of([FULL.resource])
    state.record((), snapshot, None, 0.0)
    state.close()
    run_sql(state, "DROP TABLE upstreams")
    run_sql(state, "DROP TABLE held_resources")
    state = State.open(state.path, events.append)
    assert not state.restored_upstreams(NOTHING_OF_TOP).held
    state.keep_upstreams(of_top(held_of(FULL)))

    assert restored(state) == plain(held_of(FULL))
    assert [entry.number for entry in state.entries()] == [1]
    assert events == []


DAMAGES = {
    "version": "'other'",
    "server": "x'ff'",
    "received_s": "'soon'",
    "expires_s": "1e9",
    "checksum": "NULL + 7",
    "digest": "'0'",
    "facts": "'1 []'",
    "is_deflated": "0",
    "body": "x'0011'",
    "name": "x'ff'",
    "type": "3",
}


@pytest.mark.parametrize("column", DAMAGES)
def test_damaged_resource(state: State, events: list[Event], column: str) -> None:
    """A resource that is not what was kept is left out and removed; all others are restored."""
    first = held_of(FULL, held_resource("a"), held_resource("b"))
    state.keep_upstreams(of_top(first))
    state.close()
    value = "7" if column == "checksum" else DAMAGES[column]
    run_sql(state, f"UPDATE held_resources SET {column} = {value} WHERE name = 'full'")
    state = State.open(state.path, events.append)
    found = state.restored_upstreams(NOTHING_OF_TOP)
    assert found.damaged == {TOP[0]: 1}
    assert plain(found.held[TOP[0]]) == plain(held_of(held_resource("a"), held_resource("b")))
    state.keep_upstreams(of_top(first))

    assert restored(state) == plain(first)
    assert events == []


def test_damaged_upstream(state: State, events: list[Event]) -> None:
    """Where it cannot be said what is whose, the database is set aside, and an empty one takes its place."""
    state.keep_upstreams(of_top(held_of(FULL)))
    state.close()
    run_sql(state, "UPDATE upstreams SET servers = '{'")
    state = State.open(state.path, events.append)
    with pytest.raises(StateError):
        state.restored_upstreams(NOTHING_OF_TOP)
    assert not state.restored_upstreams(NOTHING_OF_TOP).held
    assert [type(event) for event in events] == [StateIgnored]
    state.keep_upstreams(of_top(held_of(FULL)))

    assert restored(state) == plain(held_of(FULL))
