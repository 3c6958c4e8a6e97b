import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import (
    HTTP_OPTIONS,
    NETWORK,
    ROUTER,
    TCP_CHAIN,
    TYPE,
    Case,
    assert_accepted,
    assert_rejected,
    cluster,
    listener,
    manager,
)

HTTP = TYPE + "envoy.extensions.filters.http."
TCP = TCP_CHAIN["filters"][0]
ECHO = {"name": "echo", "typed_config": {"@type": TYPE + NETWORK + "echo.v3.Echo"}}
RBAC = {"name": "rbac", "typed_config": {"@type": TYPE + NETWORK + "rbac.v3.RBAC", "stat_prefix": "s"}}
CORS = {"name": "cors", "typed_config": {"@type": HTTP + "cors.v3.Cors"}}
CODEC = {"name": "codec", "typed_config": {"@type": HTTP + "upstream_codec.v3.UpstreamCodec"}}
BUFFER = {"name": "buffer", "typed_config": {"@type": HTTP + "buffer.v3.Buffer", "max_request_bytes": 5}}


def network(*filters: object) -> Case:
    """A filter chain of these filters."""
    return listener({"filter_chains": [{"filters": list(filters)}]})


def http(*filters: object) -> Case:
    """A connection manager with these filters."""
    return manager({"http_filters": list(filters)})


def upstream(*filters: object) -> Case:
    """A cluster with these filters."""
    config = {
        "@type": TYPE + HTTP_OPTIONS,
        "explicit_http_config": {"http_protocol_options": {}},
        "http_filters": list(filters),
    }
    return cluster({"typed_extension_protocol_options": {HTTP_OPTIONS: config}})


def test_orders_that_envoy_takes(catalogue: Catalogue) -> None:
    """The filter that answers stands last; there may be no filter at all."""
    assert_accepted(
        catalogue,
        network(),
        network(RBAC, TCP),
        network(ECHO),
        http(CORS, CORS, ROUTER),
        http(),
        upstream(BUFFER, CODEC),
    )


@pytest.mark.parametrize(
    "case",
    [
        network(TCP, TCP),
        network(TCP, ECHO),
        network(TCP, RBAC),
        network(RBAC),
        http(ROUTER, ROUTER),
        http(ROUTER, CORS),
        http(CORS),
        http({**ROUTER, "disabled": True}),
        manager({"upgrade_configs": [{"upgrade_type": "x", "filters": [CORS]}]}),
        upstream(BUFFER),
        upstream(CODEC, BUFFER),
        upstream(CODEC, CODEC),
        upstream({**CODEC, "disabled": True}),
        http({"name": "r", "typed_config": {"@type": HTTP + "router.v3.Router", "upstream_http_filters": [BUFFER]}}),
    ],
)
def test_orders_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Nothing follows the filter that answers, and no other is the last."""
    assert_rejected(catalogue, "filter-order", case)
