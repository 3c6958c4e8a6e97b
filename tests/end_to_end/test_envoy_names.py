"""What real clients make of structured names and collections, by a server that answers as told: facts of fsxds/ENVOY.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.config_source_pb2 import AggregatedConfigSource, ApiVersion, ConfigSource
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from xds.core.v3.resource_locator_pb2 import ResourceLocator
from xds.core.v3.resource_name_pb2 import ResourceName

from tests.support.envoy_admin import EnvoyError
from tests.support.grpc_envoy import DELTA, DELTA_ADS, SOTW, SOTW_ADS, StreamingEnvoy, Variant
from tests.support.resources import endpoints, static_cluster
from tests.support.scripted_streams import Request, ScriptedStreams, names_of, packed, resource
from tests.support.structured_names import TYPES, following, message, structured, type_url
from tests.support.xds_resolver import XdsCaller

Fields = dict[str, Any]
CLUSTERS, ENDPOINTS = type_url("Cluster"), type_url("ClusterLoadAssignment")
GLOB = structured("Cluster", "foo/*")
NODE = {"id": "n 1:a|b%c+d&e=f?g#h/é", "cluster": "c", "metadata": {"k": "v", "n": 42, "list": [1, 2]}}


def cluster(name: str, service: str = "") -> Cluster:
    """Return a cluster; with `service`, one that asks for these endpoints on the aggregated stream."""
    made: Cluster = message(static_cluster("x"), Cluster)
    made.name = name
    if service:
        made.ClearField("load_assignment")
        made.type = Cluster.EDS
        source = ConfigSource(ads=AggregatedConfigSource(), resource_api_version=ApiVersion.V3)
        made.eds_cluster_config.CopyFrom(Cluster.EdsClusterConfig(eds_config=source, service_name=service))
    return made


def assignment(name: str, port: int = 9) -> ClusterLoadAssignment:
    """Return endpoints of this name."""
    made: ClusterLoadAssignment = message(endpoints("x", port), ClusterLoadAssignment)
    made.cluster_name = name
    return made


def clusters(*names: str) -> Fields:
    """Return the fields of a Delta response with clusters under their own names."""
    return {"resources": [resource(name, cluster(name)) for name in names]}


def first_of(answers: dict[str, Callable[[Request], Fields]]) -> Callable[[Request], Fields | None]:
    """Answer the first request for each type, and each for further names."""
    seen = set[str]()

    def answer(request: Request) -> Fields | None:
        is_new = request.type_url not in seen or (request.type_url == ENDPOINTS and not request.response_nonce)
        seen.add(request.type_url)
        make = answers.get(request.type_url)
        return make(request) if make and is_new else None

    return answer


@contextmanager
def asking(
    server: ScriptedStreams, variant: Variant = DELTA_ADS, glob: str = GLOB, node: Any = None, **more: Any
) -> Iterator[StreamingEnvoy]:
    """Run an Envoy that asks the server for a collection of clusters, and wait until that was answered."""
    bootstrap = following(variant.bootstrap(f"127.0.0.1:{server.port}"), clusters=glob, **more)
    del bootstrap["dynamic_resources"]["lds_config"]
    with StreamingEnvoy(bootstrap | ({"node": node} if node else {}), wait="admin") as envoy:
        yield envoy


def asked(server: ScriptedStreams, type_url: str = CLUSTERS) -> list[list[str]]:
    """Return the names of each request that asked for some."""
    return [names for request in server.requests if request.type_url == type_url and (names := names_of(request))]


def test_how_envoy_writes_the_names_of_collections() -> None:
    """Sorted parameters, those of the node in JSON under those of the name; only what would end a part of a URI is encoded."""
    with (
        ScriptedStreams(lambda _: None) as server,
        asking(
            server,
            glob=f"{GLOB}?z=1&a=x y&xds.node.cluster=other",
            node=NODE,
            node_params=["metadata", "id", "cluster"],
        ) as envoy,
    ):
        envoy.until(server.requests.copy, "a request")
        node_id = "n 1:a|b%25c+d%26e%3Df?g%23h/%C3%A9"
        metadata = 'xds.node.metadata.k="v"&xds.node.metadata.list=%5B1,2%5D&xds.node.metadata.n=42'

        assert [[f"{GLOB}?a=x y&xds.node.cluster=other&xds.node.id={node_id}&{metadata}&z=1"]] == asked(server)


def test_which_members_envoy_takes() -> None:
    """Members are matched as decoded: one directory deep, with all parameters, whatever their spelling; others are ignored."""
    glob = structured("Cluster", "foo/*?a=1&b=x y")
    good = ("foo/m?a=1&b=x y", "foo/%6D%3A%7C?b=x%20y&a=%31", "f%6Fo/n?a=1&b=x%20y")
    bad = (
        "foo/o",
        "foo/p?a=1",
        "foo/q?a=1&b=x y&c=1",
        "foo/deep/r?a=1&b=x y",
        "foo/s%2Ft?a=1&b=x y",
        "bar/u?a=1&b=x y",
    )
    names = [structured("Cluster", path) for path in (*good, *bad)]
    others = [structured("Cluster", good[0], "EXAMPLE.com"), structured("Cluster", good[0]).replace("xdstp", "udpa")]
    with (
        ScriptedStreams(first_of({CLUSTERS: lambda _: clusters(*names, *others, "plain")})) as server,
        asking(server, glob=glob) as envoy,
    ):
        envoy.until_clusters(*names[: len(good)])

        assert [] == server.rejections()


def test_a_member_goes_by_the_very_name_that_it_came_by() -> None:
    """In another spelling, or by the name of a cluster that is another one than its resource's, nothing is removed."""
    spaced, plain = structured("Cluster", "foo/a b"), structured("Cluster", "foo/c")
    answer = {"resources": [resource(spaced, cluster(spaced)), resource(plain, cluster("other"))]}
    with ScriptedStreams(first_of({CLUSTERS: lambda _: answer})) as server, asking(server) as envoy:
        envoy.until_clusters(spaced, "other")
        server.send(CLUSTERS, removed_resources=[structured("Cluster", "foo/a%20b"), plain, "other"])
        server.send(CLUSTERS, **clusters(structured("Cluster", "foo/last")))
        envoy.until_clusters(spaced, "other", structured("Cluster", "foo/last"))
        server.send(CLUSTERS, removed_resources=[spaced, structured("Cluster", "foo/nobody-knows")])
        envoy.until_clusters("other", structured("Cluster", "foo/last"))


