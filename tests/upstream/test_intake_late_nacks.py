"""What upstreams hear of what nodes reject."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from fsxds.events.upstream_events import UpstreamNacked
from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import RejectingNode, names_as_envoy
from fsxds.settings.options import Settings
from fsxds.upstream.intake import BACK_OFF, REMEMBERED_FOR_S, LateNacks
from tests.support.errors import Recorder
from tests.support.snapshots import snapshot, type_url

CDS, RDS = type_url("cds"), type_url("rds")
EU, US = "10.0.0.1:18000", "10.0.0.2:18000"
EMPTY = snapshot({})


class Relay:
    """The late NACKs of two upstreams, of which a test says what is held, and who is connected."""

    def __init__(self, verdict: str = "clients") -> None:
        self.recorder = Recorder()
        self.held: Mapping[str, Snapshot] = {EU: snapshot({"CDS": {"a": "1", "b": "1"}, "RDS": {"r": "1"}}), US: EMPTY}
        self.settings = replace(Settings(), upstream_verdict=verdict)
        self.late_nacks = LateNacks(
            lambda: self.settings, self.recorder, self.held, lambda name: self.held[name].by_type
        )
        self.nacks: list[tuple[TypeUrl, str]] = []

    @property
    def events(self) -> list[UpstreamNacked]:
        """What was reported."""
        return self.recorder.of(UpstreamNacked)

    def nack(self, type_url: TypeUrl, words: str) -> None:
        """Note what the server of an upstream hears."""
        self.nacks.append((type_url, words))

    def version(self, name: str, of_type: TypeUrl = CDS, upstream: str = EU) -> ResourceVersion:
        """Return the version of what is held of a resource."""
        return (of_type, name), self.held[upstream].resources(of_type)[name].version


def rejecting(name: str, reason: str | None, *versions: ResourceVersion) -> RejectingNode:
    """Return a node that rejects versions."""
    return RejectingNode(name, name, dict.fromkeys(versions, (reason, 0.0)))


def test_what_is_held_back_is_nacked_once() -> None:
    """A NACK for each type, in the words of a node; what is held back still is no news."""
    relay = Relay()
    a, b, r = relay.version("a"), relay.version("b"), relay.version("r", RDS)
    nodes = rejecting("n1", "no: a", a, b), rejecting("n2", None, r)
    with relay.late_nacks.receiving_nacks(EU, relay.nack):
        relay.late_nacks.receive_held({a, r}, nodes)
        relay.late_nacks.receive_held({a, b, r}, nodes)

    silence = "node n2: Error adding/updating route(s) r: it gave no reason; see its own log"
    of_a, of_b = (f"node n1: Error adding/updating cluster(s) {name}: no: a" for name in "ab")
    assert sorted(relay.nacks) == [(CDS, of_a), (CDS, of_b), (RDS, silence)]
    assert [(each.names, each.was_sent) for each in relay.events if each.type_url == CDS] == [
        (frozenset("a"), True),
        (frozenset("b"), True),
    ]
    assert relay.late_nacks.rejected == {
        (EU, (CDS, "a")): of_a,
        (EU, (CDS, "b")): of_b,
        (EU, (RDS, "r")): silence,
    }


def test_what_was_released_is_nacked_again_when_it_is_held_back_again() -> None:
    """In between, it is not rejected."""
    relay = Relay()
    a = relay.version("a")
    with relay.late_nacks.receiving_nacks(EU, relay.nack):
        relay.late_nacks.receive_held({a}, [rejecting("n1", "no", a)])
        relay.late_nacks.receive_released({a})
        between = dict(relay.late_nacks.rejected)
        relay.late_nacks.receive_held({a}, [rejecting("n2", "never", a)])

    assert between == {}
    assert relay.nacks == [
        (CDS, "node n1: Error adding/updating cluster(s) a: no"),
        (CDS, "node n2: Error adding/updating cluster(s) a: never"),
    ]


def test_what_was_held_back_before_it_is_known_where_it_comes_from() -> None:
    """After a restart: nobody hears of it then, and the upstream gets its NACK when it sends that again."""
    relay = Relay()
    a, before = relay.version("a"), relay.held
    relay.held = {EU: EMPTY, US: EMPTY}
    with relay.late_nacks.receiving_nacks(EU, relay.nack):
        relay.late_nacks.receive_held({a}, [rejecting("n1", "no", a)])
        assert (relay.nacks, relay.events) == ([], [])
        relay.held = before

        assert relay.late_nacks.versions_to_send(EU, CDS, {"a": "1", "b": "1"}) == {"b": "1"}
        words = "node n1: Error adding/updating cluster(s) a: no"
        assert relay.late_nacks.nack_message(EU, CDS, ["a"]) == words
        assert relay.late_nacks.rejected == {(EU, (CDS, "a")): words}


def test_versions_of_something_else() -> None:
    """What nodes reject of files, of another upstream, or of another version is none of what an upstream sent."""
    relay = Relay()
    with relay.late_nacks.receiving_nacks(US, relay.nack):
        versions = {relay.version("a"), ((CDS, "file"), relay.version("a")[1]), ((CDS, "b"), relay.version("a")[1])}
        relay.late_nacks.receive_held(versions, [rejecting("n1", "no", *versions)])

    assert relay.nacks == []
    assert [(each.upstream, each.names) for each in relay.events] == [(EU, frozenset("a"))]


def test_a_version_that_is_not_held_any_more_is_rejected_no_more() -> None:
    """What the upstream sent in its place is another one."""
    relay = Relay()
    relay.late_nacks.receive_held({relay.version("a")}, ())
    before = dict(relay.late_nacks.rejected)
    relay.held = {EU: snapshot({"CDS": {"a": "2"}}), US: EMPTY}

    assert (before, dict(relay.late_nacks.rejected)) == (
        {(EU, (CDS, "a")): "a node: Error adding/updating cluster(s) a: it gave no reason; see its own log"},
        {},
    )


def test_an_upstream_that_is_away_hears_nothing() -> None:
    """It is reported with that; nobody who is gone is told something."""
    relay = Relay()
    with relay.late_nacks.receiving_nacks(EU, relay.nack):
        pass
    relay.late_nacks.receive_held({relay.version("a")}, ())

    assert relay.nacks == []
    assert [each.was_sent for each in relay.events] == [False]


def test_a_server_that_took_over_goes_on_hearing() -> None:
    """That another one ends later changes nothing."""
    relay = Relay()
    with relay.late_nacks.receiving_nacks(EU, relay.nack):
        with relay.late_nacks.receiving_nacks(EU, lambda *_: None):
            pass
        with relay.late_nacks.receiving_nacks(EU, relay.nack):
            relay.late_nacks.receive_held({relay.version("a")}, ())

    assert len(relay.nacks) == 1


def test_verdicts_of_the_relay_alone() -> None:
    """With `relay`, upstreams hear nothing of nodes; what is rejected is known."""
    relay = Relay("relay")
    with relay.late_nacks.receiving_nacks(EU, relay.nack):
        relay.late_nacks.receive_held({relay.version("a")}, ())

    assert (relay.nacks, relay.events) == ([], [])
    assert list(relay.late_nacks.rejected) == [(EU, (CDS, "a"))]


def test_secrets_in_the_words_of_a_node() -> None:
    """Keys and tokens that a node quotes are masked."""
    relay = Relay()
    a = relay.version("a")
    with relay.late_nacks.receiving_nacks(EU, relay.nack):
        reason = "a: -----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----"
        relay.late_nacks.receive_held({a}, [rejecting("n1", reason, a)])

    assert "MIIEvQ" not in relay.nacks[0][1]


def test_one_nack_names_all_that_is_held_back() -> None:
    """A server that is fsxds knows by it which resources are meant; what an Envoy said stays as it is."""
    relay = Relay()
    a, b = relay.version("a"), relay.version("b")
    both = "Error adding/updating cluster(s) a: no port, b: no port"
    with relay.late_nacks.receiving_nacks(EU, relay.nack):
        relay.late_nacks.receive_held({a, b}, [rejecting("n1", both, a, b)])
        relay.late_nacks.receive_released({a, b})
        relay.late_nacks.receive_held({a, b}, [rejecting("n1", "slow", a), rejecting("n2", "odd", b)])

    first, second = (words for _, words in relay.nacks)
    assert first == f"node n1: {both}"
    assert {part.partition(": ")[0] for part in second.split("\n")[1:]} < {"a", "b"}
    assert all(is_so(second) for is_so in (partial(names_as_envoy, "a"), partial(names_as_envoy, "b")))


def test_what_an_upstream_took_back_is_nacked_when_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nodes here would reject it with each offer; after a while it is taken, since nodes may be others then."""
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    relay = Relay()
    before, a = relay.held, relay.version("a")
    relay.late_nacks.receive_held({a}, [rejecting("n1", "no", a)])
    relay.held = {EU: snapshot({"CDS": {"a": "0"}}), US: EMPTY}
    relay.late_nacks.receive_released({a})
    assert relay.late_nacks.nack_message(EU, CDS, ["a"]) is None
    relay.held = before

    assert relay.late_nacks.nack_message(EU, CDS, ["a"]) == "node n1: Error adding/updating cluster(s) a: no"
    assert relay.late_nacks.nack_message(EU, CDS, ["b"]) is None
    now_s = BACK_OFF.first_s
    assert relay.late_nacks.nack_message(EU, CDS, ["a"]) is None


