from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.model.values import PlainValue
from fsxds.tools.diff.compare import ChangeAction, FieldChange, FieldComparer
from tests.tools.diff.conftest import Compare

CLUSTER = "envoy.config.cluster.v3.Cluster"
ENDPOINTS = "envoy.config.endpoint.v3.ClusterLoadAssignment"
ROUTES = "envoy.config.route.v3.RouteConfiguration"
SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"
LISTENER = "envoy.config.listener.v3.Listener"
RUNTIME = "envoy.service.runtime.v3.Runtime"

ADDRESS = "{{endpoint: {{address: {{socket_address: {{address: 10.0.0.{}, port_value: 80}}}}}}}}"


def test_a_field(compare: Compare) -> None:
    """A changed field has its path and both values; a field that is not given has Envoy's default."""
    changes = compare(
        CLUSTER,
        "{name: a, connect_timeout: 1s}",
        "{name: a, connect_timeout: 2s, lb_policy: LEAST_REQUEST}",
    )

    assert changes == (
        FieldChange("connect_timeout", ChangeAction.CHANGED, "1s", "2s"),
        FieldChange("lb_policy", ChangeAction.CHANGED, "ROUND_ROBIN", "LEAST_REQUEST"),
    )


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("{}", "{alt_stat_name: x}", FieldChange("alt_stat_name", ChangeAction.CHANGED, "", "x")),
        ("{ignore_health_on_host_removal: true}", "{}", FieldChange("ignore_health_on_host_removal", ChangeAction.CHANGED, True, False)),
        ("{}", "{type: STATIC}", FieldChange("type", ChangeAction.ADDED, None, "STATIC")),
        ("{connect_timeout: 1s}", "{}", FieldChange("connect_timeout", ChangeAction.REMOVED, "1s", None)),
        ("{per_connection_buffer_limit_bytes: 5}", "{}", FieldChange("per_connection_buffer_limit_bytes", ChangeAction.REMOVED, 5, None)),
        ("{}", "{outlier_detection: {}}", FieldChange("outlier_detection", ChangeAction.ADDED, None, {})),
    ],
)  # fmt: skip
def test_what_is_not_given(compare: Compare, before: str, after: str, change: FieldChange) -> None:
    """A field with a default changes from or to it; one that may be absent is added or removed."""
    assert compare(CLUSTER, before, after) == (change,)


def test_equal_messages(compare: Compare) -> None:
    """Messages that are equal have no changes, however they were spelled."""
    assert () == compare(CLUSTER, "{name: a, connectTimeout: 1.0s}", "{name: a, connect_timeout: 1s}")


def test_endpoints_by_address(compare: Compare) -> None:
    """Endpoints are matched by their address, wherever in the list they stand."""
    before = f"{{cluster_name: a, endpoints: [{{lb_endpoints: [{ADDRESS.format(1)}, {ADDRESS.format(2)}]}}]}}"
    third = ADDRESS.format(3)
    second = ADDRESS.format(2)[:-1] + ", health_status: DRAINING}"
    after = f"{{cluster_name: a, endpoints: [{{lb_endpoints: [{second}, {third}]}}]}}"

    removed, changed, added = compare(ENDPOINTS, before, after)

    assert (ChangeAction.REMOVED, 'endpoints[0].lb_endpoints["10.0.0.1:80"]') == (removed.act, removed.path)
    assert changed == FieldChange(
        'endpoints[0].lb_endpoints["10.0.0.2:80"].health_status', ChangeAction.CHANGED, "UNKNOWN", "DRAINING"
    )
    assert (ChangeAction.ADDED, 'endpoints[0].lb_endpoints["10.0.0.3:80"]') == (added.act, added.path)


def test_a_route_put_before_others(compare: Compare) -> None:
    """An item that is put before others is added, and the others did not change."""
    old = "{match: {prefix: /}, route: {cluster: a}}"
    new = "{match: {prefix: /b}, route: {cluster: b}}"
    frame = "{{name: r, virtual_hosts: [{{name: web, domains: ['*'], routes: [{}]}}]}}"

    (change,) = compare(ROUTES, frame.format(old), frame.format(f"{new}, {old}"))

    assert (ChangeAction.ADDED, 'virtual_hosts["web"].routes[0]') == (change.act, change.path)


def test_a_route_in_place(compare: Compare) -> None:
    """A route without a name is known by its match."""
    frame = "{{name: r, virtual_hosts: [{{name: web, domains: ['*'], routes: [{{match: {{prefix: /a}}, route: {{cluster: {}}}}}]}}]}}"

    changes = compare(ROUTES, frame.format("a"), frame.format("b"))

    assert changes == (FieldChange('virtual_hosts["web"].routes[0].route.cluster', ChangeAction.CHANGED, "a", "b"),)


def test_another_order(compare: Compare) -> None:
    """Named items in another order are one change, with both orders."""
    before = "{name: l, listener_filters: [{name: a}, {name: b}, {name: c}]}"
    after = "{name: l, listener_filters: [{name: c}, {name: a}, {name: b}]}"

    assert compare(LISTENER, before, after) == (
        FieldChange("listener_filters", ChangeAction.REORDERED, ["a", "b", "c"], ["c", "a", "b"]),
    )


ROUTER = "{{'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, start_child_span: {}}}"


