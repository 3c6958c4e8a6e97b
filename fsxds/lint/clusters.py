"""Clusters: type, load balancing, health checks and protocol."""

from __future__ import annotations

import re

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import FieldValue
from fsxds.api.walk import Hook, Hooks, Path, Walk, ip_version
from fsxds.lint.field_values import REDIS, is_longer, packed_type, repeated

# Values of envoy.config.cluster.v3.Cluster.DiscoveryType and LbPolicy.
_STATIC, _STRICT_DNS, _LOGICAL_DNS, _EDS, _ORIGINAL_DST = range(5)
_WITHOUT_BALANCER = frozenset({_STATIC, _STRICT_DNS, _LOGICAL_DNS, _EDS})
_RING_HASH, _MAGLEV, _CLUSTER_PROVIDED, _POLICY_CONFIG = 2, 5, 6, 7

HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_DEFAULT_MINIMUM_RING, _DEFAULT_MAXIMUM_RING = 1024, 8_388_608
_PICKS = "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"
_SOCKETS = "envoy.extensions.transport_sockets."
_RAW = f"{_SOCKETS}raw_buffer.v3.RawBuffer"
_NOT_QUIC = frozenset({"", _RAW, f"{_SOCKETS}tls.v3.UpstreamTlsContext"})
_CLUSTERS = "envoy.extensions.clusters."

# Whether a type of cluster brings its own load balancer, found by asking Envoy 1.40; other types are not checked.
_PROVIDES = {
    _CLUSTERS + "aggregate.v3.ClusterConfig": True,
    _CLUSTERS + "composite.v3.ClusterConfig": True,
    _CLUSTERS + "dynamic_forward_proxy.v3.ClusterConfig": True,
    _CLUSTERS + "original_dst.v3.OriginalDstCluster": True,
    _CLUSTERS + "dns.v3.DnsCluster": False,
}

_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_LOWEST_STATUS, _HIGHEST_END = 100, 600

# Values of envoy.config.core.v3.RequestMethod: POST, PUT, PATCH and OPTIONS.
_WITH_BODY = frozenset({3, 4, 7, 9})


def hooks(catalogue: Catalogue) -> Hooks:
    """Return the checks of clusters and endpoints."""
    options = _HttpOptions(catalogue)
    return {
        "envoy.config.cluster.v3.Cluster": (
            _check_type,
            _check_extended,
            _check_policy,
            _check_lone_settings,
            _check_names,
            options.check_grpc_health_checks,
            options.check_protocols,
        ),
        "envoy.config.cluster.v3.Cluster.LbSubsetConfig.LbSubsetSelector": (_check_fallback_keys,),
        "envoy.extensions.load_balancing_policies.subset.v3.Subset.LbSubsetSelector": (_check_fallback_keys,),
        "envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash": (_check_ring,),
        "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality": (_check_picking,),
        "envoy.extensions.load_balancing_policies.maglev.v3.Maglev": (_check_table,),
        "envoy.config.cluster.v3.OutlierDetection": (_check_ejection,),
        "envoy.config.cluster.v3.LoadBalancingPolicy": (_check_policies,),
        "envoy.config.cluster.v3.CircuitBreakers": (_check_per_host,),
        "envoy.config.core.v3.BindConfig": (_check_sources,),
        "envoy.config.core.v3.Http2ProtocolOptions": (_check_settings,),
        "envoy.config.endpoint.v3.ClusterLoadAssignment": (_check_drops,),
        "envoy.config.core.v3.HealthCheck.Payload": (_check_payload,),
        "envoy.config.core.v3.HealthCheck.HttpHealthCheck": (_check_sending,),
        "envoy.config.core.v3.HealthCheck.HttpHealthCheck.expected_statuses": (statuses_check("wrong-health-check"),),
        "envoy.config.core.v3.HealthCheck.HttpHealthCheck.retriable_statuses": (statuses_check("wrong-health-check"),),
    }


