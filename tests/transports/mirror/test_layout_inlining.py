"""List collections in mirrored files: what Envoy would skip is written inline, and nothing is emptied by accident."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fsxds.events.file_events import Remark
from fsxds.model.resource_names import Locator
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource
from fsxds.transports.mirror.directory import decode_manifest
from fsxds.transports.mirror.files import path_of
from fsxds.transports.mirror.layout import inlined
from fsxds.transports.mirror.writer import Mirror, MirrorOptions
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import Plain, files_in, listener, resource, snapshot, url

LISTENER, COLLECTION = BY_SHORT_NAME["lds"], BY_SHORT_NAME["lcds"]
NAME = f"xdstp://example.com/{COLLECTION.message_type}/edge"
FILE = "lcds/example.com/edge.json"


def inline(listener_name: str, port: int, **fields: str) -> Plain:
    """An entry with a listener."""
    made: Any = listener(listener_name, port=port, route_config={"name": "r"})
    return {"inline_entry": {**fields, "resource": {"@type": LISTENER.type_url, **made}}}


def locator(path: str) -> Plain:
    """An entry that leads to a listener."""
    return {"locator": {"authority": "example.com", "resource_type": LISTENER.message_type, "id": path}}


def named(path: str, port: int) -> Plain:
    """A listener with a structured name."""
    made: Any = listener(f"xdstp://example.com/{LISTENER.message_type}/{path}", port=port)
    return dict(made)


def collection(*entries: Plain, name: str = NAME) -> Plain:
    """A collection of entries; `name` is that of the `Resource` around it."""
    return {"name": name, "entries": list(entries)}


def made(value: Plain) -> Resource:
    """Return the resource of a collection."""
    return resource("lcds", value)


def find(*names: str) -> Any:
    """Find these listeners, by the ends of their names."""

    def found(one: Locator) -> tuple[Resource, ...] | str:
        return next(
            ((resource("lds", listener(name, port=80)),) for name in names if str(one).endswith(f"/{name}")),
            "leads nowhere",
        )

    return found


def names_in(body: bytes) -> list[str]:
    """Return the names of the inline listeners."""
    message: Any = this_envoy().message_class(COLLECTION.message_type).FromString(body)
    packed = [entry.inline_entry.resource for entry in message.entries]
    listener_class: Any = this_envoy().message_class(LISTENER.message_type)
    return [listener_class.FromString(one.value).name for one in packed]


def test_without_locators_nothing_changes() -> None:
    """A collection that is inline is the same object."""
    one = made(collection(inline("a", 80)))

    assert inlined(this_envoy(), one, find()).resource is one


def test_locators_are_replaced() -> None:
    """A locator's listener is in its place; the version is that of all that is in it."""
    one = made(collection(inline("a", 81), locator("b"), locator("c")))
    done = inlined(this_envoy(), one, find("b"))

    assert names_in(done.resource.body) == ["a", "b"]
    assert done.left_out == ("entries[2] leads nowhere",)
    assert done.resource.version not in {one.version, inlined(this_envoy(), one, find("c")).resource.version}
    assert not done.is_void


def test_one_name_twice() -> None:
    """What a locator leads to may have the name of another entry: Envoy would reject both, so the first one stays."""
    done = inlined(this_envoy(), made(collection(locator("a"), inline("a", 81))), find("a"))

    assert names_in(done.resource.body) == ["a"]
    assert done.left_out == ('entries[1] leads to listener "a", which entries[0] is already',)


def test_one_address_twice() -> None:
    """A listener by a locator may have the address of an inline one, or of another: Envoy would reject it, so the first stays."""
    one = made(collection(inline("a", 81), locator("b"), locator("c"), inline("d", 80)))
    done = inlined(this_envoy(), one, find("b", "c"))

    assert names_in(done.resource.body) == ["a", "b"]
    assert done.left_out == (
        'entries[2] is listener "c", and entries[1] has its address 127.0.0.1:80 tcp',
        'entries[3] is listener "d", and entries[1] has its address 127.0.0.1:80 tcp',
    )


def test_nothing_left() -> None:
    """A collection whose entries all lead nowhere is void; one without entries is empty on purpose."""
    assert inlined(this_envoy(), made(collection(locator("a"))), find()).is_void
    assert not inlined(this_envoy(), made(collection()), find()).is_void


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    """A mirror of JSON files."""
    return Mirror(tmp_path, this_envoy(), MirrorOptions("json", pause_s=0.0))


def written(root: Path) -> list[str]:
    """Return the names of the listeners in the file of the collection."""
    document = json.loads((root / FILE).read_bytes())
    return [
        entry["inline_entry"]["resource"]["name"].rpartition("/")[2]
        for entry in document["resource"].get("entries", [])
    ]


