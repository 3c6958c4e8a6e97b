"""What is held of an upstream: what removes it, what renews it, and which versions a server is told of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fsxds.model.resources import Resource
from fsxds.model.values import TypeUrl
from fsxds.upstream.holdings import MOST_STALE_ENDS, HeldResources, ReadResponse, Taken
from tests.support.snapshots import resource, type_url
from tests.upstream.made import NOW_S, SERVER

CDS, EDS = type_url("cds"), type_url("eds")
OTHER = "127.0.0.1:18001"


def response(
    *resources: Resource,
    of_type: TypeUrl = CDS,
    versions: Mapping[str, str] | None = None,
    removed: tuple[str, ...] = (),
    is_full: bool = False,
    renewed: tuple[str, ...] = (),
    bad: tuple[str, ...] = (),
) -> ReadResponse:
    """Return what was read of a response; without other versions, a server gives the digests of the content."""
    of_content = {each.name: str(each.version) for each in resources}
    return ReadResponse(
        of_type,
        {each.name: each for each in resources},
        {**of_content, **(versions or {})},
        removed=frozenset(removed),
        renewed=frozenset(renewed),
        bad=dict.fromkeys(bad, "is wrong"),
        is_full=is_full,
    )


def wants_all(_: Resource) -> bool:
    """Want whatever comes."""
    return True


class Held(HeldResources):
    """What is held, where everything is wanted."""

    def receive(self, read: ReadResponse, server: str = SERVER, now_s: float = NOW_S) -> Taken:
        """Take in a response."""
        return self.take(read, wants_all, server, now_s)

    @property
    def contents(self) -> dict[str, str]:
        """What is held of clusters, by name."""
        return {name: each.body.decode().partition("=")[2] for name, each in self.rows_of(CDS).items()}


@pytest.fixture
def held() -> Held:
    """Two clusters."""
    made = Held(most=100)
    made.receive(response(resource("CDS", "a"), resource("CDS", "b")))
    return made


def timed(name: str, ttl_s: float = 10.0) -> Resource:
    """Return a cluster with a time to live."""
    made = resource("CDS", name)
    return Resource(made.type_url, made.name, made.body, made.version, made.origin, ttl_s=ttl_s)


def test_a_response_replaces_what_it_names(held: Held) -> None:
    """What is not in a response of Delta stays; what changed is said, with what was there before."""
    taken = held.receive(response(resource("CDS", "b", "2"), resource("CDS", "c")))
    assert held.contents == {"a": "1", "b": "2", "c": "1"}
    assert taken.keys == {(CDS, "b"), (CDS, "c")}
    assert [each.body for each in taken.before] == [b"b=1"]


def test_removals_remove(held: Held) -> None:
    """What is removed goes; a name that is not held changes nothing."""
    assert held.receive(response(removed=("b", "x"))).keys == {(CDS, "b")}
    assert held.contents == {"a": "1"}


def test_a_full_state_removes_what_it_lacks(held: Held) -> None:
    """But for what came and cannot be served: that keeps its last good content."""
    held.receive(response(resource("CDS", "c"), bad=("a",), is_full=True))
    assert held.contents == {"a": "1", "c": "1"}


def test_a_type_without_resources_is_not_listed(held: Held) -> None:
    """With its last resource, a type goes out of the tables."""
    held.receive(response(is_full=True))
    assert not held.rows
    assert not held.held


def test_what_did_not_change_is_the_same_object(held: Held) -> None:
    """A full state that repeats everything changes no table, so that nothing is published or written for it."""
    tables, rows = held.held, held.rows
    assert not held.receive(response(*held.rows_of(CDS).values(), is_full=True)).keys
    assert held.held is tables
    assert held.rows is rows


def test_another_version_of_the_same_content_is_noted(held: Held) -> None:
    """What the server calls it is held, and nothing is published for it."""
    rows = held.rows_of(CDS)
    assert not held.receive(response(resource("CDS", "a"), versions={"a": "v2"}), now_s=NOW_S + 5).keys
    assert held.rows_of(CDS) is rows
    assert held.held[CDS]["a"].version == "v2"
    assert held.held[CDS]["a"].received_s == NOW_S


def test_what_nobody_asked_for_is_passed_over() -> None:
    """A server may send more than it was asked for."""
    held = HeldResources(most=100)
    held.take(response(resource("CDS", "a"), resource("CDS", "b")), lambda each: each.name == "a", SERVER, NOW_S)
    assert list(held.rows_of(CDS)) == ["a"]


def test_the_number_of_resources_is_bounded() -> None:
    """New resources beyond it are passed over and named; what is held may change, and makes room when it goes."""
    held = Held(most=2)
    assert held.receive(response(*(resource("CDS", name) for name in "abc"))).surplus == ("c",)
    assert held.receive(response(resource("CDS", "a", "2"), resource("EDS", "d"), of_type=CDS)).surplus == ("d",)
    held.receive(response(removed=("a",)))
    assert not held.receive(response(resource("CDS", "c"))).surplus
    assert held.contents == {"b": "1", "c": "1"}


class TestTimesToLive:
    """A resource with a time to live goes at its end, and nothing else does."""

    def test_it_ends(self, held: Held) -> None:
        """At its end the resource goes, and not before."""
        held.receive(response(timed("t")))
        assert held.next_end_s == NOW_S + 10
        assert not held.expire(NOW_S + 9.9).keys
        assert held.expire(NOW_S + 10).keys == {(CDS, "t")}
        assert held.contents == {"a": "1", "b": "1"}
        assert held.next_end_s is None

    def test_a_heartbeat_renews_it(self, held: Held) -> None:
        """It begins anew, without a change of content; a heartbeat of what has none, or is not held, does nothing."""
        held.receive(response(timed("t")))
        rows = held.rows_of(CDS)
        assert not held.receive(response(renewed=("t", "a", "x")), now_s=NOW_S + 8).keys
        assert held.rows_of(CDS) is rows
        assert not held.expire(NOW_S + 17).keys
        assert held.expire(NOW_S + 18).keys == {(CDS, "t")}

    def test_the_resource_itself_renews_it(self, held: Held) -> None:
        """As an Envoy on a SotW stream is sent it; also where it was read as what is held."""
        held.receive(response(timed("t")))
        held.receive(response(timed("t")), now_s=NOW_S + 8)
        assert not held.expire(NOW_S + 17).keys
        held.receive(response(held.rows_of(CDS)["t"]), now_s=NOW_S + 17)
        assert not held.expire(NOW_S + 26).keys

    def test_a_resource_without_one_ends_it(self, held: Held) -> None:
        """A server takes a time to live back by sending the resource without it."""
        held.receive(response(timed("t")))
        held.receive(response(resource("CDS", "t")), now_s=NOW_S + 8)
        assert not held.expire(NOW_S + 100).keys
        assert held.rows_of(CDS)["t"].ttl_s is None

    def test_memory_is_bounded_by_the_resources(self, held: Held) -> None:
        """Heartbeats without end leave no trail."""
        held.receive(response(timed("t", 1e9)))
        for step in range(5 * MOST_STALE_ENDS):
            held.receive(response(renewed=("t",)), now_s=NOW_S + step)
        assert len(held._ends) <= 2 * MOST_STALE_ENDS


class TestVersions:
    """Which versions a server is told on a new stream."""

    def test_its_own(self, held: Held) -> None:
        """The server that gave a version is told it again."""
        held.receive(response(resource("CDS", "a"), versions={"a": "v7"}))
        assert held.versions(SERVER, CDS) == {"a": "v7", "b": held.rows_of(CDS)["b"].version}

    def test_digests_are_told_to_every_server(self, held: Held) -> None:
        """A digest of content is right whoever gave it; of what another server called by a number, only the name is told."""
        held.receive(response(resource("CDS", "a"), versions={"a": "7"}))
        assert held.versions(OTHER, CDS) == {"a": "", "b": held.rows_of(CDS)["b"].version}

    def test_the_server_that_gave_it_last_counts(self, held: Held) -> None:
        """After a failover, what the other server repeated is told to that one."""
        held.receive(response(resource("CDS", "a"), versions={"a": "7"}))
        held.receive(response(resource("CDS", "a"), versions={"a": "9"}), OTHER)
        assert held.versions(OTHER, CDS)["a"] == "9"
        assert held.versions(SERVER, CDS)["a"] == ""

    def test_nothing_of_nothing(self, held: Held) -> None:
        """Of a type of which nothing is held nothing is told."""
        assert not held.versions(SERVER, EDS)


def test_what_was_held_is_held_again(held: Held) -> None:
    """Another process goes on with the same tables: contents, versions and ends of times to live."""
    held.receive(response(timed("t"), versions={"t": "v1"}))
    again = Held(most=100)
    again.restore(held.held)
    assert again.contents == held.contents
    assert again.versions(SERVER, CDS) == held.versions(SERVER, CDS)
    assert again.expire(NOW_S + 10).keys == {(CDS, "t")}
    assert again.receive(response(removed=("a", "b"))).keys == {(CDS, "a"), (CDS, "b")}
    assert not again.rows
