"""One upstream as a whole: what is merged of it, what is said of it, and what becomes of its responses."""

from __future__ import annotations

from dataclasses import replace

from envoy.extensions.clusters.aggregate.v3 import cluster_pb2 as aggregate_pb2

from fsxds.api.catalogue import Catalogue
from fsxds.client.updates import ConnectionLostError
from fsxds.upstream.subscriptions import LINGER_S, PATIENCE_S, NameScope
from fsxds.upstream.upstream import MOST_REJECTED, Upstream
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
    redirect,
    routes,
    update,
    update_of,
    upstream_of,
)

LDS, SRDS = type_url("lds"), type_url("srds")
WIRE = "Delta ADS"
ASKED_ONLY = NameScope(is_asked_only=True)


def connected(catalogue: Catalogue, scope: NameScope | None = None) -> Upstream:
    """Return an upstream that is connected, of which nothing is held."""
    upstream = upstream_of(catalogue, scope)
    upstream.connected(SERVER, WIRE, NOW_S)
    return upstream


def test_a_response_is_merged(catalogue: Catalogue) -> None:
    """What came is in the content, counted, and whoever waits is woken."""
    upstream = connected(catalogue)
    before, changed = upstream.content, upstream.changed.current
    received = upstream.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S)
    assert received.keys == {(CDS, "web")}
    assert (received.sequence, received.changed, received.removed) == (1, 1, 0)
    assert list(upstream.content.rows[CDS]) == ["web"]
    assert upstream.content.sequence == before.sequence + 1
    assert upstream.content.answered == {CDS}
    assert upstream.changed.current > changed
    assert not before.rows


def test_what_is_referred_to_is_asked_for(catalogue: Catalogue) -> None:
    """Transitively: routes, then clusters, then endpoints."""
    upstream = connected(catalogue, ASKED_ONLY)
    upstream.ask({RDS: frozenset({"main"})}, NOW_S)
    upstream.receive(update(RDS, {"main": routes("main", "web")}), SERVER, NOW_S)
    assert upstream.wanted() == {RDS: {"main"}, CDS: {"web"}}
    upstream.receive(update(CDS, {"web": cluster("web", uses_eds=True)}), SERVER, NOW_S)
    assert upstream.wanted() == {RDS: {"main"}, CDS: {"web"}, EDS: {"web"}}
    assert upstream.content.pending == {EDS}


def test_the_target_of_a_redirect_is_asked_for(catalogue: Catalogue) -> None:
    """Where a redirect leads, clients are led, and so is who answers them."""
    upstream = connected(catalogue, ASKED_ONLY)
    upstream.ask({CDS: frozenset({"web"})}, NOW_S)
    target = "xdstp://b/envoy.config.cluster.v3.Cluster/c"
    upstream.receive(update_of(CDS, redirect(CDS, "web", target)), SERVER, NOW_S)
    assert upstream.wanted() == {CDS: {"web", target}}


def test_a_bad_resource_keeps_its_last_good_content(catalogue: Catalogue) -> None:
    """The others of the response are taken in, and the server is told the name and the fact."""
    upstream = connected(catalogue)
    upstream.receive(update(CDS, {"web": cluster("web"), "api": cluster("api")}), SERVER, NOW_S)
    bad = {"web": cluster("web", timeout_s=-1), "api": cluster("api", timeout_s=2), "new": b"\xff"}
    received = upstream.receive(full_state(CDS, bad), SERVER, NOW_S)
    assert [each.split(":")[0] for each in received.faults] == ['Cluster "new"', 'Cluster "web"']
    rows = upstream.content.rows[CDS]
    assert list(rows) == ["api", "web"]
    assert rows["web"].body == cluster("web").SerializeToString()
    assert rows["api"].body == cluster("api", timeout_s=2).SerializeToString()


