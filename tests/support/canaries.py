"""Canaries: a text of its own in every place where a secret may stand, so that an exit that shows it is found.

The places in messages come from the descriptors: what Envoy marks as sensitive, what is named like a credential, values
of headers, inline content, and keys of Structs. The places in broken files are those that a message might quote.
"""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import is_map, map_parts
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource, version_of_body
from fsxds.model.values import TypeUrl
from tests.support.polls import ORIGIN, envoy_catalogue

HOST = "type.googleapis.com/"
_SOURCE = "envoy.config.core.v3.DataSource"
_NAMED = re.compile(
    r"(^|_)(password|passwords|token|secret_data|secret_access_key|access_key_id|private_key|api_key|json_key|pkcs12|"
    r"inline_code|source_codes?|default_source_code|local_jwks|external_id|authorization|key_values|context_extensions)$"
)
# Names of cookies and of files, and a token that is the name of a claim.
_HARMLESS = re.compile(r"CookieNames\.|access_token_file|extraction|\.authority", re.IGNORECASE)
# Pages and formats, the certificates of others, and what is binary anyway.
_OPEN = frozenset({"body", "body_format", "response", "text_format_source"})
# Written in parts by the API of clients, not in configuration.
_CONFIGURATION = re.compile(r"(envoy\.(config|extensions)|xds)\.")
_KEYS = ("db_password", "token", "api_key", "private_key", "credential", "clientSecret", "X-Auth", "set-cookie", "jwt")
_HEADERS = ("Authorization", "x-api-key", "cookie", "proxy-authorization", "x-mine", "my-token")
_URIS = (
    "https://user:{}@a.b/c",
    "https://a.b/c?key={}",
    "/a?x=1&access_token={}",
    "redis://:{}@a:1",
    "https://a.b/?sig={}",
)


@dataclass(frozen=True, slots=True)
class Canary:
    """A text, and the place where it stands."""

    text: str
    place: str

    def is_in(self, shown: str) -> bool:
        """Tell whether it is shown: as it is, in other letters, in hexadecimal, or in base64 at any offset."""
        raw = self.text.encode()
        codes = {raw.hex(), *(base64.b64encode(b"\0" * skip + raw).decode()[4:-4] for skip in range(3))}
        return self.text.lower() in shown.lower() or any(code in shown for code in codes)


