"""The layout of a file for each resource."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.errors import UsageError
from fsxds.model.resource_names import ResourceName
from fsxds.model.resource_types import BY_MESSAGE_TYPE, BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.settings.forms import parse_address
from fsxds.settings.options import Settings
from fsxds.settings.view_rules import MirrorRule
from fsxds.transports.mirror.directory import decode_manifest
from fsxds.transports.mirror.layout import by_name, is_path_of_resource, path_of_resource
from fsxds.transports.mirror.writer import Mirror, MirrorOptions
from tests.model.test_resource_names import NAMES
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import files_in, snapshot, static, url

CDS = BY_SHORT_NAME["cds"]
OWN = f"xdstp://example.com/{CDS.message_type}/"


def mirror(root: Path, layout: str = "resources", form: str = "yaml") -> Mirror:
    """A mirror of this layout."""
    return Mirror(
        root, this_envoy(), MirrorOptions(form, durable=False, pause_s=0.0, layout=layout, authority="example.com")
    )


def cluster(path: str) -> str:
    """Return the path of a file of clusters."""
    return f"{CDS.message_type}/{path}.yaml"


def test_one_resource_in_each_file(tmp_path: Path) -> None:
    """A file has name, version and resource; folders are those of names; what is removed goes, with its folders."""
    with mirror(tmp_path) as one:
        one.write(snapshot(cds=[static(f"{OWN}foo/bar"), static(f"{OWN}foo/baz"), static("web")]))
        assert files_in(tmp_path) == {cluster("foo/bar"), cluster("foo/baz"), cluster("web")}
        document = yaml.safe_load((tmp_path / cluster("foo/bar")).read_text())
        assert document["name"] == document["resource"]["name"] == f"{OWN}foo/bar"
        assert document["resource"]["@type"] == CDS.type_url
        assert document["version"]

        report = one.write(snapshot(2, cds=[static("web", port=10)]))
        assert files_in(tmp_path) == {cluster("web")}
        assert not (tmp_path / CDS.message_type / "foo").exists()
        assert [str(path) for path in report.written] == [cluster("web")]
        assert not one.write(snapshot(3, cds=[static("web", port=10)])).written


def test_layouts_follow_each_other(tmp_path: Path) -> None:
    """Another layout in the same directory takes the files of the one before away, when its own are there."""
    made = snapshot(cds=[static("web")])
    for layout, files in (
        ("envoy", {"cds.yaml", "lds.yaml", "srds.yaml"}),
        ("resources", {cluster("web")}),
        ("envoy", {"cds.yaml", "lds.yaml", "srds.yaml"}),
    ):
        with mirror(tmp_path, layout) as one:
            one.write(made)
        assert files_in(tmp_path) == files


def test_secrets_are_for_their_user(tmp_path: Path) -> None:
    """Files of secrets, and their folders, are for the user of fsxds alone."""
    secret: Any = {"name": "s/key", "generic_secret": {"secret": {"inline_string": "x"}}}
    with mirror(tmp_path) as one:
        one.write(snapshot(sds=[secret]))
    (file,) = (path for path in tmp_path.rglob("*.yaml"))
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mark", ["withheld", "incomplete", "undeclared"])
def test_what_may_be_somewhere_stays(tmp_path: Path, mark: str) -> None:
    """A file stays as long as a file that was never good may define its resource, and it is said."""
    with mirror(tmp_path) as one:
        one.write(snapshot(cds=[static("web")]))
    with mirror(tmp_path) as one:
        assert one.write(snapshot(2, unsure={mark: ["cds"]})).kept
        assert files_in(tmp_path) == {cluster("web")}
        one.write(snapshot(3))
        assert files_in(tmp_path) == set()


def test_two_names_of_one_path(tmp_path: Path) -> None:
    """A plain name may have the path of a structured one: that one has the file, unless the other had it before."""
    both = [static(f"{OWN}web", port=1), static("web", port=2)]
    with mirror(tmp_path / "a") as one:
        report = one.write(snapshot(cds=both))
        assert yaml.safe_load((tmp_path / "a" / cluster("web")).read_text())["name"] == f"{OWN}web"
        assert [remark.reason.partition(" ")[0] for remark in report.kept] == ["web"]
    with mirror(tmp_path / "b") as one:
        one.write(snapshot(cds=both[1:]))
        assert one.write(snapshot(2, cds=both)).kept
        assert yaml.safe_load((tmp_path / "b" / cluster("web")).read_text())["name"] == "web"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("web", "web"),
        ("../../etc/passwd", "%2E./%2E./etc/passwd"),
        ("/etc/passwd", "%empty/etc/passwd"),
        ("a//b", "a/%empty/b"),
        ("x.yaml/y", "x%2Eyaml/y"),
        ("x.yaml", "x.yaml"),
        (".fsxds/lock", "%2Efsxds/lock"),
        ("a\0b\n", "a%2500b%250A"),
        (f"{OWN}foo/bar?x=1/2", "foo/bar%3Fx%3D1%2F2"),
        (f"{OWN}foo/bar%3Fx=1", "foo/bar%253Fx%3D1"),
    ],
)
def test_paths(name: str, path: str) -> None:
    """Each path is that of the name, and none leads out of the directory."""
    found = path_of_resource(CDS, name, "example.com")
    assert str(found) == f"{CDS.message_type}/{path}"


def test_paths_of_others() -> None:
    """Names of other authorities have folders of their own."""
    found = path_of_resource(CDS, f"xdstp://../{CDS.message_type}/web", "example.com")
    assert str(found) == f"@%2E./{CDS.message_type}/web"
    assert str(path_of_resource(CDS, f"xdstp:///{CDS.message_type}/web", "")) == f"{CDS.message_type}/web"


@given(st.text(max_size=30) | st.text("./%~?a", max_size=12) | st.just("a/" * 3000) | st.just("é" * 3000))
def test_any_name_stays_inside(name: str) -> None:
    """Whatever a name is, its file is in the folder of its type, on any file system, and the manifest believes it."""
    found = path_of_resource(CDS, name, "example.com")
    path = found.with_name(f"{found.name}.yaml")
    assert ".." not in path.parts
    assert not path.is_absolute()
    assert len(str(path).encode()) < 3500
    assert max(len(part.encode()) for part in path.parts) < 256
    assert is_path_of_resource(path)


@given(NAMES, NAMES)
def test_structured_names_have_paths_of_their_own(one: ResourceName, other: ResourceName) -> None:
    """Two structured names have two paths, but for that with the tree's authority and that with none."""
    rows = [BY_MESSAGE_TYPE.get(name.message_type) for name in (one, other)]
    if one == other or None in rows or {one.authority, other.authority} == {"", "example.com"}:
        return
    first, second = (path_of_resource(CDS, str(name), "example.com") for name in (one, other))
    assert first != second