class TestRejected:
    """What came and cannot be served."""

    def test_it_is_known_until_it_is_good_or_gone(self, catalogue: Catalogue) -> None:
        """With the words, and only what of it was mended is forgotten."""
        upstream = connected(catalogue)
        upstream.receive(update(CDS, dict.fromkeys("abc", b"\xff")), SERVER, NOW_S)
        assert upstream.status().rejected[0] == "cds a: its bytes are no envoy.config.cluster.v3.Cluster"
        upstream.receive(update(CDS, {"a": cluster("a")}, "b"), SERVER, NOW_S)
        assert list(upstream.rejected) == [(CDS, "c")]
        upstream.receive(full_state(CDS, {"a": cluster("a")}), SERVER, NOW_S)
        assert not upstream.rejected

    def test_a_type_is_pending_while_it_has_a_bad_resource_that_was_never_good(self, catalogue: Catalogue) -> None:
        """As with a file that was never good: the resource exists, and clients must not be told that it does not."""
        upstream = connected(catalogue)
        upstream.expire(NOW_S + PATIENCE_S)
        upstream.receive(update(CDS, {"web": b"\xff"}), SERVER, NOW_S)
        assert upstream.content.pending == {CDS}
        assert not upstream.absent_names(CDS, {"web"})
        upstream.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S)
        assert not upstream.content.pending
        upstream.receive(update(CDS, {"web": b"\xff"}), SERVER, NOW_S)
        assert not upstream.content.pending

    def test_what_nobody_asks_for_any_more_is_forgotten(self, catalogue: Catalogue) -> None:
        """Its type is not pending for ever because of it."""
        upstream = connected(catalogue, ASKED_ONLY)
        upstream.ask({CDS: frozenset({"web"})}, NOW_S)
        upstream.receive(update(CDS, {"web": b"\xff"}), SERVER, NOW_S)
        upstream.ask({}, NOW_S)
        assert upstream.content.pending == {CDS}
        upstream.expire(NOW_S + LINGER_S)
        assert not upstream.rejected
        assert not upstream.content.pending

    def test_it_is_bounded(self, catalogue: Catalogue) -> None:
        """The latest are kept."""
        upstream = connected(catalogue)
        for part in range(2):
            many = {f"{number}": b"\xff" for number in range(part * MOST_REJECTED, (part + 1) * MOST_REJECTED)}
            upstream.receive(update(CDS, many), SERVER, NOW_S)
        assert len(upstream.rejected) == MOST_REJECTED
        assert (CDS, f"{2 * MOST_REJECTED - 1}") in upstream.rejected


class TestReceived:
    """What verdicts and events are made of."""

    def test_what_is_sent_again_is_in_it(self, catalogue: Catalogue) -> None:
        """A server sends again what was NACKed, and is told the same; but nothing is published for it."""
        upstream = connected(catalogue)
        upstream.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S)
        content = upstream.content
        received = upstream.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S)
        assert received.keys == {(CDS, "web")}
        assert (received.sequence, received.changed) == (1, 0)
        assert upstream.content is content

    def test_what_is_gone_is_in_it(self, catalogue: Catalogue) -> None:
        """Counted apart from what changed."""
        upstream = connected(catalogue)
        upstream.receive(update(CDS, {"web": cluster("web"), "api": cluster("api")}), SERVER, NOW_S)
        received = upstream.receive(update(CDS, {"web": cluster("web", timeout_s=9)}, "api"), SERVER, NOW_S)
        assert received.keys == {(CDS, "web"), (CDS, "api")}
        assert (received.changed, received.removed) == (1, 1)

    def test_what_has_no_room_is_a_fault(self, catalogue: Catalogue) -> None:
        """A server that sends without end is told so, and what is held stays."""
        upstream = connected(catalogue, NameScope(most_names=5))
        received = upstream.receive(update(CDS, {each: cluster(each) for each in "abcdefgh"}), SERVER, NOW_S)
        assert received.faults == ("3 resources are more than the 5 that are held, such as f, g, h",)
        assert list(upstream.content.rows[CDS]) == [*"abcde"]


