"""What field rules say of mutated resources is what the real Envoy says."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.api.converter import Converter
from tests.support.envoy import validate

PREFIX = "type.googleapis.com/"
EXTENSIONS = PREFIX + "envoy.extensions."
ENVOYS_WORDS = "Proto constraint validation failed"
CASES = 60

CLUSTER: Any = {
    "@type": PREFIX + "envoy.config.cluster.v3.Cluster",
    "name": "web",
    "type": "STATIC",
    "connect_timeout": "0.25s",
    "alt_stat_name": "w",
    "per_connection_buffer_limit_bytes": 32768,
    "lb_policy": "RING_HASH",
    "ring_hash_lb_config": {"minimum_ring_size": 1024, "hash_function": "XX_HASH"},
    "load_assignment": {
        "cluster_name": "web",
        "endpoints": [
            {
                "priority": 0,
                "load_balancing_weight": 1,
                "lb_endpoints": [
                    {
                        "load_balancing_weight": 3,
                        "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}},
                    }
                ],
            }
        ],
        "policy": {"overprovisioning_factor": 140},
    },
    "circuit_breakers": {"thresholds": [{"priority": "HIGH", "max_connections": 10, "track_remaining": True}]},
    "health_checks": [
        {
            "timeout": "1s",
            "interval": "5s",
            "unhealthy_threshold": 3,
            "healthy_threshold": 2,
            "no_traffic_interval": "60s",
            "http_health_check": {
                "host": "web.local",
                "path": "/",
                "expected_statuses": [{"start": 200, "end": 300}],
                "request_headers_to_add": [{"header": {"key": "x-probe", "value": "envoy"}}],
                "codec_client_type": "HTTP1",
            },
        }
    ],
    "outlier_detection": {"interval": "10s", "base_ejection_time": "30s", "max_ejection_percent": 50},
    "common_lb_config": {"healthy_panic_threshold": {"value": 50}},
    "transport_socket": {
        "name": "tls",
        "typed_config": {
            "@type": EXTENSIONS + "transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": "web.example",
            "common_tls_context": {"tls_params": {"tls_minimum_protocol_version": "TLSv1_2"}},
        },
    },
    "typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": EXTENSIONS + "upstreams.http.v3.HttpProtocolOptions",
            "common_http_protocol_options": {"idle_timeout": "300s", "max_headers_count": 100},
            "explicit_http_config": {
                "http2_protocol_options": {
                    "max_concurrent_streams": 100,
                    "initial_stream_window_size": 65535,
                    "connection_keepalive": {"interval": "30s", "timeout": "5s"},
                }
            },
        }
    },
}

ROUTES: Any = {
    "@type": PREFIX + "envoy.config.route.v3.RouteConfiguration",
    "name": "r",
    "request_headers_to_remove": ["x-internal"],
    "virtual_hosts": [
        {
            "name": "all",
            "domains": ["*"],
            "routes": [
                {
                    "match": {
                        "prefix": "/",
                        "headers": [{"name": "x", "string_match": {"prefix": "1"}}],
                        "query_parameters": [{"name": "q", "present_match": True}],
                        "runtime_fraction": {"default_value": {"numerator": 1}},
                    },
                    "route": {
                        "weighted_clusters": {"clusters": [{"name": "web", "weight": 1}, {"name": "web", "weight": 2}]},
                        "timeout": "15s",
                        "retry_policy": {
                            "retry_on": "5xx",
                            "num_retries": 2,
                            "retry_back_off": {"base_interval": "0.1s", "max_interval": "1s"},
                        },
                        "hash_policy": [{"cookie": {"name": "c", "path": "/"}}],
                    },
                    "request_headers_to_add": [{"header": {"key": "x-a", "value": "b"}}],
                },
                {"match": {"path": "/x"}, "direct_response": {"status": 404, "body": {"inline_string": "no"}}},
                {"match": {"path": "/y"}, "redirect": {"host_redirect": "a.example", "path_redirect": "/z"}},
            ],
        }
    ],
}

LISTENER: Any = {
    "@type": PREFIX + "envoy.config.listener.v3.Listener",
    "name": "http",
    "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
    "filter_chains": [
        {
            "filters": [
                {
                    "name": "hcm",
                    "typed_config": {
                        "@type": EXTENSIONS + "filters.network.http_connection_manager.v3.HttpConnectionManager",
                        "stat_prefix": "http",
                        "codec_type": "AUTO",
                        "max_request_headers_kb": 60,
                        "server_name": "s",
                        "route_config": {key: value for key, value in ROUTES.items() if key != "@type"},
                        "http_filters": [
                            {
                                "name": "fault",
                                "typed_config": {
                                    "@type": EXTENSIONS + "filters.http.fault.v3.HTTPFault",
                                    "abort": {"http_status": 503, "percentage": {"numerator": 1}},
                                    "delay": {"fixed_delay": "1s", "percentage": {"numerator": 1}},
                                },
                            },
                            {
                                "name": "limit",
                                "typed_config": {
                                    "@type": EXTENSIONS + "filters.http.local_ratelimit.v3.LocalRateLimit",
                                    "stat_prefix": "l",
                                    "token_bucket": {"max_tokens": 5, "tokens_per_fill": 5, "fill_interval": "1s"},
                                },
                            },
                            {
                                "name": "router",
                                "typed_config": {
                                    "@type": EXTENSIONS + "filters.http.router.v3.Router",
                                    "strict_check_headers": ["x-envoy-max-retries"],
                                },
                            },
                        ],
                    },
                }
            ]
        }
    ],
}

Spot = tuple[str | int, ...]


def spots(value: Any, path: Spot = ()) -> Iterator[Spot]:
    """Yield the path of every value within a value, but for types of messages."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        if step != "@type":
            yield (*path, step)
            yield from spots(inner, (*path, step))


