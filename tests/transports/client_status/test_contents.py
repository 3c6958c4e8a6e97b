from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.api.secrets import Masker
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource, version_of_body
from fsxds.model.values import TypeUrl
from fsxds.tools.diff.lists import canonical
from fsxds.transports.client_status.contents import Contents
from tests.support.messages import Generator
from tests.support.polls import ORIGIN, envoy_catalogue, named

SECRET = BY_SHORT_NAME["sds"].type_url
TYPED = "type.googleapis.com/"
TLS = f"{TYPED}envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
MANAGER = f"{TYPED}envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
KEY = "c3Vuc2hpbmU="
PEM = "-----BEGIN PRIVATE KEY-----\nc3Vuc2hpbmU=\n-----END PRIVATE KEY-----\n"


@functools.cache
def shared_contents() -> Contents:
    """Return the contents that most tests ask."""
    return Contents(envoy_catalogue())


def resource(short_name: str, content: dict[str, Any]) -> Resource:
    """Make a resource of its content in JSON."""
    row = BY_SHORT_NAME[short_name]
    message = Converter(envoy_catalogue()).convert(content, row.message_type).message
    assert message is not None
    body = message.SerializeToString(deterministic=True)
    return Resource(row.type_url, "a", body, version_of_body(row.type_url, body), ORIGIN)


