"""The walk of the field rules: into every Any, past hooks, never into a secret's value, never too deep."""

from __future__ import annotations

from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.api.walk import Leave, Path, Walk, field_path_of
from fsxds.model.values import FieldPath
from tests.api.tiny_api import field, findings

PREFIX = "type.googleapis.com/"
ADDRESS = "envoy.config.core.v3.Address"
SOCKET = "envoy.config.core.v3.TransportSocket"
CLUSTER = "envoy.config.cluster.v3.Cluster"


@pytest.fixture(scope="module")
def field_rules(catalogue: Catalogue) -> FieldRules:
    """The rules of this Envoy, without hooks."""
    return FieldRules(catalogue)


def packed_cluster(catalogue: Catalogue, message_type: str, value: bytes = b"") -> Any:
    """Return a cluster without fault of its own, with an Any in a field, in a list and in a map."""
    cluster: Any = catalogue.message_class(CLUSTER)(name="c")
    match = cluster.transport_socket_matches.add(name="m")
    match.transport_socket.name = "s"
    cluster.transport_socket.name = "s"
    for packed in (
        cluster.transport_socket.typed_config,
        match.transport_socket.typed_config,
        cluster.typed_extension_protocol_options["o"],
    ):
        packed.type_url = PREFIX + message_type
        packed.value = value
    return cluster


def nested(catalogue: Catalogue, depth: int, message_type: str = SOCKET) -> Any:
    """Return a transport socket in an Any in a transport socket, and so on, the inmost without a name."""
    message: Any = catalogue.message_class(SOCKET)()
    for _ in range(depth):
        outer: Any = catalogue.message_class(message_type)()
        inner = outer if message_type == "google.protobuf.Any" else outer.typed_config
        if inner is not outer:
            outer.name = "s"
        inner.type_url = PREFIX + message.DESCRIPTOR.full_name
        inner.value = message.SerializeToString()
        message = outer
    return message


def paths(walk: Walk) -> set[FieldPath]:
    """Return where there are faults."""
    return {fault.field_path for fault in walk.faults}


def test_every_any_is_entered(catalogue: Catalogue, field_rules: FieldRules) -> None:
    """What is packed is checked too, and stands where the Any stands."""
    walk = field_rules.check(packed_cluster(catalogue, ADDRESS))

    assert {"required-choice"} == {fault.rule for fault in walk.faults}
    assert {
        ("transport_socket", "typed_config"),
        ("transport_socket_matches", 0, "transport_socket", "typed_config"),
        ("typed_extension_protocol_options", "o"),
    } == paths(walk)


@pytest.mark.parametrize(("message_type", "value"), [(ADDRESS, b"\xff"), ("no.Such", b"x"), ("", b""), ("/", b"")])
def test_anys_that_cannot_be_read_are_passed(
    catalogue: Catalogue, field_rules: FieldRules, message_type: str, value: bytes
) -> None:
    """Unknown types and broken bytes are told elsewhere."""
    assert [] == field_rules.check(packed_cluster(catalogue, message_type, value)).faults


def test_many_anys_are_checked_in_the_order_of_their_keys(catalogue: Catalogue, field_rules: FieldRules) -> None:
    """Anys beside one another are not deep, and those of a map come by their keys, not as protobuf has them."""
    cluster: Any = catalogue.message_class(CLUSTER)(name="c")
    keys = [f"{number:03}" for number in range(300)]
    for key in keys:
        cluster.typed_extension_protocol_options[key].type_url = PREFIX + ADDRESS
    faults = field_rules.check(cluster).faults

    assert [("typed_extension_protocol_options", key) for key in keys] == [fault.field_path for fault in faults]


def test_a_root_may_be_an_any(catalogue: Catalogue, field_rules: FieldRules) -> None:
    """An Any as the whole message is entered as any other."""
    packed: Any = catalogue.message_class("google.protobuf.Any")(type_url=PREFIX + ADDRESS)

    assert {()} == paths(field_rules.check(packed))


def test_nobody_validates_metadata(catalogue: Catalogue, field_rules: FieldRules) -> None:
    """Envoy keeps typed metadata as it is, so it cannot break a rule; its keys can."""
    cluster: Any = catalogue.message_class(CLUSTER)(name="c")
    cluster.metadata.typed_filter_metadata["a"].type_url = PREFIX + ADDRESS

    assert [] == field_rules.check(cluster).faults
    cluster.metadata.typed_filter_metadata["b"].type_url = PREFIX + "envoy.config.core.v3.ApiConfigSource"
    assert [] == field_rules.check(cluster).faults
    cluster.metadata.typed_filter_metadata[""].type_url = PREFIX + ADDRESS
    assert {("metadata", "typed_filter_metadata", "")} == paths(field_rules.check(cluster))


def test_envoy_takes_some_extensions_unchecked(catalogue: Catalogue, field_rules: FieldRules) -> None:
    """A few types break no rule in an Any, though they would by themselves."""
    name = "envoy.extensions.health_checkers.udp.v3.UdpHealthCheck"

    assert [] != field_rules.check(catalogue.message_class(name)()).faults
    assert [] == field_rules.check(packed_cluster(catalogue, name)).faults


def test_rules_end_at_some_fields(catalogue: Catalogue, field_rules: FieldRules) -> None:
    """The config source of a discovered extension is required, but Envoy does not check what is in it."""
    source: Any = catalogue.message_class("envoy.config.core.v3.ExtensionConfigSource")(type_urls=["a/b"])

    assert {("config_source",)} == paths(field_rules.check(source))
    source.config_source.path_config_source.SetInParent()
    assert [] == field_rules.check(source).faults


