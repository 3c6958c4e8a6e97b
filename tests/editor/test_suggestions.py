"""What is suggested, by the place."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.editor.suggestions import Completion, Suggestion
from fsxds.snapshots.references import CLUSTER, ENDPOINTS, ROUTES, SECRET
from tests.editor.trees import placed

NAMES = {CLUSTER: ["api", "web"], ROUTES: ["main"], SECRET: ["cert"], ENDPOINTS: ["eps"]}
HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
MODULE = "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter"
LISTENER = f"""\
- name: a
  filter_chains:
  - filters:
    - name: hcm
      typed_config:
        "@type": {HCM}
"""


def suggest(catalogue: Catalogue, name: str, text: str) -> dict[str, Suggestion]:
    """Return what is suggested at the cursor, by its label, in the order that editors show."""
    clean, index = placed(text)
    found = Completion(catalogue).suggest(clean, index, PurePosixPath(name), NAMES).found
    return {one.label: one for one in sorted(found, key=lambda one: (one.rank, one.label))}


def applied(catalogue: Catalogue, name: str, text: str, label: str) -> str:
    """Return the text after a suggestion was taken."""
    clean, index = placed(text)
    suggestions = Completion(catalogue).suggest(clean, index, PurePosixPath(name), NAMES)
    (one,) = [one for one in suggestions.found if one.label == label]
    start, end = suggestions.span
    return clean[:start] + (one.snippet or one.text) + clean[end:]


@pytest.mark.parametrize(
    ("name", "text", "expected", "unexpected"),
    [
        ("cds.yaml", "- name: a\n  lb⌖", {"lb_policy", "connect_timeout"}, {"name", "lbPolicy", "virtual_hosts"}),
        ("cds.yaml", "- name: a\n  ⌖\n  type: EDS\n", {"lb_policy"}, {"name", "type", "cluster_type"}),
        ("cds.yaml", "- ⌖", {"name", "lb_policy", "@type"}, {"resources"}),
        ("cds.yaml", "⌖", {"resources", "name"}, set()),
        ("cds.yaml", "resources:\n- ⌖", {"name", "@type"}, {"resources"}),
        ("cds.yaml", "- name: a\n  lb_policy: R⌖", {"ROUND_ROBIN", "RANDOM"}, {"ORIGINAL_DST_LB"}),
        ("cds.yaml", "- {name: a, lb⌖", {"lb_policy"}, {"name"}),
        ("cds.yaml", "- name: a\n- ci⌖\n    thresholds: []\n  name: b\n", {"circuit_breakers"}, {"resources", "name"}),
        ("cds.yaml", "- name: a\n  load_assignment:\n    ⌖", {"cluster_name", "endpoints"}, {"name"}),
        ("cds.yaml", "- name: a\n  load_assignment:\n    endpoints:\n    - ⌖", {"lb_endpoints"}, {"name"}),
        ("cds.yaml", "- name: a\n  ignore_health_on_host_removal: ⌖", {"true", "false"}, set()),
        ("cds.yaml", "- name: a\n  loadAssignment: {}\n  ⌖", {"lbPolicy"}, {"lb_policy", "loadAssignment"}),
        ("cds.json", '[{"name": "a", "lb⌖"', {"lb_policy"}, {"name"}),
        ("cds.yaml", "kind: Layer\n⌖", {"delete", "patch"}, {"resources", "name", "@type"}),
        ("x.yaml", "kind: Layer\npatch:\n  ⌖", {"clusters", "routes"}, {"name", "delete"}),
        ("x.yaml", "kind: Layer\npatch:\n  clusters:\n    web:\n      ⌖", {"connect_timeout"}, {"virtual_hosts"}),
        ("x.yaml", "kind: Layer\npatch:\n  cds:\n    web:\n      lb_policy: R⌖", {"RANDOM"}, set()),
        ("x.yaml", "kind: Layer\ndelete:\n  clusters:\n  - ⌖", set(), {"connect_timeout", "@type"}),
        ("cds.json", '[{"name": "a", "lb_policy": "⌖', {"ROUND_ROBIN"}, set()),
        ("rds.yaml", "- name: a\n  virtual_hosts:\n  - routes:\n    - route: {cluster: ⌖}", {"api", "web"}, {"main"}),
        ("rds.yaml", "- name: a\n  virtual_hosts:\n  - routes:\n    - route:\n        cluster: w⌖\n      x: [", {"web"}, set()),
        ("rds.json", '{"virtual_hosts": [{"routes": [{"route": {"cluster": "⌖"}}]}]}', {"web"}, {"main"}),
        ("cds.yaml", "- name: a\n  type: EDS\n  eds_cluster_config: {service_name: ⌖}", {"eps"}, {"web"}),
        ("lds.yaml", LISTENER + "        rds: {route_config_name: ⌖}", {"main"}, {"web"}),
        ("lds.yaml", LISTENER + "        ⌖", {"route_config", "stat_prefix"}, {"name"}),
        ("x.yaml", "- ⌖", {"@type"}, {"name"}),
        ("x.yaml", "a: # ⌖", set(), {"name"}),
        ("cds.yaml", "- name: |\n    ⌖", set(), {"name"}),
        ("cds.yaml", "- nonsense:\n    ⌖", set(), {"name"}),
    ],
)  # fmt: skip
def test_places(catalogue: Catalogue, name: str, text: str, expected: set[str], unexpected: set[str]) -> None:
    """Fields, values and names are those that the place has, in texts that are being typed."""
    found = suggest(catalogue, name, text).keys()

    assert expected <= found
    assert not unexpected & found


@pytest.mark.parametrize(
    ("name", "text", "expected", "unexpected"),
    [
        ("x.yaml", '- "@type": ⌖', "envoy.config.cluster.v3.Cluster", "HttpConnectionManager"),
        ("lds.yaml", LISTENER.rpartition(HCM)[0] + "⌖", "HttpConnectionManager", "v3.Router"),
        ("lds.yaml", LISTENER + '        http_filters: [{typed_config: {"@type": ⌖', "router.v3.Router", "TcpProxy"),
        ("cds.yaml", '- transport_socket: {typed_config: {"@type": "⌖', "UpstreamTlsContext", "DownstreamTlsContext"),
        (
            "rds.yaml",
            '- virtual_hosts: [{typed_per_filter_config: {a: {"@type": ⌖',
            "CorsPolicy",
            "cors.v3.Cors",
        ),
        ("cds.yaml", '- typed_extension_protocol_options: {a: {"@type": ⌖', "HttpProtocolOptions", "v3.Router"),
        ("lds.yaml", '- listener_filters: [{typed_config: {"@type": ⌖', "TlsInspector", "v3.Router"),
        (
            "lds.yaml",
            LISTENER + f'        http_filters: [{{typed_config: {{"@type": {MODULE}, filter_config: {{"@type": ⌖',
            "google.protobuf.StringValue",
            "no such type",
        ),
    ],
)
def test_types_fit_the_place(catalogue: Catalogue, name: str, text: str, expected: str, unexpected: str) -> None:
    """An `@type` is one of the category of extensions that belongs there."""
    found = suggest(catalogue, name, text)

    assert any(label.endswith(expected) for label in found)
    assert not any(label.endswith(unexpected) for label in found)


def test_names_of_extensions(catalogue: Catalogue) -> None:
    """The name of an extension is one of its category."""
    found = suggest(catalogue, "lds.yaml", LISTENER + "        http_filters:\n        - name: ⌖")

    assert "envoy.filters.http.router" in found
    assert "envoy.filters.network.tcp_proxy" not in found


@pytest.mark.parametrize(
    ("name", "text", "label", "expected"),
    [
        ("cds.yaml", "- name: a\n  lb⌖", "lb_policy", "- name: a\n  lb_policy: "),
        ("cds.yaml", "- name: a\n  lb⌖: RANDOM", "lb_policy", "- name: a\n  lb_policy: RANDOM"),
        ("cds.yaml", "- name: a\n  lb_policy: R⌖ND", "RANDOM", "- name: a\n  lb_policy: RANDOM"),
        ("cds.json", '[{"n⌖"}]', "name", '[{"name"}]'),
        ("cds.json", "[{n⌖}]", "name", '[{"name": }]'),
        ("cds.yaml", "- ⌖", "load_assignment", "- load_assignment:\n    cluster_name: $1"),
        ("cds.yaml", "- name: a\n  trans⌖", "transport_socket", '- name: a\n  transport_socket:\n    name: $1\n    typed_config:\n      "@type": $2'),
        ("rds.yaml", "- ⌖", "virtual_hosts", "- virtual_hosts:\n  - name: $1"),
        ("cds.yaml", "⌖", "resources", "resources:\n- "),
        ("cds.yaml", "- @t⌖", "@type", '- "@type": '),
        ("cds.yaml", "- {⌖}", "load_assignment", "- {load_assignment: {$0}}"),
    ],
)  # fmt: skip
def test_edits(catalogue: Catalogue, name: str, text: str, label: str, expected: str) -> None:
    """What is taken replaces the word, in the form of the file, with what is required in it."""
    assert re.sub(r"\$\{\d:(\w+)\}", r"\1", applied(catalogue, name, text, label)) == expected


def test_required_fields_come_first(catalogue: Catalogue) -> None:
    """What must be there is at the top, what is out of use at the bottom."""
    found = list(suggest(catalogue, "rds.yaml", "- name: a\n  virtual_hosts:\n  - ⌖").values())

    assert {found[0].label, found[1].label} == {"name", "domains"}


def test_no_values_of_the_text_are_suggested(catalogue: Catalogue) -> None:
    """Nothing that the file holds is suggested, so that no secret is."""
    text = "- name: a\n  tls_certificate:\n    private_key: {inline_string: hunter2}\n- name: b\n  ⌖"

    assert not any("hunter2" in repr(one) for one in suggest(catalogue, "secrets.yaml", text).values())
