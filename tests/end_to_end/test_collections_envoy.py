"""Real Envoys and grpcio's xDS client that get structured names and collections from a real fsxds."""

from __future__ import annotations

import http.client
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.test_grpc_resolver import api_listener, call_until, located
from tests.end_to_end.test_removed_members import until_written
from tests.support.grpc_envoy import DELTA, DELTA_ADS, SOTW, SOTW_ADS, VARIANTS, Fleet, StreamingEnvoy, Variant
from tests.support.resources import cluster_route, direct_route, eds_cluster, endpoints, http_listener, static_cluster
from tests.support.server import Server
from tests.support.settings_files import file_flags
from tests.support.structured_names import following, structured
from tests.support.tcp_relay import Relay
from tests.support.xds_resolver import XdsCaller, backends

# A node whose names in collections have what Envoy does not encode.
NODE = {"id": "edge 1:a|b", "cluster": "c&d", "metadata": {"tier": "gold"}}
NODE_PARAMS = 'xds.node.cluster=c%26d&xds.node.id=edge 1:a|b&xds.node.metadata.tier="gold"'
CLUSTERS, LISTENERS = structured("Cluster", "edge/*"), structured("Listener", "edge/*")
MOVES = 10


def name(path: str) -> str:
    """Return the name of a cluster of the collection."""
    return structured("Cluster", f"edge/{path}")


def listener_name(path: str) -> str:
    """Return the name of a listener of the collection."""
    return structured("Listener", f"edge/{path}")


def assigned(cluster: str, service_name: str) -> str:
    """Return a cluster whose endpoints have a name of their own, as a list item."""
    (fields,) = yaml.safe_load(eds_cluster(cluster))
    fields["eds_cluster_config"]["service_name"] = service_name
    return yaml.safe_dump([fields], sort_keys=False)


@contextmanager
def envoy_of(fleet: Fleet, server: Server, address: str = "", **locators: Any) -> Iterator[StreamingEnvoy]:
    """Run an Envoy that asks for collections, at fsxds or at another address."""
    node = locators.pop("node", None)
    bootstrap = following(fleet.variant.bootstrap(address or str(server.ready["grpc"])), **locators)
    with StreamingEnvoy(bootstrap | ({"node": node} if node else {})) as envoy:
        yield envoy


@pytest.mark.parametrize("variant", [DELTA_ADS, DELTA, SOTW_ADS], ids=str)
def test_collections_are_followed(variant: Variant, tmp_path: Path) -> None:
    """Members come, change and go; what is not in the collection never arrives."""
    fleet = Fleet(tmp_path, variant)
    fleet.write("cds.yaml", static_cluster(name("a b")), static_cluster(name("b")), static_cluster("plain"))
    fleet.write("deep.cds.yaml", static_cluster(name("deep/x")), static_cluster(structured("Cluster", "other/x")))
    fleet.write("lds.yaml", http_listener(listener_name("web"), 0, "r"), http_listener("plain", 0, "r"))
    fleet.write("rds.yaml", direct_route("r", "hi"))
    with fleet.server() as server, envoy_of(fleet, server, clusters=CLUSTERS, listeners=LISTENERS) as envoy:
        envoy.until_clusters(name("a%20b"), name("b"))
        assert {listener_name("web")} == envoy.listener_names(dynamic_only=True)
        assert envoy.ask(listener_name("web")).body == "hi"
        fleet.write("cds.yaml", static_cluster(name("b"), 10), static_cluster(name("c")), static_cluster("plain"))
        envoy.until_clusters(name("b"), name("c"))
        envoy.until(lambda: envoy.endpoints(name("b")) == {"127.0.0.1:10"}, "the change")

        assert envoy.rejections() == {}
        assert server.log_events("nack_received") == []


def test_a_collection_of_the_parameters_of_the_node(tmp_path: Path) -> None:
    """What Envoy writes of its node into the collection's name chooses the variant that has the same parameters."""
    fleet = Fleet(tmp_path, DELTA_ADS)
    mine, others = f"{name('web')}?{NODE_PARAMS}", f"{name('web')}?{NODE_PARAMS.replace('gold', 'iron')}"
    fleet.write("cds.yaml", *(yaml.safe_dump([renamed(each)]) for each in (mine, others, name("web"))))
    params = ["id", "cluster", "metadata"]
    with (
        fleet.server() as server,
        envoy_of(fleet, server, clusters=CLUSTERS, node=NODE, node_params=params) as envoy,
    ):
        envoy.until(lambda: len(envoy.cluster_names(dynamic_only=True)) == 1, "one variant")
        (found,) = envoy.cluster_names(dynamic_only=True)
        assert "gold" in found
        fleet.write("cds.yaml", yaml.safe_dump([renamed(others)]))
        envoy.until_clusters()