def shown(short_name: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return what is shown of a resource, as JSON."""
    plain = json.loads(shared_contents().json_of(resource(short_name, content)) or b"null")
    assert isinstance(plain, dict)
    return plain


@pytest.mark.parametrize("with_password", [True, False])
def test_what_has_no_secret_is_shown_as_it_is(*, with_password: bool) -> None:
    """The very bytes; a place that a secret comes from is none."""
    secret = {"filename": "a.pem"} if not with_password else {"inline_string": "sunshine"}
    certificate = {"certificate_chain": {"filename": "b.pem"}, "private_key": secret}
    tls = {"@type": TLS, "common_tls_context": {"tls_certificates": [certificate]}}
    content = {"name": "a", "transport_socket": {"name": "tls", "typed_config": tls}}
    cluster = resource("cds", content)

    assert (shared_contents().body_of(cluster) == cluster.body) is not with_password
    if not with_password:
        assert shown("cds", content) == {"@type": cluster.type_url, **content}


def test_a_secret_is_not_shown_at_all() -> None:
    """The types says it: all that could be told is its name."""
    secret = resource("sds", {"name": "a", "generic_secret": {"secret": {"filename": "a.txt"}}})

    assert shared_contents().body_of(secret) is None
    assert shared_contents().json_of(secret) is None


def test_a_type_that_the_catalogue_lacks_is_not_shown() -> None:
    """Nothing tells which of its fields hold secrets."""
    unknown = Resource(TypeUrl(f"{TYPED}example.Unknown"), "a", b"", version_of_body(TypeUrl("x"), b""), ORIGIN)

    assert shared_contents().body_of(unknown) is None
    assert shared_contents().json_of(unknown) is None


@pytest.mark.parametrize(
    "packed", [{"type_url": f"{TYPED}example.Unknown", "value": b"x"}, {"type_url": TLS, "value": b"\xff"}]
)
def test_what_holds_something_unreadable_is_not_shown(packed: dict[str, Any]) -> None:
    """An Any of an unknown type, or of broken bytes, may hold any secret."""
    cluster = named("cds", "a", transport_socket={"name": "x", "typed_config": packed})

    assert shared_contents().body_of(cluster) is None


def test_what_has_no_json_is_not_shown_in_json() -> None:
    """A binary file can hold times that JSON cannot say; what cannot be masked is not shown as bytes either."""
    cluster = named("cds", "a", connect_timeout={"seconds": 2**62})

    assert shared_contents().body_of(cluster) is None
    assert shared_contents().json_of(cluster) is None


def test_secrets_within_other_resources_are_hidden() -> None:
    """In whatever field, message, map or list they stand; the rest stays."""
    certificate = {
        "certificate_chain": {"inline_string": PEM},
        "private_key": {"inline_bytes": KEY},
        "password": {"inline_string": "sunshine"},
    }
    tls = {"@type": TLS, "sni": "example.com", "common_tls_context": {"tls_certificates": [certificate]}}
    metadata = {
        "a": {"password": "sunshine", "port": 80, "list": [{"token": "sunshine"}, "x"], "pem": PEM},
        "b": {"headers": [{"key": "authorization", "value": "sunshine"}, {"key": "color", "value": "red"}]},
    }
    content = {
        "name": "a",
        "metadata": {"filter_metadata": metadata},
        "transport_socket": {"name": "tls", "typed_config": tls},
    }
    plain = shown("cds", content)
    context = plain["transport_socket"]["typed_config"]["common_tls_context"]

    assert plain["metadata"]["filter_metadata"]["a"] == {
        "password": "<hidden>",
        "port": 80,
        "list": [{"token": "<hidden>"}, "x"],
        "pem": "<hidden>",
    }
    assert [header["value"] for header in plain["metadata"]["filter_metadata"]["b"]["headers"]] == ["<hidden>", "red"]
    assert plain["transport_socket"]["typed_config"]["sni"] == "example.com"
    assert context["tls_certificates"][0] == {
        "certificate_chain": {"inline_string": "<hidden>"},
        "private_key": {"inline_bytes": "PGhpZGRlbj4="},
        "password": {"inline_string": "<hidden>"},
    }


def test_messages_within_a_secret_are_hidden() -> None:
    """An Any too, whatever it is; where it comes from is shown."""
    provider = {"provider_name": "p", "typed_config": {"@type": f"{TYPED}google.protobuf.StringValue", "value": "sun"}}
    certificate = {"private_key_provider": provider, "certificate_chain": {"filename": "a.pem"}}
    tls = {"@type": TLS, "common_tls_context": {"tls_certificates": [certificate]}}
    plain = shown("cds", {"name": "a", "transport_socket": {"name": "tls", "typed_config": tls}})

    assert plain["transport_socket"]["typed_config"]["common_tls_context"]["tls_certificates"] == [
        {
            "private_key_provider": {
                "provider_name": "<hidden>",
                "typed_config": {"@type": f"{TYPED}google.protobuf.StringValue", "value": "<hidden>"},
            },
            "certificate_chain": {"filename": "a.pem"},
        }
    ]


def test_headers_that_grant_access_are_hidden() -> None:
    """The values of all headers that are added, but for harmless ones; those of matchers by the name of the header."""
    headers = [{"header": {"key": key, "value": "sunshine"}} for key in ("Authorization", "x-color", "server")]
    match = [{"name": "x-api-key", "string_match": {"exact": "sunshine"}}]
    route = {"match": {"prefix": "/", "headers": match}, "direct_response": {"status": 200}}
    content = {
        "name": "a",
        "request_headers_to_add": headers,
        "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [route]}],
    }
    plain = shown("rds", content)

    assert [each["header"]["value"] for each in plain["request_headers_to_add"]] == [
        "<hidden>",
        "<hidden>",
        "sunshine",
    ]
    [matcher] = plain["virtual_hosts"][0]["routes"][0]["match"]["headers"]
    assert matcher == {"name": "x-api-key", "string_match": {"exact": "<hidden>"}}


def test_the_environment_of_a_program_is_hidden() -> None:
    """The names of its variables are shown, and none of the values."""
    wasm = f"{TYPED}envoy.extensions.filters.http.wasm.v3.Wasm"
    variables = {"API_KEY": "sunshine", "COLOR": "red", "FILE": PEM}
    machine = {"runtime": "null", "environment_variables": {"key_values": variables}}
    content = {"name": "a", "typed_config": {"@type": wasm, "config": {"vm_config": machine}}}
    told = shown("ecds", content)["typed_config"]["config"]["vm_config"]["environment_variables"]

    assert told == {"key_values": {"API_KEY": "<hidden>", "COLOR": "<hidden>", "FILE": "<hidden>"}}


def test_maps_that_are_secret_have_no_values() -> None:
    """Their keys are names, and stay."""
    per_route = f"{TYPED}envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute"
    settings = {"context_extensions": {"a": "sunshine"}, "disable_request_body_buffering": True}
    content = {"name": "a", "typed_per_filter_config": {"f": {"@type": per_route, "check_settings": settings}}}
    told = shown("rds", content)["typed_per_filter_config"]["f"]

    assert told == {"@type": per_route, "check_settings": {**settings, "context_extensions": {"a": "<hidden>"}}}


def test_bytes_and_json_tell_the_same() -> None:
    """Both forms come from the same message."""
    content = {"name": "a", "metadata": {"filter_metadata": {"a": {"password": "sunshine"}}}}
    cluster = resource("cds", content)
    body = shared_contents().body_of(cluster)
    assert body is not None
    message = envoy_catalogue().message_class("envoy.config.cluster.v3.Cluster").FromString(body)

    assert b"sunshine" not in body
    assert {"@type": cluster.type_url, **Printer(envoy_catalogue()).to_plain(message)} == shown("cds", content)


def test_what_a_listing_hides_is_hidden_here() -> None:
    """Messages of every type, with all that fields can hold: `fsxds show` hides the same."""
    masker = Masker(envoy_catalogue())
    hidden = 0
    descriptors = {each.full_name for each in envoy_catalogue().descriptors() if each.file.package.startswith("envoy.")}
    message_types = descriptors - {SECRET.partition("/")[2]}
    for message_type, seed in product(sorted(message_types), range(3)):
        type_url = TypeUrl(TYPED + message_type)
        body = Generator(envoy_catalogue(), seed).message(message_type).SerializeToString()
        random = Resource(type_url, "a", body, version_of_body(type_url, body), ORIGIN)
        expected = masker.shown(type_url, body)
        hidden += json.dumps(expected).count("<hidden>")

        for place, value, mine in differing(expected, json.loads(shared_contents().json_of(random) or b"null")):
            assert value == "<hidden>", (message_type, seed, place)
            assert mine in EMPTIED, (message_type, seed, place)
    assert hidden > 30


EMPTIED = (None, "PGhpZGRlbj4=", "", 0)
"""What stands for `<hidden>` where a field takes no text: nothing, its base64, or the value that is not written."""


def differing(expected: Any, actual: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs between two JSON values, by its place."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in expected | actual:
            yield from differing(expected.get(name), actual.get(name), f"{place}.{name}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from differing(one, other, f"{place}[{index}]")
    elif canonical(expected) != canonical(actual):
        yield place, expected, actual


# What is kept


class CountingContents(Contents):
    """Counts what is looked through."""

    looked_through = 0

    def _body(self, type_url: TypeUrl, body: bytes) -> bytes | None:
        self.looked_through += 1
        return super()._body(type_url, body)


def test_what_was_shown_lately_is_not_looked_through_again() -> None:
    """In the same report and the one after; what neither showed is forgotten."""
    contents = CountingContents(envoy_catalogue())
    cluster = named("cds", "a")
    for _ in range(3):
        contents.turn()
        contents.body_of(cluster)
        contents.json_of(cluster)

    assert contents.looked_through == 1

    contents.turn()
    contents.turn()
    contents.body_of(cluster)

    assert contents.looked_through == 2


def test_what_is_not_shown_is_not_looked_through_again_either() -> None:
    """Nothing is an answer."""
    contents = CountingContents(envoy_catalogue())
    secret = resource("sds", {"name": "a"})
    for _ in range(2):
        assert contents.body_of(secret) is None

    assert contents.looked_through == 1


def test_a_node_is_shown() -> None:
    """As JSON; nothing of it where the catalogue knows no nodes."""
    node = base_pb2.Node(id="a", locality={"zone": "z"})
    poor = Catalogue.of(FileDescriptorSet(file=[FileDescriptorProto(name="a.proto")]).SerializeToString(), "nothing")

    assert shared_contents().plain_node(node) == {"id": "a", "locality": {"zone": "z"}}
    assert Contents(poor).plain_node(node) == {}
