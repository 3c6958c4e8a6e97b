from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from fsxds.model.values import MANIFEST, MANIFEST_SIGNATURE, NO_MANIFEST, SourceTree
from fsxds.source.listing import TreeBounds
from fsxds.source.scan import Scanner
from fsxds.source.targets import WatchOptions
from tests.source.watching import contents_of, is_read, point, watched, write

MODES = pytest.mark.parametrize(
    "options", [WatchOptions(), WatchOptions(mode="poll", poll_s=0.1)], ids=["inotify", "poll"]
)


def scanner_of(root: Path) -> Scanner:
    return Scanner(root, is_read=is_read, bounds=TreeBounds(1000))


def signed_of(tree: SourceTree) -> tuple[str | None, str | None]:
    """Return what the manifest and its signature hold; None for none."""
    signed = tree.signed
    return (
        None if signed.manifest is None else signed.manifest.content.decode(),
        None if signed.signature is None else signed.signature.content.decode(),
    )


def test_a_manifest_is_no_file_of_the_tree(tmp_path: Path) -> None:
    """It is read with the tree, beside its files; below the top such a name is a hidden file as any."""
    write(tmp_path, {"a.yaml": "a", "b/.fsxds-manifest": "x", ".fsxds-manifest.tmp": "x", ".fsxds-manifestx": "x"})
    scanner = scanner_of(tmp_path)

    assert scanner.scan().signed == NO_MANIFEST
    write(tmp_path, {MANIFEST: "m"})
    assert signed_of(scanner.scan()) == ("m", None)
    write(tmp_path, {MANIFEST_SIGNATURE: "s"})
    tree = scanner.scan()
    assert signed_of(tree) == ("m", "s")
    assert (contents_of(tree), tree.problems, tree.ignored) == ({"a.yaml": "a"}, (), ())
    (tmp_path / MANIFEST).unlink()
    assert signed_of(scanner.scan()) == (None, "s")


def test_a_look_at_one_file_keeps_the_manifest(tmp_path: Path) -> None:
    """An edit of one file costs no look at all of the tree; one of the manifest does."""
    write(tmp_path, {"a.yaml": "a", MANIFEST: "m", MANIFEST_SIGNATURE: "s"})
    scanner = scanner_of(tmp_path)
    scanner.scan()
    write(tmp_path, {"a.yaml": "b"})
    look = scanner.look_at([str(tmp_path / "a.yaml")])

    assert look is not None
    assert (contents_of(look.tree), signed_of(look.tree)) == ({"a.yaml": "b"}, ("m", "s"))
    assert scanner.look_at([str(tmp_path / MANIFEST)]) is None


def test_a_manifest_that_cannot_be_read(tmp_path: Path) -> None:
    """What is wrong with it is no problem of the tree: whoever does not verify it does not care."""
    write(tmp_path, {"a.yaml": "a", MANIFEST: "m" * 1001})
    (tmp_path / MANIFEST_SIGNATURE).mkdir()
    tree = scanner_of(tmp_path).scan()

    assert (tree.problems, signed_of(tree)) == ((), (None, None))
    assert [(str(one.path), one.rule) for one in tree.signed.problems] == [
        (MANIFEST, "file-too-large"),
        (MANIFEST_SIGNATURE, "not-a-file"),
    ]
    (tmp_path / MANIFEST).unlink()
    (tmp_path / MANIFEST).symlink_to("nowhere")
    assert [one.rule for one in scanner_of(tmp_path).scan().signed.problems] == ["broken-link", "not-a-file"]


def test_a_link_to_a_directory_is_no_manifest(tmp_path: Path) -> None:
    """As with a directory, nothing below its name is read."""
    write(tmp_path, {"a.yaml": "a", ".hidden/b.yaml": "b"})
    (tmp_path / MANIFEST).symlink_to(".hidden")
    tree = scanner_of(tmp_path).scan()

    assert [str(file.path) for file in tree.files] == ["a.yaml"]
    assert [one.rule for one in tree.signed.problems] == ["not-a-file"]


def test_a_manifest_that_leads_out_of_the_tree(tmp_path: Path) -> None:
    """It is not read, as any other file."""
    write(tmp_path, {"tree/a.yaml": "a", "m": "m"})
    (tmp_path / "tree" / MANIFEST).symlink_to("../m")
    tree = scanner_of(tmp_path / "tree").scan()

    assert (tree.problems, [one.rule for one in tree.signed.problems]) == ((), ["outside-link"])


@MODES
async def test_a_new_manifest_is_a_change(tmp_path: Path, options: WatchOptions) -> None:
    """A tree that is signed again is another one, though its files are the same."""
    write(tmp_path, {"a.yaml": "a"})
    async with watched(tmp_path, options) as record:
        for number in ("1", "2"):
            for name in (MANIFEST_SIGNATURE, MANIFEST):
                write(tmp_path, {f"{name}.tmp": number})
            for name in (MANIFEST_SIGNATURE, MANIFEST):
                (tmp_path / f"{name}.tmp").replace(tmp_path / name)
            await record.until(lambda: signed_of(record.settled[-1].tree) == (number, number))  # noqa: B023

        assert {tuple(each) for each in record.history} == {("a.yaml",)}


@MODES
async def test_a_config_map_brings_its_manifest_along(tmp_path: Path, options: WatchOptions) -> None:
    """Whatever is seen is of one generation: the files, the manifest and its signature."""

    def publish(generation: str) -> None:
        hidden = tmp_path / f"..{generation}"
        write(hidden, dict.fromkeys(("a.yaml", MANIFEST, MANIFEST_SIGNATURE), generation))
        old = (tmp_path / "..data").readlink() if (tmp_path / "..data").is_symlink() else None
        point(tmp_path / "..data", hidden.name)
        for name in ("a.yaml", MANIFEST, MANIFEST_SIGNATURE):
            if not (tmp_path / name).is_symlink():
                (tmp_path / name).symlink_to(f"..data/{name}")
        if old is not None:
            shutil.rmtree(tmp_path / old)

    publish("1")
    async with watched(tmp_path, options) as record:
        for number in range(2, 6):
            await asyncio.to_thread(publish, str(number))
            if number % 2:
                await record.until_contents({"a.yaml": str(number)})

        for settled in record.settled:
            (content,) = contents_of(settled.tree).values()
            assert signed_of(settled.tree) == (content, content)