class TestDenials:
    """Names of which it is certain that the upstream has nothing."""

    def test_what_it_denied(self, catalogue: Catalogue) -> None:
        """A removal and silence deny a name; what it holds, and what it was not asked for, is not denied."""
        upstream = connected(catalogue, ASKED_ONLY)
        upstream.ask({EDS: frozenset({"a", "b", "c"})}, NOW_S)
        upstream.receive(update(EDS, {"a": endpoints("a", 1)}, "b"), SERVER, NOW_S)
        assert upstream.absent_names(EDS, {"a", "b", "c", "d"}) == {"b"}
        upstream.expire(NOW_S + PATIENCE_S)
        assert upstream.absent_names(EDS, {"a", "b", "c", "d"}) == {"b", "c"}

    def test_a_denial_ends_when_the_name_comes(self, catalogue: Catalogue) -> None:
        """And begins again when it goes."""
        upstream = connected(catalogue, ASKED_ONLY)
        upstream.ask({EDS: frozenset({"a"})}, NOW_S)
        upstream.receive(update(EDS, {}, "a"), SERVER, NOW_S)
        upstream.receive(update(EDS, {"a": endpoints("a", 1)}), SERVER, NOW_S)
        assert not upstream.absent_names(EDS, {"a"})
        upstream.receive(update(EDS, {}, "a"), SERVER, NOW_S)
        assert upstream.absent_names(EDS, {"a"}) == {"a"}

    def test_everything(self, catalogue: Catalogue) -> None:
        """`*`, and a collection, are among them when all that there is is held."""
        upstream = connected(catalogue)
        assert not upstream.absent_names(CDS, {"*", "x"})
        upstream.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S)
        assert upstream.absent_names(CDS, {"*", "x", "web"}) == {"*", "x"}

    def test_nothing_while_it_is_away(self, catalogue: Catalogue) -> None:
        """Who never answered lacks nothing, but names that are another's."""
        upstream = upstream_of(catalogue, replace(ASKED_ONLY, others=frozenset("b")))
        other = "xdstp://b/envoy.config.cluster.v3.Cluster/c"
        upstream.ask({CDS: frozenset({"web", "*", other})}, NOW_S)
        assert upstream.absent_names(CDS, {"web", "*", other}) == {other}

    def test_silence_of_who_is_away(self, catalogue: Catalogue) -> None:
        """Time without a connection lacks nothing."""
        upstream = connected(catalogue, ASKED_ONLY)
        upstream.ask({CDS: frozenset({"web"})}, NOW_S)
        upstream.lost(ConnectionLostError("gone", "UNAVAILABLE"), NOW_S + 1)
        upstream.expire(NOW_S + 10 * PATIENCE_S)
        assert not upstream.absent_names(CDS, {"web"})

    def test_what_a_response_has_asked_for_is_not_answered_by_it(self, catalogue: Catalogue) -> None:
        """A resource that nobody had asked for yet is not taken in, and is sent again when it is."""
        upstream = connected(catalogue, ASKED_ONLY)
        upstream.ask({RDS: frozenset({"main"})}, NOW_S)
        upstream.receive(update(RDS, {"main": routes("main", "web")}), SERVER, NOW_S)
        aggregate = cluster("web")
        aggregate.cluster_type.name = "envoy.clusters.aggregate"
        aggregate.cluster_type.typed_config.Pack(aggregate_pb2.ClusterConfig(clusters=["a"]))
        upstream.receive(update(CDS, {"web": aggregate, "a": cluster("a")}), SERVER, NOW_S)
        assert list(upstream.content.rows[CDS]) == ["web"]
        assert upstream.wanted()[CDS] == {"web", "a"}
        assert not upstream.absent_names(CDS, {"a"})


class TestTime:
    """What passes with time."""

    def test_times_to_live(self, catalogue: Catalogue) -> None:
        """What expires goes, and with it what was asked for because of it, later."""
        upstream = connected(catalogue)
        upstream.receive(update_of(CDS, came(CDS, "web", cluster("web", uses_eds=True), ttl_s=60.0)), SERVER, NOW_S)
        upstream.receive(update(EDS, {"web": endpoints("web", 1)}), SERVER, NOW_S)
        assert upstream.expire(NOW_S + 60) == {(CDS, "web")}
        assert list(upstream.content.rows) == [EDS]
        assert upstream.next_expiry_s == NOW_S + 60 + LINGER_S
        assert not upstream.expire(NOW_S + 60 + LINGER_S)
        assert not upstream.content.rows
        assert EDS not in upstream.wanted()

    def test_heartbeats(self, catalogue: Catalogue) -> None:
        """They renew, and publish nothing."""
        upstream = connected(catalogue)
        upstream.receive(update_of(CDS, came(CDS, "web", cluster("web"), ttl_s=60.0)), SERVER, NOW_S)
        content = upstream.content
        upstream.receive(replace(update(CDS, {}), heartbeats=("web",)), SERVER, NOW_S + 50)
        assert upstream.content is content
        assert not upstream.expire(NOW_S + 100)
        assert upstream.expire(NOW_S + 110) == {(CDS, "web")}

    def test_what_is_not_asked_for_any_more(self, catalogue: Catalogue) -> None:
        """Its content goes with the name, and no sooner."""
        upstream = connected(catalogue, ASKED_ONLY)
        upstream.ask({CDS: frozenset({"web", "api"})}, NOW_S)
        clusters = {"web": cluster("web", uses_eds=True), "api": cluster("api")}
        upstream.receive(update(CDS, clusters), SERVER, NOW_S)
        upstream.ask({CDS: frozenset({"api"})}, NOW_S)
        assert list(upstream.content.rows[CDS]) == ["api", "web"]
        upstream.expire(NOW_S + LINGER_S)
        assert list(upstream.content.rows[CDS]) == ["api"]
        assert upstream.wanted() == {CDS: {"api"}, EDS: {"web"}}
        upstream.expire(NOW_S + 2 * LINGER_S)
        assert upstream.wanted() == {CDS: {"api"}}

    def test_what_nobody_removed_is_told_from_what_the_upstream_did(self, catalogue: Catalogue) -> None:
        """What is not asked for any more, or expired, needs nobody's approval; what comes back is as any other."""
        upstream = connected(catalogue, ASKED_ONLY)
        upstream.ask({CDS: frozenset({"web", "api", "own"})}, NOW_S)
        upstream.receive(update_of(CDS, came(CDS, "web", cluster("web"), ttl_s=60.0)), SERVER, NOW_S)
        upstream.receive(update(CDS, {"api": cluster("api"), "own": cluster("own")}), SERVER, NOW_S)
        upstream.ask({CDS: frozenset({"web", "own"})}, NOW_S)
        upstream.expire(NOW_S + 60)
        assert set(upstream.content.released[CDS]) == {"web"}
        upstream.expire(NOW_S + LINGER_S)
        upstream.receive(update(CDS, {}, "own"), SERVER, NOW_S + LINGER_S)
        assert set(upstream.content.released[CDS]) == {"web", "api"}
        upstream.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S + LINGER_S)
        assert set(upstream.content.released[CDS]) == {"api"}


