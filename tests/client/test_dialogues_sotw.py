"""What a client makes of the answers on a state-of-the-world stream."""

from __future__ import annotations

from envoy.config.endpoint.v3 import endpoint_pb2

from fsxds.client.dialogues import SotwDialogue
from fsxds.model.resource_types import PREFIX
from fsxds.protocol.messages import Node
from tests.client.scripted import CDS, EDS, cluster, packed, sotw, wrapped


def dialogue() -> SotwDialogue:
    """Return the dialogue of a client that asked for everything of two types."""
    speaker = SotwDialogue(Node("n1"))
    speaker.subscribe(CDS, ())
    speaker.subscribe(EDS, ())
    return speaker


def wrapper(resource: object, name: str, ttl_s: int) -> object:
    """Return a wrapped resource as an Any."""
    message = wrapped(resource, name, ttl_s=ttl_s)
    return packed(f"{PREFIX}envoy.service.discovery.v3.Resource", message.SerializeToString())


def test_clusters_are_told_in_full() -> None:
    """An answer with clusters is all there is; one with endpoints is what changed."""
    endpoints = packed(EDS, endpoint_pb2.ClusterLoadAssignment(cluster_name="a").SerializeToString())
    speaker = dialogue()

    assert speaker.read(sotw("1", cluster("a"))).is_full
    update = speaker.read(sotw("1", endpoints, type_url=EDS))
    assert (["a"], False) == (list(update.resources), update.is_full)


def test_resources_may_be_wrapped() -> None:
    """A wrapped resource has its time to live; one without content lives on, and says nothing of the others."""
    speaker = dialogue()

    full = speaker.read(sotw("1", wrapper(cluster("a"), "a", 5), cluster("b")))
    heartbeat = speaker.read(sotw("1", wrapper(None, "a", 5)))

    assert ([("a", 5.0), ("b", None)], True) == (
        [(resource.name, resource.ttl_s) for resource in full.resources.values()],
        full.is_full,
    )
    assert (("a",), False, {}) == (heartbeat.heartbeats, heartbeat.is_full, heartbeat.bodies)


def test_a_client_that_accepts_parts() -> None:
    """A full state with a resource whose name is unknown says nothing of what is missing in it."""
    speaker = SotwDialogue(Node("n1"), accepts_parts=True)
    speaker.subscribe(CDS, ())
    twice = speaker.read(sotw("1", cluster("a"), cluster("b"), cluster("b", 2)))
    unnamed = speaker.read(sotw("2", cluster("a"), packed(CDS, b"\xff")))

    assert (["a"], True, frozenset({"b"}), ('"b" is in it twice',)) == (
        list(twice.resources),
        twice.is_full,
        twice.rejected,
        twice.faults,
    )
    assert (["a"], False, ("a resource in it is no message",)) == (
        list(unnamed.resources),
        unnamed.is_full,
        unnamed.faults,
    )