def test_within_an_any(compare: Compare) -> None:
    """The fields within an Any are compared, defaults included; another type is one change of the whole."""
    frame = "{{name: l, listener_filters: [{{name: f, typed_config: {}}}]}}"
    cors = "{'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}"

    (inner,) = compare(LISTENER, frame.format(ROUTER.format("false")), frame.format(ROUTER.format("true")))
    (whole,) = compare(LISTENER, frame.format(ROUTER.format("true")), frame.format(cors))

    assert inner == FieldChange(
        'listener_filters["f"].typed_config.start_child_span', ChangeAction.CHANGED, False, True
    )
    assert (ChangeAction.CHANGED, 'listener_filters["f"].typed_config') == (whole.act, whole.path)


def test_maps_and_structs(compare: Compare) -> None:
    """Keys of maps and structs are no fields: they have no default, and odd ones are quoted."""
    changes = compare(
        RUNTIME, "{name: r, layer: {a.b: 1, c: x, gone: {}}}", "{name: r, layer: {a.b: 2, c: x, new: true}}"
    )

    assert changes == (
        FieldChange('layer["a.b"]', ChangeAction.CHANGED, 1.0, 2.0),
        FieldChange("layer.gone", ChangeAction.REMOVED, {}, None),
        FieldChange("layer.new", ChangeAction.ADDED, None, True),
    )


def test_bool_is_no_number(compare: Compare) -> None:
    """Within a struct, true became 1: a change, though Python takes them for equal."""
    assert compare(RUNTIME, "{layer: {a: true}}", "{layer: {a: 1}}") == (
        FieldChange("layer.a", ChangeAction.CHANGED, True, 1.0),
    )


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ("{inline_string: S3CR3T}", "{inline_string: S3CR3T2}", "tls_certificate.private_key.inline_string"),
        ("{inline_string: S3CR3T}", "{inline_bytes: UzNDUjNU}", "tls_certificate.private_key.inline_string"),
        ("{inline_string: S3CR3T}", "{filename: a.pem}", "tls_certificate.private_key.inline_string"),
    ],
)
def test_secrets(compare: Compare, before: str, after: str, path: str) -> None:
    """A changed secret says that it changed, and never what."""
    frame = "{{name: s, tls_certificate: {{private_key: {}}}}}"

    changes = compare(SECRET, frame.format(before), frame.format(after))

    assert path == changes[0].path
    assert "S3CR3T" not in repr(changes)
    assert "UzNDUjNU" not in repr(changes)


def test_where_a_secret_comes_from(compare: Compare) -> None:
    """The file that a secret is read from is no secret."""
    frame = "{{name: s, tls_certificate: {{private_key: {{filename: {}}}}}}}"

    assert compare(SECRET, frame.format("a.pem"), frame.format("b.pem")) == (
        FieldChange("tls_certificate.private_key.filename", ChangeAction.CHANGED, "a.pem", "b.pem"),
    )


def test_a_secret_that_came(compare: Compare) -> None:
    """Of a message that was added or removed, the secrets are hidden and the rest is shown."""
    key = "{name: s, tls_certificate: {private_key: {inline_string: S3CR3T}, certificate_chain: {filename: c.pem}}}"
    shown: PlainValue = {"private_key": {"inline_string": "<hidden>"}, "certificate_chain": {"filename": "c.pem"}}

    (came,) = compare(SECRET, "{name: s}", key)
    (went,) = compare(SECRET, key, "{name: s}")

    assert {"certificate_chain": {"filename": "c.pem"}, "private_key": {"inline_string": "<hidden>"}} == came.after
    assert shown == went.before


def test_pages_are_no_secrets(compare: Compare) -> None:
    """The body of a direct response is shown, though it stands in a DataSource."""
    frame = "{{virtual_hosts: [{{name: w, routes: [{{match: {{prefix: /}}, direct_response: {{body: {{inline_string: {}}}}}}}]}}]}}"

    (change,) = compare(ROUTES, frame.format("old"), frame.format("new"))

    assert ("old", "new", False) == (change.before, change.after, change.is_hidden)


def test_headers_that_grant_access(compare: Compare) -> None:
    """The value of a header is hidden, but for headers that are known to be harmless."""
    frame = "{{name: r, request_headers_to_add: [{{header: {{key: {}, value: {}}}}}]}}"

    (hidden,) = compare(ROUTES, frame.format("Authorization", "S3CR3T"), frame.format("Authorization", "S3CR3T2"))
    (shown,) = compare(ROUTES, frame.format("server", "b"), frame.format("server", "c"))

    assert hidden == FieldChange(
        'request_headers_to_add["Authorization"].header.value', ChangeAction.CHANGED, is_hidden=True
    )
    assert ("b", "c") == (shown.before, shown.after)


def test_texts_that_look_like_secrets(compare: Compare) -> None:
    """A PEM block is hidden wherever it stands."""
    pem = "-----BEGIN PRIVATE KEY-----S3CR3T"

    (change,) = compare(RUNTIME, "{layer: {a: x}}", f"{{layer: {{a: '{pem}'}}}}")

    assert FieldChange("layer.a", ChangeAction.CHANGED, "x", "<hidden>") == change


def test_types_that_are_not_known(catalogue: Catalogue) -> None:
    """Of a message that the API does not know, fields are compared as they stand, and secrets known by their names."""
    known: dict[str, PlainValue] = {"@type": "type.googleapis.com/no.such.Message", "password": "S3CR3T", "level": 1}
    changes = FieldComparer(catalogue).compare(known, {**known, "password": "other", "level": 2})

    assert changes == (
        FieldChange("password", ChangeAction.CHANGED, is_hidden=True),
        FieldChange("level", ChangeAction.CHANGED, 1, 2),
    )
