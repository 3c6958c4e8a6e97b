"""What can be served of a response, and what is wrong with the rest."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from envoy.config.core.v3 import extension_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from google.protobuf.any_pb2 import Any as PackedAny

from fsxds.api.catalogue import Catalogue
from fsxds.model.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Resource, Rows
from fsxds.model.values import TypeUrl
from fsxds.upstream.holdings import MOST_FAULTS, ReadResponse
from tests.support.messages import Generator
from tests.support.snapshots import type_url
from tests.upstream.made import (
    CDS,
    EDS,
    RDS,
    SERVER,
    VHDS,
    came,
    cluster,
    full_state,
    reader_of,
    redirect,
    routes,
    update,
    update_of,
    virtual_host,
)

ECDS, SDS = type_url("ecds"), type_url("sds")


def read(catalogue: Catalogue, *resources: Resource) -> ReadResponse:
    """Read a response of Delta, of which nothing is held yet."""
    return reader_of(catalogue).read(update_of(resources[0].type_url, *resources), Rows(resources[0].type_url))


def fault_of(catalogue: Catalogue, resource: Resource) -> str:
    """Return what is wrong with a resource, which is not served."""
    response = read(catalogue, resource)
    assert not response.resources
    return response.bad[resource.name]


def test_bytes_pass_through(catalogue: Catalogue) -> None:
    """The bytes of a resource are served as they came, with fields that nobody knows; its version is their digest."""
    body = cluster("web").SerializeToString() + bytes([0xFA, 0x7F, 3]) + b"new"
    found = read(catalogue, came(CDS, "web", body, "v7")).resources["web"]
    assert found.body == body
    assert found.version == came(CDS, "web", body).version
    assert str(found.origin.path) == f"upstream {SERVER}"


def test_the_versions_of_the_server_are_kept_beside_it(catalogue: Catalogue) -> None:
    """What the server calls a resource is not its version here."""
    assert read(catalogue, came(CDS, "web", cluster("web"), "v7")).versions == {"web": "v7"}


def test_references_are_collected(catalogue: Catalogue) -> None:
    """What a resource refers to is known, as of a file's."""
    found = read(catalogue, came(CDS, "web", cluster("web", uses_eds=True))).resources["web"]
    assert [(each.type_url, each.name) for each in found.references] == [(EDS, "web")]


def test_what_is_held_is_not_made_again(catalogue: Catalogue) -> None:
    """A resource that came before is the same object when it comes again, and another one when anything in it changed."""
    held = read(catalogue, came(CDS, "web", cluster("web"))).resources
    rows = Rows(CDS, held)
    again = reader_of(catalogue).read(full_state(CDS, {"web": cluster("web")}), rows)
    assert again.resources["web"] is held["web"]
    for other in (came(CDS, "web", cluster("web", timeout_s=2)), came(CDS, "web", cluster("web"), ttl_s=3.0)):
        assert reader_of(catalogue).read(update_of(CDS, other), rows).resources["web"] is not held["web"]


@pytest.mark.parametrize(
    ("of_type", "body", "words"),
    [
        (CDS, b"\xff\xff\xff", "its bytes are no envoy.config.cluster.v3.Cluster"),
        (CDS, cluster("other"), 'the Resource is named "web", and its content "other"'),
        (CDS, cluster(""), "`name` is missing or empty"),
        (CDS, cluster("web", timeout_s=-1), "connect_timeout: "),
        (SDS, secret_pb2.Secret(name="web"), ""),
    ],
)
def test_what_envoy_would_reject_is_not_served(
    catalogue: Catalogue, of_type: TypeUrl, body: object, words: str
) -> None:
    """Bytes that are no message, other names, and values that break a rule of the API are faults of the one resource."""
    response = read(catalogue, came(of_type, "web", body), came(of_type, "good", _named_good(of_type)))
    assert list(response.resources) == (["good"] if words else ["web", "good"])
    assert response.bad.get("web", "").startswith(words)


def _named_good(of_type: TypeUrl) -> object:
    return cluster("good") if of_type == CDS else secret_pb2.Secret(name="good")


def test_an_extension_that_is_not_known_is_no_fault(catalogue: Catalogue) -> None:
    """Clients may know more than this process; but bytes that are no message of a type that is known are a fault."""
    unknown = PackedAny(type_url="type.googleapis.com/acme.v1.Filter", value=b"\xff")
    config = extension_pb2.TypedExtensionConfig(name="a", typed_config=unknown)
    assert read(catalogue, came(ECDS, "a", config)).resources["a"].body == config.SerializeToString()
    broken = PackedAny(type_url=CDS, value=b"\xff")
    fault = fault_of(catalogue, came(ECDS, "a", extension_pb2.TypedExtensionConfig(name="a", typed_config=broken)))
    assert fault == "typed_config: its bytes are no envoy.config.cluster.v3.Cluster"


def test_no_fault_shows_a_secret(catalogue: Catalogue) -> None:
    """A wrong secret is named, and nothing of what it holds."""
    secret = secret_pb2.Secret(name="web")
    secret.tls_certificate.private_key.inline_string = "hunter2"
    body = secret.SerializeToString().replace(b"hunter2", b"hunter\xff")
    assert "hunter" not in fault_of(catalogue, came(SDS, "web", body))


def test_a_time_to_live_is_above_zero(catalogue: Catalogue) -> None:
    """A resource that is over as it comes is no resource."""
    assert fault_of(catalogue, came(CDS, "web", cluster("web"), ttl_s=0.0)) == "its time to live is not above zero"