def renamed(cluster: str) -> dict[str, Any]:
    """Return a cluster of a name that YAML would have to quote."""
    (fields,) = yaml.safe_load(static_cluster("x"))
    fields["name"] = cluster
    return dict(fields)


def test_what_is_removed_while_the_stream_is_down_is_removed(tmp_path: Path) -> None:
    """Envoy does not say what it holds of a collection: the server remembers, and says on the next stream what is gone."""
    fleet = Fleet(tmp_path, DELTA_ADS)
    fleet.write("cds.yaml", static_cluster(name("a")), static_cluster(name("b")))
    with (
        fleet.server() as server,
        Relay(server.grpc_port) as relay,
        envoy_of(fleet, server, relay.address, clusters=CLUSTERS) as envoy,
    ):
        envoy.until_clusters(name("a"), name("b"))
        relay.cut()
        envoy.until(lambda: not envoy.is_connected(), "the end of its stream")
        fleet.write("cds.yaml", static_cluster(name("b")), static_cluster(name("c")))
        server.wait(lambda: len(server.log_events("snapshot_published")) > 1, "the change")
        relay.is_cut = False
        envoy.until_clusters(name("b"), name("c"))


@pytest.mark.parametrize("has_state", [True, False], ids=["state", "names-alone"])
def test_what_is_removed_while_the_server_is_down_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_state: bool
) -> None:
    """That holds over a restart too, to all that come back, one after another; without `--state` by the names alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    fleet = Fleet(tmp_path, DELTA_ADS, *(["--state", str(tmp_path / "state")] if has_state else []))
    fleet.write("cds.yaml", static_cluster(name("a")), static_cluster(name("b")))
    with fleet.server() as server:
        address = str(server.ready["grpc"])
        with envoy_of(fleet, server, clusters=CLUSTERS) as first, envoy_of(fleet, server, clusters=CLUSTERS) as second:
            for envoy in (first, second):
                envoy.until_clusters(name("a"), name("b"))
            if not has_state:
                until_written(server, tmp_path / "home", "ab")
            server.kill()
            fleet.write("cds.yaml", static_cluster(name("b")))
            with fleet.server(address) as again:
                for envoy in (first, second):
                    envoy.until_clusters(name("b"))
                again.stop()
            fleet.write("cds.yaml", static_cluster(name("a")))
            with fleet.server(address):
                for envoy in (first, second):
                    envoy.until_clusters(name("a"))


def test_the_last_member_in_state_of_the_world(tmp_path: Path) -> None:
    """Envoy ignores a response without members, so the last one stays, and goes with the first that follows."""
    fleet = Fleet(tmp_path, SOTW_ADS)
    fleet.write("cds.yaml", static_cluster(name("a")))
    fleet.write("more.cds.yaml", static_cluster("plain"))
    with fleet.server() as server, envoy_of(fleet, server, clusters=CLUSTERS) as envoy:
        envoy.until_clusters(name("a"))
        fleet.write("cds.yaml", static_cluster("other"))
        server.wait(lambda: len(server.log_events("snapshot_published")) > 1, "the empty collection")
        fleet.write("cds.yaml", static_cluster(name("c")))
        envoy.until_clusters(name("c"))
        assert envoy.rejections() == {}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_singletons_by_structured_and_plain_names(variant: Variant, tmp_path: Path) -> None:
    """Endpoints and routes by both, on each kind of stream, with references in other spellings."""
    fleet = Fleet(tmp_path, variant)
    route = structured("RouteConfiguration", "r%20x?b=2&a=%7C")
    assignment = structured("ClusterLoadAssignment", "e 1:8|0?b=2&a=1")
    other_spelling = structured("ClusterLoadAssignment", "e%201%3a8%7c0?a=1&b=%32")
    fleet.write("cds.yaml", assigned("structured", other_spelling), eds_cluster("plain"))
    fleet.write("eds.yaml", endpoints(assignment, 1000), endpoints("plain", 1001))
    fleet.write("lds.yaml", http_listener("l1", 0, route.replace("%20", " ")), http_listener("l2", 0, "plain"))
    fleet.write("rds.yaml", direct_route(route, "structured"), direct_route("plain", "plain"))
    with fleet.running() as (server, envoy):
        envoy.until(lambda: envoy.endpoints("structured") == {"127.0.0.1:1000"}, "the structured endpoints")
        assert {"127.0.0.1:1001"} == envoy.endpoints("plain")
        assert ("structured", "plain") == (envoy.ask("l1").body, envoy.ask("l2").body)
        fleet.write("eds.yaml", endpoints(assignment, 2000), endpoints("plain", 1001))
        fleet.write("rds.yaml", direct_route(route, "changed"), direct_route("plain", "plain"))
        envoy.until(lambda: envoy.endpoints("structured") == {"127.0.0.1:2000"}, "the change of endpoints")
        envoy.until(lambda: envoy.ask("l1").body == "changed", "the change of routes")

        assert envoy.rejections() == {}
        assert server.log_events("nack_received") == []


@pytest.mark.parametrize("variant", [DELTA_ADS, SOTW], ids=str)
def test_a_portable_tree(variant: Variant, tmp_path: Path) -> None:
    """`xdstp:///…` in names and references gets the authority of the settings."""
    settings = tmp_path / "fsxds.yaml"
    settings.write_text("authority: example.com\n")
    fleet = Fleet(tmp_path, variant, "--settings", str(settings))
    own = structured("ClusterLoadAssignment", "e", "")
    fleet.write("cds.yaml", assigned("c", own))
    fleet.write("eds.yaml", endpoints(own, 1000))
    fleet.write("lds.yaml")
    with fleet.running() as (_, envoy):
        envoy.until(lambda: envoy.endpoints("c") == {"127.0.0.1:1000"}, "its endpoints")
        assert envoy.rejections() == {}


@pytest.mark.parametrize("variant", [DELTA_ADS, SOTW_ADS], ids=str)
def test_envoy_gets_what_a_redirect_leads_to(variant: Variant, tmp_path: Path) -> None:
    """Endpoints that redirect to others: their content, and each change of it, under the name that was asked for."""
    fleet = Fleet(tmp_path, variant)
    asked, target = (structured("ClusterLoadAssignment", path) for path in ("asked", "target"))
    locator = {
        "authority": "example.com",
        "resource_type": "envoy.config.endpoint.v3.ClusterLoadAssignment",
        "id": "target",
    }
    redirect = {
        "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
        "name": asked,
        "resource": {"@type": "type.googleapis.com/xds.core.v3.ResourceLocator", **locator},
    }
    fleet.write("cds.yaml", assigned("c", asked))
    fleet.write("redirects.yaml", yaml.safe_dump([redirect]))
    fleet.write("eds.yaml", endpoints(target, 1000))
    fleet.write("lds.yaml")
    with fleet.running() as (_, envoy):
        envoy.until(lambda: envoy.endpoints("c") == {"127.0.0.1:1000"}, "the target's endpoints")
        fleet.write("eds.yaml", endpoints(target, 2000))
        envoy.until(lambda: envoy.endpoints("c") == {"127.0.0.1:2000"}, "the target's change")
        assert envoy.rejections() == {}


@contextmanager
def load(port: int) -> Iterator[Counter[str]]:
    """Ask a port all the time; yield what came back, by its text, or why nothing did."""
    answers: Counter[str] = Counter()
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                connection.request("GET", "/")
                answers[connection.getresponse().read().decode()] += 1
            except OSError as error:
                answers[repr(error)] += 1
            finally:
                connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("variant", [DELTA_ADS, SOTW_ADS], ids=str)
def test_changing_collections_lose_no_request(variant: Variant, tmp_path: Path) -> None:
    """A cluster of a collection is replaced by another, with the route to it, under load: not one request fails."""
    fleet = Fleet(tmp_path, variant)
    route = structured("RouteConfiguration", "front")
    front, back = listener_name("front"), listener_name("back")
    fleet.write("lds.yaml", http_listener(front, 0, route), http_listener(back, 0, "back"))
    fleet.write("back.rds.yaml", direct_route("back", "fine"))
    # In SotW an empty collection would hold up the start (ENVOY.md E76).
    fleet.write("moving.yaml", direct_route(route, "not yet"), static_cluster(name("first")))
    with fleet.server() as server, envoy_of(fleet, server, clusters=CLUSTERS, listeners=LISTENERS) as envoy:
        port = envoy.listener_ports()[back]
        fleet.write("moving.yaml", static_cluster(name("c0"), port), cluster_route(route, name("c0")))
        envoy.until(lambda: envoy.ask(front).body == "fine", "the first cluster")
        with load(envoy.listener_ports()[front]) as answers:
            for number in range(1, MOVES):
                cluster = name(f"c{number}")
                fleet.write("moving.yaml", static_cluster(cluster, port), cluster_route(route, cluster))
                envoy.until_clusters(cluster)

        assert list(answers) == ["fine"]
        assert answers["fine"] > 50
        assert envoy.rejections() == {}


@pytest.mark.parametrize("authority", ["example.com", ""], ids=["authority", "no authority"])
def test_grpc_clients(authority: str, tmp_path: Path) -> None:
    """Grpcio's own client: all resources by structured names of an authority, or of none, in any spelling."""
    fleet = Fleet(tmp_path, SOTW_ADS)
    web, route = structured("Listener", "web:1|x", authority), structured("RouteConfiguration", "r 1", authority)
    cluster, assignment = structured("Cluster", "c", authority), structured("ClusterLoadAssignment", "e%7c", authority)
    more: dict[str, Any] = {"authorities": {"example.com": {}, "": {}}}
    more["client_default_listener_resource_name_template"] = f"xdstp://{authority}/{TYPE}/%s"
    with backends("one", "two") as (one, two):
        fleet.write("lds.yaml", api_listener(web, route))
        fleet.write("rds.yaml", cluster_route(route, cluster))
        fleet.write("cds.yaml", assigned(cluster, assignment))
        fleet.write("eds.yaml", located(assignment, one))
        with (
            fleet.server() as server,
            XdsCaller(f"xds://{authority}/web:1%7Cx", str(server.ready["grpc"]), tmp_path, more) as caller,
        ):
            call_until(caller, lambda answer: answer == "one")
            fleet.write("eds.yaml", located(assignment, two))
            call_until(caller, lambda answer: answer == "two")

            assert server.log_events("nack_received") == []


