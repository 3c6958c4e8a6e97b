import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.lint.linter import make_field_rules
from fsxds.values import PlainValue
from tests.lint.envoy_answers import Case, assert_accepted, assert_rejected, route_config, virtual_host


def hosts(*domains: str) -> Case:
    """Virtual hosts with these lists of domains."""
    listed = ", ".join(f"{{name: v{number}, domains: {one}}}" for number, one in enumerate(domains))
    return route_config(f"{{virtual_hosts: [{listed}]}}")


def test_domains_that_envoy_takes(catalogue: Catalogue) -> None:
    """Domains that differ in a port or a dot at the end, and wildcards in odd places, do not collide."""
    assert_accepted(
        catalogue,
        hosts("[a]", '["a:80"]', '["a."]', '["*.a"]', '["a.*"]', '["*"]'),
        hosts('["a.*.b"]', '["**"]', '[""]'),
        hosts("[ä]", "[Ä]"),
        virtual_host("{virtual_clusters: [{name: x, headers: [{name: ':path', present_match: true}]}]}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        hosts("[a]", "[a]"),
        hosts("[a, A]"),
        hosts('["*"]', '["*"]'),
        hosts('["*.a"]', '["*.A"]'),
        hosts("[ä.A]", "[ä.a]"),
    ],
)
def test_domains_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A domain has one owner, whatever the case of its letters."""
    assert_rejected(catalogue, "duplicate-domain", case)


@pytest.mark.parametrize(
    "case",
    [
        virtual_host("{virtual_clusters: [{name: x}]}"),
        virtual_host(
            "{routes: [{match: {prefix: /}, direct_response: {status: 200}}], matcher: {on_no_match: {action: {name: x, "
            'typed_config: {"@type": type.googleapis.com/envoy.config.route.v3.Route, match: {prefix: /}, '
            "direct_response: {status: 200}}}}}}"
        ),
    ],
)
def test_virtual_hosts_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Virtual clusters match something, and a virtual host has routes or a matcher."""
    assert_rejected(catalogue, "wrong-route", case)


def test_virtual_hosts_are_discovered_by_delta_only(catalogue: Catalogue) -> None:
    """Envoy rejects to discover virtual hosts by other means than delta gRPC."""
    source = "{api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}"
    case = route_config(f"{{vhds: {{config_source: {{api_config_source: {source}}}}}}}")

    assert_rejected(catalogue, "wrong-config-source", case)


def test_a_virtual_host_alone_is_checked_too(catalogue: Catalogue) -> None:
    """A virtual host that is served on its own does not repeat a domain either."""
    plain: PlainValue = {"name": "v", "domains": ["a", "b", "A"]}
    message = Converter(catalogue).convert(plain, "envoy.config.route.v3.VirtualHost").message
    assert message is not None

    faults = make_field_rules(catalogue).check(message).faults

    assert [("duplicate-domain", ("domains", 2))] == [(fault.rule, fault.field_path) for fault in faults]