class Canaries:
    """Makes canaries of one seed; each is made once."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.all: list[Canary] = []

    def at(self, place: str) -> str:
        """Return the text of another canary."""
        text = "zq" + "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=14))
        self.all.append(Canary(text, place))
        return text


def resources(canaries: Canaries) -> tuple[Resource, ...]:
    """Return a resource for each place in messages, always in the same order."""
    catalogue = envoy_catalogue()
    return tuple(_packed(catalogue, message, number) for number, message in enumerate(_messages(catalogue, canaries)))


def _packed(catalogue: Catalogue, message: Any, number: int) -> Resource:
    row = BY_SHORT_NAME["ecds"]
    holder: Any = catalogue.message_class(row.message_type)(name=f"place-{number}")
    holder.typed_config.type_url = HOST + message.DESCRIPTOR.full_name
    holder.typed_config.value = message.SerializeToString(deterministic=True)
    body = holder.SerializeToString(deterministic=True)
    return Resource(TypeUrl(row.type_url), holder.name, body, version_of_body(row.type_url, body), ORIGIN)


def _messages(catalogue: Catalogue, canaries: Canaries) -> Iterator[Any]:
    for descriptor in sorted(catalogue.descriptors(), key=lambda each: each.full_name):
        if not _CONFIGURATION.match(descriptor.full_name) or descriptor.GetOptions().map_entry:
            continue
        if ".v2" in descriptor.full_name or ".data." in descriptor.full_name:
            continue
        for field in descriptor.fields:
            if _holds_secret(catalogue, descriptor, field):
                yield from _with_canary(catalogue, descriptor, field, canaries)
    yield from _special(catalogue, canaries)


def _holds_secret(catalogue: Catalogue, descriptor: Descriptor, field: FieldDescriptor) -> bool:
    if descriptor.full_name == _SOURCE:
        return False
    options = catalogue.options_of(field).ListFields()
    is_marked = any(option.full_name == "udpa.annotations.sensitive" and value for option, value in options)
    is_source = field.message_type is not None and field.message_type.full_name == _SOURCE and not is_map(field)
    is_named = _NAMED.search(field.name) is not None and not _HARMLESS.search(field.full_name)
    return is_marked or is_named or (is_source and field.name not in _OPEN)


def _with_canary(
    catalogue: Catalogue, descriptor: Descriptor, field: FieldDescriptor, canaries: Canaries
) -> Iterator[Any]:
    """Yield a message with a canary in one of its fields; two for a DataSource, none where the field is no text."""
    make = catalogue.message_class(descriptor.full_name)
    if is_map(field):
        message: Any = make()
        value = map_parts(field)[1]
        if value.message_type is None:
            getattr(message, field.name)["a"] = canaries.at(field.full_name)
            yield message
        elif value.message_type.full_name == _SOURCE:
            getattr(message, field.name)["a"].inline_string = canaries.at(field.full_name)
            yield message
        return
    if field.message_type is None:
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            text: Any = canaries.at(field.full_name)
            text = text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
            yield make(**{field.name: [text] if field.is_repeated else text})
        return
    names = [each.name for each in field.message_type.fields if each.name in ("inline_string", "inline_bytes", "key")]
    for name in names:
        message = make()
        part = getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
        text = canaries.at(f"{field.full_name}.{name}")
        setattr(part, name, text.encode() if name == "inline_bytes" else text)
        yield message


def _special(catalogue: Catalogue, canaries: Canaries) -> Iterator[Any]:
    """Yield what no descriptor tells: headers, keys of Structs and of maps, parts of URIs, matchers."""

    def message(name: str, text: str) -> Any:
        made: Any = catalogue.message_class(name)()
        text_format.Parse(text, made, descriptor_pool=catalogue.pool)
        return made

    for header in _HEADERS:
        for value in ("value", "raw_value"):
            canary = canaries.at(f"headers_to_add {header} {value}")
            option = f'header {{key: "{header}" {value}: "{canary}"}}'
            yield message("envoy.config.route.v3.RouteConfiguration", f"request_headers_to_add {{{option}}}")
        if header != "x-mine":
            for match in ("exact", "prefix", "contains"):
                canary = canaries.at(f"header matcher {header} {match}")
                text = f'name: "{header}" string_match {{{match}: "{canary}"}}'
                yield message("envoy.config.route.v3.HeaderMatcher", text)
        canary = canaries.at(f"initial_metadata {header}")
        yield message("envoy.config.core.v3.GrpcService", f'initial_metadata {{key: "{header}" value: "{canary}"}}')
    for key in _KEYS:
        canary = canaries.at(f"Struct {key}")
        nested = f'fields {{key: "a" value {{list_value {{values {{string_value: "{canary}"}}}}}}}}'
        for inside in (f'string_value: "{canary}"', f"struct_value {{{nested}}}"):
            struct = f'fields {{key: "{key}" value {{{inside}}}}}'
            yield message("envoy.config.core.v3.Metadata", f'filter_metadata {{key: "a" value {{{struct}}}}}')
            yield message("envoy.service.runtime.v3.Runtime", f"layer {{{struct}}}")
            yield message("xds.type.v3.TypedStruct", f"value {{{struct}}}")
    for authority in ("user:{}@a.b", "{}@a.b:80", "u:a@{}@a.b"):
        text = authority.format(canaries.at(f"authority {authority}"))
        yield message("envoy.config.route.v3.RedirectAction", f'host_redirect: "{text}"')
        yield message("envoy.config.route.v3.RouteAction", f'host_rewrite_literal: "{text}"')
        yield message("envoy.config.core.v3.SocketAddress", f'address: "{text}"')
        yield message("envoy.config.core.v3.HealthCheck.HttpHealthCheck", f'host: "{text}"')
    text = f"user:{canaries.at('authority anywhere')}@a.b"
    yield message("envoy.config.cluster.v3.Cluster", f'alt_stat_name: "{text}"')
    for uri in _URIS:
        text = uri.format(canaries.at(f"URI {uri}"))
        yield message("envoy.config.core.v3.HttpUri", f'uri: "{text}"')
        yield message("envoy.config.route.v3.RedirectAction", f'path_redirect: "{text}"')
        yield message("envoy.config.core.v3.Metadata", f'filter_metadata {{key: "a" value {{fields {{key: "b" value {{string_value: "{text}"}}}}}}}}')  # fmt: skip
    config = f'[{HOST}google.protobuf.StringValue] {{value: "{canaries.at("wasm configuration")}"}}'
    yield message("envoy.extensions.wasm.v3.PluginConfig", f"configuration {{{config}}}")
    header_input = f'[{HOST}envoy.type.matcher.v3.HttpRequestHeaderMatchInput] {{header_name: "authorization"}}'
    canary = canaries.at("keys of a matcher")
    yield message(
        "xds.type.matcher.v3.Matcher",
        f'matcher_tree {{input {{name: "a" typed_config {{{header_input}}}}} exact_match_map {{map {{key: "{canary}" value {{}}}}}}}}',
    )


# Files that are broken, or odd, where a message might quote: `{}` is a canary.
_BROKEN = (
    ("cds.yaml", "- name: a\n  {}: 1\n"),
    ("cds.yaml", "- name: a\n  connect_timeout: {}\n"),
    ("cds.yaml", "- name: a\n  type: {}\n"),
    ("cds.yaml", "- name: a\n  type: *{}\n"),
    ("cds.yaml", "- name: a\n  type: !{} x\n"),
    ("cds.yaml", "- name: a\n  alt_stat_name: %{}\n"),
    ("cds.yaml", "- name: a\n  {0}: 1\n  {0}: 2\n"),
    ("cds.yaml", "- name: a\n  metadata: {{filter_metadata: {{a: {{{0}: 1, {0}: 2}}}}}}\n"),
    ("cds.yaml", "- name: a\n  metadata: {{filter_metadata: {{a: [{}]}}}}\n"),
    ("cds.yaml", "- name: a\n  lb_policy: [{}]\n  dns_refresh_rate: {{{}: 1}}\n"),
    ("cds.yaml", '- name: a\n  alt_stat_name: "{}\n'),
    ("cds.yaml", "- name: a\n  type: STATIC {}: [\n"),
    ("cds.yaml", "- name: a\n  per_connection_buffer_limit_bytes: {}\n"),
    ("cds.yaml", "- name: a\n  upstream_bind_config: {{source_address: {{address: {}, port_value: 0}}}}\n"),
    ("cds.yaml", "- name: a\n  transport_socket: {{name: x, typed_config: {{'@type': {}}}}}\n"),
    ("cds.yaml", "- name: a\n  transport_socket: {{name: x, typed_config: {{'@type': type.googleapis.com/{}}}}}\n"),
    ("cds.yaml", "- &{0} name: *{0}\n"),
    ("cds.yaml", "- '@type': {}\n"),
    ("cds.yaml", "{}: []\nresources: []\n"),
    ("cds.yaml", "{}\n"),
    ("cds.yaml", "- {}\n"),
    ("rds.yaml", "- name: a\n  virtual_hosts: [{{name: v, domains: [a], routes: [{{match: {{safe_regex: {{regex: '({}'}}}}}}]}}]\n"),
    ("rds.yaml", "- name: a\n  request_headers_to_add: [{{Authorization: {}}}]\n"),
    ("rds.yaml", "- name: a\n  request_headers_to_add: [{{header: {{key: 'x y', value: {}}}}}]\n"),
    ("rds.yaml", "- name: a\n  request_headers_to_add: [{{header: {{key: x, value: '%{}'}}}}]\n"),
    ("rds.yaml", "- name: a\n  request_headers_to_add: [{{header: {{key: x, value: '%{}%'}}}}]\n"),
    ("rds.yaml", "- name: a\n  request_headers_to_add: [{{header: {{key: x, value: '%REQ({} x)%'}}}}]\n"),
    ("rds.yaml", "- name: a\n  request_headers_to_add: [{{header: {{key: x, value: '%METADATA({}:a)%'}}}}]\n"),
    ("rds.yaml", "- name: a\n  internal_only_headers: [{{{}: 1}}]\n"),
    ("rds.yaml", "- name: a\n  virtual_hosts: [{{name: v, domains: [a], routes: [{{match: {{path_match_policy: {{name: t, typed_config: {{'@type': type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig, path_template: '/{{{}-}}'}}}}}}}}]}}]\n"),
    ("lds.yaml", "- name: a\n  address: {{socket_address: {{address: {}, port_value: 1}}}}\n"),
    ("lds.yaml", "- name: a\n  address: {{socket_address: {{address: 1.1.1.1, port_value: {}}}}}\n"),
    ("sds.yaml", "- name: a\n  tls_certificate: {{private_key: {{{}: x}}}}\n"),
    ("sds.yaml", "- name: a\n  tls_certificate: {{private_key: {}}}\n"),
    ("sds.yaml", "- name: a\n  generic_secret: {{secret: {{inline_bytes: '{}!'}}}}\n"),
    ("sds.yaml", "- name: a\n  tls_certificate: {{password: {{inline_string: [{}]}}}}\n"),
    ("cds.json", '[{{"name": "a", "{}": 1}}]'),
    ("cds.json", '[{{"name": "a", "type": "{}"}}]'),
    ("cds.json", '[{{"name": "a", "type": {}}}]'),
    ("cds.json", '[{{"name": "a", "{0}": 1, "{0}": 2}}]'),
    ("cds.json", '[{{"name": "a", "connect_timeout": "{}"'),
    ("cds.json", '[{{"name": "a", // {}\n}}]'),
    ("cds.txtpb", 'resources {{ [type.googleapis.com/envoy.config.cluster.v3.Cluster] {{ name: "a" {}: 1 }} }}'),
    ("cds.txtpb", 'resources {{ [type.googleapis.com/{}] {{ name: "a" }} }}'),
    ("cds.txtpb", "resources {{ [type.googleapis.com/envoy.config.cluster.v3.Cluster] {{ name: {} }} }}"),
    ("cds.txtpb", "resources {{ [type.googleapis.com/envoy.config.cluster.v3.Cluster] {{ type: {} }} }}"),
    ("cds.txtpb", '# proto-message: {}\nname: "a"'),
    ("cds.txtpb", 'resources {{ [type.googleapis.com/envoy.config.cluster.v3.Cluster] {{ name: "a" connect_timeout {{ {}: 1 }} }} }} {}'),
)  # fmt: skip


def broken_files(canaries: Canaries) -> dict[str, str]:
    """Return files by their paths, each broken in another way."""
    return {
        f"{number}/{name}": text.replace("{}", "{0}").format(canaries.at(f"{name}: {text!r}"))
        for number, (name, text) in enumerate(_BROKEN)
    }