TYPE = "envoy.config.listener.v3.Listener"
TYPES = f"type.googleapis.com/{TYPE}"
FILTERS = "type.googleapis.com/envoy.extensions.filters.network"


LIST = structured("ListenerCollection", "edge")


def collection_of(*paths: str) -> str:
    """Return a list of listeners by reference, as a list item."""
    locators = [{"locator": {"authority": "example.com", "resource_type": TYPE, "id": path}} for path in paths]
    wrapper = {
        "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
        "name": LIST,
        "resource": {"@type": f"{TYPES}Collection", "entries": locators},
    }
    return yaml.safe_dump([wrapper], sort_keys=False)


def test_listeners_from_a_file_of_a_mirror(tmp_path: Path) -> None:
    """A list by reference in a mirrored file, `lds_resources_locator: file:///…`: listeners come, change and go."""
    mirror = tmp_path / "mirror"
    fleet = Fleet(tmp_path, DELTA_ADS, "--mirror", str(mirror))
    names = {word: listener_name(word) for word in ("a", "b")}
    fleet.write("lds.yaml", *(http_listener(each, 0, "r") for each in names.values()))
    fleet.write("lists.yaml", collection_of("edge/a", "edge/b"))
    fleet.write("rds.yaml", direct_route("r", "hi"))
    fleet.write("cds.yaml", static_cluster("plain"))
    with fleet.server() as server:
        (file,) = server.wait(lambda: [path for path in mirror.rglob("*edge*") if path.is_file()], "the file")
        bootstrap = following(fleet.bootstrap(server), listeners=f"file://{file}")
        del bootstrap["dynamic_resources"]["lds_config"]
        with StreamingEnvoy(bootstrap) as envoy:
            envoy.until(lambda: envoy.listener_names(dynamic_only=True) == set(names.values()), "both listeners")
            assert envoy.ask(names["a"]).body == "hi"
            fleet.write("lists.yaml", collection_of("edge/b"))
            envoy.until(lambda: envoy.listener_names(dynamic_only=True) == {names["b"]}, "the rest")
            assert envoy.rejections() == {}


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_files_of_one_resource_each(form: str, tmp_path: Path) -> None:
    """Of these Envoy reads lists, with their inline entries; any other one is an empty update, with success."""
    mirror = tmp_path / "mirror"
    options = "--mirror", str(mirror), "--mirror-format", form, *file_flags(mirror_layout="resources")
    fleet = Fleet(tmp_path, DELTA_ADS, *options)
    proxy = {"@type": f"{FILTERS}.tcp_proxy.v3.TcpProxy", "stat_prefix": "x", "cluster": "plain"}
    entry: dict[str, Any] = {
        "@type": TYPES,
        "name": listener_name("a"),
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{"name": "t", "typed_config": proxy}]}],
    }
    lists = yaml.safe_load(collection_of("edge/b"))
    lists[0]["resource"]["entries"].append({"inline_entry": {"name": "a", "resource": entry}})
    fleet.write("lists.yaml", yaml.safe_dump(lists))
    fleet.write("lds.yaml", http_listener(listener_name("b"), 0, "r"))
    fleet.write("rds.yaml", direct_route("r", "hi"))
    fleet.write("cds.yaml", static_cluster("plain"), eds_cluster("web"))
    fleet.write("eds.yaml", endpoints("web", 9))
    with fleet.server() as server:
        types = ("ListenerCollection", "Cluster", "ClusterLoadAssignment")
        server.wait(lambda: all(any(mirror.rglob(f"*.{of}/**/*.{form}")) for of in types), "the files")
        listed, clusters, assignments = (next(mirror.rglob(f"*.{of}/**/*.{form}")) for of in types)
        bootstrap = following(fleet.bootstrap(server), listeners=f"file://{listed}")
        del bootstrap["dynamic_resources"]["lds_config"]
        bootstrap["dynamic_resources"]["cds_config"] = path_source(clusters)
        (cluster,) = yaml.safe_load(eds_cluster("assigned"))
        del cluster["@type"]
        eds = {"service_name": "web", "eds_config": path_source(assignments)}
        bootstrap["static_resources"]["clusters"].append({**cluster, "eds_cluster_config": eds})
        with StreamingEnvoy(bootstrap) as envoy:
            assert envoy.listener_names(dynamic_only=True) == {listener_name("a")}
            assert (envoy.stat("cluster.assigned.update_empty"), envoy.endpoints("assigned")) == (1, set())
            assert envoy.stat("cluster_manager.cds.update_success") == 1
            assert envoy.cluster_names(dynamic_only=True) == set()
            assert envoy.rejections() == {}


