"""The values of the mirror."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from fsxds.model.values import Version
from fsxds.transports.mirror.files import BUNDLES, SINGLES, MirrorFile, path_of, united
from tests.transports.mirroring import resource, static, url


def bundle(*names: str, port: int = 9, version: str = "v") -> MirrorFile:
    resources = tuple(resource("cds", static(name, port)) for name in names)
    return MirrorFile(PurePosixPath("cds.pb"), url("cds"), Version(version), resources)


@pytest.mark.parametrize(
    ("short_name", "name", "expected"),
    [("cds", None, "cds.pb"), ("srds", None, "srds.pb"), ("eds", "a/b", "eds/a%2Fb.pb"), ("sds", "", "sds/%empty.pb")],
)
def test_paths(short_name: str, name: str | None, expected: str) -> None:
    """Bundles are called after their type, single files stand in a folder of that name."""
    assert PurePosixPath(expected) == path_of(url(short_name), name, ".pb")


def test_virtual_hosts_have_no_files() -> None:
    """VHDS is Delta only; every other type has its place."""
    assert {url("vhds"), url("leds")}.isdisjoint({*BUNDLES, *SINGLES})
    assert {url(name) for name in ("cds", "lds", "srds")} == set(BUNDLES)
    assert {url(name) for name in ("eds", "rds", "sds", "rtds", "ecds", "lcds")} == set(SINGLES)


def test_united_keeps_what_was_there_beside_what_is_wanted() -> None:
    """What is wanted wins, what is not wanted any more stays, and the version is nobody's."""
    both = united(bundle("b", "c", port=1), bundle("a", "b", version="old"))

    assert both.names == ("a", "b", "c")
    assert both.resources[1] == resource("cds", static("b", 1))
    assert both.version not in {"v", "old"}


def test_united_is_what_is_wanted_where_nothing_else_was() -> None:
    """Without anything to keep, it is the wanted bundle itself."""
    wanted = bundle("a", "b")

    assert united(wanted, bundle("a", port=1)) is wanted
    assert united(wanted, None) is wanted


def test_united_with_nothing_new_is_what_was_there() -> None:
    """Where nothing is wanted that was not there, the file stays as it is, version included."""
    before = bundle("a", "b", version="old")

    assert united(bundle("a"), before) == before
    assert united(replace(bundle("a"), path=PurePosixPath("cds.json")), before).path == PurePosixPath("cds.json")