@pytest.mark.parametrize("depth", [1, 20, 47])
def test_deep_messages_are_checked(catalogue: Catalogue, field_rules: FieldRules, depth: int) -> None:
    """However often a message is packed in another, its faults are found as deep as anybody goes."""
    walk = field_rules.check(nested(catalogue, depth))

    assert {("typed_config",) * depth + ("name",)} == paths(walk)


@pytest.mark.parametrize("message_type", [SOCKET, "google.protobuf.Any"])
def test_depth_without_end_is_no_error(catalogue: Catalogue, field_rules: FieldRules, message_type: str) -> None:
    """What nests deeper than that is told elsewhere, and does not exhaust the stack."""
    assert [] == field_rules.check(nested(catalogue, 2000, message_type)).faults


def test_messages_of_messages_of_their_own_type(catalogue: Catalogue, field_rules: FieldRules) -> None:
    """A recursive type is checked at every level."""
    rule: Any = catalogue.message_class("envoy.config.rbac.v3.Permission")()
    inmost = rule
    for _ in range(40):
        inmost = inmost.not_rule
    inmost.SetInParent()
    (fault,) = field_rules.check(rule).faults

    assert ("required-choice", ("not_rule",) * 40) == (fault.rule, fault.field_path)


def test_secrets_are_not_told(catalogue: Catalogue) -> None:
    """A value in a secret field, or in a message in one, is in no message, nor how long it is; elsewhere it is told."""
    rules = "string {prefix: '/' max_len: 3}"
    body = field("string", rules, name="password") + field("string", rules, name="path", number=2)
    inner = field(".tiny.M", name="credential", number=3)

    assert [
        ("password", 'wrong-pattern: must begin with "/"'),
        ("path", 'wrong-pattern: must begin with "/"'),
        ("credential.path", 'wrong-pattern: must begin with "/"'),
    ] == findings(catalogue, body + inner, "password: 'abc' path: 'abc' credential {path: 'abc' password: '/'}")
    assert [("path", "wrong-length: must have at most 3 characters, has 4")] == findings(
        catalogue, body, "path: '/abc' password: '/'"
    )
    assert ("password", "wrong-length: must have at most 3 characters") in findings(catalogue, body, "password: '/abc'")


def test_hooks_are_called_on_the_way(catalogue: Catalogue) -> None:
    """A hook sees its messages before their fields, wherever they stand, and what it returns is called after them."""
    seen: list[tuple[str, FieldPath]] = []

    def outer(message: Any, path: Path, walk: Walk) -> Leave:
        assert [] == walk.faults
        seen.append((f"cluster {message.name}", field_path_of(path)))
        return lambda: seen.append(("left", field_path_of(path)))

    def inner(message: Any, path: Path, walk: Walk) -> None:
        seen.append((f"address {message.WhichOneof('address')}", field_path_of(path)))
        walk.error((path, "pipe"), "my-rule", "is bad", "make it good")

    hooks = {CLUSTER: (outer,), ADDRESS: (inner,)}
    cluster: Any = catalogue.message_class(CLUSTER)(name="c")
    cluster.load_assignment.cluster_name = "c"
    cluster.load_assignment.endpoints.add().lb_endpoints.add().endpoint.address.pipe.path = "/x"
    walk = FieldRules(catalogue, hooks).check(cluster)
    place = ("load_assignment", "endpoints", 0, "lb_endpoints", 0, "endpoint", "address")

    assert [("cluster c", ()), ("address pipe", place), ("left", ())] == seen
    assert [("my-rule", (*place, "pipe"))] == [(fault.rule, fault.field_path) for fault in walk.faults]


def test_hooks_reach_types_without_rules(catalogue: Catalogue) -> None:
    """A type that is of no interest otherwise is looked for when it is hooked, in skipped parts and metadata too."""
    seen: list[FieldPath] = []
    hooks = {"google.protobuf.Struct": (lambda _message, path, _walk: seen.append(field_path_of(path)),)}
    cluster: Any = catalogue.message_class(CLUSTER)(name="c")
    cluster.metadata.filter_metadata["b"].fields["x"].bool_value = True
    cluster.metadata.filter_metadata["a"].SetInParent()
    cluster.metadata.typed_filter_metadata["t"].type_url = PREFIX + "google.protobuf.Struct"
    FieldRules(catalogue, hooks).check(cluster)

    assert [
        ("metadata", "filter_metadata", "a"),
        ("metadata", "filter_metadata", "b"),
        ("metadata", "typed_filter_metadata", "t"),
    ] == seen


def test_a_hook_may_enter_another_form(catalogue: Catalogue) -> None:
    """What a hook walks by itself is checked as if it stood there."""
    address = catalogue.message_class(ADDRESS)()
    hooks = {CLUSTER: (lambda _message, path, walk: walk.enter(address, (path, "there")),)}
    walk = FieldRules(catalogue, hooks).check(catalogue.message_class(CLUSTER)(name="c"))

    assert {("there",)} == paths(walk)


def test_hooks_of_fields(catalogue: Catalogue) -> None:
    """A hook of a field sees its value where it is set, before what is in it, also in a type without rules."""
    seen: list[tuple[FieldPath, Any]] = []

    def look(value: Any, path: Path, _: Walk) -> None:
        seen.append((field_path_of(path), value))

    hooks = {
        f"{CLUSTER}.alt_stat_name": (look,),
        "envoy.config.core.v3.Locality.zone": (look, look),
        "envoy.config.core.v3.Locality.region": (look,),
    }
    cluster: Any = catalogue.message_class(CLUSTER)(name="c")
    cluster.load_assignment.cluster_name = "c"
    cluster.load_assignment.endpoints.add().locality.zone = "z"
    FieldRules(catalogue, hooks).check(cluster)

    assert [(("load_assignment", "endpoints", 0, "locality", "zone"), "z")] * 2 == seen
