import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.lint.linter import make_field_rules
from fsxds.values import PlainValue
from tests.lint.envoy_answers import Case, action, assert_accepted, assert_rejected, route, route_config


def weighted(*clusters: str) -> Case:
    """A route to weighted clusters."""
    return action(f"{{weighted_clusters: {{clusters: [{', '.join(clusters)}]}}}}")


def body(size: int, limit: str = "") -> Case:
    """A direct response of a size."""
    routes = [{"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": "x" * size}}}]
    fields = {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": routes}]}
    return route_config({**fields, **({"max_direct_response_body_size_bytes": int(limit)} if limit else {})})


def test_routes_that_envoy_takes(catalogue: Catalogue) -> None:
    """One way to rewrite, weights with a sum, upgrades once."""
    assert_accepted(
        catalogue,
        action("{regex_rewrite: {pattern: {regex: a}, substitution: b}}"),
        weighted("{name: a, weight: 0}", "{name: a, weight: 1}", "{cluster_header: x, weight: 4294967294}"),
        body(4096),
        body(4097, "5000"),
        action("{upgrade_configs: [{upgrade_type: CONNECT, connect_config: {}}, {upgrade_type: websocket}]}"),
        action("{request_mirror_policies: [{cluster: a}, {cluster_header: b}]}"),
        route("{direct_response: {status: 200, body: {inline_bytes: AAAA}}}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        action("{prefix_rewrite: /x, regex_rewrite: {pattern: {regex: a}, substitution: b}}"),
        weighted("{name: a}"),
        weighted("{name: a, weight: 0}"),
        weighted("{weight: 1}"),
        weighted("{name: a, cluster_header: x, weight: 1}"),
        weighted("{name: a, weight: 4294967295}", "{name: b, weight: 1}"),
        body(4097),
        action("{cluster_specifier_plugin: x}"),
        action("{upgrade_configs: [{upgrade_type: websocket}, {upgrade_type: WebSocket}]}"),
        action("{upgrade_configs: [{upgrade_type: websocket, connect_config: {}}]}"),
        action("{request_mirror_policies: [{}]}"),
        action("{request_mirror_policies: [{cluster: a, cluster_header: b}]}"),
    ],
)
def test_routes_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """The parts of a route must fit one another."""
    assert_rejected(catalogue, "wrong-route", case)


def test_a_scope_has_routes(catalogue: Catalogue) -> None:
    """A scope that is served names its routes, or holds them."""
    rules = make_field_rules(catalogue)
    key: PlainValue = {"fragments": [{"string_key": "a"}]}
    found = []
    others: list[dict[str, PlainValue]] = [
        {},
        {"route_configuration_name": "r"},
        {"route_configuration": {"name": "r"}},
    ]
    for other in others:
        plain: PlainValue = {"name": "s", "key": key, **other}
        message = Converter(catalogue).convert(plain, "envoy.config.route.v3.ScopedRouteConfiguration").message
        assert message is not None
        found.append([fault.rule for fault in rules.check(message).faults])

    assert [["wrong-route"], [], []] == found
