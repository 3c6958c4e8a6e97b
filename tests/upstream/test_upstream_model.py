"""Whatever an upstream sends and whenever: what is held is what a simple model of the protocol says, and is published in time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fsxds.client.updates import ConnectionLostError
from fsxds.model.resources import Key, Rows
from fsxds.model.values import TypeUrl
from fsxds.upstream.subscriptions import LINGER_S, NameScope, keys_referred_to
from fsxds.upstream.upstream import LONGEST_S
from tests.support.this_envoy import this_envoy
from tests.upstream.made import CDS, EDS, NOW_S, came, cluster, endpoints, update_of, upstream_of

NAMES, SERVERS = st.sampled_from("abcd"), st.sampled_from(("one", "two"))
NUMBERS = st.integers(1, 3)
TTLS = st.sampled_from((None, 5.0, 50.0))
# A number below zero makes a bad resource.
CONTENTS = st.dictionaries(NAMES, st.tuples(st.sampled_from((1, 2, -1)), TTLS), max_size=3)
REMOVED = st.frozensets(NAMES, max_size=2)


class Held(RuleBasedStateMachine):
    """An upstream beside a dict of what it should hold: the number in each resource, and when it expires."""

    catalogue = this_envoy()

    @initialize(is_asked_only=st.booleans())
    def begin(self, is_asked_only: bool) -> None:
        """Begin with nothing."""
        self.now_s = NOW_S
        self.upstream = upstream_of(self.catalogue, NameScope(is_asked_only=is_asked_only))
        self.asked = frozenset[str]()
        self.expected: dict[Key, tuple[int, float | None]] = {}
        self.asks_for_all = not is_asked_only
        self.needed_s: dict[Key, float] = {}
        self.published: dict[Key, bytes] = {}

    @rule(contents=CONTENTS, removed=REMOVED, server=SERVERS, is_full=st.booleans())
    def send_clusters(
        self,
        contents: Mapping[str, tuple[int, float | None]],
        removed: frozenset[str],
        server: str,
        is_full: bool,
    ) -> None:
        """Send clusters, each of which refers to endpoints."""
        self._note_needed()
        resources = [
            came(CDS, name, cluster(name, uses_eds=True, timeout_s=number), ttl_s=ttl_s)
            for name, (number, ttl_s) in contents.items()
        ]
        gone = removed - contents.keys()
        update = replace(update_of(CDS, *resources, removed=tuple(gone)), is_full=is_full)
        received = self.upstream.receive(update, server, self.now_s)
        assert len(received.faults) == sum(number < 0 for number, _ in contents.values())
        self._take(CDS, contents, gone | ({*"abcd"} - contents.keys() if is_full else set()))

    @rule(contents=CONTENTS, removed=REMOVED, server=SERVERS)
    def send_endpoints(
        self, contents: Mapping[str, tuple[int, float | None]], removed: frozenset[str], server: str
    ) -> None:
        """Send endpoints, that were asked for or not."""
        self._note_needed()
        made = [
            came(EDS, name, endpoints(name, number) if number > 0 else b"\xff", ttl_s=ttl_s)
            for name, (number, ttl_s) in contents.items()
        ]
        self.upstream.receive(update_of(EDS, *made, removed=tuple(removed - contents.keys())), server, self.now_s)
        self._take(EDS, contents, removed - contents.keys())

    def _take(self, of_type: TypeUrl, contents: Mapping[str, tuple[int, float | None]], gone: Iterable[str]) -> None:
        wanted = self._wanted()
        for name, (number, ttl_s) in contents.items():
            if number > 0 and (of_type, name) in wanted:
                self.expected[of_type, name] = number, None if ttl_s is None else self.now_s + ttl_s
        for name in gone:
            self.expected.pop((of_type, name), None)
        self._note_needed()

    @rule(names=st.frozensets(NAMES))
    def renew(self, names: frozenset[str]) -> None:
        """Send heartbeats."""
        self.upstream.receive(replace(update_of(CDS), heartbeats=tuple(names)), "one", self.now_s)
        for name in names:
            rows = self.upstream.rows.get(CDS)
            held = None if rows is None else rows.get(name)
            if held is not None and held.ttl_s is not None:
                self.expected[CDS, name] = self.expected[CDS, name][0], self.now_s + held.ttl_s

    @rule(names=st.frozensets(NAMES))
    def ask(self, names: frozenset[str]) -> None:
        """Let clients ask for other clusters."""
        self._note_needed()
        self.asked = names
        self.upstream.ask({CDS: names} if names else {}, self.now_s)
        self._note_needed()

    @rule(seconds=st.sampled_from((1.0, 20.0, LINGER_S)))
    def wait(self, seconds: float) -> None:
        """Let time pass, in steps as a timer takes them."""
        end_s = self.now_s + seconds
        while (next_s := self.upstream.next_expiry_s) is not None and next_s <= end_s:
            self._expire(max(next_s, self.now_s))
        self._expire(end_s)

    def _expire(self, now_s: float) -> None:
        self.now_s = now_s
        self._note_needed()
        self.upstream.expire(now_s)
        self.expected = {
            key: (number, end_s) for key, (number, end_s) in self.expected.items() if end_s is None or end_s > now_s
        }
        wanted = self._wanted()
        self.expected = {key: held for key, held in self.expected.items() if key in wanted}
        self._note_needed()

    @rule(server=SERVERS)
    def connect(self, server: str) -> None:
        """Ask another server."""
        self.upstream.connected(server, "Delta ADS", self.now_s)

    @rule(server=SERVERS)
    def connect_for_long(self, server: str) -> None:
        """Ask another server, for so long that all is published, whatever it did not answer."""
        self.connect(server)
        self.wait(LONGEST_S)
        assert self.upstream.content.rows == self.upstream.rows

    @rule()
    def lose(self) -> None:
        """Lose the connection."""
        self.upstream.lost(ConnectionLostError("gone", "UNAVAILABLE"), self.now_s)

    @rule()
    def restart(self) -> None:
        """Go on in another process, which knows what was held."""
        held, self.asked = self.upstream.held, frozenset()
        self.expected = {
            (of_type, name): (_number((of_type, name), each.resource.body), each.expires_s)
            for of_type, table in held.items()
            for name, each in table.items()
            if each.expires_s is None or each.expires_s > self.now_s
        }
        self.upstream = upstream_of(self.catalogue, NameScope(is_asked_only=not self.asks_for_all))
        self.upstream.restore(held, self.now_s)
        # What nobody asks for was kept for ten minutes; nobody has asked the new process yet.
        self.needed_s = {key: self.now_s for key in self.expected if key[0] == CDS}
        self.upstream.ask({CDS: frozenset(name for of_type, name in self.expected if of_type == CDS)}, self.now_s)
        self.asked = frozenset(name for of_type, name in self.expected if of_type == CDS)
        self._note_needed()

    def _needed(self) -> set[Key]:
        found = {(CDS, name) for name in (NAMES_ALL if self.asks_for_all else self.asked)}
        for rows in self.upstream.rows.values():
            for resource in rows.values():
                found |= keys_referred_to(resource)
        return found

    def _note_needed(self) -> None:
        self.needed_s |= dict.fromkeys(self._needed(), self.now_s)

    def _wanted(self) -> set[Key]:
        """Return what is asked for: what is needed, or was less than ten minutes ago."""
        return self._needed() | {key for key, at_s in self.needed_s.items() if at_s + LINGER_S > self.now_s}

    @invariant()
    def holds_what_was_sent(self) -> None:
        """Each resource has the content that came last and was good, and no other is held."""
        assert _bodies(self.upstream.rows) == {key: _body(key, number) for key, (number, _) in self.expected.items()}

    @invariant()
    def publishes_all_or_nothing(self) -> None:
        """What is published is all that is held, or what was published before."""
        published = _bodies(self.upstream.content.rows)
        assert published in (_bodies(self.upstream.rows), self.published)
        self.published = published

    @invariant()
    def tables_agree(self) -> None:
        """What is written to the disk is what is served."""
        rows, held = self.upstream.content.rows, self.upstream.held
        assert rows.keys() == held.keys()
        for of_type, table in held.items():
            assert {name: each.resource for name, each in table.items()} == dict(rows[of_type])
            for name, each in table.items():
                assert each.resource is rows[of_type][name]

    @invariant()
    def asks_for_what_is_needed(self) -> None:
        """All that is needed is asked for, and nothing that was not needed for ten minutes."""
        wanted = {(of_type, name) for of_type, names in self.upstream.wanted().items() for name in names if name != "*"}
        all_needed = self._needed()
        endpoints_needed = {key for key in all_needed if key[0] == EDS}
        assert endpoints_needed <= wanted
        assert {key for key in wanted if key[0] == EDS} <= {key for key in self._wanted() if key[0] == EDS}


NAMES_ALL = frozenset("abcd")


def _bodies(rows: Mapping[TypeUrl, Rows]) -> dict[Key, bytes]:
    return {(of_type, name): each.body for of_type, one in rows.items() for name, each in one.items()}


def _number(key: Key, body: bytes) -> int:
    return next(number for number in range(1, 4) if _body(key, number) == body)


def _body(key: Key, number: int) -> bytes:
    of_type, name = key
    made = cluster(name, uses_eds=True, timeout_s=number) if of_type == CDS else endpoints(name, number)
    body: bytes = made.SerializeToString()
    return body


Held.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestHeld = Held.TestCase
