"""xRFC TP1, "File transport"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener

from tests.next_steps.served_trees import AUTHORITY, served, wrapper
from tests.next_steps.test_collections import FOO, collection, inlined, listener, named
from tests.support.follower import Follower
from tests.support.resources import endpoints
from tests.support.server import Server, write_file
from tests.support.settings_files import file_flags
from tests.support.structured_names import structured, type_url

ENDPOINTS = type_url("ClusterLoadAssignment")
OLD = structured("ClusterLoadAssignment", "old", AUTHORITY)


def mirrored(mirror: Path) -> dict[str, Any]:
    """Return the content of the files of a mirror, by the names of the resources in them."""
    contents = (yaml.safe_load(path.read_text()) for path in mirror.rglob("*.yaml"))
    return {each["name"]: each for each in contents if isinstance(each, dict) and "name" in each}


def locator_of(tree: Path, uri: str) -> str:
    """Return a redirect to a file of a tree, as a list item."""
    path, _, directive = uri.partition("#")
    fields: dict[str, Any] = {"scheme": "FILE", "id": str(tree / path)}
    if directive:
        fields["directives"] = [{"entry": directive.partition("=")[2]}]
    return wrapper(OLD, "xds.core.v3.ResourceLocator", **fields)


def test_locators_of_files_within_the_tree(tmp_path: Path) -> None:
    """`file:///…` leads to the resource that a file has."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "eds.yaml").write_text(endpoints("new", 1001))
    (tree / "redirects.yaml").write_text(locator_of(tree, "eds.yaml"))
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(ENDPOINTS, OLD).until_held(OLD)

        assert client.message(OLD, ClusterLoadAssignment).cluster_name == OLD


@pytest.mark.parametrize("path", ["../outside.yaml", "link.yaml", "/etc/passwd", "sub/../../outside.yaml"])
def test_nothing_outside_of_the_tree(path: str, tmp_path: Path) -> None:
    """Directory traversal, the document's open question: refused, by links too."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "outside.yaml").write_text(endpoints("new", 1001))
    (tree / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    (tree / "redirects.yaml").write_text(locator_of(tree, path))
    (tree / "good.eds.yaml").write_text(endpoints("good", 1001))
    with served(tree) as server, Follower(server.grpc) as client:
        assert [] != [str(problem) for problem in server.problems if problem.path.name == "redirects.yaml"]
        client.ask(ENDPOINTS, OLD, "good").until_held("good")


def test_an_entry_of_a_file(tmp_path: Path) -> None:
    """`file:///…#entry=foo` leads to an entry of a list in a file."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "lists.yaml").write_text(collection(FOO, inlined(1001, name="a"), inlined(1002, name="b")))
    (tree / "lds.yaml").write_text(locator_of(tree, "lists.yaml#entry=b").replace(OLD, named("old")))
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(type_url("Listener"), named("old")).until_held(named("old"))

        assert client.message(named("old"), Listener).address.socket_address.port_value == 1002


def test_one_resource_in_each_file(tmp_path: Path) -> None:
    """`mirror_layout: resources`: each file is one `Resource`, with name, version and type; folders are globs."""
    tree, mirror = tmp_path / "tree", tmp_path / "mirror"
    bar, baz = named("my-listeners/bar"), named("my-listeners/baz")
    write_file(tree / "lds.yaml", listener(bar, 1001) + listener(baz, 1002))
    with Server(
        tree, tmp_path, "--mirror", str(mirror), *file_flags(mirror_layout="resources"), "--mirror-format", "yaml"
    ) as server:
        found = server.wait(lambda: {bar, baz} <= set(mirrored(mirror)) and mirrored(mirror), "both files")
        assert found[bar]["version"]
        assert found[bar]["resource"]["@type"] == type_url("Listener")
        assert {"my-listeners"} == {path.parent.name for path in mirror.rglob("*.yaml")}
        write_file(tree / "lds.yaml", listener(baz, 1003))
        server.wait(lambda: set(mirrored(mirror)) == {baz}, "the removal")
