"""The book's chapter on references: what resources say of one another, over the whole tree."""

from __future__ import annotations

from fsxds.rules.rule import Rule
from fsxds.values import Severity

_ROUTES = """\
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: edge
  virtual_hosts:
  - name: all
    domains: ["*"]
    routes:
    - match: {prefix: /}
      route: {cluster: CLUSTER}
"""

_CLUSTER = """\
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: web
  type: STATIC
  connect_timeout: 1s
"""

_EDS_CLUSTER = """\
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: web
  type: EDS
  connect_timeout: 1s
  eds_cluster_config:
    service_name: SERVICE
    eds_config: {ads: {}, resource_api_version: V3}
"""

_ASSIGNMENT = """\
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: web.example
  endpoints: []
"""

_LISTENER = """\
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: edge
  address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
  filter_chains:
  - filters:
    - name: http
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: edge
"""

_ROUTER = """\
        http_filters:
        - name: router
          typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
"""

_RDS = "        rds: {route_config_name: ROUTES, config_source: {ads: {}, resource_api_version: V3}}\n"

_RDS_LISTENER = _LISTENER + _RDS + _ROUTER

_SCOPED = """\
        scoped_routes:
          name: scopes
          scope_key_builder: {fragments: [{header_value_extractor: {name: x-tenant, index: 0}}]}
          rds_config_source: {ads: {}, resource_api_version: V3}
          scoped_rds: {scoped_rds_config_source: {ads: {}, resource_api_version: V3}}
"""

_SCOPE = """\
- "@type": type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration
  name: tenant-a
  route_configuration_name: edge
  key: {fragments: [{string_key: a}]}
"""

_NO_SCOPES = """\
---
type_url: type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration
resources: []
"""

_ECDS_FILTER = """\
        route_config: {name: none, virtual_hosts: []}
        http_filters:
        - name: FILTER
          config_discovery:
            config_source: {ads: {}, resource_api_version: V3}
            type_urls: [type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer]
"""

_EXTENSION = """\
- "@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
  name: limits
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer
    max_request_bytes: 1000
"""

_TLS = """\
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: web
  type: STATIC
  connect_timeout: 1s
  transport_socket:
    name: tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
      common_tls_context:
        validation_context_sds_secret_config:
          name: NAME
"""

_SDS = "          sds_config: {ads: {}, resource_api_version: V3}\n"

_CA = """\
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: ca
  validation_context: {}
"""

_TCP = """\
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: NAME
  address: {socket_address: {address: 127.0.0.1, port_value: PORT}}
  filter_chains:
  - filters:
    - name: tcp
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
        stat_prefix: tcp
        cluster: web
"""

_API_SOURCE = """\
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: web
  type: EDS
  connect_timeout: 1s
  eds_cluster_config:
    eds_config:
      resource_api_version: V3
      api_config_source: {api_type: REST, transport_api_version: V3, refresh_delay: 1s, cluster_names: [CLUSTER]}
"""

_FILE_SOURCE = """\
# cds.yaml
- name: web
  type: EDS
  connect_timeout: 1s
  eds_cluster_config:
    eds_config: {path_config_source: {path: /etc/envoy/eds/web.yaml}}
"""


def _listener(name: str, port: int) -> str:
    return _TCP.replace("NAME", name).replace("PORT", str(port))


