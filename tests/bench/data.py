"""Synthetic clusters of a realistic size (2.3 kB of YAML each) and the trees made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsxds.model.resource_types import BY_SHORT_NAME
from tests.agreement.cases import text_of
from tests.agreement.seeds import Seed, seeds

PREFIX = "type.googleapis.com/"
HEAD = "version_info: '1'\nresources:\n"

CLUSTER = """\
- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: svc-{i:05d}.team{team}.prod.example.internal
  type: STATIC
  connect_timeout: 0.25s
  alt_stat_name: svc_{i}
  per_connection_buffer_limit_bytes: 32768
  lb_policy: LEAST_REQUEST
  load_assignment:
    cluster_name: svc-{i:05d}
    endpoints:
    - lb_endpoints:
      - endpoint:
          address:
            socket_address:
              address: 10.0.{a}.{b}
              port_value: {port}
  circuit_breakers:
    thresholds:
    - priority: DEFAULT
      max_connections: 1024
      max_pending_requests: 2048
      max_requests: 4096
      max_retries: 3
    - priority: HIGH
      max_connections: 1024
      max_pending_requests: 2048
      max_requests: 4096
      max_retries: 3
  health_checks:
  - timeout: 1s
    interval: 5s
    unhealthy_threshold: 3
    healthy_threshold: 2
    http_health_check:
      host: svc-{i:05d}.local
      path: /healthz
      expected_statuses:
      - start: '200'
        end: '300'
      request_headers_to_add:
      - header:
          key: x-probe
          value: envoy
  outlier_detection:
    consecutive_5xx: 5
    interval: 10s
    base_ejection_time: 30s
    max_ejection_percent: 50
  transport_socket:
    name: envoy.transport_sockets.tls
    typed_config:
      '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
      sni: svc-{i:05d}.prod.example.internal
      common_tls_context:
        tls_params:
          tls_minimum_protocol_version: TLSv1_2
          cipher_suites:
          - ECDHE-ECDSA-AES128-GCM-SHA256
          - ECDHE-RSA-AES128-GCM-SHA256
        alpn_protocols:
        - h2
        - http/1.1
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      common_http_protocol_options:
        idle_timeout: 300s
      explicit_http_config:
        http2_protocol_options:
          max_concurrent_streams: 100
  metadata:
    filter_metadata:
      com.example.meta:
        team: team{team}
        canary: {canary}
        labels:
        - a
        - b
  common_lb_config:
    healthy_panic_threshold:
      value: 50.0
"""


def cluster(number: int, port: int = 8080) -> str:
    """Return one cluster as an item of a YAML list."""
    return CLUSTER.format(
        i=number, team=number % 37, a=number >> 8 & 255, b=number & 255, port=port, canary=str(number % 2 == 0).lower()
    )


def clusters(first: int, count: int, port: int = 8080) -> str:
    """Return a DiscoveryResponse of `count` clusters as YAML; `port` is that of the first alone."""
    return HEAD + cluster(first, port) + "".join(cluster(first + number) for number in range(1, count))


LEAN_CLUSTER = """\
- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: svc-{i}
  type: STATIC
  connect_timeout: 0.25s
  load_assignment:
    cluster_name: svc-{i}
    endpoints:
    - lb_endpoints:
      - endpoint: {{address: {{socket_address: {{address: 10.0.{a}.{b}, port_value: {port}}}}}}}
"""


def lean_clusters(first: int, count: int, port: int = 8080) -> str:
    """Return clusters of a tenth of the size, of which hundreds of thousands can be had; `port` is that of the first alone."""
    rows = (
        LEAN_CLUSTER.format(i=i, a=i >> 8 & 255, b=i & 255, port=port if i == first else 8080)
        for i in range(first, first + count)
    )
    return HEAD + "".join(rows)


# What names a resource or another one, or sets it apart: it is another one in each copy.
_NAMING = frozenset({"cluster", "cluster_name", "route_config_name", "service_name", "stat_prefix"})


def diverse(count: int) -> str:
    """Return a DiscoveryResponse of `count` resources as YAML, of all types that are served and of many extensions.

    They are the valid resources that `tests/agreement` starts from (clusters of all sorts of discovery and balancing,
    listeners with all HTTP filters, routes with all sorts of matches, secrets, …), over and over under other names.
    """
    kinds = [
        seed for seed in seeds() if seed.name != "runtime-numbers"
    ]  # which holds words that mean true to Envoy alone
    return HEAD + "".join(
        text_of([_copy(kinds[number % len(kinds)], number // len(kinds))], ".yaml") for number in range(count)
    )


def _copy(seed: Seed, number: int) -> Any:
    row = BY_SHORT_NAME[seed.type_name]
    resource = {"@type": row.type_url, **_renamed(seed.resource, number)}
    if row.name_field == "name":
        resource["name"] = f"{seed.name}-{number}"
    if seed.type_name == "vhds":
        name = f"routes/{seed.name}-{number}"
        return {
            "@type": f"{PREFIX}envoy.service.discovery.v3.Resource",
            "name": name,
            "resource": resource | {"name": name},
        }
    return resource


def _renamed(value: Any, number: int) -> Any:
    if isinstance(value, dict):
        return {
            key: f"{part}-{number}" if key in _NAMING and isinstance(part, str) else _renamed(part, number)
            for key, part in value.items()
            if isinstance(key, str)  # as opposed to `on`, a bool to PyYAML
        }
    return [_renamed(part, number) for part in value] if isinstance(value, list) else value


def write_tree(root: Path, count: int, files: int) -> Path:
    """Write `count` clusters as `files` files into `root/clusters` and return the path of the first file."""
    folder = root / "clusters"
    folder.mkdir(parents=True)
    each = count // files
    for number in range(files):
        (folder / f"part-{number:03d}.yaml").write_text(clusters(number * each, each))
    return folder / "part-000.yaml"


def replace_file(path: Path, text: str) -> None:
    """Move a new file over `path`, as careful editors and deployment tools do."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)