def test_virtual_hosts_are_found_by_their_domains(catalogue: Catalogue) -> None:
    """As of files: Envoy asks for `<route configuration>/<domain>`, and what has no route configuration is a fault."""
    found = read(catalogue, came(VHDS, "web/a", virtual_host("web/a", "A.example", "*")))
    assert found.resources["web/a"].aliases == ("web/a.example", "web/*")
    assert "route configuration" in fault_of(catalogue, came(VHDS, "a", virtual_host("a", "a.example")))


def test_structured_names_are_canonical(catalogue: Catalogue) -> None:
    """A resource is found by the one canonical form of its name, in whichever it came; so is what it refers to."""
    written, canonical = "xdstp://a/{}/b?y=1&x=2", "xdstp://a/{}/b?x=2&y=1"
    name = written.format("envoy.config.route.v3.RouteConfiguration")
    target = written.format("envoy.config.cluster.v3.Cluster")
    message = routes(name, target)
    found = read(catalogue, came(RDS, name, message)).resources
    resource = found[canonical.format("envoy.config.route.v3.RouteConfiguration")]
    assert resource.body == message.SerializeToString()
    assert canonical.format("envoy.config.cluster.v3.Cluster") in {each.name for each in resource.references}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("xdstp://a/envoy.config.cluster.v3.Cluster/*", "its name is wrong: is the name of a collection"),
        ("xdstp://a/envoy.config.route.v3.RouteConfiguration/b", "its name is wrong: the name is that of another type"),
        ("xdstp://a/envoy.config.cluster.v3.Cluster/%", "its name is wrong: has a % that begins no code"),
    ],
)
def test_wrong_structured_names_are_faults(catalogue: Catalogue, name: str, words: str) -> None:
    """A collection is no resource, and a name says its type."""
    assert fault_of(catalogue, came(CDS, name, cluster(name))).startswith(words)


def test_redirects_lead_to_their_type(catalogue: Catalogue) -> None:
    """A redirect is taken in with what it leads to; one to another type, or to nothing that is a name, is a fault."""
    locator = "xdstp://b/envoy.config.cluster.v3.Cluster/c"
    found = read(catalogue, redirect(CDS, "web", locator)).resources["web"]
    assert (found.redirect, found.body) == (locator, b"")
    assert (CDS, locator) in {(each.type_url, each.name) for each in found.references}
    assert "leads to" in fault_of(catalogue, redirect(EDS, "web", locator))
    assert "the locator" in fault_of(catalogue, redirect(CDS, "web", "xdstp://b"))


def test_names_of_all_lists_are_read_alike(catalogue: Catalogue) -> None:
    """Removals, heartbeats and names that do not exist are in the canonical form too; what is in the response stays."""
    written = "xdstp://a/envoy.config.cluster.v3.Cluster/b?y=1&x=2"
    canonical = "xdstp://a/envoy.config.cluster.v3.Cluster/b?x=2&y=1"
    came_so = replace(
        update(CDS, {"web": cluster("web")}, "web", written, "*malformed"),
        heartbeats=(written,),
        unpopulated=(written,),
    )
    response = reader_of(catalogue).read(came_so, Rows(CDS))
    assert response.removed == {canonical, "*malformed"}
    assert response.renewed == response.absent == {canonical}


def test_what_the_wire_left_out_keeps_its_content(catalogue: Catalogue) -> None:
    """A resource that was left out while the response was read is bad, with the fault that names it."""
    came_so = replace(full_state(CDS, {}), faults=('"web" is in it twice',), rejected=frozenset({"web"}))
    response = reader_of(catalogue).read(came_so, Rows(CDS))
    assert response.bad == {"web": '"web" is in it twice'}
    assert response.words == ('"web" is in it twice',)


def test_a_type_that_is_not_served_is_a_fault(catalogue: Catalogue) -> None:
    """A server that sends another type than any of xDS is told so, and nothing is taken in."""
    other = TypeUrl("type.googleapis.com/acme.v1.Thing")
    response = reader_of(catalogue).read(update(other, {"a": b""}), Rows(other))
    assert not response.resources
    assert response.words == ("the type of the response was not requested",)


def test_the_words_are_bounded(catalogue: Catalogue) -> None:
    """A response with ten thousand faults is NACKed with some of them, and the number of the others."""
    many = {f"{number:05}" + "x" * 400: b"\xff" for number in range(10_000)}
    words = reader_of(catalogue).read(update(CDS, many), Rows(CDS)).words
    assert words[0].startswith('Cluster "00000x')
    assert words[-1] == f"and {10_000 - MOST_FAULTS} more"
    assert max(map(len, words)) <= 300


@pytest.mark.parametrize("row", RESOURCE_TYPES, ids=lambda row: row.short_name)
def test_no_bytes_raise(catalogue: Catalogue, row: ResourceType) -> None:
    """Whatever a server sends, each resource is served or bad; the words of a bad one are short."""
    chosen, reader = random.Random(row.short_name), reader_of(catalogue)
    for seed in range(40):
        body = bytearray(Generator(catalogue, seed).message(row.message_type).SerializeToString())
        for _ in range(chosen.randrange(4) if body else 0):
            body[chosen.randrange(len(body))] = chosen.randrange(256)
        response = reader.read(update_of(row.type_url, came(row.type_url, "web", bytes(body))), Rows(row.type_url))
        assert [*response.resources, *response.bad] == ["web"]
        assert all(len(words) <= 300 for words in response.bad.values())