_MISSING: tuple[Rule, ...] = (
    Rule(
        "no-cluster",
        Severity.WARNING,
        "A cluster that anything names is in the tree, or static in the bootstrap: of routes, with their weights and "
        "mirrors, of TCP, UDP, Redis, Thrift and Dubbo proxies, of gRPC and HTTP services, of access logs and tracers, of "
        "aggregate clusters. Names that come with a request (`cluster_header`) are nobody's business here.",
        "Where routes stand in the listener itself, Envoy refuses the listener: an error, unless `validate_clusters: "
        "false`. So for RDS with `validate_clusters: true`, for Thrift routes, and for Zipkin and Datadog tracers. Elsewhere "
        "it takes the resource, and what needs the cluster fails when it is needed: a route answers 503.",
        "Correct the name, or define the cluster. One of the bootstrap is declared by `--static-clusters NAME`, or by "
        "`--bootstrap FILE`. Where the tree has no clusters at all, this is a note: they may come from elsewhere.",
        f"{_ROUTES.replace('CLUSTER', 'wbe')}{_CLUSTER}",
        f"{_ROUTES.replace('CLUSTER', 'web')}{_CLUSTER}",
        file="edge.yaml",
    ),
    Rule(
        "no-endpoints",
        Severity.WARNING,
        "A cluster of type EDS has a ClusterLoadAssignment of its `service_name`, or of its own name where it has none.",
        "The cluster has no endpoints: requests are answered 503. It does not delay Envoy's start.",
        "Correct the name, or write the assignment; one without endpoints says that there are none on purpose.",
        f"{_EDS_CLUSTER.replace('SERVICE', 'web.exmaple')}{_ASSIGNMENT}",
        f"{_EDS_CLUSTER.replace('SERVICE', 'web.example')}{_ASSIGNMENT}",
        file="edge.yaml",
    ),
    Rule(
        "no-route-configuration",
        Severity.WARNING,
        "The route configuration that a listener asks for by RDS, or a scope names, is in the tree.",
        "The listener works, and answers every request 404.",
        "Correct `route_config_name`, or define the route configuration.",
        f"{_RDS_LISTENER.replace('ROUTES', 'egde')}{_ROUTES.replace('CLUSTER', 'web')}",
        f"{_RDS_LISTENER.replace('ROUTES', 'edge')}{_ROUTES.replace('CLUSTER', 'web')}",
        file="edge.yaml",
    ),
    Rule(
        "no-scoped-route",
        Severity.WARNING,
        "Where a listener discovers its scopes, there is at least one.",
        "The listener works, and answers every request 404.",
        "Write a ScopedRouteConfiguration, or give the listener its routes by `rds`.",
        f"{_LISTENER}{_SCOPED}{_ROUTER}{_NO_SCOPES}",
        f"{_LISTENER}{_SCOPED}{_ROUTER}{_SCOPE}",
        file="edge.yaml",
    ),
    Rule(
        "no-secret",
        Severity.ERROR,
        "A secret that is asked for by SDS is in the tree. Where the source is a gRPC service of its own, it may be an "
        "agent that hands out secrets, and this is a warning.",
        "The listener or cluster that needs it warms until `initial_fetch_timeout` (15 s by default), and Envoy's start "
        "waits with it. Then it goes on without: every TLS connection fails.",
        "Correct the name, or define the secret.",
        f"{_TLS.replace('NAME', 'ac')}{_SDS}{_CA}",
        f"{_TLS.replace('NAME', 'ca')}{_SDS}{_CA}",
        file="edge.yaml",
    ),
    Rule(
        "no-extension-config",
        Severity.ERROR,
        "A filter whose configuration is discovered has one in the tree, under the filter's name. With a "
        "`default_config` this is a warning, and nothing with `apply_default_config_without_warming`.",
        "The listener warms until `initial_fetch_timeout` (15 s by default), and Envoy's start waits with it. Then the "
        "default is used; without one, an HTTP filter answers 500, and a network filter closes the connection.",
        "Correct the filter's name, or define the TypedExtensionConfig.",
        f"{_LISTENER}{_ECDS_FILTER.replace('FILTER', 'limit')}{_ROUTER.partition(chr(10))[2]}{_EXTENSION}",
        f"{_LISTENER}{_ECDS_FILTER.replace('FILTER', 'limits')}{_ROUTER.partition(chr(10))[2]}{_EXTENSION}",
        file="edge.yaml",
    ),
    Rule(
        "no-static-cluster",
        Severity.ERROR,
        "The cluster through which a resource is discovered is static in the bootstrap. Looked for only where the "
        "bootstrap is known, by `--bootstrap FILE` or `--static-clusters NAME`.",
        "Envoy refuses the resource (must have a statically defined non-EDS cluster); one that came by CDS will not do.",
        "Name a cluster of the bootstrap, or use `ads: {}`.",
        f"# cds.yaml, with --static-clusters xds\n{_API_SOURCE.replace('CLUSTER', 'fsxds')}",
        f"# cds.yaml, with --static-clusters xds\n{_API_SOURCE.replace('CLUSTER', 'xds')}",
        file="",
    ),
    Rule(
        "no-static-secret",
        Severity.ERROR,
        "A secret that is named without `sds_config` is static in the bootstrap. Where no bootstrap is known, this is a "
        "warning, and told only of names that the tree has: there, `sds_config` was forgotten.",
        "Envoy refuses the resource (Unknown static secret). One filter, the credential injector, crashes Envoy 1.40.",
        "Add `sds_config`, or define the secret in the bootstrap.",
        f"{_TLS.replace('NAME', 'ca')}{_CA}",
        f"{_TLS.replace('NAME', 'ca')}{_SDS}{_CA}",
        file="",
    ),
)