def test_envoy_does_not_say_which_members_it_holds() -> None:
    """On a new stream it names the collection alone; what was removed meanwhile goes only when it is told so."""
    names = [structured("Cluster", f"foo/{letter}") for letter in "abc"]
    answers = iter([clusters(*names[:2]), clusters(names[2])])
    with (
        ScriptedStreams(lambda request: None if request.response_nonce else next(answers)) as server,
        asking(server) as envoy,
    ):
        envoy.until_clusters(*names[:2])
        server.end_streams()
        envoy.until_clusters(*names)
        again = [request for request in server.requests if names_of(request)]
        assert [[GLOB], [GLOB]] == [names_of(request) for request in again]
        assert [{}, {}] == [dict(request.initial_resource_versions) for request in again]
        server.send(CLUSTERS, removed_resources=[names[0]])
        envoy.until_clusters(*names[1:])


def test_a_state_of_the_world_collection() -> None:
    """In SotW a member that lacks is removed, foreign ones are ignored, and an empty response changes nothing."""
    names = [structured("Cluster", f"foo/{letter}") for letter in "abc"]

    def world(version: str, *names: str) -> Fields:
        return {"version_info": version, "resources": [packed(cluster(name)) for name in names]}

    with (
        ScriptedStreams(first_of({CLUSTERS: lambda _: world("1", *names[:2])}), delta=False) as server,
        asking(server, SOTW_ADS) as envoy,
    ):
        envoy.until_clusters(*names[:2])
        server.send(CLUSTERS, **world("2", names[1], "plain", structured("Cluster", "bar/x")))
        envoy.until_clusters(names[1])
        server.send(CLUSTERS, **world("3"))
        envoy.until(lambda: server.requests[-1].version_info == "3", "the ACK of nothing")
        assert {names[1]} == envoy.cluster_names(dynamic_only=True)
        server.send(CLUSTERS, **world("4", names[2]))
        envoy.until_clusters(names[2])

        assert [] == server.rejections()


def test_an_empty_state_of_the_world_collection_holds_up_the_start() -> None:
    """Envoy ACKs it, and goes on waiting for its `initial_fetch_timeout`."""
    empty = {"version_info": "1"}
    with (
        ScriptedStreams(first_of({CLUSTERS: lambda _: empty}), delta=False) as server,
        asking(server, SOTW_ADS) as envoy,
    ):
        envoy.until(lambda: any(request.version_info == "1" for request in server.requests), "the ACK")

        assert envoy.server_info()["state"] == "PRE_INITIALIZING"


@pytest.mark.parametrize("variant", [DELTA_ADS, SOTW_ADS], ids=str)
def test_how_envoy_asks_for_endpoints_by_a_structured_name(variant: Variant) -> None:
    """It asks in its own spelling, beside plain names, and wants in the body the reference as it was written."""
    written = [structured("ClusterLoadAssignment", path) for path in ("a%20b?x=1&y=%7C", "c")] + ["plain"]
    asked_for = [structured("ClusterLoadAssignment", path) for path in ("a b?x=1&y=|", "c")] + ["plain"]
    named = {f"cluster-{number}": cluster(f"cluster-{number}", name) for number, name in enumerate(written)}

    def answer(messages: dict[str, Any]) -> Fields:
        if variant.delta:
            return {"resources": [resource(name, each) for name, each in messages.items()]}
        return {"version_info": "1", "resources": [packed(each) for each in messages.values()]}

    answers = {CLUSTERS: lambda _: answer(named), ENDPOINTS: lambda _: answer({n: assignment(n) for n in written})}
    with (
        ScriptedStreams(first_of(answers), delta=variant.delta) as server,
        asking(server, variant, glob="", node_params=["id"]) as envoy,
    ):
        envoy.until_clusters(*named)
        assert sorted(asked_for) == sorted(asked(server, ENDPOINTS)[0])
        envoy.until(lambda: all(envoy.endpoints(name) for name in named), "all endpoints")
        assert [] == server.rejections()
        spaced = assignment(asked_for[0])
        server.send(ENDPOINTS, **answer({asked_for[0]: spaced, written[1]: assignment(written[1])}))
        envoy.until(server.rejections, "a rejection")
        assert f"Unexpected EDS cluster (expecting {written[0]})" in server.rejections()[0]


