"""Resources of several types that use most kinds of fields: the seeds of the fuzz tests."""

from fsxds.model.values import PlainValue

PREFIX = "type.googleapis.com/"
WELL_KNOWN = "type.googleapis.com/google.protobuf."
CLUSTER = "envoy.config.cluster.v3.Cluster"
SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"

SAMPLES: tuple[dict[str, PlainValue], ...] = (
    {
        "@type": PREFIX + CLUSTER,
        "name": "web",
        "type": "EDS",
        "connect_timeout": "0.25s",
        "eds_cluster_config": {"eds_config": {"resource_api_version": "V3", "ads": {}}, "service_name": "web-1"},
        "per_connection_buffer_limit_bytes": 32768,
        "lb_policy": "RING_HASH",
        "ring_hash_lb_config": {"minimum_ring_size": "1024"},
        "circuit_breakers": {"thresholds": [{"max_connections": 10}, {"priority": "HIGH", "max_retries": 3}]},
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "5s",
                "unhealthy_threshold": 3,
                "healthy_threshold": 2,
                "http_health_check": {"path": "/", "expected_statuses": [{"start": "200", "end": 300}]},
            }
        ],
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": PREFIX + "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "sni": "web.example",
                "common_tls_context": {
                    "alpn_protocols": ["h2", "http/1.1"],
                    "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
                    "validation_context": {"trusted_ca": {"inline_bytes": "AAECAw=="}},
                },
            },
        },
        "metadata": {
            "filter_metadata": {"envoy.lb": {"tier": 1, "canary": True, "labels": ["a", {"b": None}], "w": 1.5}}
        },
        "common_lb_config": {"healthy_panic_threshold": {"value": 50.5}, "locality_weighted_lb_config": {}},
        "lb_subset_config": {"default_subset": {"stage": "prod"}, "subset_selectors": [{"keys": ["stage"]}]},
    },
    {
        "@type": PREFIX + "envoy.config.listener.v3.Listener",
        "name": "http",
        "address": {"socketAddress": {"address": "127.0.0.1", "portValue": 8080}},
        "filterChains": [
            {
                "filters": [
                    {
                        "name": "hcm",
                        "typedConfig": {
                            "@type": PREFIX
                            + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                            "statPrefix": "http",
                            "rds": {"routeConfigName": "r", "configSource": {"ads": {}}},
                            "httpFilters": [
                                {
                                    "name": "router",
                                    "typedConfig": {
                                        "@type": PREFIX + "envoy.extensions.filters.http.router.v3.Router",
                                        "dynamicStats": False,
                                    },
                                }
                            ],
                        },
                    }
                ]
            }
        ],
    },
    {
        "@type": PREFIX + "envoy.config.route.v3.RouteConfiguration",
        "name": "r",
        "virtual_hosts": [
            {
                "name": "all",
                "domains": ["*"],
                "routes": [
                    {
                        "match": {"prefix": "/", "headers": [{"name": "x", "string_match": {"exact": "1"}}]},
                        "route": {
                            "weighted_clusters": {"clusters": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]},
                            "timeout": "15s",
                            "retry_policy": {"retry_on": "5xx", "num_retries": 2},
                        },
                    },
                    {"match": {"path": "/x"}, "direct_response": {"status": 404, "body": {"inline_string": "no"}}},
                ],
                "typed_per_filter_config": {
                    "cors": {
                        "@type": PREFIX + "envoy.extensions.filters.http.cors.v3.CorsPolicy",
                        "allow_origin_string_match": [{"suffix": ".example"}],
                    }
                },
            }
        ],
    },
    {
        "@type": PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "web",
        "endpoints": [
            {
                "locality": {"zone": "a"},
                "load_balancing_weight": 1,
                "lb_endpoints": [
                    {
                        "endpoint": {"address": {"socket_address": {"address": "10.0.0.1", "port_value": 80}}},
                        "health_status": "HEALTHY",
                    }
                ],
            }
        ],
        "policy": {
            "drop_overloads": [{"category": "x", "drop_percentage": {"numerator": 1, "denominator": "HUNDRED"}}]
        },
    },
    {
        "@type": PREFIX + "envoy.service.runtime.v3.Runtime",
        "name": "rt",
        "layer": {"feature": {"enabled": True, "fields": {"deep": [[1, "x"], None]}}, "limit": 5},
    },
    {"@type": PREFIX + SECRET, "name": "s", "tls_certificate": {"private_key": {"inline_string": "key"}}},
    {"@type": WELL_KNOWN + "Any", "value": {"@type": WELL_KNOWN + "Value", "value": [1, {"a": "b"}]}},
    {"@type": WELL_KNOWN + "Duration", "value": "-1.5s"},
    {"@type": WELL_KNOWN + "Timestamp", "value": "2026-01-02T03:04:05.6Z"},
    {"@type": WELL_KNOWN + "FieldMask", "value": "aB,c"},
    {"@type": WELL_KNOWN + "UInt64Value", "value": "5"},
    {"@type": WELL_KNOWN + "FloatValue", "value": 0.1},
    {"@type": WELL_KNOWN + "BytesValue", "value": "AAAA"},
    {"@type": WELL_KNOWN + "ListValue", "value": [1, [2]]},
)
