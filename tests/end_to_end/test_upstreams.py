"""What files and upstreams have together: precedence, references, views, and a tree that comes to depend on upstreams."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from envoy.config.listener.v3.listener_pb2 import ListenerCollection

from fsxds.cli.main import main
from fsxds.history.state_directory import DATABASE
from fsxds.model.values import Severity
from fsxds.settings.options import Settings
from fsxds.settings.reading import read_settings
from fsxds.settings.upstream_rules import Authority
from fsxds.testing import serve
from fsxds.testing.server import SETTLE_S, Server
from tests.end_to_end.test_collections_envoy import collection_of
from tests.support.follower import Follower
from tests.support.own_address import own_address
from tests.support.server import Server as Relay
from tests.support.settings_files import read_file
from tests.support.structured_names import structured, type_url

CLUSTER = "[{name: web, type: STATIC, connect_timeout: 1s}]"
ROUTES = """\
- name: main
  virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: NAME}}]}]
"""


def settings(**others: object) -> Settings:
    """Return settings for tests."""
    return replace(read_settings({}), settle_s=SETTLE_S, **others)  # type: ignore[arg-type]


def errors(server: Server) -> list[str]:
    """Return the rules that are broken by errors and warnings."""
    return [problem.rule for problem in server.problems if problem.severity in {Severity.ERROR, Severity.WARNING}]


def test_files_go_before_upstreams_and_these_by_their_order() -> None:
    """What several have is served of the first; what goes comes back from the next."""
    with (
        serve({"cds.yaml": CLUSTER.replace("1s", "2s")}) as first,
        serve({"cds.yaml": f"{CLUSTER[:-1].replace('1s', '3s')}, {CLUSTER[1:].replace('web', 'api')}"}) as second,
        serve({"cds.yaml": CLUSTER, "lds.yaml": "[]"}, upstream=[first.grpc, second.grpc]) as relay,
    ):
        relay.wait_for(lambda: relay.names("cds") == ("api", "web"))
        assert origin(relay) == "cds.yaml"
        relay.wait_log("cds web (of cds.yaml:1)")
        both = {f"upstream {first.grpc}", f"upstream {second.grpc}"}
        relay.wait_for(lambda: both == {str(each.path) for each in relay.problems if each.rule == "shadowed-upstream"})

        relay.write("cds.yaml", "[]")
        relay.wait_for(lambda: origin(relay) == f"upstream {first.grpc}")
        first.write("cds.yaml", "[]")
        relay.wait_for(lambda: origin(relay) == f"upstream {second.grpc}")
        relay.wait_for(lambda: not any(problem.rule == "shadowed-upstream" for problem in relay.problems))


def origin(server: Server) -> str:
    """Return from where the cluster `web` is."""
    rows = server.snapshot.resources(next(url for url in server.snapshot.by_type if url.endswith(".Cluster")))
    return str(rows["web"].origin.path) if "web" in rows else ""


def test_files_may_name_what_an_upstream_has() -> None:
    """A reference to it is no mistake; when it goes, it is one, and what was served stays, with what it names."""
    with (
        serve({"cds.yaml": CLUSTER}) as top,
        serve({"cds.yaml": "[{name: own, type: STATIC, connect_timeout: 1s}]"}, upstream=top.grpc) as relay,
    ):
        relay.wait_for(lambda: relay.names("cds") == ("own", "web"))

        relay.write("rds.yaml", ROUTES.replace("NAME", "web"))
        assert (("main",), []) == (relay.names("rds"), errors(relay))

        top.write("cds.yaml", CLUSTER.replace("web", "api"))
        relay.wait_for(lambda: sorted(errors(relay)) == ["no-cluster", "removed-in-use"])
        assert (relay.names("cds"), relay.names("rds")) == (("api", "own", "web"), ("main",))

        top.write("cds.yaml", CLUSTER)
        relay.wait_for(lambda: errors(relay) == [])
        assert relay.names("cds") == ("own", "web")


def test_a_file_that_names_what_nobody_has_is_held_until_an_upstream_has_it() -> None:
    """Where the upstream said all that it has, a typo is found at once, as without one; a new cluster there lets the file in."""
    with (
        serve({"cds.yaml": CLUSTER}) as top,
        serve({"cds.yaml": "[{name: own, type: STATIC, connect_timeout: 1s}]"}, upstream=top.grpc) as relay,
    ):
        relay.wait_for(lambda: relay.names("cds") == ("own", "web"))

        relay.write("rds.yaml", ROUTES.replace("NAME", "late") + "  validate_clusters: true\n")
        assert ((), ["no-cluster"]) == (relay.names("rds"), errors(relay))

        top.write("cds.yaml", CLUSTER.replace("web", "late"))
        relay.wait_for(lambda: relay.names("rds") == ("main",) and not errors(relay))


@pytest.mark.parametrize("names", ["all", "asked"])
def test_what_files_need_is_asked_for(names: str) -> None:
    """Of a type that upstreams are not asked for as a whole, they are asked for what files name."""
    endpoints = "[{cluster_name: web, endpoints: []}, {cluster_name: other, endpoints: []}]"
    cluster = "[{name: web, type: EDS, connect_timeout: 1s, eds_cluster_config: {eds_config: {ads: {}}}}]"
    with (
        serve({"eds.yaml": endpoints}) as top,
        serve({"cds.yaml": cluster}, upstream=top.grpc, settings=settings(upstream_names=names)) as relay,
    ):
        relay.wait_for(lambda: relay.names("eds") == ("web",))
        assert errors(relay) == []


def test_a_redirect_in_a_file_leads_to_what_an_upstream_has() -> None:
    """Its target is asked for by its name at the upstream of its authority, and served under the name of the redirect."""
    name = "xdstp://east/envoy.config.cluster.v3.Cluster/web"
    redirect = f'[{{name: here, resource_name: {{name: "{name}"}}}}]'
    with serve({"cds.yaml": CLUSTER.replace("name: web", f'name: "{name}"')}) as top:
        authorities = {"east": Authority("", (top.grpc,))}
        with serve({"cds.yaml": redirect}, settings=settings(authorities=authorities)) as relay:
            relay.wait_for(lambda: set(relay.names("cds")) == {"here", name})
            relay.wait_for(lambda: errors(relay) == [])
            top.write("cds.yaml", CLUSTER.replace("name: web", f'name: "{name}"').replace("1s", "4s"))
            relay.wait_for(lambda: timeout_polled(relay, "any") == "4s")


def test_while_an_upstream_is_away_it_may_have_anything(tmp_path: Path) -> None:
    """What files name is no mistake before the upstream said what it has."""
    nobody = f"unix:{tmp_path / 'nobody.sock'}"
    with serve({"rds.yaml": ROUTES.replace("NAME", "web"), "cds.yaml": "[]"}, upstream=nobody) as relay:
        assert (("main",), []) == (relay.names("rds"), errors(relay))
    with serve({"rds.yaml": ROUTES.replace("NAME", "web"), "cds.yaml": "[]"}) as alone:
        assert errors(alone) == ["no-cluster"]


def test_commands_take_what_upstreams_may_have_for_no_mistake(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A check asks no server; with an upstream in the settings, what files name may be there."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "rds.yaml").write_text(ROUTES.replace("NAME", "late") + "  validate_clusters: true\n")
    (tmp_path / "tree" / "cds.yaml").write_text("[]")
    (tmp_path / "fsxds.yaml").write_text("upstream: [10.0.0.1:18000]\n")
    check = ["check", str(tmp_path / "tree"), "--no-envoy"]

    assert main([*check, "--settings", str(tmp_path / "fsxds.yaml")]) == 0
    assert "no-cluster" not in capfd.readouterr().out
    assert main(check) == 1


def test_upstreams_are_below_every_view(tmp_path: Path) -> None:
    """Each view has what upstreams have, and a layer replaces it for its own nodes."""
    text = "views: [{name: east, match: {id: east}, layers: [common, east]}, {name: all, layers: [common]}]\n"
    tree = {"common/eds.yaml": "[]", "east/cds.yaml": CLUSTER}
    with (
        serve({"cds.yaml": CLUSTER.replace("1s", "2s")}) as top,
        serve(
            tree, upstream=top.grpc, settings=replace(read_file(tmp_path, text), settle_s=SETTLE_S, cache_dir=None)
        ) as relay,
    ):
        assert {"east": "1s", "west": "2s"} == {node: timeout_polled(relay, node) for node in ("east", "west")}
        top.write("cds.yaml", CLUSTER.replace("1s", "3s"))
        relay.wait_for(lambda: timeout_polled(relay, "west") == "3s")
        assert timeout_polled(relay, "east") == "1s"


def timeout_polled(server: Server, node: str) -> str:
    """Return how long the cluster `web` waits, as a node is told."""
    body = json.dumps({"node": {"id": node}}).encode()
    request = Request(f"{server.http}/v3/discovery:clusters", body, {"content-type": "application/json"})
    with urlopen(request, timeout=30) as response:
        return str(json.load(response)["resources"][0]["connect_timeout"])


SECRET_USER = """\
- name: web
  type: STATIC
  connect_timeout: 1s
  transport_socket:
    name: envoy.transport_sockets.tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
      common_tls_context:
        tls_certificate_sds_secret_configs: [{name: mine, sds_config: {ads: {}, resource_api_version: V3}}]