def mutated(resource: Any, choose: random.Random) -> Any:
    """Return a copy in which one value is gone, or another."""
    copied = copy.deepcopy(resource)
    *way, last = choose.choice(list(spots(copied)))
    holder = copied
    for step in way:
        holder = holder[step]
    value = holder[last]
    if isinstance(value, dict | list) or choose.random() < 0.3:
        del holder[last]
    elif isinstance(value, str) and value.endswith("s") and value[0].isdigit():
        holder[last] = choose.choice(["0s", "0.0001s", "3600s"])
    elif isinstance(value, str):
        holder[last] = choose.choice(["", "a\nb", "x" * 300, "a b"])
    else:
        holder[last] = choose.choice([0, 1, 101, 600, 65536, 2**31])
    return copied


def bootstrap_of(resource: Any) -> Any:
    """Return a bootstrap that holds a cluster or a listener."""
    clusters = [CLUSTER] if resource["@type"].endswith("Listener") else [resource]
    listeners = [] if clusters == [resource] else [resource]
    static = {
        "clusters": [{key: value for key, value in cluster.items() if key != "@type"} for cluster in clusters],
        "listeners": [{key: value for key, value in listener.items() if key != "@type"} for listener in listeners],
    }
    return {"node": {"id": "n", "cluster": "c"}, "static_resources": static}


@pytest.fixture(scope="module")
def field_rules(catalogue: Catalogue) -> FieldRules:
    """The rules of this Envoy, without hooks."""
    return FieldRules(catalogue)


@pytest.mark.parametrize("resource", [CLUSTER, LISTENER], ids=["cluster", "listener"])
def test_what_is_mutated_was_good(resource: Any, converter: Converter, field_rules: FieldRules) -> None:
    """Neither Envoy nor the rules find a fault in what the mutants are made of."""
    message = converter.convert_any(resource).message
    assert message is not None

    assert [] == field_rules.check(message).faults
    assert validate(bootstrap_of(resource))[0]


def test_envoy_agrees_on_mutants(converter: Converter, field_rules: FieldRules) -> None:
    """Envoy speaks of a constraint exactly where a rule is broken, unless another fault comes before it."""
    choose = random.Random(7)
    disputes, broken_count, good_count = [], 0, 0
    while broken_count + good_count < CASES:
        resource = mutated(choose.choice([CLUSTER, LISTENER]), choose)
        message = converter.convert_any(resource).message
        if message is None:
            continue
        faults = [fault for fault in field_rules.check(message).faults if fault.rule != "disallowed-field"]
        is_accepted, words = validate(bootstrap_of(resource))
        broken_count += bool(faults)
        good_count += not faults
        if is_accepted if faults else ENVOYS_WORDS in words:
            disputes.append((faults, words[-500:]))

    assert [] == disputes
    assert min(broken_count, good_count) > CASES // 5
