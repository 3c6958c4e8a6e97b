"""The book's chapter on values that Envoy finds wrong only when it makes something of a resource."""

from __future__ import annotations

from fsxds.rules.rule import Rule
from fsxds.values import Severity

_REFUSES = "Envoy refuses the resource when it makes it, after other changes of the same update have taken effect."

_TCP = """\
  - filters:
    - name: tcp
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
        stat_prefix: tcp
        cluster: web
"""
_LISTENER = """\
- name: web
  address: {{socket_address: {{address: {address}, port_value: 8080}}}}
  filter_chains:
"""
_ECHO = """\
    - name: echo
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo
"""
_STRUCT = """\
  - filters:
    - name: tcp
      typed_config:
        "@type": type.googleapis.com/xds.type.v3.TypedStruct
        type_url: type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
        value: {{stat_prefix: tcp, cluster: web, max_connect_attempts: {attempts}}}
"""
_ROUTE = """\
- name: web
  virtual_hosts:
  - name: all
    domains: ["*"]
    routes:
    - match: {match}
      {action}
"""
_SOCKET = "transport_socket:\n    name: tls\n    typed_config:\n      "
_TLS_TYPE = '"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.'

RULES: tuple[Rule, ...] = (
    Rule(
        "wrong-address",
        Severity.ERROR,
        "Where no resolver is asked, an address is an IP address: in listeners, in sources, and in the endpoints of "
        "clusters that are not of a DNS type. The path of a socket has at most 107 bytes.",
        _REFUSES,
        "Write an IP address, or give the cluster the type STRICT_DNS or LOGICAL_DNS.",
        _LISTENER.format(address="localhost") + _TCP,
        _LISTENER.format(address="127.0.0.1") + _TCP,
        file="lds.yaml",
    ),
    Rule(
        "wrong-duration",
        Severity.ERROR,
        "A duration is not negative, and at most 292 years. The longest pause of a back-off is not below its first. A ttl is "
        "more than 0s.",
        _REFUSES,
        "Write a duration of at least 0s.",
        _ROUTE.format(match="{prefix: /}", action="route: {cluster: web, timeout: -1s}"),
        _ROUTE.format(match="{prefix: /}", action="route: {cluster: web, timeout: 0s}"),
        file="rds.yaml",
    ),
    Rule(
        "wrong-regex",
        Severity.ERROR,
        "A regular expression is one of RE2, which has no look-around and no back-references.",
        _REFUSES,
        "Write it in the syntax of RE2, https://github.com/google/re2/wiki/Syntax.",
        _ROUTE.format(match='{safe_regex: {regex: "/(?!admin).*"}}', action="route: {cluster: web}"),
        _ROUTE.format(match='{safe_regex: {regex: "/users/[0-9]+"}}', action="route: {cluster: web}"),
        file="rds.yaml",
    ),
    Rule(
        "large-regex",
        Severity.ERROR,
        "The program that RE2 makes of an expression is not larger than 100 steps, or what its max_program_size says.",
        "Envoy refuses it, unless re2.max_program_size.error_level in the bootstrap's runtime allows more.",
        "Match less at once, or set that runtime key and silence this rule.",
        _ROUTE.format(match='{safe_regex: {regex: "/[a-z]{200}"}}', action="route: {cluster: web}"),
        _ROUTE.format(match='{safe_regex: {regex: "/[a-z]{20}"}}', action="route: {cluster: web}"),
        file="rds.yaml",
    ),
    Rule(
        "wrong-substitution",
        Severity.WARNING,
        r"A substitution refers to groups that its pattern has: `\1` is the first; a backslash is written `\\`.",
        "Envoy accepts it, and then rewrites nothing.",
        "Correct the number, or add the group to the pattern.",
        _ROUTE.format(
            match="{prefix: /}",
            action=r'route: {cluster: web, regex_rewrite: {pattern: {regex: "^/v1/(.*)"}, substitution: "/\\2"}}',
        ),
        _ROUTE.format(
            match="{prefix: /}",
            action=r'route: {cluster: web, regex_rewrite: {pattern: {regex: "^/v1/(.*)"}, substitution: "/\\1"}}',
        ),
        file="rds.yaml",
    ),
    Rule(
        "duplicate-domain",
        Severity.ERROR,
        "A domain belongs to one virtual host of a route configuration, its own ones and those that it discovers taken "
        "together; letter case does not count. No other of those that are discovered has it in its name either.",
        _REFUSES,
        "Let one virtual host have the domain.",
        "- name: web\n  virtual_hosts:\n  - {name: one, domains: [example.com]}\n  - {name: two, domains: [Example.com]}\n",
        "- name: web\n  virtual_hosts:\n  - {name: one, domains: [example.com]}\n  - {name: two, domains: [example.org]}\n",
        file="rds.yaml",
    ),
    Rule(
        "wrong-route",
        Severity.ERROR,
        "The parts of a route fit one another: one way to rewrite a path, a weight for each weighted cluster, one "
        "source of the cluster's name, a direct response of at most 4096 bytes.",
        _REFUSES,
        "Keep one of the parts that cannot stand together, or add the one that is missing.",
        _ROUTE.format(
            match="{prefix: /}",
            action="route: {cluster: web, prefix_rewrite: /v2, regex_rewrite: {pattern: {regex: a}, substitution: b}}",
        ),
        _ROUTE.format(match="{prefix: /}", action="route: {cluster: web, prefix_rewrite: /v2}"),
        file="rds.yaml",
    ),
    Rule(
        "wrong-path-template",
        Severity.ERROR,
        "A path template begins with a slash and has at most 5 variables, each named once; a rewrite uses only those.",
        _REFUSES,
        'Write it such as "/users/{id}/*".',
        _ROUTE.format(
            match="\n        path_match_policy:\n          name: template\n          typed_config:\n"
            '            "@type": type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig\n'
            "            path_template: /{id}/{id}",
            action="route: {cluster: web}",
        ),
        _ROUTE.format(
            match="\n        path_match_policy:\n          name: template\n          typed_config:\n"
            '            "@type": type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig\n'
            "            path_template: /{user}/{id}",
            action="route: {cluster: web}",
        ),
        file="rds.yaml",
    ),
    Rule(
        "wrong-header",
        Severity.ERROR,
        "Headers that begin with a colon, and the host, are not added, changed or removed as others are.",
        _REFUSES,
        "Use prefix_rewrite, host_rewrite_literal and their like.",
        "- name: web\n  request_headers_to_add:\n  - {header: {key: Host, value: example.com}}\n",
        "- name: web\n  request_headers_to_add:\n  - {header: {key: x-host, value: example.com}}\n",
        file="rds.yaml",
    ),
    Rule(
        "wrong-format-string",
        Severity.ERROR,
        "A percent sign begins a command of Envoy's format strings, in access logs as in the values of headers. "
        "A plain percent sign is written twice.",
        _REFUSES,
        'Write "%%" for a percent sign; commands are listed in Envoy\'s documentation of access logs.',
        '- name: web\n  response_headers_to_add:\n  - {header: {key: x-share, value: "100%"}}\n',
        '- name: web\n  response_headers_to_add:\n  - {header: {key: x-share, value: "100%%"}}\n',
        file="rds.yaml",
    ),
    Rule(
        "cluster-type",
        Severity.ERROR,
        "The fields of a cluster fit its type: eds_cluster_config belongs to EDS and is needed there, ORIGINAL_DST has "
        "no endpoints and the policy CLUSTER_PROVIDED, LOGICAL_DNS has one endpoint.",
        _REFUSES,
        "Change the type, or the fields.",
        "- name: web\n  type: EDS\n",
        "- name: web\n  type: EDS\n  eds_cluster_config: {eds_config: {ads: {}}}\n",
    ),
    Rule(
        "wrong-cluster",
        Severity.ERROR,
        "The parts of a cluster fit one another: sizes of rings and tables, keys of subsets, times of ejection, "
        "sources, what stands beside load_balancing_policy.",
        _REFUSES,
        "Follow the message: it says which part does not fit.",
        "- name: web\n  lb_policy: MAGLEV\n  maglev_lb_config: {table_size: 100}\n",
        "- name: web\n  lb_policy: MAGLEV\n  maglev_lb_config: {table_size: 101}\n",
    ),
    Rule(
        "wrong-config-source",
        Severity.ERROR,
        "A config source says in one way where resources come from: REST names one cluster and a refresh_delay of at "
        "least 1 ms, gRPC has one grpc_services. A collection of endpoints is named "
        "xdstp://authority/envoy.config.endpoint.v3.LbEndpoint/name/*.",
        "Envoy refuses the resource; of a refresh_delay below 1 ms, or a secret's source without a cluster, it dies.",
        "Follow the message.",
        "- name: web\n  type: EDS\n  eds_cluster_config:\n    eds_config:\n      api_config_source: {api_type: REST, "
        "transport_api_version: V3, cluster_names: [xds]}\n",
        "- name: web\n  type: EDS\n  eds_cluster_config:\n    eds_config:\n      api_config_source: {api_type: REST, "
        "transport_api_version: V3, cluster_names: [xds], refresh_delay: 0.1s}\n",
    ),
    Rule(
        "wrong-listener",
        Severity.ERROR,
        "A listener has addresses of one protocol, or is internal.",
        _REFUSES,
        "Write a listener for each protocol.",
        _LISTENER.format(address="127.0.0.1").replace("  filter_chains:\n", "")
        + "  additional_addresses:\n  - address: {socket_address: {address: 127.0.0.1, port_value: 8080, protocol: UDP}}\n"
        + "  filter_chains:\n"
        + _TCP,
        _LISTENER.format(address="127.0.0.1") + _TCP,
        file="lds.yaml",
    ),
    Rule(
        "filter-chain",
        Severity.ERROR,
        "A TCP listener has filter chains, each for connections of its own; a UDP listener without QUIC has none. "
        'Server names are whole, or begin with "*.".',
        _REFUSES,
        "Let each filter chain match something of its own.",
        _LISTENER.format(address="127.0.0.1") + _TCP + _TCP,
        _LISTENER.format(address="127.0.0.1") + _TCP,
        file="lds.yaml",
    ),
    Rule(
        "filter-order",
        Severity.ERROR,
        "The last filter of a chain answers, such as the router among HTTP filters, and no other does.",
        _REFUSES,
        "Move the filter that answers to the end, and keep one.",
        _LISTENER.format(address="127.0.0.1") + _TCP + _ECHO,
        _LISTENER.format(address="127.0.0.1") + _TCP,
        file="lds.yaml",
    ),
    Rule(
        "wrong-extension",
        Severity.ERROR,
        'An extension is configured by a typed_config whose "@type" is made for the place; the name alone does not do.',
        _REFUSES,
        "Write the type that belongs there, such as UpstreamTlsContext in a cluster.",
        f"- name: web\n  {_SOCKET}{_TLS_TYPE}DownstreamTlsContext\n      require_client_certificate: false\n",
        f"- name: web\n  {_SOCKET}{_TLS_TYPE}UpstreamTlsContext\n      sni: example.com\n",
    ),
    Rule(
        "wrong-typed-struct",
        Severity.ERROR,
        "The value of a TypedStruct is one of the message that its type_url names.",
        _REFUSES,
        "Correct the value as the message of that type wants it.",
        _LISTENER.format(address="127.0.0.1") + _STRUCT.format(attempts="many"),
        _LISTENER.format(address="127.0.0.1") + _STRUCT.format(attempts="3"),
        file="lds.yaml",
    ),
    Rule(
        "wrong-filter",
        Severity.ERROR,
        "The settings of a filter fit one another: rules refer to providers that exist, intervals are long enough, "
        "what excludes itself does not stand together.",
        _REFUSES,
        "Follow the message.",
        '- name: limit\n  typed_config:\n    "@type": '
        "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit\n"
        "    stat_prefix: limit\n    token_bucket: {max_tokens: 10, fill_interval: 0.01s}\n",
        '- name: limit\n  typed_config:\n    "@type": '
        "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit\n"
        "    stat_prefix: limit\n    token_bucket: {max_tokens: 50, fill_interval: 0.05s}\n",
        file="ecds.yaml",
    ),
    Rule(
        "wrong-health-check",
        Severity.ERROR,
        "A health check can be made: payloads are hex, ranges of statuses go upwards from 100 to 600, gRPC needs "
        "HTTP/2, names are used once.",
        _REFUSES,
        "Follow the message.",
        "- name: web\n  health_checks:\n  - {timeout: 1s, interval: 5s, unhealthy_threshold: 1, healthy_threshold: 1, "
        "tcp_health_check: {send: {text: ping}}}\n",
        "- name: web\n  health_checks:\n  - {timeout: 1s, interval: 5s, unhealthy_threshold: 1, healthy_threshold: 1, "
        "tcp_health_check: {send: {text: 70696e67}}}\n".replace("70696e67", '"70696e67"'),
    ),
    Rule(
        "wrong-tls",
        Severity.ERROR,
        "The parts of a TLS context fit one another: a server has a certificate, a client at most one, names are "
        "verified only with a trusted CA, ciphers and curves are known.",
        "Envoy refuses the resource; secrets of one, when they arrive.",
        "Follow the message.",
        f"- name: web\n  {_SOCKET}{_TLS_TYPE}UpstreamTlsContext\n"
        "      common_tls_context: {tls_params: {cipher_suites: [TLS_AES_128_GCM_SHA256]}}\n",
        f"- name: web\n  {_SOCKET}{_TLS_TYPE}UpstreamTlsContext\n"
        "      common_tls_context: {tls_params: {cipher_suites: [ECDHE-RSA-AES128-GCM-SHA256]}}\n",
    ),
    Rule(
        "empty-secret",
        Severity.WARNING,
        "A secret has a content: a certificate, a validation context, session ticket keys or a generic secret.",
        "Envoy takes it when it is discovered, and nothing that needs it works; in a bootstrap it is refused.",
        "Add the content.",
        "- name: web\n",
        "- name: web\n  generic_secret: {secret: {filename: /etc/envoy/token}}\n",
        file="sds.yaml",
    ),
    Rule(
        "wrong-certificate",
        Severity.ERROR,
        "A certificate has its chain and its private key, both in PEM, of a kind that Envoy knows: RSA from 2048 bits, "
        "ECDSA on P-256, P-384 or P-521. An encrypted key has its password beside it.",
        "Envoy refuses the resource; a secret, when it arrives.",
        "Write the whole certificate and the whole key.",
        "- name: web\n  tls_certificate: {certificate_chain: {filename: /etc/envoy/web.pem}}\n",
        "- name: web\n  tls_certificate: {certificate_chain: {filename: /etc/envoy/web.pem}, "
        "private_key: {filename: /etc/envoy/web.key}}\n",
        file="sds.yaml",
    ),
    Rule(
        "key-mismatch",
        Severity.ERROR,
        "A private key is the one that the first certificate of its chain was made with. "
        "It takes the package cryptography to see it: pip install 'fsxds[certificates]'.",
        "Envoy refuses the secret: key values mismatch.",
        "Put the pair that belongs together into the file, the leaf first in the chain.",
        "",
        "",
        file="",
    ),
)