"""


@pytest.mark.skipif(own_address() is None, reason="this machine has a loopback address alone; give it another")
def test_a_secret_of_an_upstream_ends_no_restart(tmp_path: Path) -> None:
    """A relay that other machines reach in clear keeps it from them; it starts again with it, which a tree of its own may not.

    It ended when the secret was kept, but not yet that it is served.
    """
    secret = "[{name: mine, generic_secret: {secret: {inline_string: hunter2}}}]"
    state = tmp_path / "state"
    with serve({"cds.yaml": SECRET_USER}) as top:
        flags = ("--upstream", top.grpc, "--state", str(state))
        relay = Relay(None, tmp_path, *flags, http="0.0.0.0:0")
        with relay:
            relay.wait(lambda: "web" in names_kept(state) and rows_kept(state, "rollouts"), "the cluster to be kept")
        rollouts = rows_kept(state, "rollouts")
        top.write("sds.yaml", secret)
        with relay:
            relay.wait(lambda: "mine" in names_kept(state), "the secret to be kept")
    with closing(sqlite3.connect(state / DATABASE)) as connection, connection:
        connection.executemany("UPDATE rollouts SET snapshots = ?2, facts = ?3 WHERE channel = ?1", rollouts)
    relay.start()
    relay.wait(lambda: relay.ready["versions"].get("sds") or not relay.is_running, "secrets to be served")
    status = polled_by_stranger(relay)
    # Where it ended by itself, it is not by SIGTERM.
    assert (relay.stop(), status) == (0, 403)
    assert b"hunter2" not in relay.log_file.read_bytes()


def names_kept(state: Path) -> set[str]:
    """Return the names of what a relay has on the disk."""
    return {row[2] for row in rows_kept(state, "held_resources")}


def rows_kept(state: Path, table: str) -> list[tuple[str, ...]]:
    """Return the rows of a table that a relay has on the disk."""
    path = state / DATABASE
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def polled_by_stranger(relay: Relay) -> int:
    """Return the status that another machine gets for the secret, here by an address of this one that is not loopback."""
    body = json.dumps({"node": {"id": "n"}, "resource_names": ["mine"]}).encode()
    url = f"http://{own_address()}:{relay.port}/v3/discovery:secrets"
    try:
        with urlopen(Request(url, body, {"content-type": "application/json"}), timeout=30) as response:
            return int(response.status)
    except HTTPError as error:
        error.close()
        return error.code


@pytest.mark.parametrize("wire", ["grpc", "http"])
def test_list_collections_are_relayed_on_each_wire(wire: str) -> None:
    """A client gets a list collection of an upstream, its changes and its end; polls have none, so it is read by GET."""
    name, bare = structured("ListenerCollection", "edge"), structured("ListenerCollection", "none")
    tree = {"lds.yaml": "resources: []", "cds.yaml": CLUSTER, "lcds.yaml": collection_of("edge/a")}
    with (
        serve(tree) as top,
        serve(upstream=getattr(top, wire)) as relay,
        Follower(relay.grpc) as client,
    ):
        client.ask(type_url("ListenerCollection"), name, bare).until_held(name)
        client.until(lambda: bare in client.removed, "the answer that there is none")
        assert client.message(name, ListenerCollection).entries[0].locator.id == "edge/a"

        top.write("lcds.yaml", collection_of("edge/a", "edge/b"))
        client.until(lambda: len(client.message(name, ListenerCollection).entries) == 2, "the change")
        top.write("lcds.yaml", "resources: []")
        client.until_held()