def test_what_nodes_reject_again_is_nacked_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """They try it after 10 s, and after twice as long each time; in the end it is forgotten that they did."""
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    relay = Relay()
    before, a = relay.held, relay.version("a")
    pauses = []
    for wait_s in (0.0, 0.0, 0.0, REMEMBERED_FOR_S):
        now_s += wait_s
        relay.held = before
        relay.late_nacks.receive_held({a}, [rejecting("n1", "no", a)])
        relay.held = {EU: snapshot({"CDS": {"a": "0"}}), US: EMPTY}
        relay.late_nacks.receive_released({a})
        relay.held, taken_back_s = before, now_s
        while relay.late_nacks.nack_message(EU, CDS, ["a"]) is not None:
            now_s += 1.0
        pauses.append(now_s - taken_back_s)

    assert pauses == [10.0, 20.0, 40.0, 10.0]


def test_a_server_that_comes_back_is_not_told_of_what_is_rejected() -> None:
    """So it sends that again, and gets the NACK that it could not hear."""
    relay = Relay()
    versions = {"a": "1", "b": "1"}
    relay.late_nacks.receive_held({relay.version("a")}, ())

    assert relay.late_nacks.versions_to_send(EU, CDS, versions) == {"b": "1"}
    assert relay.late_nacks.versions_to_send(US, CDS, versions) == versions
    relay.settings = replace(relay.settings, upstream_verdict="relay")
    assert relay.late_nacks.versions_to_send(EU, CDS, versions) == versions