@pytest.mark.parametrize("payload", [ResourceLocator, ResourceName], ids=lambda payload: payload.__name__)
def test_a_redirect_rejects_the_whole_response(payload: Any) -> None:
    """Envoy follows no redirect: it rejects all that came with one."""
    redirect = payload(authority="example.com", resource_type=TYPES["Cluster"], id="bar")
    answer = {
        "resources": [resource(structured("Cluster", "foo/a"), redirect), *clusters(GLOB[:-1] + "b")["resources"]]
    }
    with ScriptedStreams(first_of({CLUSTERS: lambda _: answer})) as server, asking(server) as envoy:
        envoy.until(server.rejections, "a rejection")

        assert "does not match the message-wide type URL" in server.rejections()[0]
        assert set() == envoy.cluster_names(dynamic_only=True)


def test_directives_are_a_part_of_the_path() -> None:
    """Envoy resolves no alternative: it asks for a name that nobody has."""
    written = structured("ClusterLoadAssignment", "a")
    alternative = f"{written}#alt={structured('ClusterLoadAssignment', 'b')}"
    answer = {"resources": [resource("web", cluster("web", alternative))]}
    with ScriptedStreams(first_of({CLUSTERS: lambda _: answer})) as server, asking(server, glob="") as envoy:
        envoy.until(lambda: asked(server, ENDPOINTS), "a request for endpoints")

        assert [[alternative.replace("#", "%23")]] == asked(server, ENDPOINTS)


@pytest.mark.parametrize(
    ("variant", "locators", "reason"),
    [
        (DELTA_ADS, {"listeners": structured("ListenerCollection", "foo")}, "type does not match"),
        (DELTA_ADS, {"clusters": GLOB.replace("xdstp", "udpa")}, "xdstp"),
        (SOTW, {"clusters": GLOB}, "Unknown xdstp:// transport API type"),
    ],
    ids=["list-collection", "udpa", "sotw-per-type"],
)
def test_collections_with_which_envoy_does_not_start(variant: Variant, locators: dict[str, str], reason: str) -> None:
    """No list collection over gRPC, no old scheme, and SotW on the aggregated stream alone."""
    envoy = StreamingEnvoy(following(variant.bootstrap("127.0.0.1:1"), **locators))
    with pytest.raises(EnvoyError, match=f"Envoy exited(.|\n)*{reason}"):
        envoy.start()
    envoy.stop()


def test_a_delta_source_of_its_own_has_collections() -> None:
    """DELTA_GRPC, one stream for each subscription."""
    name = structured("Cluster", "foo/a")
    with ScriptedStreams(first_of({CLUSTERS: lambda _: clusters(name)})) as server, asking(server, DELTA) as envoy:
        envoy.until_clusters(name)


@pytest.mark.parametrize(
    ("target", "authorities", "template", "name"),
    [
        ("xds://a/w:|x y".replace(" ", "%20"), {"a": {}}, "", f"xdstp://a/{TYPES['Listener']}/w:%7Cx%20y"),
        ("xds:///web", {"": {}}, "xdstp:///TYPE/%s?b=2&a=1", f"xdstp:/{TYPES['Listener']}/web?a=1&b=2"),
    ],
    ids=["authority", "no authority"],
)
def test_how_grpc_asks(target: str, authorities: Fields, template: str, name: str, tmp_path: Path) -> None:
    """Grpcio sorts and encodes as RFC 3986 has it, and writes a name without an authority with one slash."""
    more: Fields = {"authorities": authorities}
    if template:
        more["client_default_listener_resource_name_template"] = template.replace("TYPE", TYPES["Listener"])

    def refused(_: Request) -> Fields:
        return {"version_info": "1", "resources": [packed(Listener(name=name))]}

    with (
        ScriptedStreams(first_of({type_url("Listener"): refused}), delta=False) as server,
        XdsCaller(target, f"127.0.0.1:{server.port}", tmp_path, more) as caller,
    ):
        # The call ends at once, because the listener is none for calls.
        assert "UNAVAILABLE" in caller.call()
        assert [name] == asked(server, type_url("Listener"))[0]
