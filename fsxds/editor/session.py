"""One editor's session.

Loading happens in a thread; changes meanwhile are loaded together next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Never, TypeVar

from fsxds.api.catalogue import Catalogue
from fsxds.editor.diagnostics import Diagnostic, diagnostics_of
from fsxds.editor.edited_tree import EditedTree, TreeView
from fsxds.editor.navigation import MOST_OUTLINES, Navigator, OutlineMemory
from fsxds.events.event import Observer
from fsxds.events.process_events import InternalError
from fsxds.model.memo import Lru
from fsxds.model.values import Problem
from fsxds.runtime.channels import Latest

Value = TypeVar("Value")

# Collects letters typed in quick succession; the delay is too short to be seen.
QUIET_S = 0.03


@dataclass(frozen=True, slots=True)
class OpenDocument:
    """An open text, with URI and version."""

    uri: str
    version: int | None
    text: str


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file's problems; `document` is None if not open."""

    path: PurePosixPath
    text: str
    document: OpenDocument | None
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class _Wanted:
    documents: Mapping[PurePosixPath, OpenDocument]
    is_disk_read: bool


class Session:
    """The state of one tree. Methods are called in the event loop; long work runs in a thread."""

    def __init__(
        self, tree: EditedTree, catalogue: Catalogue, show: Callable[[ShownFile], None], observer: Observer
    ) -> None:
        """`show` gets each file with changed problems."""
        self.root = tree.root
        self._tree = tree
        self._catalogue = catalogue
        self._show = show
        self._observer = observer
        self._documents: dict[PurePosixPath, OpenDocument] = {}
        self._is_disk_read = True
        self._wanted: Latest[_Wanted | None] = Latest(None)
        self._view: Latest[TreeView | None] = Latest(None)
        self._shown: dict[PurePosixPath, ShownFile] = {}
        self._outlines: OutlineMemory = Lru(MOST_OUTLINES)
        # One thread at a time works on the tree, and one on requests: more would only wait for each other.
        self._loading = asyncio.Lock()
        self._answering = asyncio.Lock()

    def path_of(self, path: Path) -> PurePosixPath | None:
        """Return a path in the tree, None outside."""
        return self._tree.path_of(path)

    def open(self, path: PurePosixPath, document: OpenDocument) -> None:
        """Record an open text."""
        is_new = path not in self._documents
        self._documents[path] = document
        self.look_again(is_disk_read=is_new)

    def close(self, path: PurePosixPath) -> None:
        """Record a closed text: the file counts again."""
        self._documents.pop(path, None)
        self.look_again(is_disk_read=True)

    def look_again(self, *, is_disk_read: bool) -> None:
        """Schedule a load; `is_disk_read`: files may have changed."""
        self._is_disk_read |= is_disk_read
        self._wanted.replace(_Wanted(dict(self._documents), self._is_disk_read))

    async def keep_current(self) -> Never:
        """Run scheduled loads forever, even after errors."""
        done: _Wanted | None = None
        while True:
            await self._wanted.other_than(done)
            await asyncio.sleep(QUIET_S)
            done = self._wanted.current
            if done is None:
                continue
            try:
                await self._load(done)
            except BrokenPipeError:
                # The editor has exited.
                raise
            # One load failed; the next text may load.
            except Exception as error:  # noqa: BLE001
                self._observer(InternalError("diagnostics", error))
                self._is_disk_read = True

    async def _load(self, wanted: _Wanted) -> None:
        texts = {path: document.text for path, document in wanted.documents.items()}
        self._is_disk_read = False
        async with self._loading:
            view = await asyncio.to_thread(self._tree.load, texts, is_disk_read=wanted.is_disk_read)
            shown = await asyncio.to_thread(self._files_to_show, view, wanted.documents)
        self._view.replace(view)
        for path, file in shown.items():
            if file != self._shown.get(path, ShownFile(path, "", None, ())):
                self._show(file)
        self._shown = {path: file for path, file in shown.items() if file.diagnostics or file.document}

    def _files_to_show(
        self, view: TreeView, documents: Mapping[PurePosixPath, OpenDocument]
    ) -> dict[PurePosixPath, ShownFile]:
        problems: dict[PurePosixPath, list[Problem]] = {path: [] for path in (*self._shown, *documents)}
        for problem in view.problems:
            problems.setdefault(problem.path, []).append(problem)
        shown = {}
        for path, found in problems.items():
            text = view.text(path) if found else ""
            diagnostics = tuple(diagnostics_of(found, text, view.files))
            shown[path] = ShownFile(path, text, documents.get(path), diagnostics)
        return shown

    async def ask(self, question: Callable[[Navigator], Value]) -> Value:
        """Answer in a thread, with the newest texts, after the first load. Safe to cancel."""
        async with self._answering:
            while (view := self._view.current) is None:
                await self._view.replaced()
            newer = {path: document.text for path, document in self._documents.items()}
            navigator = Navigator(view, self._catalogue, newer, self._outlines)
            return await asyncio.to_thread(question, navigator)

    async def ask_with_trial(self, question: Callable[[Navigator, EditedTree], Value]) -> Value:
        """Answer a query that loads the tree with other texts."""
        async with self._loading:
            texts = {path: document.text for path, document in self._documents.items()}

            def answer() -> Value:
                view = self._tree.load(texts, is_disk_read=True)
                return question(Navigator(view, self._catalogue), self._tree)

            return await asyncio.to_thread(answer)

    def uri_of(self, path: PurePosixPath) -> str:
        """Return a file's URI, the editor's if it is open."""
        document = self._documents.get(path)
        return document.uri if document is not None else (self.root / path).as_uri()

    def texts(self) -> dict[PurePosixPath, str]:
        """Return open texts."""
        return {path: document.text for path, document in self._documents.items()}