_UNUSED_REMEDY = "Remove it, or use it. A note is only told, and `rules` silences it."

_UNUSED: tuple[Rule, ...] = (
    Rule(
        "unused-cluster",
        Severity.NOTE,
        "A cluster is named by something. Told only of trees that hold listeners or routes, and nothing that may use any "
        "cluster, such as a script, `cluster_header`, or routes that come from elsewhere.",
        "Envoy keeps the cluster, with its connections and health checks.",
        _UNUSED_REMEDY,
        f"{_ROUTES.replace('CLUSTER', 'web')}{_CLUSTER}{_CLUSTER.replace('web', 'old')}",
        f"{_ROUTES.replace('CLUSTER', 'web')}{_CLUSTER}",
        file="edge.yaml",
    ),
    Rule(
        "unused-endpoints",
        Severity.NOTE,
        "A ClusterLoadAssignment is that of some cluster. Told only of trees that hold clusters.",
        "Envoy never asks for it.",
        _UNUSED_REMEDY,
        f"{_CLUSTER}{_ASSIGNMENT}",
        f"{_EDS_CLUSTER.replace('SERVICE', 'web.example')}{_ASSIGNMENT}",
        file="edge.yaml",
    ),
    Rule(
        "unused-route-configuration",
        Severity.NOTE,
        "A route configuration is that of some listener or scope. Told only of trees that hold such.",
        "Envoy never asks for it.",
        _UNUSED_REMEDY,
        f"{_listener('edge', 10000)}{_ROUTES.replace('CLUSTER', 'web')}",
        f"{_RDS_LISTENER.replace('ROUTES', 'edge')}{_ROUTES.replace('CLUSTER', 'web')}",
        file="edge.yaml",
    ),
    Rule(
        "unused-scoped-route",
        Severity.NOTE,
        "Where there are scopes, a listener discovers them. Told only of trees that hold listeners.",
        "Envoy never asks for them.",
        _UNUSED_REMEDY,
        f"{_RDS_LISTENER.replace('ROUTES', 'edge')}{_SCOPE}",
        f"{_LISTENER}{_SCOPED}{_ROUTER}{_SCOPE}",
        file="edge.yaml",
    ),
    Rule(
        "unused-secret",
        Severity.NOTE,
        "A secret is named by some listener, cluster or filter. Told only of trees that hold listeners or clusters.",
        "Envoy never asks for it.",
        _UNUSED_REMEDY,
        f"{_CLUSTER}{_CA}",
        f"{_TLS.replace('NAME', 'ca')}{_SDS}{_CA}",
        file="edge.yaml",
    ),
    Rule(
        "unused-extension-config",
        Severity.NOTE,
        "An extension configuration is that of some filter. Told only of trees that hold listeners or clusters.",
        "Envoy never asks for it.",
        _UNUSED_REMEDY,
        f"{_listener('edge', 10000)}{_EXTENSION}",
        f"{_LISTENER}{_ECDS_FILTER.replace('FILTER', 'limits')}{_ROUTER.partition(chr(10))[2]}{_EXTENSION}",
        file="edge.yaml",
    ),
)

_CLASHES: tuple[Rule, ...] = (
    Rule(
        "listener-address",
        Severity.ERROR,
        "No two listeners of a tree have the same protocol, IP address and port, or the same socket path, as their own "
        "or an additional address. Port 0, internal listeners and other network namespaces are free.",
        "Envoy refuses the second one, also where neither binds its port (`bind_to_port: false`), and whatever "
        "`enable_reuse_port` says.",
        "Give one of the two another address or port, or let one listener have both filter chains.",
        _listener("a", 10000) + _listener("b", 10000),
        _listener("a", 10000) + _listener("b", 10001),
        file="edge.yaml",
    ),
    Rule(
        "wrong-file-source",
        Severity.ERROR,
        "A file of the tree that a resource names as its source (`path_config_source`) holds that one resource and no "
        "other. It is known by the end of its path; where the file's name alone agrees, this is a warning.",
        "Envoy refuses the file (Unexpected EDS resource length: 2), and the cluster has no endpoints. "
        "It takes several resources from a file only of clusters, listeners and scopes.",
        "Give each resource a file of its own.",
        f"{_FILE_SOURCE}# eds/web.yaml\n- cluster_name: web\n- cluster_name: other\n",
        f"{_FILE_SOURCE}# eds/web.yaml\n- cluster_name: web\n",
        file="",
    ),
)

RULES: tuple[Rule, ...] = (*_MISSING, *_UNUSED, *_CLASHES)
"""The rules of the chapter, in the order in which they are listed."""
