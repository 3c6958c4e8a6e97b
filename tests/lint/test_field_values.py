from __future__ import annotations

from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import ip_version
from fsxds.lint.field_values import RegexChecks
from fsxds.model.values import Severity
from tests.lint.envoy_answers import (
    TYPE,
    Case,
    action,
    assert_accepted,
    assert_rejected,
    chain,
    cluster,
    endpoints,
    envoy_accepts,
    http_filter,
    listener,
    manager,
    route,
    rules_found,
)


def at(address: str, more: str = "") -> str:
    """One endpoint at an address."""
    return f"[{{lb_endpoints: [{{endpoint: {{address: {address}{more}}}}}]}}]"


SOURCE = {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}]}
EDS = {"type": "EDS", "eds_cluster_config": {"eds_config": {"api_config_source": SOURCE}}}


def socket(host: str, more: str = "port_value: 80") -> str:
    """A socket address."""
    return f'{{socket_address: {{address: "{host}", {more}}}}}'


CARES = "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig"
REDIS = "envoy.extensions.clusters.redis.v3.RedisClusterConfig"


def resolver(**fields: Any) -> Case:
    """A cluster whose own resolvers have the names of hosts, which Envoy sees where it looks names up."""
    resolvers = [{"socket_address": {"address": "foo", "port_value": 53}}]
    config = {"@type": TYPE + CARES, "resolvers": resolvers}
    return cluster({"typed_dns_resolver_config": {"name": "x", "typed_config": config}, **fields})


TAKEN = (
    resolver(),
    resolver(dns_resolution_config={"resolvers": [{"socket_address": {"address": "foo", "port_value": 53}}]}),
    cluster("{dns_resolvers: [{socket_address: {address: 1.2.3.4, port_value: 53, resolver_name: mine}}]}"),
    endpoints(at(socket("foo.com", "port_value: 80, resolver_name: mine")), **EDS),
    *(endpoints(at(socket(host)), type="STATIC") for host in ("127.0.0.1", "::1", "::ffff:1.2.3.4", "fe80::1%lo")),
    *(endpoints(at(socket("foo.com")), type=of_type) for of_type in ("STRICT_DNS", "LOGICAL_DNS")),
    endpoints(at(socket("127.0.0.1", "port_value: 80, resolver_name: envoy.ip"))),
    endpoints(at(socket("foo.com", "named_port: http")), type="STRICT_DNS"),
    endpoints(at("{pipe: {path: /" + "x" * 106 + "}}")),
    endpoints(at('{pipe: {path: "@x"}}')),
    endpoints(at("{envoy_internal_address: {server_listener_name: x}}")),
    listener("{address: {socket_address: {address: '::', port_value: 1, ipv4_compat: true}}}"),
    endpoints(at(socket("127.0.0.1"), ", health_check_config: {port_value: 9}")),
    endpoints(at("{pipe: {path: /x}}", f", health_check_config: {{address: {socket('127.0.0.1')}}}")),
    endpoints(at(socket("127.0.0.1"), ", health_check_config: {address: {pipe: {path: /x}}}")),
    endpoints("[{lb_endpoints: [{}]}]", type="STRICT_DNS"),
    cluster("{dns_resolvers: [{socket_address: {address: foo, port_value: 53}}]}"),
    listener("{additional_addresses: [{address: {socket_address: {address: 127.0.0.2, port_value: 0}}}]}"),
    chain("{filter_chain_match: {prefix_ranges: [{address_prefix: 10.0.0.0, prefix_len: 33}]}}"),
)

