from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.stub_files import STUB_CERTIFICATE, STUB_PRIVATE_KEY
from fsxds.model.values import Severity
from tests.lint.envoy_answers import (
    ROUTER,
    TCP_CHAIN,
    TYPE,
    Case,
    assert_accepted,
    assert_rejected,
    chain,
    listener,
    manager,
    read,
    rules_found,
)

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


def test_listeners_that_envoy_accepts(catalogue: Catalogue) -> None:
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


def test_codecs_that_envoy_accepts(catalogue: Catalogue) -> None:
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


def test_quic_over_tcp_is_a_warning(catalogue: Catalogue) -> None:
    """Envoy accepts a QUIC listener that listens on TCP, with its codec; nobody can reach it by HTTP/3."""
    case = speaking("HTTP3", is_quic=True, socket=QUIC)
    case.resource["address"]["socket_address"].pop("protocol")
    wrong = speaking("AUTO", is_quic=True, socket=QUIC)
    wrong.resource["address"]["socket_address"].pop("protocol")

    assert_accepted(catalogue, case)
    assert {"wrong-listener"} == rules_found(catalogue, case, Severity.WARNING)
    assert_rejected(catalogue, "wrong-listener", wrong)


def matching(*matches: str) -> Case:
    """A listener whose filter chains match so."""
    return listener({"filter_chains": [{**TCP_CHAIN, "filter_chain_match": read(match)} for match in matches]})


def chosen(*names: str) -> Case:
    """A listener whose filter chains are chosen by name."""
    config = {"@type": TYPE + "google.protobuf.StringValue", "value": "a"}
    return listener(
        {
            "filter_chains": [{**TCP_CHAIN, "name": name} for name in names],
            "filter_chain_matcher": {"on_no_match": {"action": {"name": "x", "typed_config": config}}},
        }
    )


def within(*ranges: str) -> str:
    """A match by addresses."""
    listed = ", ".join(
        "{{address_prefix: '{}', prefix_len: {}}}".format(*one.split("/"))
        if "/" in one
        else f"{{address_prefix: '{one}'}}"
        for one in ranges
    )
    return f"{{prefix_ranges: [{listed}]}}"


