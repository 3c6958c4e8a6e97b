from __future__ import annotations

from dataclasses import replace

import pytest
from envoy.admin.v3 import config_dump_shared_pb2
from envoy.service.status.v3 import csds_pb2

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import Version
from fsxds.protocol.messages import ClientResourceStatus, ClientStatus, ConfigStatus, Node, ResourceStatus, WatchStatus
from fsxds.protocol.polling_node import POLLING
from fsxds.transports.client_status.contents import resource_statuses
from tests.support.polls import named

CDS = BY_SHORT_NAME["cds"].type_url
A, B = named("cds", "a"), named("cds", "b")
V1, V2, V3 = Version("v1"), Version("v2"), Version("v3")

# What a client was sent and accepted.
IN_STEP = WatchStatus(CDS, None, sent=V1, acked=V1, resources=(A, B))


def statuses(watch: WatchStatus, service: str = "StreamClusters") -> list[ResourceStatus]:
    """Return what is told of a client with one watch."""
    return list(resource_statuses(ClientStatus(Node("edge-1"), service, (watch,))))


def stands(watch: WatchStatus, service: str = "StreamClusters") -> dict[str, tuple[str, str]]:
    """Return both statuses by the name of the resource."""
    return {each.name: (each.config_status.name, each.client_status.name) for each in statuses(watch, service)}


def test_the_numbers_are_those_of_the_protocol() -> None:
    """Both enums have the names and numbers of the messages."""
    for status in ConfigStatus:
        assert csds_pb2.ConfigStatus.Value(status.name) == status
    for stand in ClientResourceStatus:
        assert config_dump_shared_pb2.ClientResourceStatus.Value(stand.name) == stand


def test_what_was_accepted_is_in_step() -> None:
    """SYNCED, ACKED, and what it is."""
    assert statuses(IN_STEP) == [
        ResourceStatus(CDS, "a", ConfigStatus.SYNCED, ClientResourceStatus.ACKED, V1, A),
        ResourceStatus(CDS, "b", ConfigStatus.SYNCED, ClientResourceStatus.ACKED, V1, B),
    ]


@pytest.mark.parametrize("service", ["DeltaClusters", "DeltaAggregatedResources"])
def test_delta_clients_know_each_resource_by_its_own_version(service: str) -> None:
    """The version of the response says nothing of one resource."""
    assert [each.version for each in statuses(IN_STEP, service)] == [A.version, B.version]


@pytest.mark.parametrize("service", ["StreamAggregatedResources", POLLING])
def test_other_clients_know_all_by_the_version_of_the_response(service: str) -> None:
    """It is what an Envoy shows in its own config dump."""
    assert {each.version for each in statuses(IN_STEP, service)} == {V1}


def test_what_nobody_spoke_of_yet_is_stale() -> None:
    """Sent, with no word about it; the first time, it may not have come yet."""
    assert stands(replace(IN_STEP, acked=None))["a"] == ("STALE", "REQUESTED")
    assert stands(replace(IN_STEP, sent=V2))["a"] == ("STALE", "UNKNOWN")
    assert statuses(replace(IN_STEP, sent=V2))[0].version == V2


def test_what_was_rejected_is_an_error() -> None:
    """With the client's words, the version it refused, and the one it has; its neighbours are what they were."""
    watch = replace(IN_STEP, sent=V2, nacked=V2, reason="bad", rejected=frozenset("a"))

    assert statuses(watch) == [
        ResourceStatus(CDS, "a", ConfigStatus.ERROR, ClientResourceStatus.NACKED, V1, A, V2, "bad"),
        ResourceStatus(CDS, "b", ConfigStatus.SYNCED, ClientResourceStatus.ACKED, V1, B),
    ]


def test_a_rejected_first_response_leaves_nothing() -> None:
    """The client has no version of what it refused, and said nothing of the rest."""
    watch = replace(IN_STEP, acked=None, nacked=V1, reason="bad", rejected=frozenset("a"))

    assert [(each.name, each.config_status.name, each.version) for each in statuses(watch)] == [
        ("a", "ERROR", None),
        ("b", "STALE", V1),
    ]


def test_a_delta_client_refused_a_resource_by_its_own_version() -> None:
    """Which version it kept is not known."""
    watch = replace(IN_STEP, sent=V2, nacked=V2, reason="bad", rejected=frozenset("a"))
    rejected, _ = statuses(watch, "DeltaClusters")

    assert (rejected.version, rejected.nacked) == (None, A.version)


def test_the_words_of_an_envoy_are_told_without_the_message_it_prints() -> None:
    """It holds the secrets of the resource."""
    words = 'Proto constraint validation failed (field): goo.gle/debugonly name: "a" password: "sunshine"'
    watch = replace(IN_STEP, sent=V2, nacked=V2, reason=words, rejected=frozenset({"a", "gone"}))

    assert [each.reason for each in statuses(watch) if each.reason] == [
        "Proto constraint validation failed (field)"
    ] * 2


def test_what_is_offered_again_is_still_rejected() -> None:
    """Until the client takes it."""
    watch = replace(IN_STEP, sent=V3, nacked=V2, reason="bad", rejected=frozenset("a"))

    assert stands(watch) == {"a": ("ERROR", "NACKED"), "b": ("STALE", "UNKNOWN")}


def test_what_was_rejected_and_is_gone_is_told_of_without_content() -> None:
    """The file was deleted, and the client has not said that it is content."""
    watch = replace(IN_STEP, sent=V2, nacked=V2, reason="bad", rejected=frozenset({"gone"}), missing=("gone",))

    assert statuses(watch)[2:] == [
        ResourceStatus(CDS, "gone", ConfigStatus.ERROR, ClientResourceStatus.NACKED, nacked=V2, reason="bad")
    ]


def test_names_that_do_not_exist_are_told_of() -> None:
    """The client was answered, so it knows."""
    watch = replace(IN_STEP, names=frozenset({"a", "b", "d", "c"}), missing=("d", "c"))

    assert list(stands(watch).items())[2:] == [
        ("c", ("NOT_SENT", "DOES_NOT_EXIST")),
        ("d", ("NOT_SENT", "DOES_NOT_EXIST")),
    ]


def test_who_was_sent_nothing_waits() -> None:
    """For the names it asked for, or for everything; that a name does not exist is told to who asks why."""
    named_watch = WatchStatus(CDS, frozenset({"c", "b", "a"}), missing=("b",))

    assert list(stands(named_watch).items()) == [
        ("b", ("NOT_SENT", "DOES_NOT_EXIST")),
        ("a", ("NOT_SENT", "REQUESTED")),
        ("c", ("NOT_SENT", "REQUESTED")),
    ]
    assert stands(WatchStatus(CDS, None)) == {"*": ("NOT_SENT", "REQUESTED")}


def test_who_was_sent_that_there_is_nothing_has_nothing() -> None:
    """An empty answer is an answer."""
    assert statuses(WatchStatus(CDS, None, V1, V1)) == []


def test_watches_are_told_of_one_after_another() -> None:
    """A client of many types is one client."""
    status = ClientStatus(Node("edge-1"), "StreamAggregatedResources", (IN_STEP, WatchStatus(CDS, frozenset("c"))))

    assert [each.name for each in resource_statuses(status)] == ["a", "b", "c"]
