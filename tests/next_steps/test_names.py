"""xRFC TP1, "Logical resource naming", "URI encoding", "Context parameters", "Singleton resource request"."""

from __future__ import annotations

from pathlib import Path

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from tests.next_steps.served_trees import AUTHORITY, post, served
from tests.support.follower import Follower
from tests.support.resources import endpoints, static_cluster
from tests.support.structured_names import structured, type_url

CLUSTERS, ENDPOINTS = type_url("Cluster"), type_url("ClusterLoadAssignment")
FOO = structured("ClusterLoadAssignment", "foo", AUTHORITY)


def test_a_singleton_is_answered_by_its_name() -> None:
    """One name, one resource, with a version."""
    with served({"eds.yaml": endpoints(FOO, 1)}) as server, Follower(server.grpc) as client:
        client.ask(ENDPOINTS, FOO).until_held(FOO)

        assert client.held[FOO].version


def test_structured_and_plain_names_beside_each_other() -> None:
    """Opaque names and structured ones are served on one stream."""
    tree = {"eds.yaml": endpoints(FOO, 1) + endpoints("foo", 2)}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(ENDPOINTS, "foo", FOO).until_held("foo", FOO)


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("foo/b%61r?b=2&a=1", "foo/bar?a=1&b=2"),
        ("foo/a b", "foo/a%20b"),
        ("foo/x?a=%31&b=x y", "foo/x?b=x%20y&a=1"),
    ],
)
def test_a_name_has_one_canonical_form(written: str, asked: str) -> None:
    """Name and URI have a canonical transform: each spelling is the same resource, and its body agrees."""
    name, other = (structured("ClusterLoadAssignment", path, AUTHORITY) for path in (written, asked))
    tree = {"eds.yaml": endpoints(name, 1)}
    with served(tree) as server, Follower(server.grpc) as first, Follower(server.grpc) as second:
        first.ask(ENDPOINTS, name).until(lambda: bool(first.held), "the resource by its own spelling")
        second.ask(ENDPOINTS, other).until(lambda: bool(second.held), "the resource by another spelling")
        (canonical,) = first.held

        assert set(second.held) == {canonical}
        assert first.held[canonical].version == second.held[canonical].version
        assert first.message(canonical, ClusterLoadAssignment).cluster_name == canonical


def test_the_type_is_a_part_of_the_name() -> None:
    """Types have namespaces of their own: one path may be that of resources of several."""
    cluster = structured("Cluster", "foo", AUTHORITY)
    tree = {"eds.yaml": endpoints(FOO, 1), "cds.yaml": static_cluster(cluster)}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(ENDPOINTS, FOO).until_held(FOO)
        client.ask(CLUSTERS, cluster).until_held(FOO, cluster)


def test_context_parameters_match_exactly() -> None:
    """All context parameters match, and there are no others on the matched resource."""
    paths = ("foo", "foo?some=thing", "foo?other=1&some=thing")
    names = [structured("ClusterLoadAssignment", path, AUTHORITY) for path in paths]
    tree = {"eds.yaml": "".join(endpoints(name, port) for port, name in enumerate(names, 1))}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(ENDPOINTS, names[1]).until_held(names[1])
        wrong = structured("ClusterLoadAssignment", "foo?some=other", AUTHORITY)
        client.ask(ENDPOINTS, wrong).until(lambda: wrong in client.removed, "that there is none")
        client.until_held(names[1])


@pytest.mark.parametrize("parameter", ["xds.node.id", "xds.client_feature.leds", "xds.resource.vhost_name"])
def test_variants_of_one_resource_by_parameters(parameter: str) -> None:
    """Parameters select variants: two clients that write other ones get other contents under other names."""
    names = [structured("Cluster", f"foo/web?{parameter}={value}", AUTHORITY) for value in ("a", "b")]
    globs = [structured("Cluster", f"foo/*?{parameter}={value}", AUTHORITY) for value in ("a", "b")]
    tree = {"cds.yaml": "".join(static_cluster(name, port) for port, name in enumerate(names, 1))}
    with served(tree) as server, Follower(server.grpc) as a, Follower(server.grpc) as b:
        a.ask(CLUSTERS, globs[0]).until_held(names[0])
        b.ask(CLUSTERS, globs[1]).until_held(names[1])

        assert a.message(names[0], Cluster).name == names[0]


def test_authority_is_optional_and_is_that_of_the_settings(tmp_path: Path) -> None:
    """`xdstp:///…` in a tree has the authority of the settings, so that a tree is portable."""
    tree = {"eds.yaml": endpoints(structured("ClusterLoadAssignment", "foo", ""), 1)}
    with served(tree, tmp_path, f"authority: {AUTHORITY}\n") as server, Follower(server.grpc) as client:
        client.ask(ENDPOINTS, FOO).until_held(FOO)

        assert client.message(FOO, ClusterLoadAssignment).cluster_name == FOO


@pytest.mark.parametrize(
    "name",
    [
        structured("Cluster", "foo", AUTHORITY),
        structured("ClusterLoadAssignment", "foo?a=constraint:x", AUTHORITY),
        FOO.replace("/envoy.", "/type.googleapis.com/envoy."),
        "xdstp://x",
    ],
    ids=["type", "reserved", "prefix", "malformed"],
)
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    """A name of another type, with a reserved value, with the prefix of type URLs, or malformed: refused alone, with the reason; 400 over HTTP."""
    with served({"eds.yaml": endpoints(FOO, 1)}) as server, Follower(server.grpc) as client:
        client.ask(ENDPOINTS, name, FOO).until(lambda: bool(client.refused), "that it is refused")
        client.until_held(FOO)

        assert (list(client.refused), client.removed) == ([name], [name])
        assert "; write" in client.refused[name]
        assert post(server, "endpoints", {"resource_names": [name]}).status == 400


def test_a_type_that_disagrees_is_a_problem_of_the_file() -> None:
    """The type is in the name: another one than the resource's is a problem."""
    with served({"cds.yaml": static_cluster("ok"), "eds.yaml": endpoints(structured("Cluster", "foo"), 1)}) as server:
        assert [problem.rule for problem in server.problems] == ["name-of-other-type"]
