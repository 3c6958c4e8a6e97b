"""A server of tests that holds what a change would break."""

from __future__ import annotations

from fsxds.testing import serve

CLUSTERS = "- {name: web, type: STATIC, connect_timeout: 1s}\n- {name: api, type: STATIC, connect_timeout: 1s}\n"
ROUTES = """\
- name: edge
  virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: CLUSTER}}]}]
"""


def test_what_is_held_is_served_as_it_was() -> None:
    """The names and versions are those that clients get; the problems say what is held, until that is over."""
    with serve({"cds.yaml": CLUSTERS, "rds.yaml": ROUTES.replace("CLUSTER", "web")}) as server:
        before = server.versions
        server.write("rds.yaml", ROUTES.replace("CLUSTER", "new"))
        assert server.versions == before
        assert {"undefined-name", "no-cluster"} <= {problem.rule for problem in server.problems}

        server.write("cds.yaml", CLUSTERS.replace("api", "new"))
        server.wait_for(lambda: "undefined-name" not in {problem.rule for problem in server.problems})
        assert server.names("cds") == ("new", "web")
        assert server.versions["rds"] != before["rds"]


def test_a_removed_cluster_in_use() -> None:
    """It is served until nothing names it."""
    with serve({"cds.yaml": CLUSTERS, "rds.yaml": ROUTES.replace("CLUSTER", "web")}) as server:
        server.write("cds.yaml", CLUSTERS.partition("\n")[2])
        assert server.names("cds") == ("api", "web")
        assert "removed-in-use" in {problem.rule for problem in server.problems}

        server.write("rds.yaml", ROUTES.replace("CLUSTER", "api"))
        server.wait_for(lambda: server.names("cds") == ("api",))
        assert server.problems == ()
