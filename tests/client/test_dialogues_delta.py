"""What a client says on a Delta stream, and what it makes of the answers."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.client.connection import Streaming, Wire, streaming
from fsxds.client.dialogues import DeltaDialogue
from fsxds.client.updates import ConnectionLostError, WrongResponseError
from fsxds.model.resource_types import BY_SHORT_NAME, PREFIX
from fsxds.protocol.messages import Node
from tests.client.scripted import CDS, EDS, cluster, delta, packed, scripted, wrapped

VHDS = BY_SHORT_NAME["vhds"].type_url


def said(request: bytes | None) -> Any:
    """Return a request as a message."""
    assert request is not None
    return discovery_pb2.DeltaDiscoveryRequest.FromString(request)


def dialogue(*names: str) -> DeltaDialogue:
    """Return the dialogue of a client that asked for clusters."""
    speaker = DeltaDialogue(Node("n1"))
    speaker.subscribe(CDS, names)
    return speaker


async def test_over_a_stream() -> None:
    """A client accepts updates one by one, and begins a new stream with what it accepted."""
    wanted = Streaming(Wire.DELTA, BY_SHORT_NAME["cds"])
    async with scripted(wanted.method) as script, streaming(script.target, wanted, Node("n1")) as client:
        client.subscribe(CDS)
        script.say(
            delta("1", wrapped(cluster("a"), "a", "va"), wrapped(cluster("b"), "b", "vb")), delta("2", removed=("a",))
        )
        first = await client.next()
        second = await client.next()
        client.ack()
        request, acked, _ = [await script.requested() for _ in range(3)]
        client.disconnect()
        await script.stream_ended()
        script.say(delta("3"))
        await client.next()
        again = await script.requested()

    assert ({"a": "va", "b": "vb"}, ("a",)) == (
        {name: resource.version for name, resource in first.resources.items()},
        second.removed,
    )
    assert ([], {}, "n1") == (
        list(request.resource_names_subscribe),
        dict(request.initial_resource_versions),
        acked.response_nonce,
    )
    assert ({"b": "vb"}, "", True) == (
        dict(again.initial_resource_versions),
        again.response_nonce,
        again.HasField("node"),
    )


def test_what_was_refused_is_not_held() -> None:
    """A NACK has its reason; what it refused is not among the versions of the next stream."""
    speaker = dialogue()
    refused = said(speaker.answer(speaker.read(delta("1", wrapped(cluster("a"), "a", "va"))), "no good"))
    (first,) = map(said, speaker.first_requests())

    assert ("n1", "no good") == (refused.response_nonce, refused.error_detail.message)
    assert {} == dict(first.initial_resource_versions)


def test_only_what_is_new_is_asked_for() -> None:
    """Names are subscribed and let go of in words of their own; a new stream begins with those that are left."""
    speaker = dialogue("a", "b")
    speaker.answer(speaker.read(delta("1", wrapped(cluster("a"), "a", "1"), wrapped(cluster("b"), "b", "1"))), None)
    more, less = said(speaker.subscribe(CDS, ("c",))), said(speaker.unsubscribe(CDS, ("a",)))
    (first,) = map(said, speaker.first_requests())

    assert (["c"], ["a"]) == (list(more.resource_names_subscribe), list(less.resource_names_unsubscribe))
    assert (["b", "c"], {"b": "1"}) == (
        list(first.resource_names_subscribe),
        dict(first.initial_resource_versions),
    )


def test_a_wildcard_holds_what_is_let_go_by_name() -> None:
    """Under `*`, who lets go of a name still holds the resource; who lets go of `*` and all names asks for nothing."""
    speaker = dialogue("*", "a")
    speaker.answer(speaker.read(delta("1", wrapped(cluster("a"), "a", "1"))), None)
    speaker.unsubscribe(CDS, ("a",))
    (first,) = map(said, speaker.first_requests())
    speaker.unsubscribe(CDS, ("*",))

    assert (["*"], {"a": "1"}) == (list(first.resource_names_subscribe), dict(first.initial_resource_versions))
    assert [] == list(speaker.first_requests())


def test_all_that_a_response_may_hold() -> None:
    """Aliases, times to live, heartbeats, and names that are not there are told apart."""
    speaker = DeltaDialogue(Node("n1"))
    speaker.subscribe(VHDS, ("r/x",))
    host = cluster("unused")
    host.type_url = VHDS
    update = speaker.read(
        delta(
            "1",
            wrapped(host, "r/one", "1", ttl_s=5, aliases=("r/x",)),
            wrapped(None, "r/live", "1", ttl_s=5),
            wrapped(None, "r/none", aliases=("r/none",)),
            removed=("r/gone",),
            type_url=VHDS,
        )
    )
    one = update.resources["r/one"]

    assert (("r/x",), 5.0, host.value) == (one.aliases, one.ttl_s, one.body)
    assert (("r/live",), ("r/none",), ("r/gone",)) == (update.heartbeats, update.unpopulated, update.removed)
    assert not update.is_full


@pytest.mark.parametrize(
    ("response", "fault"),
    [
        (delta("1", wrapped(cluster("a"), "a"), wrapped(cluster("a"), "a")), '"a" is in it twice'),
        (delta("1", wrapped(cluster("a"), "a"), removed=("a",)), '"a" is in it, and removed by it'),
        (delta("1", removed=("a", "a")), "it removes a name twice"),
        (delta("1", type_url=EDS), f"{EDS} was not asked for"),
    ],
)
def test_what_cannot_be_taken(response: bytes, fault: str) -> None:
    """Names twice and types that nobody asked for are wrong."""
    with pytest.raises(WrongResponseError) as caught:
        dialogue().read(response)

    assert fault == str(caught.value)


def test_no_response_at_all() -> None:
    """Bytes that are no message are told as such."""
    with pytest.raises(ConnectionLostError, match="is no DeltaDiscoveryResponse"):
        dialogue().read(b"\xff")


def test_a_type_that_was_not_asked_for_has_no_verdict() -> None:
    """A NACK would be taken for a subscription."""
    speaker = dialogue()
    with pytest.raises(WrongResponseError) as caught:
        speaker.read(delta("1", type_url=EDS))

    assert speaker.answer(caught.value.update, "no") is None


def test_a_client_that_accepts_parts() -> None:
    """Faults are told in the update, and what has one is left out, whether it is there or removed."""
    speaker = DeltaDialogue(Node("n1"), accepts_parts=True)
    speaker.subscribe(CDS, ())
    wrong = wrapped(packed(EDS, b""), "wrong")
    garbled = wrapped(packed(f"{PREFIX}xds.core.v3.ResourceLocator", b"\xff"), "garbled")
    good, twice, both = (wrapped(cluster(name), name) for name in ("good", "twice", "both"))

    update = speaker.read(delta("1", good, twice, twice, both, wrong, garbled, removed=("gone", "both")))
    other = speaker.read(delta("2", wrapped(cluster("a"), "a"), type_url=EDS))

    assert (["good"], ("gone",), frozenset({"twice", "both", "wrong", "garbled"}), 4) == (
        list(update.resources),
        update.removed,
        update.rejected,
        len(update.faults),
    )
    assert ({}, (f"{EDS} was not asked for",)) == (dict(other.resources), other.faults)


def test_a_resource_that_says_its_name_itself_and_is_none() -> None:
    """Where the wrapper has no name, and the bytes have none, the update is not accepted, and nothing else happens."""
    with pytest.raises(WrongResponseError, match="a resource in it is no message"):
        dialogue().read(delta("1", wrapped(packed(CDS, b"\xff"), "")))


def test_what_a_stream_begins_with_can_be_given() -> None:
    """The first request for a type on a stream has the versions that are held then, whoever held them; later ones have none."""
    held = {"a": "va"}
    speaker = DeltaDialogue(Node("n1"), lambda type_url: held if type_url == CDS else {})
    before = said(speaker.subscribe(CDS, ()))
    first = [said(request) for request in speaker.first_requests()]
    later = [said(speaker.subscribe(EDS, ("e",))), said(speaker.subscribe(CDS, ("a",)))]
    held["b"] = "vb"
    update = speaker.read(delta("1", wrapped(cluster("c"), "c", "vc")))
    speaker.answer(update, None)
    again = [said(request) for request in speaker.first_requests()]

    assert [{}, {"a": "va"}] == [dict(request.initial_resource_versions) for request in (before, *first)]
    assert [{}, {}] == [dict(request.initial_resource_versions) for request in later]
    assert [{"a": "va", "b": "vb"}, {}] == [dict(request.initial_resource_versions) for request in again]


def test_many_names_begin_a_stream_in_several_requests() -> None:
    """A server may take no more than 4 MB in one request; the versions are in the first."""
    names = [f"n{number}" for number in range(25_000)]
    speaker = DeltaDialogue(Node("n1"), lambda _: {"n0": "v"})
    speaker.subscribe(CDS, names)
    first = [said(request) for request in speaker.first_requests()]

    assert [10_000, 10_000, 5_000] == [len(request.resource_names_subscribe) for request in first]
    assert [1, 0, 0] == [len(request.initial_resource_versions) for request in first]
    assert names == [name for request in first for name in request.resource_names_subscribe]


def test_the_relays_that_an_update_passed() -> None:
    """They are in the identifier of the control plane, where that is fsxds."""
    relay = "0123456789abcdef"
    response = discovery_pb2.DeltaDiscoveryResponse(type_url=CDS, control_plane={"identifier": f"fsxds {relay}"})

    assert (relay,) == dialogue().read(response.SerializeToString()).relays