REJECTED = (
    resolver(type="LOGICAL_DNS"),
    endpoints(
        at(socket("foo.com")),
        lb_policy="CLUSTER_PROVIDED",
        cluster_type={"name": "envoy.clusters.redis", "typed_config": {"@type": TYPE + REDIS}},
        typed_dns_resolver_config=resolver().resource["typed_dns_resolver_config"],
    ),
    *(endpoints(at(socket(host))) for host in ("foo.com", "[::1]", "127.1", "127.0.0.01", " 127.0.0.1", "1::2::3")),
    endpoints(at(socket("127.0.0.1", "named_port: http"))),
    endpoints(at(socket("127.0.0.1", 'named_port: ""'))),
    listener("{address: {socket_address: {address: '::1', port_value: 1, ipv4_compat: true}}}"),
    listener(
        "{additional_addresses: [{address: {socket_address: {address: 127.0.0.1, port_value: 1, ipv4_compat: true}}}]}"
    ),
    endpoints(at("{pipe: {path: /" + "x" * 107 + "}}")),
    endpoints(at('{pipe: {path: "@x", mode: 511}}')),
    endpoints("[{lb_endpoints: [{endpoint: {}}]}]"),
    endpoints("[{lb_endpoints: [{endpoint_name: x}]}]"),
    endpoints(at(socket("127.0.0.1"), f", additional_addresses: [{{address: {socket('foo.com')}}}]")),
    endpoints(at(socket("127.0.0.1"), f", health_check_config: {{address: {socket('foo.com')}}}")),
    endpoints(at("{pipe: {path: /x}}", ", health_check_config: {port_value: 9}")),
    endpoints(at(socket("127.0.0.1"), ", health_check_config: {port_value: 9, address: {pipe: {path: /x}}}")),
    endpoints(at(socket("127.0.0.1", "port_value: 80, resolver_name: x")), type="STRICT_DNS"),
    cluster("{type: STRICT_DNS, dns_resolvers: [{socket_address: {address: foo, port_value: 53}}]}"),
    cluster("{upstream_bind_config: {source_address: {address: foo, port_value: 0}}}"),
    cluster(
        "{upstream_bind_config: {source_address: {address: 127.0.0.1, port_value: 0}, "
        'extra_source_addresses: [{address: {address: "foo", port_value: 0}}]}}'
    ),
    listener("{address: {socket_address: {address: localhost, port_value: 1}}}"),
    listener("{additional_addresses: [{address: {socket_address: {address: foo, port_value: 1}}}]}"),
    chain("{filter_chain_match: {prefix_ranges: [{address_prefix: 10.0.0.0/8, prefix_len: 8}]}}"),
)


def test_what_envoy_takes_is_not_told(catalogue: Catalogue) -> None:
    """IP addresses are right everywhere, names where a resolver is asked."""
    assert_accepted(catalogue, *TAKEN)


@pytest.mark.parametrize("case", REJECTED)
def test_what_envoy_rejects_is_told(catalogue: Catalogue, case: Case) -> None:
    """A name where no resolver is asked, a long path and a missing address are rejected."""
    assert_rejected(catalogue, "wrong-address", case)


def test_nan_is_no_percentage(catalogue: Catalogue) -> None:
    """Of the percentages that Envoy looks at, NaN is out of range; it accepts it in others."""
    assert_rejected(catalogue, "out-of-range", cluster("{common_lb_config: {healthy_panic_threshold: {value: NaN}}}"))
    assert_rejected(catalogue, "out-of-range", manager("{tracing: {random_sampling: {value: NaN}}}"))
    budget = cluster("{circuit_breakers: {thresholds: [{retry_budget: {budget_percent: {value: NaN}}}]}}")
    assert_accepted(catalogue, budget)


def test_a_resolver_is_one_that_envoy_has(catalogue: Catalogue) -> None:
    """What a resolver of one's own makes of an address is not known; there has to be one of that name."""
    assert_rejected(catalogue, "wrong-address", endpoints(at(socket("foo.com", "port_value: 80, resolver_name: mine"))))
    assert set() == rules_found(
        catalogue, endpoints(at(socket("foo.com", "port_value: 80, resolver_name: envoy.resolvers.reverse_connection")))
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("127.0.0.1", 4),
        ("255.255.255.255", 4),
        ("::", 6),
        ("::ffff:1.2.3.4", 6),
        ("fe80::1%eth0", 6),
        ("127.0.0.01", None),
        ("1.2.3.256", None),
        ("127.1", None),
        ("[::1]", None),
        ("a:b", None),
        ("", None),
        ("\u0661.1.1.1", None),
    ],
)
def test_ip_versions(text: str, version: int | None) -> None:
    """Addresses are read as inet_pton reads them; every case stands in the test of addresses too."""
    assert version == ip_version(text)


CHECK = "timeout: 1s, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1, tcp_health_check: {}"


