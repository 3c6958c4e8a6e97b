"""Where in the files of a tree a field of a resource stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from fsxds.formats import format_of
from fsxds.formats.positions import locate_all
from fsxds.resources import Resource
from fsxds.snapshots.parsed import ParsedFile
from fsxds.values import FieldPath, SourceFile, SourceTree

Place = tuple[int, int]
"""Line and column, from 1."""


class Places:
    """Finds fields in the texts of a tree; each costs a walk over its file, so larger files can be left alone."""

    def __init__(self, tree: SourceTree, up_to_bytes: int | None) -> None:
        self._files: Mapping[PurePosixPath, SourceFile] = {file.path: file for file in tree.files}
        self._up_to_bytes = up_to_bytes

    def of(self, parsed: ParsedFile, wanted: Collection[tuple[Resource, FieldPath]]) -> list[Place]:
        """Return the place of each field, given by its resource and its path within it; else of the resource."""
        file = self._files.get(parsed.path)
        row = format_of(parsed.path)
        if (
            file is None
            or file.digest != parsed.digest
            or row is None
            or row.name == "binary"
            or (self._up_to_bytes is not None and len(file.content) > self._up_to_bytes)
        ):
            return [(resource.origin.line, 1) for resource, _ in wanted]
        paths = [(resource.origin.document, resource.origin.field_path + path) for resource, path in wanted]
        places = locate_all(file.content, set(paths), is_textproto=row.name == "textproto")
        return [places[path] for path in paths]
