"""Bootstraps of API v2 in the spellings of v3."""

from __future__ import annotations

from functools import cache

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.formats.yaml_format import read_yaml
from fsxds.source.envoy_api import find_api
from fsxds.tools.importing.upgrading import upgraded
from tests.support.envoy import validate
from tests.tools.importing.planning import TYPE

FRONT = """\
# A front proxy of 2019.
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.http_connection_manager
        config:   # all of HTTP
          stat_prefix: in
          route_config:
            name: local
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match:
                  regex: "/a/.*"   # RE2 takes it too
                route: {cluster: web, request_mirror_policy: {cluster: web}}
              - match: {prefix: "/", headers: [{name: a, regex_match: b+}]}
                route: {cluster: web}
          access_log:
          - name: envoy.file_access_log
            config: {path: /dev/null}
          http_filters:
          - name: envoy.cors
          - name: envoy.router
            config: {}
  clusters:
  - name: web
    connect_timeout: 0.25s
    type: static
    hosts:
    - socket_address:
        address: 127.0.0.1
        port_value: 80
    tls_context:
      # What it is called.
      sni: a.b
    drain_connections_on_host_removal: true
"""


@cache
def api() -> Catalogue:
    """Return what this Envoy knows."""
    return find_api(envoy=None, descriptors=None, cache_dir=None)


def upgrade(text: str) -> str:
    """Return a text in the spellings of v3, with the extensions that this Envoy has."""
    return upgraded(text, api()).text


def test_a_bootstrap_of_v2_is_accepted() -> None:
    """A real Envoy rejects it, and accepts what it is rewritten to; comments stay."""
    (before,) = read_yaml(FRONT).documents
    (after,) = read_yaml(upgrade(FRONT)).documents

    assert not validate(before.value)[0]  # type: ignore[union-attr,arg-type]  # YAML is plain
    assert (True, "") == (validate(after.value)[0], "")  # type: ignore[union-attr,arg-type]
    assert [line.partition("#")[2] for line in FRONT.splitlines() if "#" in line] == [
        line.partition("#")[2] for line in upgrade(FRONT).splitlines() if "#" in line
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- {name: a, hosts: [{pipe: {path: /a}}]}", "- {name: a, load_assignment: {cluster_name: a, endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: /a}}}}]}]}}"),
        ("- name: a\n  tls_context:\n    sni: a", f'- name: a\n  transport_socket:\n    name: envoy.transport_sockets.tls\n    typed_config:\n      "@type": {TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext\n      sni: a'),
        ("- drain_connections_on_host_removal: true # x", "- ignore_health_on_host_removal: true # x"),
        ("- {health_checks: [{http_health_check: {service_name: 'a b'}}]}", '- {health_checks: [{http_health_check: {service_name_matcher: {prefix: "a b"}}}]}'),
        (f"- transport_socket: {{typed_config: {{'@type': {TYPE}.api.v2.auth.UpstreamTlsContext}}}}", f"- transport_socket: {{typed_config: {{'@type': \"{TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext\"}}}}"),
    ],
)  # fmt: skip
def test_rewriting(before: str, after: str) -> None:
    """What a matter of spelling becomes, in the text."""
    head = "static_resources:\n  clusters:\n"

    assert _indented(head, after) == upgrade(_indented(head, before))


def _indented(head: str, text: str) -> str:
    return head + "".join(f"  {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "runtime: {symlink_root: /a}\n",
        "static_resources: {clusters: [{name: a, hosts: [], load_assignment: {}}]}\n",
        "static_resources: {clusters: [{name: a, tls_context: &x {}, transport_socket: {}}]}\n",
        "static_resources: {listeners: [{listener_filters: [{name: who.knows, config: {}}]}]}\n",
        "static_resources: [",
        "",
    ],
)
def test_what_needs_a_decision_stays(text: str) -> None:
    """What is set in both spellings, has no single successor, or is unknown, is left to be reported; so is what is no YAML."""
    assert text == upgrade(text)


def test_lines_are_those_of_the_original(catalogue: Catalogue) -> None:
    """Changes, and what is wrong still, are reported with the lines that the author knows."""
    found = upgraded(FRONT, catalogue)
    lines = FRONT.splitlines()

    for change in found.changes:
        before = change.before.rpartition('"')[0].rpartition('"')[2] or change.before
        assert before in lines[change.line - 1]
    for number, line in enumerate(found.text.splitlines()):
        if line.strip() in {one.strip() for one in lines}:
            assert line.strip() == lines[found.lines[number] - 1].strip()


def test_nothing_of_v3_is_touched() -> None:
    """A bootstrap of v3 stays as it is."""
    once = upgrade(FRONT)

    assert once == upgrade(once)