def test_durations_that_envoy_accepts(catalogue: Catalogue) -> None:
    """No time, little time, and up to 292 years are durations."""
    assert_accepted(
        catalogue,
        action("{timeout: 0s, idle_timeout: 0.0001s}"),
        action("{timeout: 9223372035s}"),
        cluster("{connect_timeout: 0.0001s}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        action("{timeout: -1s}"),
        action("{timeout: 9223372036s}"),
        action("{max_stream_duration: {max_stream_duration: -1s}}"),
        action("{hash_policy: [{cookie: {name: a, ttl: -1s}}]}"),
        cluster("{connect_timeout: -1s}"),
        cluster("{connect_timeout: 9223372036s}"),
        cluster("{outlier_detection: {max_ejection_time_jitter: -1s}}"),
        cluster(f"{{health_checks: [{{{CHECK}, no_traffic_interval: -1s}}]}}"),
        manager("{drain_timeout: -1s}"),
        manager("{common_http_protocol_options: {idle_timeout: -1s}}"),
    ],
)
def test_durations_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Envoy rejects negative durations, and those that it cannot count in nanoseconds; field rules may say so too."""
    assert not envoy_accepts(case)[0]
    assert "wrong-duration" in rules_found(catalogue, case)


def test_back_off_grows(catalogue: Catalogue) -> None:
    """The longest pause is at least the first one."""
    back_off = "{retry_policy: {retry_on: 5xx, retry_back_off: {base_interval: 1s, max_interval: %s}}}"

    assert_accepted(catalogue, action(back_off % "1s"))
    assert_rejected(catalogue, "wrong-duration", action(back_off % "0.5s"))
    assert_rejected(
        catalogue,
        "wrong-duration",
        cluster("{type: STRICT_DNS, dns_failure_refresh_rate: {base_interval: 1s, max_interval: 0.5s}}"),
    )


RETRIES = {"retry_back_off": {"base_interval": "1s", "max_interval": "0.5s"}}


def tokens(**fields: object) -> Case:
    """A filter that fetches the keys of tokens, with these settings of the fetch."""
    keys = {"http_uri": {"uri": "http://x", "cluster": "xds", "timeout": "1s"}, **fields}
    return http_filter("jwt_authn.v3.JwtAuthentication", {"providers": {"p": {"remote_jwks": keys}}})


def authorized(**fields: object) -> Case:
    """A filter that asks a service by gRPC, with these settings of the client."""
    service = {"envoy_grpc": {"cluster_name": "xds"}, **fields}
    return http_filter("ext_authz.v3.ExtAuthz", {"transport_api_version": "V3", "grpc_service": service})


def test_back_off_for_keys_of_tokens_grows(catalogue: Catalogue) -> None:
    """Of retries that no route has, Envoy compares only those for the keys of tokens."""
    assert_accepted(catalogue, authorized(retry_policy=RETRIES))
    assert_rejected(catalogue, "wrong-duration", tokens(retry_policy=RETRIES))


def matching(regex: str, more: str = "") -> Case:
    """A route that matches by an expression."""
    return route(
        {"match": {"safe_regex": {"regex": regex, **({"google_re2": {"max_program_size": 10}} if more else {})}}}
    )


def test_expressions_that_envoy_accepts(catalogue: Catalogue) -> None:
    """What RE2 knows is right, up to a program of 100 steps."""
    assert_accepted(
        catalogue,
        *(matching(regex) for regex in ("/a.*", r"\C", "(?P<a>x)(?<b>y)", "é", "a{90}")),
        matching("/aaaa", "small"),
    )


@pytest.mark.parametrize("regex", ["/a(", "(?!x)", r"(a)\1", "a++", r"a\Z", "a{1001}"])
def test_expressions_that_envoy_rejects(catalogue: Catalogue, regex: str) -> None:
    """What Perl knows and RE2 does not is rejected."""
    assert_rejected(catalogue, "wrong-regex", matching(regex))


@pytest.mark.parametrize("case", [matching("a{1000}"), matching("/aaaaaaaaaaaaaa", "small")])
def test_large_expressions(catalogue: Catalogue, case: Case) -> None:
    """Envoy limits the size of a program, by default or by what the expression says of itself."""
    assert_rejected(catalogue, "large-regex", case)


def test_case_is_not_ignored_in_expressions(catalogue: Catalogue) -> None:
    """`ignore_case` excludes `safe_regex`."""
    headers = "{match: {prefix: /, headers: [{name: a, string_match: {ignore_case: true, safe_regex: {regex: a}}}]}}"

    assert_rejected(catalogue, "wrong-regex", route(headers))


@pytest.mark.parametrize(
    ("substitution", "rules"),
    [
        (r"\1", set()),
        (r"\0", set()),
        (r"x\\", set()),
        ("$1", set()),
        (r"\2", {"wrong-substitution"}),
        (r"\x", {"wrong-substitution"}),
        ("x\\", {"wrong-substitution"}),
    ],
)
def test_substitutions(catalogue: Catalogue, substitution: str, rules: set[str]) -> None:
    """A reference to no group is worth a warning: Envoy takes it and rewrites nothing."""
    case = action(f"{{regex_rewrite: {{pattern: {{regex: (a)}}, substitution: '{substitution}'}}}}")

    assert_accepted(catalogue, case)
    assert rules == rules_found(catalogue, case, Severity.WARNING)


def test_a_broken_pattern_is_told_once(catalogue: Catalogue) -> None:
    """Of a substitution whose pattern is broken, only the pattern is reported."""
    case = action(r"{regex_rewrite: {pattern: {regex: (a}, substitution: '\1'}}")

    assert {"wrong-regex"} == rules_found(catalogue, case)
    assert set() == rules_found(catalogue, case, Severity.WARNING)


def test_an_expression_is_compiled_once() -> None:
    """Compiled expressions are remembered."""
    rules = RegexChecks()

    assert rules.compiled("a+") is rules.compiled("a+")
