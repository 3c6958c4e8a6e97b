import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.values import Severity
from tests.rules.envoy_verdicts import TYPE, Case, assert_refused, assert_taken, chain, listener, told

UDP = "{socket_address: {address: 127.0.0.1, port_value: 1, protocol: UDP}}"
PROXY = {
    "name": "x",
    "typed_config": {
        "@type": TYPE + "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig",
        "stat_prefix": "s",
        "cluster": "xds",
    },
}


def compatible(address: str) -> Case:
    """A listener that takes IPv4 as well."""
    socket = f'{{address: "{address}", port_value: 1, ipv4_compat: true}}'
    return listener(f"{{address: {{socket_address: {socket}}}}}")


def test_listeners_that_envoy_takes(catalogue: Catalogue) -> None:
    """No address, two of one protocol, UDP with its own filters, a default chain alone."""
    assert_taken(
        catalogue,
        compatible("::"),
        listener(f"{{filter_chains: [], address: {UDP}}}"),
        listener("{filter_chains: [], default_filter_chain: {}}"),
        chain('{filter_chain_match: {server_names: ["*.a.com", "*.*.b", ""]}}'),
    )


def test_a_listener_without_filters_is_worth_a_warning(catalogue: Catalogue) -> None:
    """Envoy takes filter chains without filters, and closes every connection."""
    case = listener("{filter_chains: [{}]}")

    assert_taken(catalogue, case)
    assert {"filter-chain"} == told(catalogue, case, Severity.WARNING)


@pytest.mark.parametrize(
    ("rule", "case"),
    [
        ("wrong-address", compatible("0.0.0.0")),
        ("wrong-address", listener("{additional_addresses: [{}]}")),
        ("wrong-listener", listener(f"{{additional_addresses: [{{address: {UDP}}}]}}")),
        ("wrong-listener", listener("{internal_listener: {}}")),
        ("wrong-listener", listener("{address: {envoy_internal_address: {server_listener_name: x}}}")),
        ("filter-chain", listener("{filter_chains: []}")),
        ("filter-chain", listener(f"{{address: {UDP}}}")),
        (
            "filter-chain",
            listener(f"{{address: {UDP}, filter_chains: [], udp_listener_config: {{quic_options: {{}}}}}}"),
        ),
        ("filter-chain", listener(f"{{address: {UDP}, udp_listener_config: {{quic_options: {{}}}}}}")),
        ("filter-chain", chain('{filter_chain_match: {server_names: ["*a.com"]}}')),
        ("filter-chain", chain('{filter_chain_match: {server_names: ["*"]}}')),
        ("filter-chain", chain("{filter_chain_match: {address_suffix: 1.2.3.4}}")),
        ("filter-chain", chain("{filter_chain_match: {suffix_len: 3}}")),
    ],
)
def test_listeners_that_envoy_refuses(catalogue: Catalogue, rule: str, case: Case) -> None:
    """Addresses of one protocol, chains where they belong, whole server names."""
    assert_refused(catalogue, rule, case)


def test_a_listener_that_is_served_has_an_address(catalogue: Catalogue) -> None:
    """Envoy's validation lets it be, but a listener that is discovered needs an address."""
    case = listener("{address: null}")
    resource = {name: value for name, value in case.resource.items() if name != "address"}

    assert {"wrong-address"} == told(catalogue, Case("listeners", resource))
