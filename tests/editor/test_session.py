"""One editor at work: what becomes of loads that fail, and what is shown again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import cast

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.editor.edited_tree import EditedTree, TreeView
from fsxds.editor.session import OpenDocument, Session, ShownFile
from fsxds.events.event import Event
from fsxds.events.process_events import InternalError
from tests.editor.trees import FILES, workbench

PATH = PurePosixPath("more.cds.yaml")
BOMB = "# boom"


class FragileTree:
    """Loads a tree, unless a text asks it to fail."""

    def __init__(self, tree: EditedTree) -> None:
        self.root = tree.root
        self._tree = tree
        self.loads = 0

    def load(self, buffers: Mapping[PurePosixPath, str], *, is_disk_read: bool) -> TreeView:
        """Fail at a text."""
        self.loads += 1
        if BOMB in buffers.values():
            raise ZeroDivisionError(BOMB)
        return self._tree.load(buffers, is_disk_read=is_disk_read)


async def test_a_load_that_fails(tmp_path: Path, catalogue: Catalogue) -> None:
    """An error of one load is reported, and the next text is loaded; questions are answered all the while."""
    tree = FragileTree(workbench(tmp_path, catalogue, FILES).tree)
    shown: asyncio.Queue[ShownFile] = asyncio.Queue()
    events: asyncio.Queue[Event] = asyncio.Queue()
    session = Session(cast("EditedTree", tree), catalogue, shown.put_nowait, events.put_nowait)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(session.keep_current())
        session.open(PATH, OpenDocument("file:///x", 1, "a: ["))
        first = await shown.get()
        session.open(PATH, OpenDocument("file:///x", 2, BOMB))
        failed = await events.get()
        answer = await session.ask(lambda navigator: navigator.text(PATH))
        session.open(PATH, OpenDocument("file:///x", 3, "- name: x\n  type: STATIC\n"))
        last = await shown.get()
        running.cancel()

    assert [one.rule for one in first.diagnostics] == ["bad-syntax"]
    assert isinstance(failed, InternalError)
    assert isinstance(failed.error, ZeroDivisionError)
    assert answer == BOMB
    assert last.document is not None
    assert last.document.version == 3
    assert [one.rule for one in last.diagnostics] == ["unused-cluster"]


async def test_what_is_equal_is_not_shown_again(tmp_path: Path, catalogue: Catalogue) -> None:
    """A load that changes nothing of a file shows nothing of it; many wishes at once are one load."""
    tree = FragileTree(workbench(tmp_path, catalogue, {**FILES, "more.cds.yaml": "a: ["}).tree)
    shown: list[PurePosixPath] = []
    routes, is_shown = PurePosixPath("routes.yaml"), asyncio.Event()

    def show(file: ShownFile) -> None:
        shown.append(file.path)
        if file.path == routes:
            is_shown.set()

    session = Session(cast("EditedTree", tree), catalogue, show, lambda _: None)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(session.keep_current())
        for _ in range(5):
            session.look_again(is_disk_read=True)
        await session.ask(lambda _: None)
        loads = tree.loads
        session.open(routes, OpenDocument("file:///r", 1, FILES["routes.yaml"]))
        await is_shown.wait()
        running.cancel()

    assert loads == 1
    assert shown == [PATH, routes]


async def test_an_editor_that_is_gone(tmp_path: Path, catalogue: Catalogue) -> None:
    """Where nothing can be shown any more, the work ends."""
    tree = workbench(tmp_path, catalogue, {"more.cds.yaml": "a: ["}).tree

    def show(_: ShownFile) -> None:
        raise BrokenPipeError

    session = Session(tree, catalogue, show, lambda _: None)
    session.look_again(is_disk_read=True)
    with pytest.raises(BrokenPipeError):
        await session.keep_current()
