"""What can be wrong with the static cluster that configuration comes from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.doctor.chart import LOGICAL_DNS, STRICT_DNS, Chart, StaticCluster
from fsxds.doctor.config_sources import seconds_of
from fsxds.doctor.messages import unpacked
from fsxds.doctor.subscriptions import Subscription
from fsxds.values import Fault, FieldPath, Severity

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_DEFAULT_LIMIT = 1024
_LIMITS = ("max_connections", "max_pending_requests", "max_requests")
# gRPC's GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS.
_SHORTEST_PING_S = 300.0
# Of Cluster.DnsLookupFamily.
_AUTO, _V6_ONLY = 0, 2


def xds_cluster_faults(chart: Chart, subscriptions: Collection[Subscription], grpc: Collection[str]) -> Iterator[Fault]:
    """Check each static cluster that configuration comes from.

    Args:
        chart: the clusters.
        subscriptions: all that hold a poll or stream of their own.
        grpc: the clusters that ADS streams go to.
    """
    by_cluster: defaultdict[str, set[Subscription]] = defaultdict(set)
    for subscription in subscriptions:
        by_cluster[subscription.cluster].add(subscription)
    for name, cluster in (chart.clusters or {}).items():
        own = by_cluster[name]
        if not own and name not in grpc:
            continue
        yield from _check_addresses(cluster)
        yield from _check_limits(cluster, own)
        is_grpc = name in grpc or any(not one.is_rest for one in own)
        yield from _check_protocol(cluster, chart.catalogue, is_grpc=is_grpc, is_rest=any(one.is_rest for one in own))


def _check_addresses(cluster: StaticCluster) -> Iterator[Fault]:
    message = cluster.message
    if message.WhichOneof("cluster_discovery_type") != "type" or message.type not in {STRICT_DNS, LOGICAL_DNS}:
        return
    if message.dns_lookup_family not in {_AUTO, _V6_ONLY} or "localhost" not in _hosts(message):
        return
    yield Fault(
        "localhost-lookup",
        "Envoy takes localhost for ::1, where fsxds does not listen unless it is told to",
        "add dns_lookup_family: V4_ONLY, or write 127.0.0.1 and type: STATIC",
        cluster.field_path,
        severity=Severity.WARNING,
    )


def _hosts(message: Any) -> set[str]:
    return {
        endpoint.endpoint.address.socket_address.address
        for locality in message.load_assignment.endpoints
        for endpoint in locality.lb_endpoints
    }


def _check_limits(cluster: StaticCluster, subscriptions: Collection[Subscription]) -> Iterator[Fault]:
    """Each subscription holds a request, and over HTTP/1.1 a connection (ENVOY.md A7)."""
    breakers = cluster.message.circuit_breakers
    index, thresholds = next(
        ((index, one) for index, one in enumerate(breakers.thresholds) if one.priority == 0), (None, None)
    )
    limits = {
        name: getattr(thresholds, name).value
        if thresholds is not None and thresholds.HasField(name)
        else _DEFAULT_LIMIT
        for name in _LIMITS
    }
    low = [name for name in _LIMITS if limits[name] < len(subscriptions)]
    if not low:
        return
    counts = Counter(subscription.asked[0] for subscription in subscriptions)
    told = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    steps: FieldPath = () if index is None else ("circuit_breakers", "thresholds", index)
    yield Fault(
        "few-connections",
        f"{len(subscriptions)} subscriptions ({told}) hold a poll each, but {low[0]} is {limits[low[0]]}; "
        "those beyond it fail or wait",
        "set max_connections, max_pending_requests and max_requests in its circuit_breakers to 1000000",
        (*cluster.field_path, *steps),
        severity=Severity.WARNING,
    )


def _check_protocol(cluster: StaticCluster, catalogue: Catalogue, *, is_grpc: bool, is_rest: bool) -> Iterator[Fault]:
    field_path, options = _http2_options(cluster, catalogue)
    if is_grpc and options is None and not _has_other_protocol(cluster, catalogue):
        yield Fault(
            "grpc-protocol",
            "gRPC needs HTTP/2, and this cluster speaks HTTP/1.1",
            f"add typed_extension_protocol_options with {_HTTP_OPTIONS}: explicit_http_config.http2_protocol_options",
            cluster.field_path,
        )
    if is_rest and options is not None:
        yield Fault(
            "rest-protocol",
            "fsxds answers polls by HTTP/1.1 alone; by HTTP/2 they arrive only through a proxy that translates",
            "remove the protocol options, or let a proxy stand between",
            field_path,
            severity=Severity.WARNING,
        )
    if is_grpc and options is not None and options.HasField("connection_keepalive"):
        interval_s = seconds_of(options.connection_keepalive.interval)
        if 0 < interval_s < _SHORTEST_PING_S:
            yield Fault(
                "frequent-pings",
                f"a ping each {interval_s:g} s; gRPC servers close connections that ping more than once in five minutes",
                "write interval: 330s, and use upstream_connection_options.tcp_keepalive for shorter ones",
                (*field_path, "connection_keepalive", "interval"),
                severity=Severity.WARNING,
            )


def _http2_options(cluster: StaticCluster, catalogue: Catalogue) -> tuple[FieldPath, Any]:
    """Return the HTTP/2 options of a cluster and their path, None where it does not speak HTTP/2."""
    message = cluster.message
    if message.HasField("http2_protocol_options"):
        return (*cluster.field_path, "http2_protocol_options"), message.http2_protocol_options
    options = _protocol_options(cluster, catalogue)
    steps = ("explicit_http_config", "http2_protocol_options")
    field_path = (*cluster.field_path, "typed_extension_protocol_options", _HTTP_OPTIONS, *steps)
    if options is not None and options.explicit_http_config.HasField("http2_protocol_options"):
        return field_path, options.explicit_http_config.http2_protocol_options
    return field_path, None


def _protocol_options(cluster: StaticCluster, catalogue: Catalogue) -> Any:
    extensions = cluster.message.typed_extension_protocol_options
    return unpacked(extensions[_HTTP_OPTIONS], catalogue) if _HTTP_OPTIONS in extensions else None


def _has_other_protocol(cluster: StaticCluster, catalogue: Catalogue) -> bool:
    """Tell whether the protocol is negotiated, HTTP/3, or that of the downstream: then it may well be HTTP/2."""
    options = _protocol_options(cluster, catalogue)
    if options is None:
        return False
    chosen = options.WhichOneof("upstream_protocol_options")
    return bool(chosen != "explicit_http_config" or options.explicit_http_config.HasField("http3_protocol_options"))
