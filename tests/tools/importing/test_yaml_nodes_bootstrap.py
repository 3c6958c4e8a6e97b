"""Resources in the words of their author: comments, quotes, order, and what anchors stand for."""

from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from tests.tools.importing.planning import TYPE, files_of, left_of, plan_of

COMMENTED = """\
# All about this file.

admin: {address: {pipe: {path: /a}}}   # the admin page
static_resources:
  clusters:   # upstreams
  # The first.
  - name: a   # its name
    connect_timeout: 1.50s
    # a last word on a
  # The second,
  # in two lines.
  -   type: 'STATIC'
      name: "b"
#  far left
  - {name: c,   # in flow
     type: STATIC}
# The end.
"""


def test_comments_go_with_what_they_are_about(catalogue: Catalogue) -> None:
    """A comment above a resource is in its file; one that is indented more belongs to what precedes it."""
    plan = plan_of(COMMENTED, catalogue)

    assert {
        "clusters/a.yaml": "# The first.\nname: a   # its name\nconnect_timeout: 1.50s\n# a last word on a\n",
        "clusters/b.yaml": "# The second,\n# in two lines.\ntype: 'STATIC'\nname: \"b\"\n",
        "clusters/c.yaml": "#  far left\n{name: c,   # in flow\n type: STATIC}\n# The end.\n",
    } == files_of(plan)
    assert plan.bootstrap.startswith(
        b"# All about this file.\n\nadmin: {address: {pipe: {path: /a}}}   # the admin page\n"
    )


def test_the_same_with_carriage_returns_and_a_mark(catalogue: Catalogue) -> None:
    """A file from Windows gives the same files."""
    content = b"\xef\xbb\xbf" + COMMENTED.replace("\n", "\r\n").encode()

    assert files_of(plan_of(COMMENTED, catalogue)) == files_of(plan_of(content, catalogue))


LUA = """\
static_resources:
  listeners:
  - name: lua
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": TYPE.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: a
          route_config: {name: r}
          http_filters:
          - name: lua
            typed_config:
              "@type": TYPE.extensions.filters.http.lua.v3.Lua
              default_source_code:
                inline_string: |
                  # no comment of YAML
                  function envoy_on_request(handle)

                      handle:logInfo("a: b # c")
                  end
          - {name: router, typed_config: {"@type": TYPE.extensions.filters.http.router.v3.Router}}
    address: {socket_address: {address: 127.0.0.1, port_value: 0x2710}}
"""


def test_blocks_of_text_keep_their_lines(catalogue: Catalogue) -> None:
    """Code in a block stays as it is, but for the indentation of all of it."""
    text = LUA.replace("TYPE", TYPE)
    (content,) = files_of(plan_of(text, catalogue)).values()

    assert text.partition("  - ")[2].replace("\n    ", "\n") == content


ANCHORS = """\
!ignore shared:
- &time 2s
- &tls   # the usual one
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": TYPE.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    sni: a
static_resources:
  clusters:
  - name: a
    connect_timeout: *time
    transport_socket: *tls
    load_assignment: &none {cluster_name: x, endpoints: []}
  - name: b
    load_assignment: *none   # none here
    connect_timeout: *time
    per_connection_buffer_limit_bytes: &limit 100
  - {name: c, transport_socket: *tls, per_connection_buffer_limit_bytes: *limit}
stats_flush_interval: *time
"""


def test_anchors_that_stay_behind_are_written_out(catalogue: Catalogue) -> None:
    """What an alias stands for is written where it is first used in each file, with its anchor."""
    plan = plan_of(ANCHORS.replace("TYPE", TYPE), catalogue)
    files = files_of(plan)

    assert (
        "connect_timeout: &time 2s\ntransport_socket: &tls   # the usual one\n  name: envoy" in files["clusters/a.yaml"]
    )
    assert "load_assignment: &none {cluster_name: x, endpoints: []}   # none here\n" in files["clusters/b.yaml"]
    assert "per_connection_buffer_limit_bytes: &limit 100}" in files["clusters/c.yaml"]
    assert "transport_socket: &tls {name: envoy.transport_sockets.tls, " in files["clusters/c.yaml"]
    assert "2s" == left_of(plan)["stats_flush_interval"]
    assert b"stats_flush_interval: &time 2s\n" in plan.bootstrap


@pytest.mark.parametrize("aliased", ["static_resources", "clusters", "member"])
def test_an_alias_for_a_whole_part(aliased: str, catalogue: Catalogue) -> None:
    """An alias may stand for all static resources, for a list of them, or for one."""
    text = {
        "static_resources": "!ignore a: &x {clusters: [{name: a}]}\nstatic_resources: *x\n",
        "clusters": "!ignore a: &x\n- name: a\nstatic_resources: {clusters: *x}\n",
        "member": "!ignore a: &x\n  name: a\nstatic_resources:\n  clusters:\n  - *x\n",
    }[aliased]
    plan = plan_of(text, catalogue)

    assert ["clusters/a.yaml"] == list(files_of(plan))
    assert () == tuple(note for note in plan.notes if "comments" in note)


def test_merge_keys_of_what_stays_are_resolved(catalogue: Catalogue) -> None:
    """Fsxds resolves `<<`, Envoy does not: a file of the tree may keep it, the bootstrap must not."""
    text = """\
static_resources:
  clusters:
  - {name: a, <<: &base {connect_timeout: 2s}}
  - name: sink
    <<: *base
stats_sinks:
- {name: s, typed_config: {"@type": TYPE.config.metrics.v3.StatsdSink, tcp_cluster_name: sink}}
"""
    plan = plan_of(text.replace("TYPE", TYPE), catalogue)

    assert "{name: a, <<: &base {connect_timeout: 2s}}\n" == files_of(plan)["clusters/a.yaml"]
    assert b"<<" not in plan.bootstrap
    assert {"name": "sink", "connect_timeout": "2s"} == left_of(plan)["static_resources"]["clusters"][1]


def test_only_the_first_document_counts(catalogue: Catalogue) -> None:
    """As for Envoy."""
    plan = plan_of("static_resources:\n  clusters:\n  - name: a\n---\nstatic_resources: {}\n", catalogue)

    assert {"clusters/a.yaml": "name: a\n"} == files_of(plan)


def test_what_stays_is_written_as_it_was(catalogue: Catalogue) -> None:
    """A cluster that has to stay keeps its comments, beside the one of fsxds."""
    text = """\
cluster_manager: {local_cluster_name: me}
static_resources:
  clusters:
  # Myself.
  - name: me   # this fleet
    type: STATIC
"""
    left = plan_of(text, catalogue).bootstrap.decode()

    assert "  # Myself.\n  - name: me   # this fleet\n    type: STATIC\n" in left


def test_a_node_with_an_anchor_gets_what_it_lacks(catalogue: Catalogue) -> None:
    """New keys stand where its own do, whatever is before them on the line of the node."""
    text = "node: &n   # mine\n    # who\n    id: a\nstatic_resources: {clusters: [{name: a}]}\n"

    assert b"node: &n   # mine\n    # who\n    id: a\n    cluster: envoy\n" in plan_of(text, catalogue).bootstrap
