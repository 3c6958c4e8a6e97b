"""Where the client of a stream is with a step of a rollout, and what its NACKs are about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fsxds.model.resources import Rows, Snapshot
from fsxds.model.values import TypeUrl
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import DeltaRequest, DeltaResponse, Node, SotwRequest, SotwResponse
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import SharedMemory
from fsxds.protocol.ttl import SOTW_TTL_FEATURE, TTL_FEATURE, TtlMode
from fsxds.rollout import Step
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import Nack
from fsxds.rollout.step import Standing
from tests.support.snapshots import snapshot, type_url
from tests.support.steps import step_between

CDS, EDS, LDS, RDS = (type_url(name) for name in ("CDS", "EDS", "LDS", "RDS"))
BEFORE = snapshot({"CDS": {"a": "1"}, "EDS": {"a": "1", "b": "1"}, "LDS": {"l": "1"}, "RDS": {"r": "1"}})
AFTER = snapshot({"CDS": {"a": "2"}, "EDS": {"a": "2", "b": "1"}, "LDS": {"l": "1"}, "RDS": {}}, generation=2)

Responses = Sequence[SotwResponse | DeltaResponse]


@dataclass
class Client:
    """A client of either variant on an aggregated stream, which answers when it is told to."""

    stream: Any
    is_delta: bool
    served: Snapshot = BEFORE
    nacks: list[Nack] = field(default_factory=list)

    def ask(self, url: TypeUrl, *names: str) -> Responses:
        """Subscribe to names, or to everything."""
        return self._send(DeltaRequest(url, names) if self.is_delta else SotwRequest(url, names))

    def ack(self, responses: Responses, *names: str, error: str | None = None) -> Responses:
        """ACK or NACK responses, in turn; in SotW the names are those that are subscribed to."""
        further: list[SotwResponse | DeltaResponse] = []
        for response in responses:
            url, nonce = response.type_url, response.nonce
            if self.is_delta:
                further += self._send(DeltaRequest(url, nonce=nonce, error_detail=error))
            else:
                further += self._send(SotwRequest(url, names, response.version, nonce, error))
        return further

    def begin(self, served: Snapshot = AFTER) -> Step:
        """Publish something newer, which the stream has not seen yet."""
        step = step_between(self.served, served)
        self.served = served
        return step

    def look(self) -> Responses:
        """Let the stream see what is served."""
        return tuple(self.stream.receive_snapshot(self.served, 1.0))

    def _send(self, request: SotwRequest | DeltaRequest) -> Responses:
        reaction = self.stream.receive_request(request, self.served, 0.0)
        if reaction.acknowledgement is not None and reaction.acknowledgement.nack is not None:
            self.nacks.append(reaction.acknowledgement.nack)
        return tuple(reaction.responses)


MakeClient = Callable[[], Client]


def version_of(served: Snapshot, url: TypeUrl, name: str) -> ResourceVersion:
    """Return the version of a resource."""
    return (url, name), served.resources(url)[name].version


def of_sotw() -> Client:
    """Open a SotW stream."""
    return Client(SotwStream(SharedMemory(), TtlMode.SPECIFICATION, is_aggregated=True), is_delta=False)


def of_delta() -> Client:
    """Open a Delta stream."""
    return Client(DeltaStream(SharedMemory(), TtlMode.SPECIFICATION, is_aggregated=True), is_delta=True)


both = pytest.mark.parametrize("make", [of_sotw, of_delta])


@both
def test_a_step_is_taken_when_its_responses_are_acked(make: MakeClient) -> None:
    """A change is pending from its publication on, until the response that brings it is ACKed."""
    client = make()
    client.ack(client.ask(CDS))
    step = client.begin()
    assert client.stream.standing(step) is Standing.PENDING
    responses = client.look()
    assert client.stream.standing(step) is Standing.PENDING
    client.ack(responses)

    assert client.stream.standing(step) is Standing.TAKEN


@both
def test_all_types_that_changed_have_to_be_acked(make: MakeClient) -> None:
    """The ACK of one type says nothing of another."""
    client = make()
    client.ack(client.ask(CDS))
    client.ack(client.ask(EDS, "a"), "a")
    step = client.begin()
    clusters, endpoints = client.look()
    client.ack((endpoints,), "a")
    assert client.stream.standing(step) is Standing.PENDING
    client.ack((clusters,))

    assert client.stream.standing(step) is Standing.TAKEN


@both
def test_what_is_not_subscribed_to_is_taken(make: MakeClient) -> None:
    """Other types and other names are nothing to wait for, seen or not, whatever is in flight of them."""
    client = make()
    client.ask(LDS)
    client.ask(EDS, "b")
    step = client.begin()
    assert client.stream.standing(step) is Standing.TAKEN
    assert not client.look()

    assert client.stream.standing(step) is Standing.TAKEN


@both
def test_a_step_that_was_joined_with_another_is_taken_with_both(make: MakeClient) -> None:
    """What is in flight of the step before counts, also where the last one changed another type."""
    client = make()
    client.ack(client.ask(CDS))
    client.ack(client.ask(EDS, "a"), "a")
    first = client.begin()
    clusters, endpoints = client.look()
    step = first.joined_with(client.begin(replace(AFTER, generation=3)))
    assert not client.look()
    client.ack((endpoints,), "a")
    assert client.stream.standing(step) is Standing.PENDING
    client.ack((clusters,))

    assert client.stream.standing(step) is Standing.TAKEN


@both
def test_a_stream_that_just_began_is_pending(make: MakeClient) -> None:
    """A client that connects during a step is sent what it brings, and has taken it with the ACK of that."""
    client = make()
    step = client.begin()
    assert client.stream.standing(step) is Standing.TAKEN
    responses = client.ask(CDS)
    assert client.stream.standing(step) is Standing.PENDING
    client.ack(responses)

    assert client.stream.standing(step) is Standing.TAKEN


def test_removals_that_cannot_be_sent_are_taken() -> None:
    """State-of-the-world streams do not report that routes are removed."""
    client = of_sotw()
    client.ack(client.ask(RDS, "r"), "r")
    step = client.begin()
    assert not client.look()

    assert client.stream.standing(step) is Standing.TAKEN


@both
def test_a_late_ack_of_something_before_is_none_of_the_step(make: MakeClient) -> None:
    """The ACK of an older response does not answer a newer one."""
    client = make()
    first = client.ask(CDS)
    step = client.begin()
    second = client.look()
    client.ack(first)
    assert client.stream.standing(step) is Standing.PENDING
    client.ack(second)

    assert client.stream.standing(step) is Standing.TAKEN


@both
def test_a_step_that_is_nacked_is_answered(make: MakeClient) -> None:
    """Nobody waits for the client: it is served something else. The NACK is of what the step changed, in its words."""
    client = make()
    client.ack(client.ask(CDS))
    client.ack(client.ask(EDS, "a", "b"), "a", "b")
    step = client.begin(replace(AFTER, by_type={**AFTER.by_type, CDS: BEFORE.by_type[CDS]}))
    responses = client.look()
    assert client.stream.standing(step) is Standing.PENDING
    client.ack(responses, "a", "b", error="no such port")

    assert client.stream.standing(step) is Standing.TAKEN
    assert client.nacks == [Nack(frozenset({version_of(AFTER, EDS, "a")}), words="no such port")]


@both
def test_a_type_that_is_not_answered_is_waited_for(make: MakeClient) -> None:
    """Also where another one is NACKed; a NACK may be without words."""
    client = make()
    client.ack(client.ask(CDS))
    client.ack(client.ask(EDS, "a"), "a")
    step = client.begin()
    clusters, endpoints = client.look()
    client.ack((endpoints,), "a", error="")
    assert client.stream.standing(step) is Standing.PENDING
    client.ack((clusters,))

    assert client.stream.standing(step) is Standing.TAKEN
    assert client.nacks == [Nack(frozenset({version_of(AFTER, EDS, "a")}))]


def test_the_nack_of_a_removal_is_about_no_version() -> None:
    """Nothing can be held back for it."""
    client = of_sotw()
    client.ack(client.ask(CDS))
    step = client.begin(snapshot({"CDS": {}}, generation=2))
    (response,) = client.look()
    client.ack((response,), error="no")

    assert (client.stream.standing(step), client.nacks) == (Standing.TAKEN, [Nack(frozenset(), words="no")])


@both
def test_a_nack_is_not_about_what_the_client_had(make: MakeClient) -> None:
    """In a full state there are resources that it ACKed before, which are no suspects unless it names them."""
    client = make()
    client.ack(client.ask(CDS))
    client.begin(snapshot({"CDS": {"a": "1", "b": "1"}}, generation=2))
    client.ack(client.look(), error="no")

    assert client.nacks == [Nack(frozenset({version_of(client.served, CDS, "b")}), words="no")]


def test_a_client_that_names_what_it_rejects() -> None:
    """It may be something that it rejected before, and that is in the full state still; the rest of that is accepted."""
    client = of_sotw()
    client.ack(client.ask(CDS), error="Error adding/updating cluster(s) a: no")
    client.begin(snapshot({"CDS": {"a": "1", "b": "1"}}, generation=2))
    client.ack(client.look(), error="Error adding/updating cluster(s) a: no")

    named = Nack(
        frozenset({version_of(BEFORE, CDS, "a")}), is_named=True, words="Error adding/updating cluster(s) a: no"
    )
    assert client.nacks == [named, named]


@both
def test_what_was_nacked_before_does_not_hold_a_step_up(make: MakeClient) -> None:
    """A client that NACKs what was served before may go on doing so."""
    client = make()
    client.ack(client.ask(CDS), error="no")
    step = client.begin(snapshot({"CDS": {"a": "1", "b": "1"}}, generation=2))
    responses = client.look()
    client.ack(responses, error="no" if not client.is_delta else None)

    assert client.stream.standing(step) is Standing.TAKEN


@both
@pytest.mark.parametrize(
    ("url", "name", "expected"), [(CDS, "a", True), (EDS, "a", True), (EDS, "b", False), (LDS, "l", False)]
)
def test_what_a_client_subscribes_to(make: MakeClient, url: TypeUrl, name: str, *, expected: bool) -> None:
    """Its vote counts for that alone."""
    client = make()
    client.ask(CDS)
    client.ask(EDS, "a")

    assert (client.stream.selected(url, frozenset((name,))) == {name}) is expected


@both
def test_a_heartbeat_is_nothing_to_wait_for(make: MakeClient) -> None:
    """What renews a time to live brings nothing of a step."""
    client = make()
    features = frozenset((TTL_FEATURE, SOTW_TTL_FEATURE))
    client.stream.node = Node("n", features=features)
    client.served = _timed(BEFORE)
    client.ack(client.ask(EDS, "a"), "a")
    step = client.begin(_timed(AFTER))
    client.ack(client.look(), "a")
    assert client.stream.receive_timer(1000.0)

    assert client.stream.standing(step) is Standing.TAKEN


def _timed(served: Snapshot) -> Snapshot:
    rows = {name: replace(resource, ttl_s=10.0) for name, resource in served.resources(EDS).items()}
    return replace(served, by_type={**served.by_type, EDS: Rows(EDS, rows)})


def test_names_that_stand_for_others_are_waited_for_until_the_stream_looked() -> None:
    """Whether an alias is concerned shows when its stream looks: it is pending until then."""
    client = of_delta()
    client.ack(client.ask(EDS, "alias"))
    step = client.begin()
    assert client.stream.standing(step) is Standing.PENDING
    assert not client.look()

    assert client.stream.standing(step) is Standing.TAKEN