@pytest.mark.parametrize(
    "path",
    ["../x.yaml", "x.yaml", ".fsxds/lock.yaml", "@a/../envoy.config.cluster.v3.Cluster/x.yaml", "a.B/x.yaml"]
    + [f"{row.message_type}/../x.yaml" for row in RESOURCE_TYPES[:1]],
)
def test_paths_that_no_file_has(path: str) -> None:
    """A manifest that names something else is not believed."""
    row = {"path": path, "type_url": url("cds"), "names": ["x"], "sha256": None}
    with pytest.raises(ValueError, match="fsxds writes no file"):
        decode_manifest(json.dumps({"layout": 1, "files": [row]}).encode())


def test_what_is_for_envoy_alone() -> None:
    """Config sources and the admin page of an Envoy make no sense for files that no Envoy reads."""
    settings = Settings(mirror_layout="resources")
    assert MirrorOptions.of(settings, MirrorRule(Path("out")), by_name).layout == "resources"
    assert MirrorOptions.of(settings, MirrorRule(Path("out"), layout="envoy"), by_name).layout == "envoy"
    for rule in (
        MirrorRule(Path("out"), config_sources=True),
        MirrorRule(Path("out"), admin=parse_address("127.0.0.1:9901")),
    ):
        with pytest.raises(UsageError, match="out: no Envoy reads files of the layout resources; leave"):
            MirrorOptions.of(settings, rule, by_name)


def test_what_is_in_the_way(tmp_path: Path) -> None:
    """A link to somewhere else in the place of a folder is no folder: nothing is written through it, and it is said."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    out = tmp_path / "out"
    out.mkdir()
    (out / CDS.message_type).symlink_to(elsewhere)
    with mirror(out) as one:
        report = one.write(snapshot(cds=[static("web")]))
    assert [PurePosixPath(remark.subject) for remark in report.blocked] == [PurePosixPath(cluster("web"))]
    assert list(elsewhere.iterdir()) == []
