"""The protocol of a cluster against its transport socket, and clusters of types that are extensions."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk
from fsxds.rules.clusters import HTTP_OPTIONS

_SOCKETS = "envoy.extensions.transport_sockets."
_RAW = f"{_SOCKETS}raw_buffer.v3.RawBuffer"
_NOT_QUIC = frozenset({"", _RAW, f"{_SOCKETS}tls.v3.UpstreamTlsContext"})
_CLUSTER_PROVIDED = 6
_CLUSTERS = "envoy.extensions.clusters."

# Whether a type of cluster brings its own load balancer, found by asking Envoy 1.40; of others nothing is said.
_PROVIDES = {
    _CLUSTERS + "aggregate.v3.ClusterConfig": True,
    _CLUSTERS + "composite.v3.ClusterConfig": True,
    _CLUSTERS + "dynamic_forward_proxy.v3.ClusterConfig": True,
    _CLUSTERS + "original_dst.v3.OriginalDstCluster": True,
    _CLUSTERS + "dns.v3.DnsCluster": False,
}


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over protocols and extended types of clusters."""
    options = catalogue.message_class(HTTP_OPTIONS) if catalogue.knows(HTTP_OPTIONS) else None
    return {"envoy.config.cluster.v3.Cluster": (_protocols(options), _check_extended)}


def _protocols(options: type[Message] | None) -> Hook:
    def check_protocols(cluster: Any, path: Path, walk: Walk) -> None:
        if HTTP_OPTIONS not in cluster.typed_extension_protocol_options or options is None:
            return
        packed = cluster.typed_extension_protocol_options[HTTP_OPTIONS]
        place: Path = ((path, "typed_extension_protocol_options"), HTTP_OPTIONS)
        name = packed.type_url.rpartition("/")[2]
        if name != HTTP_OPTIONS:
            if not name.endswith(".TypedStruct"):
                message = f"holds {name or 'nothing'}, and its key says {HTTP_OPTIONS}"
                walk.tell(place, "wrong-extension", message, f"write {HTTP_OPTIONS}")
            return
        try:
            _check_options(options.FromString(packed.value), cluster, place, walk)
        except DecodeError:
            return  # told elsewhere

    return check_protocols


def _check_options(options: Any, cluster: Any, path: Path, walk: Walk) -> None:
    chosen = options.WhichOneof("upstream_protocol_options")
    if chosen is None:
        return
    config = getattr(options, chosen)
    has_http3 = any(field.name == "http3_protocol_options" for field, _ in config.ListFields())
    socket = cluster.transport_socket.typed_config.type_url.rpartition("/")[2]
    if chosen == "auto_config":
        if socket in {"", _RAW}:
            message = "the protocol is negotiated by TLS, and this cluster has no TLS"
            remedy = "add a transport_socket with UpstreamTlsContext, or write explicit_http_config"
            walk.tell((path, chosen), "wrong-cluster", message, remedy)
        elif has_http3 and not config.HasField("alternate_protocols_cache_options"):
            message = "HTTP/3 is found out by a cache of alternate protocols, and there is none"
            walk.tell((path, chosen), "wrong-cluster", message, "add alternate_protocols_cache_options")
    elif has_http3 and socket in _NOT_QUIC:
        message = "HTTP/3 needs a transport socket of QUIC"
        place = ((path, chosen), "http3_protocol_options")
        walk.tell(place, "wrong-cluster", message, "add one of QuicUpstreamTransport, or choose another protocol")


def _check_extended(cluster: Any, path: Path, walk: Walk) -> None:
    if not cluster.HasField("cluster_type"):
        return
    name = cluster.cluster_type.typed_config.type_url.rpartition("/")[2]
    if not name or name.endswith(".TypedStruct"):
        return
    if cluster.HasField("eds_cluster_config"):
        message = "eds_cluster_config stands in a cluster whose type is not EDS"
        walk.tell((path, "eds_cluster_config"), "cluster-type", message, "write type: EDS, or remove it")
    provides = _PROVIDES.get(name)
    if provides is None or cluster.HasField("load_balancing_policy"):
        return
    if provides and cluster.lb_policy != _CLUSTER_PROVIDED:
        message = "a cluster of this type brings its own load balancer"
        walk.tell((path, "lb_policy"), "cluster-type", message, "write lb_policy: CLUSTER_PROVIDED")
    elif not provides and cluster.lb_policy == _CLUSTER_PROVIDED:
        message = "a cluster of this type provides no load balancer of its own"
        walk.tell((path, "lb_policy"), "cluster-type", message, "choose another lb_policy, such as ROUND_ROBIN")
