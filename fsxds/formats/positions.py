"""Where in a YAML, JSON or textproto text a field stands; asked only when something is wrong with it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from yaml import YAMLError

from fsxds.formats.documents import UnreadableError
from fsxds.formats.json_lenient import make_strict
from fsxds.formats.json_text import JsonWalk
from fsxds.formats.textproto_walk import TextprotoWalk
from fsxds.formats.utf8 import read_text
from fsxds.formats.visiting import EnoughError
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
    content: bytes, wanted: Collection[tuple[int, FieldPath]], *, is_textproto: bool = False
) -> dict[tuple[int, FieldPath], tuple[int, int]]:
    """Return the places of many paths, each with its document, in one walk a document; as `locate` does for one."""
    try:
        text = read_text(content)
    except UnreadableError:
        return dict.fromkeys(wanted, (1, 1))
    paths: defaultdict[int, list[FieldPath]] = defaultdict(list)
    for document, path in wanted:
        paths[document].append(path)
    locators = _walk_textproto(text, paths[0]) if is_textproto else _walk(text, paths)
    return {(document, path): locators[document].place_of(path) for document, path in wanted}


def _walk(text: str, paths: Mapping[int, Iterable[FieldPath]]) -> Mapping[int, _Locator]:
    if paths.keys() == {0} and text.lstrip(" \t\r\n")[:1] in ("{", "["):
        for strict in (str, _strict):  # the second is slow, and rarely needed
            locator = _Locator(paths[0])
            try:
                JsonWalk(strict(text), locator).walk()
            except EnoughError:
                return {0: locator}
            except (json.JSONDecodeError, RecursionError, ValueError):
                continue
            else:
                return {0: locator}
    locators = {document: _Locator(wanted) for document, wanted in paths.items()}
    # What stands before a bad place was found, and what stands behind it has an ancestor there.
    with suppress(YAMLError, UnreadableError):
        YamlWalk(text, locators).walk()
    return locators


def _strict(text: str) -> str:
    return make_strict(text).text


def _walk_textproto(text: str, paths: Iterable[FieldPath]) -> Mapping[int, _Locator]:
    locator = _Locator(paths)
    with suppress(EnoughError):
        TextprotoWalk(text, locator).walk()
    return {0: locator}


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
            if len(self._places) == len(self._wanted):
                raise EnoughError

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
