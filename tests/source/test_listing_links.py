from __future__ import annotations

import os
from pathlib import Path

from fsxds.source.listing import Links


def test_paths_resolve_as_the_kernel_resolves_them(tmp_path: Path) -> None:
    """Absolute and relative links, chains of them, and `..` behind a link lead where `realpath` leads."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").touch()
    (tmp_path / "one").symlink_to("a/b")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    (tmp_path / "a/up").symlink_to("../one/..")
    for path in ("a/b/file", "one/file", "two/file", "two/../b/./file", "a/up/b//file", "a/up"):
        expected = os.path.realpath(tmp_path / path)
        assert Links().resolve(f"{tmp_path}/{path}") == expected


def test_every_link_on_the_way_is_remembered(tmp_path: Path) -> None:
    """All links that were passed are known, and where a way ends that leads nowhere."""
    (tmp_path / "real").mkdir()
    (tmp_path / "one").symlink_to("real")
    (tmp_path / "two").symlink_to("one/missing/file")
    links = Links()

    assert links.resolve(f"{tmp_path}/two") is None
    assert links.targets == {f"{tmp_path}/two": "one/missing/file", f"{tmp_path}/one": "real"}
    assert links.missing == {f"{tmp_path}/real/missing"}


def test_circles_end(tmp_path: Path) -> None:
    """Links that lead to themselves or to one another resolve to nothing."""
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "a").symlink_to("b/x")
    (tmp_path / "b").symlink_to("a/x")

    assert [Links().resolve(f"{tmp_path}/{name}") for name in ("self", "a", "b")] == [None, None, None]


def test_a_flip_is_noticed(tmp_path: Path) -> None:
    """Links are unchanged until one of them has another target, or is gone."""
    link = tmp_path / "link"
    link.symlink_to("a")
    links = Links()
    links.resolve(str(link))
    before = links.are_unchanged()
    link.unlink()
    gone = links.are_unchanged()
    link.symlink_to("b")

    assert (before, gone, links.are_unchanged()) == (True, False, False)