def test_the_file_of_a_collection(mirror: Mirror, tmp_path: Path) -> None:
    """It is one `Resource`, in a folder of its authority, and goes with its resource and the folder."""
    with mirror:
        report = mirror.write(snapshot(lds=[named("b", 81)], lcds=[collection(inline("a", 80), locator("b"))]))
        assert (report.kept, report.blocked) == ((), ())
        document = json.loads((tmp_path / FILE).read_bytes())
        assert document["name"] == NAME
        assert document["resource"]["@type"] == COLLECTION.type_url
        assert written(tmp_path) == ["a", "b"]

        assert mirror.write(snapshot(2, lds=[named("b", 81)], lcds=[collection(inline("a", 80))])).written
        assert written(tmp_path) == ["a"]

        mirror.write(snapshot(3))
        assert files_in(tmp_path) == {"cds.json", "lds.json", "srds.json"}
        assert not (tmp_path / "lcds/example.com").exists()


def test_a_change_of_a_listener_changes_the_collection(mirror: Mirror, tmp_path: Path) -> None:
    """A listener that a locator leads to is in the file as it is now, with another version of the collection."""
    with mirror:
        mirror.write(snapshot(lds=[named("b", 81)], lcds=[collection(locator("b"))]))
        before = json.loads((tmp_path / FILE).read_bytes())
        mirror.write(snapshot(2, lds=[named("b", 82)], lcds=[collection(locator("b"))]))
        after = json.loads((tmp_path / FILE).read_bytes())

    assert before["version"] != after["version"]
    assert after["resource"]["entries"][0]["inline_entry"]["resource"]["address"]["socket_address"]["port_value"] == 82


def test_no_collection_is_emptied_by_accident(mirror: Mirror, tmp_path: Path) -> None:
    """Where all locators lead nowhere, the file stays as it is; where there is none, none is made. It is said."""
    only = collection(locator("b"))
    with mirror:
        report = mirror.write(snapshot(lcds=[only]))
        assert not (tmp_path / FILE).exists()
        assert [remark.reason.partition(":")[0] for remark in report.kept] == ["not written"]

        mirror.write(snapshot(2, lds=[named("b", 81)], lcds=[only]))
        report = mirror.write(snapshot(3, lcds=[only]))
        assert written(tmp_path) == ["b"]
        reason = (
            f"kept as it was: entries[0] leads to xdstp://example.com/{LISTENER.message_type}/b, which is not there"
        )
        assert report.kept == (Remark(FILE, reason),)

        mirror.write(snapshot(4, lcds=[collection()]))
        assert written(tmp_path) == []


@pytest.mark.parametrize("mark", ["withheld", "incomplete", "undeclared"])
def test_what_is_not_known_is_not_left_out(mirror: Mirror, tmp_path: Path, mark: str) -> None:
    """Where a file that was never good may define the listener, the collection stays as it is until that is known."""
    both = collection(inline("a", 80), locator("b"))
    with mirror:
        mirror.write(snapshot(lds=[named("b", 81)], lcds=[both]))
    again = Mirror(tmp_path, this_envoy(), MirrorOptions("json", pause_s=0.0))
    with again:
        assert again.write(snapshot(lcds=[both], unsure={mark: ["lds"]})).kept
        assert written(tmp_path) == ["a", "b"]
        assert again.write(snapshot(2, lcds=[both])).kept
        assert written(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (NAME, "lcds/example.com/edge.pb"),
        (f"xdstp:///{COLLECTION.message_type}/edge", "lcds/edge.pb"),
        (f"{NAME}/a?x=1&y=2", "lcds/example.com/edge%2Fa%3Fx%3D1%26y%3D2.pb"),
        (f"{NAME}%3Fx=1", "lcds/example.com/edge%253Fx%3D1.pb"),
        (f"xdstp://../{COLLECTION.message_type}/edge", "lcds/%2E./edge.pb"),
        (f"xdstp://.fsxds/{COLLECTION.message_type}/lock", "lcds/%2Efsxds/lock.pb"),
        (f"xdstp://a:80/{COLLECTION.message_type}/.x", "lcds/a%3A80/%2Ex.pb"),
        (f"xdstp://a/{COLLECTION.message_type}//etc/passwd", "lcds/a/%2Fetc%2Fpasswd.pb"),
    ],
)
def test_paths(name: str, path: str) -> None:
    """Each name has a file of its own, and none leads out of the directory."""
    assert str(path_of(url("lcds"), name, ".pb")) == path
    manifest = {"path": path, "type_url": url("lcds"), "names": [name], "sha256": None}
    assert decode_manifest(json.dumps({"layout": 1, "files": [manifest]}).encode())


@pytest.mark.parametrize(
    "path", ["lcds/../x.pb", "lcds/a/b/x.pb", "eds/a/x.pb", "../lcds/x.pb", "/lcds/x.pb", "lcds/a/../../../x.pb"]
)
def test_paths_of_others(path: str) -> None:
    """A manifest that names another file is not believed."""
    row = {"path": path, "type_url": url("lcds"), "names": [NAME], "sha256": None}
    with pytest.raises(ValueError, match="fsxds writes no file"):
        decode_manifest(json.dumps({"layout": 1, "files": [row]}).encode())
