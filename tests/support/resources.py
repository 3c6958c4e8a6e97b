"""Small resources as YAML, for trees that tests write."""

from __future__ import annotations

from collections.abc import Iterable

REST = """\
      resource_api_version: V3
      initial_fetch_timeout: 5s
      api_config_source:
        api_type: REST
        transport_api_version: V3
        cluster_names: [xds]
        refresh_delay: 0.05s
        request_timeout: 5s
"""


def static_cluster(name: str, port: int = 9, address: str = "127.0.0.1") -> str:
    """Return a STATIC cluster with one endpoint, as a list item."""
    return f"""\
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: {name}
  type: STATIC
  connect_timeout: 1s
  load_assignment:
    cluster_name: {name}
    endpoints:
    - lb_endpoints:
      - endpoint: {{address: {{socket_address: {{address: {address}, port_value: {port}}}}}}}
"""


def refused_cluster(name: str) -> str:
    """Return a cluster that only Envoy can refuse, because it alone looks for the file of the certificate."""
    return f"""\
{static_cluster(name)}\
  transport_socket:
    name: envoy.transport_sockets.tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
      common_tls_context: {{validation_context: {{trusted_ca: {{filename: /nowhere/ca.pem}}}}}}
"""


def eds_cluster(name: str, timeout: str = "1s") -> str:
    """Return a cluster that gets its endpoints by REST, as a list item."""
    return f"""\
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: {name}
  type: EDS
  connect_timeout: {timeout}
  eds_cluster_config:
    eds_config:
{REST}"""


def endpoints(name: str, *ports: int) -> str:
    """Return the endpoints of a cluster, as a list item."""
    members = "".join(
        f"    - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}\n"
        for port in ports
    )
    return f"""\
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: {name}
  endpoints:
  - lb_endpoints:
{members}"""


def http_listener(name: str, port: int, route: str, http_filters: str = "") -> str:
    """Return a listener whose routes come by REST, as a list item."""
    return f"""\
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: {name}
  address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
  filter_chains:
  - filters:
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: {name}
        http_filters:
{http_filters}        - name: envoy.filters.http.router
          typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
        rds:
          route_config_name: {route}
          config_source:
{_indented(REST, 6)}"""


def direct_route(name: str, body: str) -> str:
    """Return a route configuration that answers everything with `body`, as a list item."""
    return f"""\
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: {name}
  virtual_hosts:
  - name: all
    domains: ["*"]
    routes:
    - match: {{prefix: /}}
      direct_response: {{status: 200, body: {{inline_string: {body}}}}}
"""


def cluster_route(name: str, cluster: str) -> str:
    """Return a route configuration that sends everything to `cluster`, as a list item."""
    return f"""\
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: {name}
  virtual_hosts:
  - name: all
    domains: ["*"]
    routes:
    - match: {{prefix: /}}
      route: {{cluster: {cluster}}}
"""


def document(items: Iterable[str]) -> str:
    """Return a list of items as a DiscoveryResponse in YAML."""
    text = "".join(items)
    return f"resources:\n{text}" if text else "resources: []\n"


def _indented(text: str, by: int) -> str:
    return "".join(" " * by + line for line in text.splitlines(keepends=True))
