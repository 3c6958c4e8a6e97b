import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import (
    Case,
    assert_accepted,
    assert_rejected,
    chain,
    cluster,
    endpoints,
    listener,
    rules_found,
)


def at(address: str, more: str = "") -> str:
    """One endpoint at an address."""
    return f"[{{lb_endpoints: [{{endpoint: {{address: {address}{more}}}}}]}}]"


def socket(host: str, more: str = "port_value: 80") -> str:
    """A socket address."""
    return f'{{socket_address: {{address: "{host}", {more}}}}}'


TAKEN = (
    *(endpoints(at(socket(host)), type="STATIC") for host in ("127.0.0.1", "::1", "::ffff:1.2.3.4", "fe80::1%eth0")),
    *(endpoints(at(socket("foo.com")), type=of_type) for of_type in ("STRICT_DNS", "LOGICAL_DNS")),
    endpoints(at(socket("127.0.0.1", "port_value: 80, resolver_name: envoy.ip"))),
    endpoints(at(socket("foo.com", "named_port: http")), type="STRICT_DNS"),
    endpoints(at("{pipe: {path: /" + "x" * 106 + "}}")),
    endpoints(at('{pipe: {path: "@x"}}')),
    endpoints(at("{envoy_internal_address: {server_listener_name: x}}")),
    endpoints("[{lb_endpoints: [{}]}]", type="STRICT_DNS"),
    cluster("{dns_resolvers: [{socket_address: {address: foo, port_value: 53}}]}"),
    listener("{additional_addresses: [{address: {socket_address: {address: 127.0.0.2, port_value: 0}}}]}"),
    chain("{filter_chain_match: {prefix_ranges: [{address_prefix: 10.0.0.0, prefix_len: 33}]}}"),
)

REJECTED = (
    *(endpoints(at(socket(host))) for host in ("foo.com", "[::1]", "127.1", "127.0.0.01", " 127.0.0.1", "1::2::3")),
    endpoints(at(socket("127.0.0.1", "named_port: http"))),
    endpoints(at("{pipe: {path: /" + "x" * 107 + "}}")),
    endpoints(at('{pipe: {path: "@x", mode: 511}}')),
    endpoints("[{lb_endpoints: [{endpoint: {}}]}]"),
    endpoints("[{lb_endpoints: [{endpoint_name: x}]}]"),
    endpoints(at(socket("127.0.0.1"), f", additional_addresses: [{{address: {socket('foo.com')}}}]")),
    endpoints(at(socket("127.0.0.1"), f", health_check_config: {{address: {socket('foo.com')}}}")),
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


def test_a_resolver_is_one_that_envoy_has(catalogue: Catalogue) -> None:
    """What a resolver of one's own makes of an address is not known; there has to be one of that name."""
    assert_rejected(catalogue, "wrong-address", endpoints(at(socket("foo.com", "port_value: 80, resolver_name: mine"))))
    assert set() == rules_found(
        catalogue, endpoints(at(socket("foo.com", "port_value: 80, resolver_name: envoy.resolvers.reverse_connection")))
    )
