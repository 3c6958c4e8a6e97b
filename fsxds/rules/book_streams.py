"""The book's chapter on what streams alone can carry: virtual hosts asked for one by one, collections, times to live."""

from __future__ import annotations

from fsxds.rules.rule import Rule
from fsxds.values import Severity

_TABLE = """\
- "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: edge
"""

_VHDS = "  vhds: {config_source: {ads: {}, resource_api_version: V3}}\n"

_HOST = """\
- "@type": type.googleapis.com/envoy.config.route.v3.VirtualHost
  name: edge/web
  domains: [web.example.com]
"""

_WRAPPED = """\
- name: edge/web
  resource:
    name: NAME
    domains: [web.example.com]
"""

_LOCALITY = """\
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: web
  endpoints:
  - leds_cluster_locality_config:
      leds_config: {ads: {}, resource_api_version: V3}
      leds_collection_name: xdstp://fsxds/envoy.config.endpoint.v3.LbEndpoint/web/*
"""

_LB_ENDPOINT = """\
- name: xdstp://fsxds/envoy.config.endpoint.v3.LbEndpoint/NAME
  resource:
    "@type": type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint
    endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8080}}}
"""

_ASSIGNMENT = (
    '  resource: {"@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment, cluster_name: web}\n'
)

_CLUSTER = '  resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: web, type: STATIC}\n'

_HOSTS: tuple[Rule, ...] = (
    Rule(
        "virtual-host-name",
        Severity.ERROR,
        "A virtual host that is served on its own is named `<route configuration>/<name>`, by the `Resource` around it or, "
        "where there is none, by itself. What is after the last slash is its name; the rest is that of the table.",
        "Envoy takes a virtual host without the name of a table, and does nothing with it: the request that asked for it "
        "hangs without an end.",
        "Write the name of the route configuration, and a slash, before the name.",
        _HOST.replace("edge/web", "web"),
        _HOST,
        is_fixed=True,
        file="edge.yaml",
    ),
    Rule(
        "lasting-virtual-host",
        Severity.WARNING,
        "A virtual host that is served on its own has one name: `VirtualHost.name` is that of the `Resource` around it.",
        "Envoy keeps virtual hosts by `VirtualHost.name`, and is told the name of the `Resource` when one is removed. Where "
        "they differ it goes on to serve what was removed.",
        "Give both the same name, or write the virtual host without a `Resource`.",
        _WRAPPED.replace("NAME", "all"),
        _WRAPPED.replace("NAME", "edge/web"),
        file="vhds.yaml",
    ),
    Rule(
        "unused-virtual-host",
        Severity.WARNING,
        "The route configuration of a virtual host is in the tree, and has `vhds`. Told only of trees that hold route "
        "configurations, once for each that lacks something.",
        "Envoy never asks for it.",
        "Correct the name, or add `vhds` to the route configuration.",
        f"{_TABLE}{_HOST}",
        f"{_TABLE}{_VHDS}{_HOST}",
        file="edge.yaml",
    ),
    Rule(
        "no-virtual-hosts",
        Severity.NOTE,
        "A route configuration with `vhds` has virtual hosts in the tree that are named after it.",
        "Requests for hosts that the route configuration does not name itself are answered 404.",
        "Write virtual hosts, or remove `vhds`. A note is only told: they may come from elsewhere.",
        f"{_TABLE}{_VHDS}",
        f"{_TABLE}{_VHDS}{_HOST}",
        file="edge.yaml",
    ),
    Rule(
        "no-lb-endpoints",
        Severity.NOTE,
        "A collection that a locality of a ClusterLoadAssignment asks for by LEDS has members in the tree: the same name, "
        "with another one in the place of `*`, and the same parameters.",
        "The locality has no endpoints.",
        "Correct the names. A note is only told: the endpoints may come from elsewhere.",
        f"{_LOCALITY}{_LB_ENDPOINT.replace('NAME', 'wbe/1')}",
        f"{_LOCALITY}{_LB_ENDPOINT.replace('NAME', 'web/1')}",
        file="edge.yaml",
    ),
)

_TIMES: tuple[Rule, ...] = (
    Rule(
        "ttl-dropped",
        Severity.NOTE,
        "A ttl is that of a cluster, a listener or a runtime layer. Told once for each other type in a file.",
        "Where endpoints, routes or secrets are sent as state of the world, Envoy 1.40 dies with a segmentation fault when "
        "their time is over; of other types it does not heed it. So the resource is served without its ttl.",
        "Remove the ttl. With `--ttl spec` it is told to the clients that say they understand it, whatever its type.",
        f"- name: web\n  ttl: 60s\n{_ASSIGNMENT}",
        f"- name: web\n{_ASSIGNMENT}",
        file="eds.yaml",
    ),
    Rule(
        "short-ttl",
        Severity.WARNING,
        "A ttl is 0.5s or more. It is renewed when half of it is over.",
        "Envoy removes the resource when a renewal comes late, and has it again with the next one.",
        "Write a longer ttl.",
        f"- name: web\n  ttl: 0.2s\n{_CLUSTER}",
        f"- name: web\n  ttl: 60s\n{_CLUSTER}",
    ),
)

RULES: tuple[Rule, ...] = (*_HOSTS, *_TIMES)
"""The rules of the chapter, in the order in which they are listed."""
