"""The book's chapter on fields: the constraints that Envoy's API states of its own fields."""

from __future__ import annotations

from fsxds.rules.rule import Rule
from fsxds.values import Severity

_WEB = "- name: web\n  type: STATIC\n"
_REFUSES = "Envoy refuses the whole update: `Proto constraint validation failed"


def _headers(names: str) -> str:
    return f"- name: web\n  request_headers_to_remove: {names}\n"


def _routes(route: str) -> str:
    return f"- name: web\n  virtual_hosts:\n  - name: all\n    domains: ['*']\n    routes:\n    - {route}\n"


def _health_check(http: str) -> str:
    times = "timeout: 1s, interval: 5s, unhealthy_threshold: 2, healthy_threshold: 1"
    return f"{_WEB}  health_checks:\n  - {{{times}, http_health_check: {{path: /, {http}}}}}\n"


def _endpoints(weight: int) -> str:
    address = "{socket_address: {address: 10.0.0.1, port_value: 80}}"
    return (
        "- cluster_name: web\n  endpoints:\n  - lb_endpoints:\n"
        f"    - endpoint: {{address: {address}}}\n      load_balancing_weight: {weight}\n"
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "required-field",
        Severity.ERROR,
        "A field that the API calls required is set.",
        f"{_REFUSES} (… HealthCheckValidationError.Timeout: value is required)`.",
        "Set the field.",
        f"{_WEB}  health_checks:\n  - {{interval: 5s, unhealthy_threshold: 2, healthy_threshold: 1, "
        "tcp_health_check: {}}\n",
        f"{_WEB}  health_checks:\n  - {{timeout: 1s, interval: 5s, unhealthy_threshold: 2, healthy_threshold: 1, "
        "tcp_health_check: {}}\n",
    ),
    Rule(
        "required-choice",
        Severity.ERROR,
        "Of fields that exclude one another, of which the API requires one, one is set.",
        f'{_REFUSES} (… field: "action", reason: is required)`.',
        "Set exactly one of the fields that the message lists.",
        _routes("match: {prefix: /}"),
        _routes("{match: {prefix: /}, direct_response: {status: 404}}"),
        file="rds.yaml",
    ),
    Rule(
        "out-of-range",
        Severity.ERROR,
        "A number or a duration is within the bounds of its field.",
        f"{_REFUSES} (… LbEndpointValidationError.LoadBalancingWeight: value must be greater than or equal to 1)`.",
        "Write a value within the bounds that the message names.",
        _endpoints(0),
        _endpoints(1),
        file="eds.yaml",
    ),
    Rule(
        "wrong-length",
        Severity.ERROR,
        "A text or bytes are as long as their field allows. A text that is left out counts as empty.",
        f"{_REFUSES} (… ClusterValidationError.Name: value length must be at least 1 characters)`.",
        "Give the field a value of a length that the message names.",
        "- name: web\n  type: EDS\n  eds_cluster_config: {eds_config: {path_config_source: {path: ''}}}\n",
        "- name: web\n  type: EDS\n  eds_cluster_config: {eds_config: {ads: {}}}\n",
    ),
    Rule(
        "wrong-pattern",
        Severity.ERROR,
        "A text has the form that its field demands: a regular expression, a beginning, an end, or what may stand "
        "in an HTTP header.",
        f"{_REFUSES} (… value does not match regex pattern …)`.",
        "Write the text in that form.",
        _headers('["x-a\\nb"]'),
        _headers('["x-a"]'),
        file="rds.yaml",
    ),
    Rule(
        "not-allowed",
        Severity.ERROR,
        "A value is among those that its field takes, or not among those that it refuses.",
        f"{_REFUSES} (… value must not be in list …)`, or `… value must equal …`.",
        "Write one of the values that the field takes.",
        _health_check("method: CONNECT"),
        _health_check("method: GET"),
    ),
    Rule(
        "undefined-enum-value",
        Severity.ERROR,
        "A number given for an enum is that of one of its values.",
        f"{_REFUSES} (… ClusterValidationError.LbPolicy: value must be one of the defined enum values)`.",
        "Write the name of a value that the enum has.",
        f"{_WEB}  lb_policy: 17\n",
        f"{_WEB}  lb_policy: LEAST_REQUEST\n",
    ),
    Rule(
        "wrong-count",
        Severity.ERROR,
        "A list or a map has as many elements as its field allows.",
        f"{_REFUSES} (… VirtualHostValidationError.Domains: value must contain at least 1 item(s))`.",
        "Add elements, or remove some.",
        "- name: web\n  virtual_hosts:\n  - {name: all}\n",
        "- name: web\n  virtual_hosts:\n  - {name: all, domains: ['*']}\n",
        file="rds.yaml",
    ),
    Rule(
        "not-unique",
        Severity.ERROR,
        "No element stands twice in a list whose elements the API wants to differ.",
        f"{_REFUSES} (… repeated value must contain unique items)`.",
        "Remove the one that was there before.",
        _routes(
            "{match: {prefix: /}, route: {cluster: web, internal_redirect_policy: "
            "{response_headers_to_copy: [x-a, x-a]}}}"
        ),
        _routes(
            "{match: {prefix: /}, route: {cluster: web, internal_redirect_policy: {response_headers_to_copy: [x-a]}}}"
        ),
        file="rds.yaml",
    ),
    Rule(
        "disallowed-field",
        Severity.ERROR,
        "Fields and values that the API still has, but that are out of use, do not stand in a file. Some are the "
        "default: then another value has to be written. Those that are only deprecated are no matter.",
        "Envoy refuses the whole update: `Using deprecated option …` or `Using the default now-deprecated value …`; "
        "the runtime can be told to allow it.",
        "Remove the field, or write another value.",
        "- name: web\n  type: EDS\n  eds_cluster_config:\n    eds_config:\n      api_config_source:\n"
        "        transport_api_version: V3\n        grpc_services: [{envoy_grpc: {cluster_name: xds}}]\n",
        "- name: web\n  type: EDS\n  eds_cluster_config: {eds_config: {ads: {}}}\n",
    ),
)