def path_source(path: Path) -> dict[str, Any]:
    """Return the config source of a file."""
    return {"resource_api_version": "V3", "path_config_source": {"path": str(path)}}


PAGE = Path(__file__).parents[2] / "config" / "names"


def test_the_page(tmp_path: Path) -> None:
    """The tree, the settings and the bootstrap beside the page on names work as they stand, but for ports."""
    shutil.copytree(PAGE / "xds", tmp_path / "xds")
    web = tmp_path / "xds/listeners/web.yaml"
    web.write_text(web.read_text().replace("10000", "0"))
    with Server(tmp_path / "xds", tmp_path, "--settings", str(PAGE / "fsxds.yaml")) as server:
        text = (PAGE / "envoy.yaml").read_text().replace("port_value: 18000", f"port_value: {server.grpc_port}")
        with StreamingEnvoy(yaml.safe_load(text)) as envoy:
            envoy.until_clusters(name("shop"))
            envoy.until(lambda: envoy.endpoints(name("shop")) == {"127.0.0.1:8080"}, "its endpoints")
            assert {listener_name("web")} == envoy.listener_names(dynamic_only=True)
            assert envoy.rejections() == {}


def test_without_state_and_home_a_warning_says_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, when somebody asks for a collection that has members."""
    for variable in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(variable)
    fleet = Fleet(tmp_path, DELTA_ADS)
    fleet.write("cds.yaml", static_cluster(name("a")))
    with fleet.server() as server:
        for _ in range(2):
            with envoy_of(fleet, server, clusters=CLUSTERS) as envoy:
                envoy.until_clusters(name("a"))

        assert len(server.log_events("members_not_kept")) == 1
