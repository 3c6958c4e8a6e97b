"""What has to stay in a bootstrap, and the reasons."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from tests.tools.importing.planning import ROUTER, TYPE, plan_of

SERVICE = "{envoy_grpc: {cluster_name: used}}"
SOURCE = f"{{resource_api_version: V3, api_config_source: {{api_type: GRPC, transport_api_version: V3, grpc_services: [{SERVICE}]}}}}"
USED = "\n  - {name: used}\n  - {name: free}"
CLUSTERS = f"static_resources:\n  clusters:{USED}\n"

CASES = {
    "stats_sinks of the bootstrap uses it": f"""\
stats_sinks: [{{name: s, typed_config: {{"@type": {TYPE}.config.metrics.v3.MetricsServiceConfig,
  transport_api_version: V3, grpc_service: {SERVICE}}}}}]
{CLUSTERS}""",
    "hds_config of the bootstrap uses it": f"""\
hds_config: {{api_type: GRPC, transport_api_version: V3, grpc_services: [{SERVICE}]}}
{CLUSTERS}""",
    "layered_runtime of the bootstrap uses it": f"""\
layered_runtime: {{layers: [{{name: r, rtds_layer: {{name: r, rtds_config: {SOURCE}}}}}]}}
{CLUSTERS}""",
    "tracing of the bootstrap uses it": f"""\
tracing: {{http: {{name: t, typed_config: {{"@type": {TYPE}.config.trace.v3.ZipkinConfig, collector_cluster: used,
  collector_endpoint: /, collector_endpoint_version: HTTP_JSON}}}}}}
{CLUSTERS}""",
    "cluster_manager of the bootstrap uses it": f"cluster_manager: {{local_cluster_name: used}}\n{CLUSTERS}",
    "the cluster eds needs it in the bootstrap": f"""\
{CLUSTERS}  - {{name: eds, type: EDS, eds_cluster_config: {{eds_config: {SOURCE}}}}}
""",
    "the listener routed needs it in the bootstrap": f"""\
{CLUSTERS}  listeners:
  - name: routed
    address: {{pipe: {{path: /a}}}}
    filter_chains: [{{filters: [{{name: hcm, typed_config: {{
      "@type": {TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager,
      stat_prefix: a, rds: {{route_config_name: r, config_source: {SOURCE}}}, http_filters: [{ROUTER}]}}}}]}}]
""",
    "the listener logged needs it in the bootstrap": f"""\
{CLUSTERS}  listeners:
  - name: logged
    address: {{pipe: {{path: /a}}}}
    filter_chains: [{{filters: [{{name: tcp, typed_config: {{
      "@type": {TYPE}.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: a, cluster: free,
      access_log: [{{name: f, typed_config: {{"@type": {TYPE}.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig,
        cluster: used, tag: t, stat_prefix: f, record: {{a: b}}}}}}]}}}}]}}]
""",
}


@pytest.mark.parametrize("reason", CASES)
def test_clusters_that_are_needed_in_the_bootstrap_stay(reason: str, catalogue: Catalogue) -> None:
    """What the bootstrap itself names stays, and what configuration comes from; all others are served."""
    plan = plan_of(CASES[reason], catalogue)

    assert [("used", reason)] == [(one.resource.name, one.reason) for one in plan.kept]


def test_an_api_listener_stays_with_all_that_it_uses(catalogue: Catalogue) -> None:
    """Envoy takes an API listener from no server, and looks for its clusters before it asks for any."""
    text = f"""{CLUSTERS}  listeners:
  - name: api
    api_listener: {{api_listener: {{
      "@type": {TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: a,
      route_config: {{virtual_hosts: [{{name: v, domains: ["*"], routes: [
        {{match: {{prefix: /}}, route: {{cluster: used}}}}]}}]}}, http_filters: [{ROUTER}]}}}}
"""

    assert {"used": "the API listener api uses it", "api": "Envoy takes API listeners from no server"} == {
        one.resource.name: one.reason for one in plan_of(text, catalogue).kept
    }


def test_what_stays_keeps_what_it_uses(catalogue: Catalogue) -> None:
    """A static cluster cannot start without the clusters and secrets that it names, which nobody serves it in time."""
    text = f"""\
cluster_manager: {{local_cluster_name: me}}
static_resources:
  secrets: [{{name: ca, validation_context: {{}}}}, {{name: free, validation_context: {{}}}}]
  clusters:
  - name: me
    cluster_type: {{name: a, typed_config: {{"@type": {TYPE}.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [one]}}}}
  - name: one
    transport_socket: {{name: tls, typed_config: {{"@type": {TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
      common_tls_context: {{validation_context_sds_secret_config: {{name: ca}}}}}}}}
  - name: other
"""

    assert ["me", "one", "ca"] == [one.resource.name for one in plan_of(text, catalogue).kept]


def test_the_cluster_of_a_node_names_no_cluster(catalogue: Catalogue) -> None:
    """A `Node` names the group of its Envoy: a served cluster of the same name moves into the tree."""
    assert () == plan_of(f"node: {{id: a, cluster: used}}\n{CLUSTERS}", catalogue).kept
