"""The book's chapter on bootstraps and config sources: how an Envoy gets its configuration."""

from __future__ import annotations

from fsxds.rules.rule import Rule
from fsxds.values import Severity

_REST = "api_config_source:\n  api_type: REST\n  transport_api_version: V3\n  cluster_names: [xds]\n"
_SAFE = _REST + "  refresh_delay: 0.05s\n  request_timeout: 30s\n"
_PATH = "path_config_source:\n  path: /etc/envoy/cds.yaml\n"
_STATIC = "- name: xds\n  type: STATIC\n"
_HTTP2 = (
    "typed_extension_protocol_options:\n"
    "  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n"
    '    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions\n'
    "    explicit_http_config:\n"
    "      http2_protocol_options:"
)
_KEEPALIVE = _HTTP2 + "\n        connection_keepalive: {interval: %s, timeout: 20s}\n"
_LAYERS = "layered_runtime:\n  layers:\n  - name: features\n    rtds_layer: {name: features, rtds_config: *rest}\n"
_TABLE = "route_config:\n  name: web\n%s  virtual_hosts: [...]\n"

RULES: tuple[Rule, ...] = (
    Rule(
        "slow-refresh",
        Severity.WARNING,
        "The pause between two polls is five seconds at most.",
        "Envoy pauses for once to twice as long after every poll, and sees no change meanwhile.",
        "Write 0.05s: fsxds holds polls, so that a short pause makes no more of them.",
        _REST + "  refresh_delay: 30s\n  request_timeout: 30s\n",
        _SAFE,
        file="",
    ),
    Rule(
        "short-request-timeout",
        Severity.WARNING,
        "A poll may be held for five seconds at least.",
        "Envoy's default is one second: each subscription then sends sixty requests of 77 kB in a quiet minute.",
        "Write request_timeout: 30s.",
        _REST + "  refresh_delay: 0.05s\n",
        _SAFE,
        file="",
    ),
    Rule(
        "no-xds-cluster",
        Severity.ERROR,
        "The cluster of a config source is a static one of the bootstrap, with fixed or DNS addresses.",
        "Envoy refuses what names another; with a bootstrap it does not start.",
        "Add the cluster to static_resources, or correct the name. Files that fsxds mirrors with --mirror-config-sources "
        "need none; tell the doctor so by the same flag.",
        "api_config_source:\n  api_type: REST\n  cluster_names: [control-plane]\n  refresh_delay: 0.05s\n",
        _SAFE,
        file="",
    ),
    Rule(
        "endless-start",
        Severity.WARNING,
        "The wait for the first answer of a server has a limit.",
        "With an initial_fetch_timeout of 0, Envoy stays in PRE_INITIALIZING until the server answers, and serves nothing.",
        "Give a limit such as 15s, which is also the default.",
        "initial_fetch_timeout: 0s\nads: {}\n",
        "initial_fetch_timeout: 15s\nads: {}\n",
        file="",
    ),
    Rule(
        "no-ads",
        Severity.ERROR,
        "`ads: {}` is written where the bootstrap has an ads_config.",
        "Envoy refuses the resource, and an Envoy that cannot get its clusters or listeners ends; its `--mode validate` "
        "does not find this.",
        "Add dynamic_resources.ads_config, or name another source.",
        "dynamic_resources:\n  cds_config: {resource_api_version: V3, ads: {}}\n",
        "dynamic_resources:\n"
        "  ads_config:\n"
        "    api_type: DELTA_GRPC\n"
        "    transport_api_version: V3\n"
        "    grpc_services: [{envoy_grpc: {cluster_name: xds}}]\n"
        "  cds_config: {resource_api_version: V3, ads: {}}\n",
        file="",
    ),
    Rule(
        "impossible-transport",
        Severity.ERROR,
        "ads_config is a gRPC stream: its api_type is GRPC or DELTA_GRPC.",
        "Envoy does not start.",
        "Write one of these, or give cds_config and lds_config sources of their own.",
        "ads_config:\n  api_type: REST\n  cluster_names: [xds]\n",
        "ads_config:\n  api_type: DELTA_GRPC\n  grpc_services: [{envoy_grpc: {cluster_name: xds}}]\n",
        file="",
    ),
    Rule(
        "missing-file",
        Severity.ERROR,
        "A file that Envoy subscribes to exists before Envoy starts, and so does a directory that it watches.",
        "Envoy does not start; in a resource that comes later, it refuses the resource.",
        "Write the file first: wait for the ready file of `fsxds serve --mirror`, or run `fsxds mirror` once.",
        "path_config_source: {path: /run/envoy/not-written-yet.pb}\n",
        "path_config_source: {path: /run/envoy/cds.pb}\n",
        file="",
    ),
    Rule(
        "missing-data-file",
        Severity.WARNING,
        "A file that a certificate, a key or a body is read from exists.",
        "Envoy refuses the resource; in a bootstrap it does not start.",
        "Write the file before Envoy reads it, or correct the path. Run the doctor where Envoy runs.",
        "trusted_ca: {filename: /etc/ssl/no-such-file.pem}\n",
        "trusted_ca: {filename: /etc/ssl/certs/ca-certificates.crt}\n",
        file="",
    ),
    Rule(
        "misread-file",
        Severity.ERROR,
        "The suffix of a file says what is in it: .yaml, .yml, .json, .pb_text or .pb.",
        "Envoy reads any other suffix as JSON, .textproto among them, and fails. Text under .pb it takes for an empty "
        "response: it deletes everything of that type, and reports success.",
        "Rename the file.",
        "path_config_source: {path: /etc/envoy/cds.textproto}\n",
        "path_config_source: {path: /etc/envoy/cds.pb_text}\n",
        file="",
    ),
    Rule(
        "unwatched-directory",
        Severity.WARNING,
        "A file in a volume or directory that is swapped by a link (a ConfigMap's `..data`, `current -> generation-7`) has "
        "the directory that holds the link as its watched_directory.",
        "Envoy watches the name of the file alone, and sees no change until it is started anew.",
        "Add watched_directory with the directory in which the link is replaced.",
        _PATH,
        _PATH + "  watched_directory: {path: /etc/envoy}\n",
        file="",
    ),
    Rule(
        "few-connections",
        Severity.WARNING,
        "The circuit breakers of the cluster for fsxds let all subscriptions of the tree hold their polls.",
        "Each EDS cluster, route table, secret … holds a connection and a request. Beyond the default of 1024, polls wait or "
        "fail with 503: the start takes the whole initial_fetch_timeout, and some subscriptions never get an answer.",
        "Set max_connections, max_pending_requests and max_requests to 1000000.",
        _STATIC,
        _STATIC + "  circuit_breakers:\n    thresholds:\n"
        "    - {max_connections: 1000000, max_pending_requests: 1000000, max_requests: 1000000}\n",
        file="",
    ),
    Rule(
        "localhost-lookup",
        Severity.WARNING,
        "A cluster that finds fsxds by the name localhost looks for IPv4 addresses.",
        "Envoy takes `::1` first; where fsxds listens on 127.0.0.1 alone, no poll ever arrives.",
        "Add dns_lookup_family: V4_ONLY, or write 127.0.0.1 with type: STATIC.",
        "- name: xds\n  type: STRICT_DNS\n",
        "- name: xds\n  type: STRICT_DNS\n  dns_lookup_family: V4_ONLY\n",
        file="",
    ),
    Rule(
        "grpc-protocol",
        Severity.ERROR,
        "A cluster that gRPC streams go to speaks HTTP/2.",
        "Envoy speaks HTTP/1.1 to it, and no stream comes up.",
        "Add the protocol options, as `fsxds bootstrap --transport ads` writes them.",
        _STATIC,
        _STATIC + "".join(f"  {line}\n" for line in f"{_HTTP2} {{}}".splitlines()),
        file="",
    ),
    Rule(
        "rest-protocol",
        Severity.WARNING,
        "A cluster that is polled speaks HTTP/1.1, unless a proxy stands between Envoy and fsxds.",
        "fsxds does not understand HTTP/2: each poll fails, and the start takes the whole initial_fetch_timeout.",
        "Remove the protocol options of the cluster.",
        _STATIC + "  http2_protocol_options: {}\n",
        _STATIC,
        file="",
    ),
    Rule(
        "frequent-pings",
        Severity.WARNING,
        "Envoy pings a gRPC server by HTTP/2 no more than once in five minutes.",
        "With their own limits, gRPC servers close connections that ping more often; the streams on them start anew.",
        "Write interval: 330s, and find dead peers by upstream_connection_options.tcp_keepalive.",
        _KEEPALIVE % "30s",
        _KEEPALIVE % "330s",
        file="",
    ),
    Rule(
        "no-node",
        Severity.WARNING,
        "The bootstrap tells the id and the cluster of its node where it asks a server.",
        "Envoy does not start, unless --service-node and --service-cluster give them.",
        "Write both; each Envoy has an id of its own.",
        "node: {id: edge-1}\n",
        "node: {id: edge-1, cluster: edge}\n",
        file="",
    ),
    Rule(
        "open-admin",
        Severity.WARNING,
        "The admin page listens on the loopback address.",
        "Whoever reaches it can read the configuration, change settings and stop Envoy.",
        "Listen on 127.0.0.1, unless a firewall or a container keeps others away.",
        "admin: {address: {socket_address: {address: 0.0.0.0, port_value: 9901}}}\n",
        "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}\n",
        file="",
    ),
    Rule(
        "cluster-collection-file",
        Severity.ERROR,
        "Clusters do not come from a file by cds_resources_locator.",
        "Envoy 1.40 cannot read a collection of clusters from a file.",
        "Use cds_config with a path_config_source. Listeners can come by lds_resources_locator.",
        "dynamic_resources:\n  cds_resources_locator: file:///etc/envoy/cds.yaml\n",
        "dynamic_resources:\n  cds_config: {path_config_source: {path: /etc/envoy/cds.yaml}}\n",
        file="",
    ),
    Rule(
        "not-asked-for",
        Severity.WARNING,
        "The bootstrap asks for clusters and listeners where the tree has any.",
        "Envoy never asks for them, and starts without.",
        "Add cds_config or lds_config; `fsxds bootstrap DIR` writes both.",
        "dynamic_resources:\n  cds_config: *rest\n",
        "dynamic_resources:\n  cds_config: *rest\n  lds_config: *rest\n",
        file="",
    ),
    Rule(
        "missing-runtime-layer",
        Severity.WARNING,
        "The tree has each runtime layer that the bootstrap asks for.",
        "The start waits for the layer until initial_fetch_timeout.",
        "Write the layer into the tree, or remove it from the bootstrap.",
        _LAYERS,
        "# runtime.yaml in the tree\n- {name: features, layer: {}}\n",
        file="",
    ),
    Rule(
        "unused-runtime-layer",
        Severity.WARNING,
        "The bootstrap asks for each runtime layer that the tree has.",
        "Envoy never asks for it, and its values have no effect.",
        "Add the layer to layered_runtime; `fsxds bootstrap DIR` writes all of them.",
        "layered_runtime: {layers: [{name: admin, admin_layer: {}}]}\n",
        _LAYERS + "  - {name: admin, admin_layer: {}}\n",
        file="",
    ),
    Rule(
        "one-file-for-routes",
        Severity.ERROR,
        "Scoped routes whose route tables come from one path have one route table.",
        "Envoy reads the file once for each table, and rejects it each time, because it holds others.",
        "Serve the tables by REST or gRPC, or use one table.",
        "rds_config_source: {path_config_source: {path: /etc/envoy/rds.yaml}}  # scopes of two tables\n",
        "rds_config_source: *rest\n",
        file="",
    ),
    Rule(
        "eager-cluster-check",
        Severity.NOTE,
        "A route table that names clusters does not have Envoy look them up at once: it comes by RDS, or says "
        "validate_clusters: false.",
        "Envoy refuses the table, or the listener that it stands in, as long as a cluster is missing: also for the moment "
        "in which both arrive. It is offered again, and then taken.",
        "Let the table come by RDS, or write validate_clusters: false.",
        _TABLE % "",
        _TABLE % "  validate_clusters: false\n",
        file="",
    ),
    Rule(
        "ttl-without-effect",
        Severity.NOTE,
        "A resource has a ttl where it comes by gRPC, to an Envoy whose bootstrap has xds.config.supports-resource-ttl in "
        "node.client_features (and xds.config.supports-resource-in-sotw, where it is not Delta).",
        "By REST and from files Envoy ignores a ttl; elsewhere it is told one only if it says that it understands it, which "
        "no Envoy does by itself.",
        "Remove the ttl, or serve by gRPC and announce the features.",
        "name: web\nttl: 5s\nresource: {...}\n",
        "name: web\nresource: {...}\n",
        file="",
    ),
)
