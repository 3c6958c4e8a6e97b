"""When what comes on a new connection is published."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.client.updates import ConnectionLostError
from fsxds.upstream.subscriptions import LINGER_S, PATIENCE_S, NameScope
from fsxds.upstream.upstream import LONGEST_S, QUIET_S, Upstream
from tests.support.snapshots import type_url
from tests.upstream.made import (
    CDS,
    EDS,
    NOW_S,
    RDS,
    SERVER,
    came,
    cluster,
    endpoints,
    full_state,
    routes,
    update,
    update_of,
    upstream_of,
)

LDS = type_url("lds")
OTHER = "127.0.0.1:18001"
LOST = ConnectionLostError("gone", "UNAVAILABLE")


@pytest.fixture
def upstream(catalogue: Catalogue) -> Upstream:
    """An upstream that was connected for a minute: the routes `main` lead to the cluster `old`; another server is asked now."""
    made = upstream_of(catalogue, NameScope(is_asked_only=True))
    made.ask({CDS: frozenset("*"), RDS: frozenset({"main"})}, NOW_S - 60)
    made.connected(SERVER, "Delta ADS", NOW_S - 60)
    made.receive(update(CDS, {"old": cluster("old")}), SERVER, NOW_S - 60)
    made.receive(update(RDS, {"main": routes("main", "old")}), SERVER, NOW_S - 60)
    assert published(made) == {"old", "main"}
    made.connected(OTHER, "Delta ADS", NOW_S)
    return made


def published(upstream: Upstream) -> set[str]:
    """Return the names of all that is published."""
    return {name for rows in upstream.content.rows.values() for name in rows}


def move(upstream: Upstream, to: str = "new", now_s: float = NOW_S) -> None:
    """Let the routes lead to another cluster."""
    upstream.receive(update(RDS, {"main": routes("main", to)}), OTHER, now_s)


def test_types_are_published_together(upstream: Upstream) -> None:
    """The clusters of the other tree with the routes to them; what waits may be anything, and is not written to the disk."""
    before, held = upstream.content, upstream.held
    received = upstream.receive(update(CDS, {"new": cluster("new")}, "old"), OTHER, NOW_S)
    assert published(upstream) == {"old", "main"}
    assert upstream.content.pending == {CDS}
    assert upstream.content.sequence == before.sequence < received.sequence
    assert upstream.held is held
    assert list(upstream.rows[CDS]) == ["new"] == list(upstream.versions(OTHER, CDS))

    move(upstream)
    assert published(upstream) == {"new", "main"}
    assert not upstream.content.pending
    assert upstream.content.sequence > received.sequence
    assert list(upstream.held[CDS]) == ["new"]


def test_what_comes_later_is_published_as_it_comes(upstream: Upstream) -> None:
    """A connection begins once."""
    upstream.receive(update(CDS, {"new": cluster("new")}), OTHER, NOW_S)
    move(upstream)
    upstream.receive(update(CDS, {}, "old"), OTHER, NOW_S)
    assert published(upstream) == {"new", "main"}


def test_where_nothing_is_published_nothing_is_awaited(catalogue: Catalogue) -> None:
    """At first, what there is is served at once."""
    upstream = upstream_of(catalogue)
    upstream.connected(SERVER, "Delta ADS", NOW_S)
    upstream.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S)
    assert published(upstream) == {"web"}


def test_what_is_not_asked_for_is_not_awaited(upstream: Upstream) -> None:
    """A full state of listeners says nothing of those types, and types without resources are none that clients miss."""
    upstream.ask({CDS: frozenset("*"), RDS: frozenset({"main"}), LDS: frozenset("*")}, NOW_S)
    upstream.receive(full_state(CDS, {"new": cluster("new")}), OTHER, NOW_S)
    move(upstream)
    assert published(upstream) == {"new", "main"}


def test_what_new_resources_refer_to_is_awaited(upstream: Upstream) -> None:
    """Clusters with their endpoints, which are asked for when the clusters come."""
    upstream.receive(update(CDS, {"new": cluster("new", uses_eds=True)}, "old"), OTHER, NOW_S)
    move(upstream)
    assert published(upstream) == {"old", "main"}
    upstream.receive(update(EDS, {"new": endpoints("new", 1)}), OTHER, NOW_S)
    assert published(upstream) == {"new", "main"}
    assert upstream.content.rows.keys() == {CDS, RDS, EDS}
    assert upstream.unanswered == set()


def test_silence_ends_it(upstream: Upstream) -> None:
    """A type that says nothing is awaited for a moment after the last one that was awaited, whatever else is sent again and again."""
    upstream.receive(update(CDS, {"new": cluster("new")}), OTHER, NOW_S + 1)
    upstream.receive(update(CDS, {"newer": cluster("newer")}), OTHER, NOW_S + 2)
    assert upstream.next_expiry_s == NOW_S + 1 + QUIET_S
    upstream.expire(NOW_S + 0.9 + QUIET_S)
    assert published(upstream) == {"old", "main"}
    upstream.expire(NOW_S + 1 + QUIET_S)
    assert published(upstream) == {"old", "new", "newer", "main"}
    assert upstream.unanswered == {RDS}
    upstream.connected(OTHER, "Delta ADS", NOW_S + 60)
    upstream.expire(NOW_S + 60 + QUIET_S)
    # Delta says nothing of types that did not change.
    assert upstream.unanswered == set()


def test_it_ends_where_references_never_do(upstream: Upstream) -> None:
    """A server that always refers to something more does not keep everything to itself."""
    for tenths in range(int(LONGEST_S * 10)):
        now_s = NOW_S + tenths / 10
        upstream.receive(update(CDS, {f"{tenths}": cluster(f"{tenths}", uses_eds=True)}), OTHER, now_s)
        upstream.receive(update(EDS, {f"{tenths - 1}": endpoints(f"{tenths - 1}")}), OTHER, now_s)
    move(upstream, to="0")
    assert published(upstream) == {"old", "main"}
    upstream.expire(NOW_S + LONGEST_S)
    assert {"old", "main", "0"} < published(upstream)


def test_a_lost_connection_publishes_no_half(upstream: Upstream) -> None:
    """What was published stays as long as there is no server, and until the next one said all."""
    upstream.receive(update(CDS, {"new": cluster("new")}, "old"), OTHER, NOW_S)
    upstream.lost(LOST, NOW_S + 1)
    upstream.expire(NOW_S + 10 * PATIENCE_S)
    assert published(upstream) == {"old", "main"}
    upstream.connected(OTHER, "Delta ADS", NOW_S + 200)
    move(upstream, now_s=NOW_S + 200)
    assert published(upstream) == {"old", "main"}
    upstream.receive(update(CDS, {}), OTHER, NOW_S + 200)
    assert published(upstream) == {"new", "main"}


def test_a_connection_on_which_nothing_is_asked_for_publishes_what_waits(upstream: Upstream) -> None:
    """Where nobody asks for any of it, nobody answers."""
    upstream.receive(update(CDS, {"new": cluster("new")}), OTHER, NOW_S)
    upstream.lost(LOST, NOW_S + 1)
    upstream.ask({}, NOW_S + 1)
    # First the routes, then the cluster that they refer to.
    for waits in (1, 2):
        upstream.expire(NOW_S + 1 + waits * LINGER_S)
    upstream.connected(OTHER, "Delta ADS", NOW_S + 1 + 2 * LINGER_S)
    assert published(upstream) == set()


def test_the_end_of_a_time_to_live_waits_for_nobody(upstream: Upstream) -> None:
    """What expires goes, and with it all that waits is published."""
    upstream.receive(update_of(CDS, came(CDS, "new", cluster("new"), ttl_s=1.0)), OTHER, NOW_S)
    upstream.receive(update(CDS, {"newer": cluster("newer")}), OTHER, NOW_S)
    upstream.expire(NOW_S + 1)
    assert published(upstream) == {"old", "newer", "main"}