class TestConnection:
    """How the upstream stands."""

    def test_a_lost_connection_takes_nothing(self, catalogue: Catalogue) -> None:
        """What is held stays, whoever is asked next."""
        upstream = connected(catalogue)
        upstream.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S)
        rows = upstream.content.rows
        upstream.lost(ConnectionLostError("cannot connect: refused", "UNAVAILABLE"), NOW_S + 1)
        upstream.connected("127.0.0.1:2", WIRE, NOW_S + 2)
        upstream.lost(ConnectionLostError("no", "PERMISSION_DENIED", is_final=True), NOW_S + 3)
        upstream.expire(NOW_S + 10_000)
        assert upstream.content.rows == rows

    def test_it_is_told(self, catalogue: Catalogue) -> None:
        """Who is asked, since when, how, and why nobody is."""
        upstream = upstream_of(catalogue)
        status = upstream.status()
        assert (status.name, status.servers, status.state, status.last_update_s) == (
            SERVER,
            (SERVER,),
            "connecting",
            None,
        )
        upstream.connected(SERVER, WIRE, NOW_S)
        upstream.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S + 1)
        status = upstream.status()
        assert (status.state, status.server, status.wire, status.since_s) == ("connected", SERVER, WIRE, NOW_S)
        assert (status.resources, status.last_update_s, status.pending) == ({CDS: 1}, NOW_S + 1, (LDS, SRDS))
        for failure_s in (2, 5):
            upstream.lost(ConnectionLostError("cannot connect: refused", "UNAVAILABLE"), NOW_S + failure_s)
        status = upstream.status()
        assert (status.state, status.server, status.since_s) == ("away", "", NOW_S + 2)
        assert status.trouble == "cannot connect: refused"
        upstream.lost(ConnectionLostError("no", "PERMISSION_DENIED", is_final=True), NOW_S + 6)
        assert upstream.status().state == "refused"


class TestRestoring:
    """What an earlier process held."""

    def test_it_is_held_and_asked_for(self, catalogue: Catalogue) -> None:
        """At once, with what it refers to, and its age; what has expired since is gone."""
        before = connected(catalogue)
        before.receive(update(CDS, {"web": cluster("web", uses_eds=True)}), SERVER, NOW_S)
        before.receive(update_of(CDS, came(CDS, "old", cluster("old"), ttl_s=60.0)), SERVER, NOW_S + 1)
        upstream = upstream_of(catalogue)
        upstream.restore(before.held, NOW_S + 100)
        assert list(upstream.content.rows[CDS]) == ["web"]
        assert upstream.content.answered == {CDS}
        assert upstream.wanted()[EDS] == {"web"}
        assert upstream.status().last_update_s == NOW_S + 1
        assert upstream.versions(SERVER, CDS) == {"web": upstream.content.rows[CDS]["web"].version}
        assert upstream.content.pending == {CDS, LDS, SRDS, EDS}

    def test_nothing_of_it_changes_when_it_comes_again(self, catalogue: Catalogue) -> None:
        """A server that has the same makes no difference."""
        before = connected(catalogue)
        before.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S)
        upstream = upstream_of(catalogue)
        upstream.restore(before.held, NOW_S)
        rows = upstream.content.rows[CDS]
        upstream.connected(SERVER, WIRE, NOW_S)
        upstream.receive(full_state(CDS, {"web": cluster("web")}), SERVER, NOW_S)
        assert upstream.content.rows[CDS] is rows
        assert upstream.content.pending == {LDS, SRDS}
