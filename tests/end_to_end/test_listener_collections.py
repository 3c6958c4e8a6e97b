"""A real Envoy that reads a list collection of listeners from a file (ENVOY.md E79, E80)."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fsxds.envoy.envoy_bootstrap import read_collection, with_lists
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.transports.mirror.files import FORMS, path_of
from fsxds.transports.mirror.writer import Mirror, MirrorOptions
from tests.support.envoy import Envoy
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_ports
from tests.support.this_envoy import this_envoy
from tests.transports.mirror.test_layout_inlining import NAME, collection, inline, locator, named
from tests.transports.mirroring import Plain, listener, snapshot, url

LDS = "listener_manager.lds"
COLLECTION = BY_SHORT_NAME["lcds"]


def text(version: str, *entries: Plain) -> str:
    """The file of a collection."""
    resource = {"@type": COLLECTION.type_url, "entries": list(entries)}
    return json.dumps({"name": NAME, "version": version, "resource": resource})


class CollectionFile:
    """A file that an Envoy reads, and the Envoy."""

    def __init__(self, path: Path, envoy: Envoy) -> None:
        self.path = path
        self.envoy = envoy

    def put(self, content: str) -> None:
        """Move another file over it, as fsxds does."""
        beside = self.path.with_suffix(".next")
        beside.write_text(content)
        beside.replace(self.path)

    def wait(self, name: str, count: int) -> None:
        """Wait until a counter of LDS has this value."""
        self.envoy.wait(lambda: self.envoy.stat(f"{LDS}.{name}") == count, 30.0, f"{name} {count}")

    def versions(self) -> dict[str, str]:
        """Return the version of each active listener, as Envoy shows it."""
        found = json.loads(self.envoy.get("/config_dump?resource=dynamic_listeners")[1]).get("configs", [])
        return {one["name"]: one["active_state"].get("version_info", "") for one in found if "active_state" in one}


@contextmanager
def reading(path: Path, content: str) -> Iterator[CollectionFile]:
    """Run an Envoy that reads a file with this content."""
    path.write_text(content)
    bootstrap = {"dynamic_resources": {"lds_resources_locator": f"file://{path}"}}
    with Envoy(bootstrap) as envoy:
        file = CollectionFile(path, envoy)
        file.wait("update_success", 1)
        yield file


def test_what_envoy_takes_of_a_collection_in_a_file(tmp_path: Path) -> None:
    """It takes changes whatever the versions are, and names of entries as they come; what is no collection changes nothing."""
    with reading(tmp_path / "lds.json", text("v1", inline("a", 0, version="1"), inline("b", 0))) as file:
        assert file.versions() == {"a": "1", "b": ""}
        changed = inline("a", 0, version="1")
        changed["inline_entry"]["resource"]["stat_prefix"] = "x"  # type: ignore[index, call-overload]
        file.put(text("v1", changed, inline("b", 0, name="ä b")))
        file.wait("update_success", 2)
        dump = file.envoy.get("/config_dump?resource=dynamic_listeners")[1]
        assert '"stat_prefix": "x"' in dump
        assert file.envoy.version_texts()[LDS] == "v1"

        cluster: Plain = {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c"}
        broken = ("", "{}", json.dumps({"version": "v"}), text("v2", {"inline_entry": {"resource": cluster}}))
        for count, content in enumerate(broken, start=1):
            file.put(content)
            file.wait("update_failure", count)
        file.path.unlink()
        assert file.versions().keys() == {"a", "b"}


def test_what_removes_listeners(tmp_path: Path) -> None:
    """Locators are skipped: a collection of them removes all, and is a success. A rejected one removes what it lacks."""
    both = text("v1", inline("a", 0), inline("b", 0))
    with reading(tmp_path / "lds.json", both) as file:
        file.put(text("v2", inline("a", 0), inline("c", 0), inline("c", 0)))
        file.wait("update_rejected", 1)
        assert file.versions().keys() == {"a", "c"}

        file.put(text("v3", locator("a")))
        file.wait("update_success", 2)
        assert file.versions() == {}

        file.put(both)
        file.wait("update_success", 3)
        file.put(text("v4"))
        file.wait("update_success", 4)
        assert file.versions() == {}


def answers(port: int) -> int:
    """Return the status of a request to a listener."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()


OK: Any = {
    "name": "r",
    "virtual_hosts": [
        {"name": "h", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 204}}]}
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_envoy_follows_mirrored_collections(tmp_path: Path, form: str) -> None:
    """Edits, locators and removals reach an Envoy of any form of file, and what cannot be resolved takes nothing from it."""
    first, second = free_ports(2)

    def entry(port: int) -> Plain:
        made = listener("first", port=port, route_config=OK)
        return {"inline_entry": {"resource": {"@type": url("lds"), **made}}}

    def listed(*entries: Plain) -> Plain:
        return collection(*entries, name=name)

    other = {**named("second", second), "filter_chains": listener("s", port=second, route_config=OK)["filter_chains"]}
    name = f"{NAME}/a%20b?env=prod"
    path = tmp_path / path_of(COLLECTION.type_url, name, f".{form}")
    with Mirror(tmp_path, this_envoy(), MirrorOptions(form, durable=False)) as mirror:
        mirror.write(snapshot(lds=[other], lcds=[listed(entry(first), locator("second"))]))
        read = [read_collection(name, "")]
        bootstrap = with_lists({"dynamic_resources": {}}, read, lambda _: path)
        with Envoy(bootstrap) as envoy:
            envoy.wait(lambda: envoy.stat(f"{LDS}.update_success") == 1, 30.0, "the collection")
            assert [answers(first), answers(second)] == [204, 204]

            # The listener of the locator is gone, and nothing tells whether it is meant to be.
            report = mirror.write(snapshot(2, lcds=[listed(locator("second"))]))
            assert report.kept
            report = mirror.write(
                snapshot(3, lcds=[listed(entry(first), locator("second"))], unsure={"incomplete": ["lds"]})
            )
            assert report.kept
            assert [answers(first), answers(second)] == [204, 204]
            assert envoy.stat(f"{LDS}.update_success") == 1

            mirror.write(snapshot(4, lds=[other], lcds=[listed(locator("second"))]))
            envoy.wait(lambda: envoy.listener_names() == {other["name"]}, 30.0, "the removal")
            assert answers(second) == 204
            # The collection itself goes: Envoy keeps its listeners.
            mirror.write(snapshot(5))
            assert not path.exists()
            assert answers(second) == 204
            assert envoy.stat(f"{LDS}.update_rejected") == 0
