import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.stub_files import STUB_CERTIFICATE, STUB_PRIVATE_KEY
from fsxds.values import Severity
from tests.lint.envoy_answers import ROUTER, TYPE, Case, assert_accepted, assert_rejected, chain, listener, rules_found

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
    assert_accepted(
        catalogue,
        compatible("::"),
        listener(f"{{filter_chains: [], address: {UDP}}}"),
        listener("{filter_chains: [], default_filter_chain: {}}"),
        chain('{filter_chain_match: {server_names: ["*.a.com", "*.*.b", ""]}}'),
    )


def test_a_listener_without_filters_is_worth_a_warning(catalogue: Catalogue) -> None:
    """Envoy takes filter chains without filters, and closes every connection."""
    case = listener("{filter_chains: [{}]}")

    assert_accepted(catalogue, case)
    assert {"filter-chain"} == rules_found(catalogue, case, Severity.WARNING)


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
def test_listeners_that_envoy_rejects(catalogue: Catalogue, rule: str, case: Case) -> None:
    """Addresses of one protocol, chains where they belong, whole server names."""
    assert_rejected(catalogue, rule, case)


def test_a_listener_that_is_served_has_an_address(catalogue: Catalogue) -> None:
    """Envoy's validation lets it be, but a listener that is discovered needs an address."""
    case = listener("{address: null}")
    resource = {name: value for name, value in case.resource.items() if name != "address"}

    assert {"wrong-address"} == rules_found(catalogue, Case("listeners", resource))


HTTP_MANAGER = TYPE + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
CERTIFICATE = {
    "certificate_chain": {"inline_string": STUB_CERTIFICATE},
    "private_key": {"inline_string": STUB_PRIVATE_KEY},
}
SERVER_TLS = {"common_tls_context": {"tls_certificates": [CERTIFICATE]}}
QUIC = {
    "name": "quic",
    "typed_config": {
        "@type": TYPE + "envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport",
        "downstream_tls_context": SERVER_TLS,
    },
}
TLS = {
    "name": "tls",
    "typed_config": {
        "@type": TYPE + "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        **SERVER_TLS,
    },
}


def speaking(codec_type: str, *, is_quic: bool, socket: object = None) -> Case:
    """An HTTP listener over TCP or QUIC."""
    config = {
        "@type": HTTP_MANAGER,
        "stat_prefix": "s",
        "codec_type": codec_type,
        "http_filters": [ROUTER],
        "route_config": {"name": "r"},
    }
    filters = [{"name": "http", "typed_config": config}]
    more = {"transport_socket": socket} if socket else {}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 1, **({"protocol": "UDP"} if is_quic else {})}}
    fields = {"address": address, "filter_chains": [{"filters": filters, **more}]}
    return listener({**fields, "udp_listener_config": {"quic_options": {}}} if is_quic else fields)


def test_codecs_that_envoy_takes(catalogue: Catalogue) -> None:
    """HTTP/3 over QUIC, others over TCP."""
    assert_accepted(catalogue, speaking("HTTP3", is_quic=True, socket=QUIC))
    assert_accepted(catalogue, speaking("HTTP1", is_quic=False))


@pytest.mark.parametrize(
    ("rule", "case"),
    [
        ("wrong-listener", speaking("HTTP3", is_quic=False)),
        ("wrong-listener", speaking("AUTO", is_quic=True, socket=QUIC)),
        ("filter-chain", speaking("HTTP3", is_quic=True, socket=TLS)),
    ],
)
def test_codecs_that_envoy_rejects(catalogue: Catalogue, rule: str, case: Case) -> None:
    """HTTP/3 and QUIC come together, with a transport socket of QUIC."""
    assert_rejected(catalogue, rule, case)
