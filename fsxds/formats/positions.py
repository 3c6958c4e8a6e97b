"""Where in a YAML or JSON text a field stands; asked only when something is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from contextlib import suppress

from yaml import YAMLError

from fsxds.formats.documents import UnreadableError
from fsxds.formats.json_lenient import make_strict
from fsxds.formats.json_text import JsonWalk
from fsxds.formats.utf8 import read_text
from fsxds.formats.yaml_walk import YamlWalk
from fsxds.values import FieldPath


def locate(content: bytes, document: int, field_path: FieldPath) -> tuple[int, int]:
    """Return line and column, from 1, of a value's key or list item.

    Args:
        content: the bytes of the file.
        document: which document of the file, from 0.
        field_path: keys as the author spelled them, and indexes.

    Returns:
        The place; of the nearest existing ancestor where the path does not exist, 1:1 where nothing of it does.
    """
    return locate_all(content, ((document, field_path),))[document, field_path]


def locate_all(
    content: bytes, wanted: Collection[tuple[int, FieldPath]]
) -> dict[tuple[int, FieldPath], tuple[int, int]]:
    """Return the places of many paths, each with its document, in one walk a document; as `locate` does for one."""
    try:
        text = read_text(content)
    except UnreadableError:
        return dict.fromkeys(wanted, (1, 1))
    places: dict[tuple[int, FieldPath], tuple[int, int]] = {}
    for document in {document for document, _ in wanted}:
        paths = [path for number, path in wanted if number == document]
        locator = _walk(text, document, paths)
        places.update({(document, path): locator.place_of(path) for path in paths})
    return places


def _walk(text: str, document: int, paths: Iterable[FieldPath]) -> _Locator:
    if document == 0 and text.lstrip(" \t\r\n")[:1] in ("{", "["):
        for json_text in (text, make_strict(text).text):
            locator = _Locator(paths)
            try:
                JsonWalk(json_text, locator).walk()
            except (json.JSONDecodeError, RecursionError, ValueError):
                continue
            else:
                return locator
    locator = _Locator(paths)
    # What stands before a bad place was found, and what stands behind it has an ancestor there.
    with suppress(YAMLError, UnreadableError):
        YamlWalk(text, locator).walk(document)
    return locator


class _Locator:
    """Remembers the places on the way to some paths; a `Visitor`. The first of duplicates counts."""

    def __init__(self, paths: Iterable[FieldPath]) -> None:
        self._wanted = {path[:length] for path in paths for length in range(len(path) + 1)}
        self._containers = {path[:-1] for path in self._wanted if path}
        self._places: dict[FieldPath, tuple[int, int]] = {}

    def meet(self, path: FieldPath, line: int, column: int) -> None:
        """Note the place of a path that is wanted."""
        if path in self._wanted:
            self._places.setdefault(path, (line, column))

    def enter(self, path: FieldPath, opener: str) -> FieldPath | None:
        """Enter only what leads to a wanted path; an object may stand where the path has a list of one."""
        only_item = (*path, 0)
        if opener == "{" and only_item in self._wanted:
            self._places.setdefault(only_item, self.place_of(path))
            return only_item
        return path if path in self._containers else None

    def place_of(self, path: FieldPath) -> tuple[int, int]:
        """Return the place of a path or of its nearest ancestor that was met."""
        for length in range(len(path), -1, -1):
            if path[:length] in self._places:
                return self._places[path[:length]]
        return 1, 1