def _check_type(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    if cluster.HasField("cluster_type"):
        return
    of_type = cluster.type
    _check_discovery(cluster, path, walk)
    if of_type == _LOGICAL_DNS:
        _check_logical(cluster, path, walk)
    elif of_type == _ORIGINAL_DST:
        if cluster.HasField("load_assignment"):
            message = "a cluster of type ORIGINAL_DST has no endpoints of its own"
            walk.error((path, "load_assignment"), "cluster-type", message, "remove it: addresses come from connections")
        if cluster.lb_policy != _CLUSTER_PROVIDED:
            message = "a cluster of type ORIGINAL_DST takes no lb_policy but CLUSTER_PROVIDED"
            walk.error((path, "lb_policy"), "cluster-type", message, "write lb_policy: CLUSTER_PROVIDED")
    if of_type in _WITHOUT_BALANCER:
        _check_provided(cluster, path, walk)


def _check_provided(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    if cluster.lb_policy == _CLUSTER_PROVIDED and not cluster.HasField("load_balancing_policy"):
        message = "a cluster of this type provides no load balancer of its own"
        walk.error((path, "lb_policy"), "cluster-type", message, "choose another lb_policy, such as ROUND_ROBIN")


def _check_discovery(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    if cluster.type == _EDS:
        if not cluster.HasField("eds_cluster_config"):
            remedy = "add eds_cluster_config with the source of the endpoints in eds_config"
            walk.error((path, "type"), "cluster-type", "a cluster of type EDS needs an eds_cluster_config", remedy)
        if cluster.HasField("load_assignment"):
            message = "Envoy ignores the load_assignment of a cluster of type EDS"
            remedy = "serve the endpoints as a ClusterLoadAssignment, or choose type STATIC"
            walk.warning((path, "load_assignment"), "cluster-type", message, remedy)
    elif cluster.HasField("eds_cluster_config"):
        message = "eds_cluster_config is set, and the type of the cluster is not EDS"
        walk.error((path, "eds_cluster_config"), "cluster-type", message, "write type: EDS, or remove it")


def _check_logical(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    groups = cluster.load_assignment.endpoints
    count = sum(len(group.lb_endpoints) for group in groups)
    if len(groups) != 1 or count != 1:
        fact = f"locality, has {len(groups)}" if count == 1 else f"endpoint, has {count}"
        message = f"a cluster of type LOGICAL_DNS needs exactly one {fact}"
        walk.error((path, "load_assignment"), "cluster-type", message, "choose type STRICT_DNS for several endpoints")


def _check_policy(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    subset = cluster.HasField("lb_subset_config")
    if cluster.HasField("load_balancing_policy"):
        if subset:
            message = "lb_subset_config cannot be set with load_balancing_policy"
            remedy = "use the subset policy of load_balancing_policy"
            walk.error((path, "lb_subset_config"), "wrong-cluster", message, remedy)
        common = cluster.common_lb_config
        for field in ("zone_aware_lb_config", "locality_weighted_lb_config", "consistent_hashing_lb_config"):
            if common.HasField(field):
                message = f"{field} cannot be set with load_balancing_policy"
                remedy = "set it within the load balancing policy"
                walk.error(((path, "common_lb_config"), field), "wrong-cluster", message, remedy)
    elif cluster.lb_policy == _POLICY_CONFIG:
        message = "LOAD_BALANCING_POLICY_CONFIG needs a load_balancing_policy"
        walk.error((path, "lb_policy"), "wrong-cluster", message, "add load_balancing_policy")
    elif cluster.lb_subset_config.subset_selectors and cluster.lb_policy == _CLUSTER_PROVIDED:
        message = "CLUSTER_PROVIDED cannot be set with lb_subset_config"
        walk.error((path, "lb_policy"), "wrong-cluster", message, "choose another lb_policy")


def _check_lone_settings(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    is_old = not cluster.HasField("load_balancing_policy")
    if is_old and cluster.lb_policy == _RING_HASH and cluster.HasField("ring_hash_lb_config"):
        _check_ring(cluster.ring_hash_lb_config, (path, "ring_hash_lb_config"), walk)
    elif is_old and cluster.lb_policy == _MAGLEV and cluster.HasField("maglev_lb_config"):
        _check_table(cluster.maglev_lb_config, (path, "maglev_lb_config"), walk)
    hashing = cluster.common_lb_config.consistent_hashing_lb_config
    if hashing.use_hostname_for_hashing and cluster.type != _STRICT_DNS and not cluster.HasField("cluster_type"):
        place: Path = (((path, "common_lb_config"), "consistent_hashing_lb_config"), "use_hostname_for_hashing")
        walk.error(place, "wrong-cluster", "needs a cluster of type STRICT_DNS", "remove it, or choose that type")
    for index, match in enumerate(cluster.transport_socket_matches):
        if not match.HasField("transport_socket"):
            place = (((path, "transport_socket_matches"), index), "transport_socket")
            walk.error(place, "wrong-extension", "is missing", "set the transport socket of a matching endpoint")
    config = cluster.original_dst_lb_config
    if cluster.type == _ORIGINAL_DST and config.http_header_name and not config.use_http_header:
        place = ((path, "original_dst_lb_config"), "http_header_name")
        walk.error(place, "wrong-cluster", "has a meaning only with use_http_header: true", "add that, or remove it")
    common, field = cluster.common_http_protocol_options, "max_requests_per_connection"
    if cluster.HasField(field) and common.HasField(field):
        walk.error((path, field), "wrong-cluster", "is set in common_http_protocol_options too", "keep that one")


def _check_names(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    checks = cluster.health_checks if len(cluster.health_checks) > 1 else ()
    again = {*repeated(check.name for check in checks if hasattr(check, "name"))}
    for index, check in enumerate(checks):
        if index in again or not getattr(check, "name", "x"):
            fact = f'"{check.name}" is the name of two health checks'
            missing = "is missing: each of several health checks needs one"
            place = (((path, "health_checks"), index), "name")
            walk.error(place, "wrong-health-check", fact if check.name else missing, "give each its own name")


def _check_ring(config: DynamicMessage, path: Path, walk: Walk) -> None:
    smallest = config.minimum_ring_size.value if config.HasField("minimum_ring_size") else _DEFAULT_MINIMUM_RING
    largest = config.maximum_ring_size.value if config.HasField("maximum_ring_size") else _DEFAULT_MAXIMUM_RING
    if smallest > largest:
        field = "maximum_ring_size" if config.HasField("maximum_ring_size") else "minimum_ring_size"
        message = f"minimum_ring_size ({smallest}) is above maximum_ring_size ({largest})"
        remedy = f"raise the maximum; the minimum defaults to {_DEFAULT_MINIMUM_RING}"
        walk.error((path, field), "wrong-cluster", message, remedy)


def _check_table(config: DynamicMessage, path: Path, walk: Walk) -> None:
    size = config.table_size.value
    is_divided = size == 0 or any(size % divisor == 0 for divisor in range(2, int(size**0.5) + 1))
    if config.HasField("table_size") and is_divided:
        message = f"must be a prime number, is {size}"
        walk.error((path, "table_size"), "wrong-cluster", message, "write a prime such as 65537")


def _check_fallback_keys(selector: DynamicMessage, path: Path, walk: Walk) -> None:
    fallback = list(selector.fallback_keys_subset)
    keys = set(selector.keys)
    if not keys:
        return  # Envoy does not read it
    place = (path, "fallback_keys_subset")
    uses_keys = selector.DESCRIPTOR.fields_by_name["fallback_policy"].enum_type.values_by_name["KEYS_SUBSET"].number
    if selector.fallback_policy != uses_keys:
        if fallback:
            message = "has a meaning only with fallback_policy: KEYS_SUBSET"
            walk.error(place, "wrong-cluster", message, "write that policy, or remove the keys")
    elif not fallback:
        remedy = "name some of the keys"
        walk.error(place, "wrong-cluster", "must not be empty with fallback_policy: KEYS_SUBSET", remedy)
    elif not set(fallback) < keys:
        remedy = "leave out at least one of the keys"
        walk.error(place, "wrong-cluster", "must be some, and not all, of the keys", remedy)


def _check_ejection(detection: DynamicMessage, path: Path, walk: Walk) -> None:
    has_both = detection.HasField("max_ejection_time") and detection.HasField("base_ejection_time")
    if has_both and is_longer(detection.base_ejection_time, detection.max_ejection_time):
        message = "max_ejection_time is shorter than base_ejection_time"
        walk.error((path, "max_ejection_time"), "wrong-cluster", message, "make it longer, or leave it out")


def _check_policies(policy: DynamicMessage, path: Path, walk: Walk) -> None:
    if not any(one.HasField("typed_extension_config") for one in policy.policies):
        message = "names no load balancing policy"
        walk.error((path, "policies"), "wrong-cluster", message, "give it a typed_extension_config")


def _check_per_host(breakers: DynamicMessage, path: Path, walk: Walk) -> None:
    for index, threshold in enumerate(breakers.per_host_thresholds):
        for field in ("max_pending_requests", "max_requests", "max_retries", "retry_budget", "max_connection_pools"):
            if threshold.HasField(field):
                place = (((path, "per_host_thresholds"), index), field)
                walk.error(place, "wrong-cluster", f"{field} cannot be limited per host", "write it under thresholds")


def _check_sources(bind: DynamicMessage, path: Path, walk: Walk) -> None:
    more = [*bind.extra_source_addresses, *bind.additional_source_addresses]
    name = "extra_source_addresses" if bind.extra_source_addresses else "additional_source_addresses"
    if bind.extra_source_addresses and bind.additional_source_addresses:
        message = "cannot be set with extra_source_addresses"
        walk.error((path, "additional_source_addresses"), "wrong-cluster", message, "keep extra_source_addresses alone")
    elif len(more) > 1:
        remedy = "keep one, of the other IP version"
        walk.error((path, name), "wrong-cluster", f"must be at most one, are {len(more)}", remedy)
    elif more and bind.HasField("source_address"):
        other = more[0].address if bind.extra_source_addresses else more[0]
        version = ip_version(bind.source_address.address)
        if version is not None and version == ip_version(other.address):
            message = f"is an IPv{version} address, as source_address is"
            walk.error(((path, name), 0), "wrong-cluster", message, "write one of the other IP version")


_NAMED_SETTINGS = frozenset({8})  # SETTINGS_ENABLE_CONNECT_PROTOCOL
_PUSH = 2


def _check_settings(options: DynamicMessage, path: Path, walk: Walk) -> None:
    seen: dict[int, int] = {}
    for index, setting in enumerate(options.custom_settings_parameters):
        place: Path = ((path, "custom_settings_parameters"), index)
        identifier, value = setting.identifier.value, setting.value.value
        if identifier == _PUSH and value == 1:
            walk.error(place, "wrong-cluster", "Envoy has no server push", "remove it")
        elif identifier in _NAMED_SETTINGS:
            walk.error(place, "wrong-cluster", f"setting {identifier} has a field of its own", "write allow_connect")
        elif seen.setdefault(identifier, value) != value:
            walk.error(place, "wrong-cluster", f"setting {identifier} has two values", "keep one")


# By envoy.type.v3.FractionalPercent.DenominatorType.
DENOMINATORS = (100, 10_000, 1_000_000)


def _check_drops(assignment: DynamicMessage, path: Path, walk: Walk) -> None:
    if not assignment.HasField("policy"):
        return
    drops = assignment.policy.drop_overloads
    place: Path = ((path, "policy"), "drop_overloads")
    if len(drops) > 1:
        walk.error(place, "wrong-cluster", f"Envoy takes one category of drops, here are {len(drops)}", "keep one")
    elif drops and drops[0].HasField("drop_percentage"):
        share = drops[0].drop_percentage
        whole = DENOMINATORS[share.denominator] if share.denominator < len(DENOMINATORS) else None
        if whole is not None and share.numerator > whole:
            at: Path = (((place, 0), "drop_percentage"), "numerator")
            walk.error(at, "wrong-cluster", f"must be at most {whole}, is {share.numerator}", "drop at most all")


def _check_picking(policy: DynamicMessage, path: Path, walk: Walk) -> None:
    place = (path, "endpoint_picking_policy")
    listed = policy.endpoint_picking_policy.policies
    remedy = f"write one of {_PICKS}"
    if not policy.HasField("endpoint_picking_policy"):
        walk.error(place, "wrong-cluster", "is missing", remedy)
    elif listed:
        first = packed_type(listed[0].typed_extension_config.typed_config)
        if not first or (first.startswith("envoy.extensions.load_balancing_policies.") and first != _PICKS):
            walk.error(place, "wrong-cluster", f"{first or 'no type'} cannot pick endpoints here", remedy)


def _check_payload(payload: DynamicMessage, path: Path, walk: Walk) -> None:
    if payload.WhichOneof("payload") == "text" and payload.text and _HEX.fullmatch(payload.text) is None:
        remedy = 'write pairs of hex digits, such as "70696e67" for "ping"'
        walk.error((path, "text"), "wrong-health-check", "is not hex", remedy)


def statuses_check(rule: str, *, may_be_empty: bool = False) -> Hook:
    """Check HTTP status ranges for a rule."""

    def check_statuses(ranges: FieldValue, path: Path, walk: Walk) -> None:
        for index, statuses in enumerate(ranges):
            fact, start, end = None, statuses.start, statuses.end
            if start > end or (start == end and not may_be_empty):
                fact = f"start ({start}) must be below end ({end}), which does not belong to it"
            elif start < _LOWEST_STATUS:
                fact = f"must start at {_LOWEST_STATUS} or above, starts at {start}"
            elif end > _HIGHEST_END:
                fact = f"must end at {_HIGHEST_END} or below, ends at {end}"
            if fact is not None:
                walk.error((path, index), rule, fact, "write such as {start: 200, end: 300} for all of 2xx")

    return check_statuses


def _check_sending(check: DynamicMessage, path: Path, walk: Walk) -> None:
    if check.HasField("send") and check.method not in _WITH_BODY:
        message = "a request of this method has no body to send"
        walk.error((path, "send"), "wrong-health-check", message, "write method: POST, or remove send")


class _HttpOptions:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def _of(self, cluster: DynamicMessage) -> DynamicMessage:
        """None if unreadable, which is reported elsewhere."""
        packed = cluster.typed_extension_protocol_options[HTTP_OPTIONS]
        return self._catalogue.unpacked(packed) if packed_type(packed) == HTTP_OPTIONS else None

    def check_grpc_health_checks(self, cluster: DynamicMessage, path: Path, walk: Walk) -> None:
        """Health checks by gRPC need HTTP/2."""
        for index, check in enumerate(cluster.health_checks):
            if check.WhichOneof("health_checker") == "grpc_health_check" and not self._may_use_http2(cluster):
                place = (((path, "health_checks"), index), "grpc_health_check")
                message = "a health check by gRPC needs a cluster that uses HTTP/2"
                remedy = "add http2_protocol_options under the cluster's HttpProtocolOptions"
                walk.error(place, "wrong-health-check", message, remedy)

    def _may_use_http2(self, cluster: DynamicMessage) -> bool:
        if HTTP_OPTIONS not in cluster.typed_extension_protocol_options:
            return bool(cluster.HasField("http2_protocol_options"))
        options = self._of(cluster)
        chosen = None if options is None else options.WhichOneof("upstream_protocol_options")
        return chosen in {None, "auto_config"} or bool(getattr(options, chosen).HasField("http2_protocol_options"))

    def check_protocols(self, cluster: DynamicMessage, path: Path, walk: Walk) -> None:
        if HTTP_OPTIONS not in cluster.typed_extension_protocol_options or not self._catalogue.knows(HTTP_OPTIONS):
            return
        place: Path = ((path, "typed_extension_protocol_options"), HTTP_OPTIONS)
        name = packed_type(cluster.typed_extension_protocol_options[HTTP_OPTIONS])
        options = self._of(cluster)
        if options is not None:
            _check_options(options, cluster, place, walk)
        elif name != HTTP_OPTIONS and not name.endswith(".TypedStruct"):
            message = f"holds {name or 'no message'}, and its key is {HTTP_OPTIONS}"
            walk.error(place, "wrong-extension", message, f"write {HTTP_OPTIONS}")


def _check_options(options: DynamicMessage, cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    chosen = options.WhichOneof("upstream_protocol_options")
    if chosen is None:
        return
    config = getattr(options, chosen)
    has_http3 = any(field.name == "http3_protocol_options" for field, _ in config.ListFields())
    socket = packed_type(cluster.transport_socket.typed_config)
    if chosen == "auto_config":
        if socket in {"", _RAW}:
            message = "the protocol is negotiated by TLS, and this cluster has no TLS"
            remedy = "add a transport_socket with UpstreamTlsContext, or write explicit_http_config"
            walk.error((path, chosen), "wrong-cluster", message, remedy)
        elif has_http3 and not config.HasField("alternate_protocols_cache_options"):
            message = "Envoy detects HTTP/3 by a cache of alternate protocols, and there is none"
            walk.error((path, chosen), "wrong-cluster", message, "add alternate_protocols_cache_options")
    elif has_http3 and socket in _NOT_QUIC:
        message = "HTTP/3 needs a transport socket of QUIC"
        place = ((path, chosen), "http3_protocol_options")
        walk.error(place, "wrong-cluster", message, "add one of QuicUpstreamTransport, or choose another protocol")


def _check_extended(cluster: DynamicMessage, path: Path, walk: Walk) -> None:
    if not cluster.HasField("cluster_type"):
        return
    name = packed_type(cluster.cluster_type.typed_config)
    if not name or name.endswith(".TypedStruct"):
        return
    if cluster.HasField("eds_cluster_config"):
        message = "eds_cluster_config is set, and the type of the cluster is not EDS"
        walk.error((path, "eds_cluster_config"), "cluster-type", message, "write type: EDS, or remove it")
    if name == REDIS and cluster.cluster_type.name != "envoy.clusters.redis":
        place = ((path, "cluster_type"), "name")
        walk.error(place, "cluster-type", "Envoy goes by the name here", "write envoy.clusters.redis")
    provides = _PROVIDES.get(name)
    if provides is None or cluster.HasField("load_balancing_policy"):
        return
    if provides and cluster.lb_policy != _CLUSTER_PROVIDED:
        message = "a cluster of this type brings its own load balancer"
        walk.error((path, "lb_policy"), "cluster-type", message, "write lb_policy: CLUSTER_PROVIDED")
    elif not provides:
        _check_provided(cluster, path, walk)