def test_chains_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Chains that differ in anything."""
    assert_accepted(
        catalogue,
        matching("{}", "{server_names: [a]}", "{server_names: ['*.a']}", "{server_names: [a.a]}"),
        matching("{server_names: [a], destination_port: 1}", "{server_names: [a], destination_port: 2}"),
        matching("{source_type: EXTERNAL}", "{}", "{source_ports: [1]}", within("10.0.0.0/8"), within("10.0.0.0/9")),
        chosen("a", "b"),
    )


@pytest.mark.parametrize(
    "case",
    [
        matching("{}", "{}"),
        matching("{server_names: [a, b]}", "{server_names: [b, c]}"),
        matching("{server_names: [a]}", "{server_names: [A]}"),
        matching("{server_names: [.a]}", "{server_names: ['*.a']}"),
        matching("{server_names: [a, a]}"),
        matching("{application_protocols: [h2, h2]}"),
        matching("{source_ports: [1, 2]}", "{source_ports: [2]}"),
        matching(within("10.0.0.0/8"), within("10.1.0.0/8")),
        matching(within("10.0.0.0/33"), within("10.0.0.0/32")),
        matching(within("10.0.0.0"), within("0.0.0.0/0")),
        chosen("a", ""),
        chosen("a", "a"),
    ],
)
def test_chains_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """No connection may fit two chains just so, and chains that are chosen by name have one."""
    assert_rejected(catalogue, "filter-chain", case)


def test_very_many_combinations_are_left_to_envoy(catalogue: Catalogue) -> None:
    """A match of too many alternatives is not looked at."""
    names = ", ".join(f"a{number}" for number in range(200))
    many = f"{{server_names: [{names}], source_ports: [{', '.join(map(str, range(1, 200)))}]}}"

    assert set() == rules_found(catalogue, matching(many, many))


HTTP = TYPE + "envoy.extensions.filters.http."
XFF = {"name": "x", "typed_config": {"@type": TYPE + "envoy.extensions.http.original_ip_detection.xff.v3.XffConfig"}}


def discovered(**fields: object) -> Case:
    """A filter that is discovered."""
    discovery = {"config_source": {"ads": {}}, "type_urls": [HTTP + "cors.v3.Cors"], **fields}
    return manager({"http_filters": [{"name": "f", "config_discovery": discovery}, ROUTER]})


def scoped(scope: str) -> Case:
    """Scopes that are written in the listener."""
    key = "{fragments: [{string_key: a}]}"
    builder = "{fragments: [{header_value_extractor: {name: a, element: {key: b, separator: '='}}}]}"
    scopes = f"{{scoped_route_configurations: [{{name: s, key: {key}, {scope}}}]}}"
    return manager(
        f"{{scoped_routes: {{name: x, scope_key_builder: {builder}, scoped_route_configurations_list: {scopes}}}}}"
    )


def test_trusted_ranges_that_envoy_leaves_out(catalogue: Catalogue) -> None:
    """It cannot read them, and does not reject them."""
    ranges = {"cidrs": [{"address_prefix": "bogus", "prefix_len": 8}]}
    xff = {**XFF, "typed_config": {**XFF["typed_config"], "xff_trusted_cidrs": ranges}}  # type: ignore[dict-item]

    assert_accepted(catalogue, manager({"original_ip_detection_extensions": [xff]}))


def test_managers_that_envoy_accepts(catalogue: Catalogue) -> None:
    """What does not exclude itself."""
    assert_accepted(
        catalogue,
        manager({"strip_any_host_port": True, "strip_matching_host_port": False}),
        manager({"original_ip_detection_extensions": [XFF], "use_remote_address": False}),
        manager({"upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "CONNECT"}]}),
    )


@pytest.mark.parametrize(
    "case",
    [
        manager({"strip_any_host_port": True, "strip_matching_host_port": True}),
        manager({"original_ip_detection_extensions": [XFF], "use_remote_address": True}),
        manager({"original_ip_detection_extensions": [XFF], "xff_num_trusted_hops": 1}),
        manager({"access_log_options": {}, "access_log_flush_interval": "1s"}),
        manager({"access_log_options": {}, "flush_access_log_on_new_request": True}),
        manager({"upgrade_configs": [{"upgrade_type": "websocket"}, {"upgrade_type": "WebSocket"}]}),
        discovered(apply_default_config_without_warming=True),
        discovered(default_config={"@type": HTTP + "buffer.v3.Buffer", "max_request_bytes": 3}),
        scoped("route_configuration_name: r"),
        manager(
            {
                "scoped_routes": {
                    "name": "s",
                    "scope_key_builder": {"fragments": [{"header_value_extractor": {"name": "x", "index": 0}}]},
                    "rds_config_source": {"path_config_source": {"path": "/dev/null"}},
                    "scoped_rds": {
                        "scoped_rds_config_source": {"path_config_source": {"path": "/dev/null"}},
                        "srds_resources_locator": "x-header",
                    },
                }
            }
        ),
    ],
)
def test_managers_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """What excludes itself, and what is discovered against its own settings."""
    assert_rejected(catalogue, "wrong-filter", case)


def traced(**fields: str) -> Case:
    """A connection manager that traces by Zipkin."""
    config = {"@type": TYPE + "envoy.config.trace.v3.ZipkinConfig", "collector_endpoint_version": "HTTP_JSON", **fields}
    return manager({"tracing": {"provider": {"name": "zipkin", "typed_config": config}}})


def test_zipkin_has_a_collector(catalogue: Catalogue) -> None:
    """Zipkin needs a cluster and a path to send spans to."""
    assert_accepted(catalogue, traced(collector_cluster="xds", collector_endpoint="/"))
    assert_rejected(catalogue, "wrong-filter", traced(collector_endpoint="/"))
    assert_rejected(catalogue, "wrong-filter", traced(collector_cluster="xds"))
