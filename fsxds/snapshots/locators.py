"""Finds the targets of locators in a snapshot: names, collections, inline entries, and files of the tree. Pure.

| rule | source |
| --- | --- |
| Alternatives are tried in order, if the target before them does not exist. | xRFC TP1, "Resource locators" |
| `#entry=` is an inline entry of a list collection. | xRFC TP1, "List collections" |
| A collection of a folder has the listeners in it and below as entries, inline or as locators. | fsxds |
| A path that ends with `/*` means the resources in that directory, not deeper. | xRFC TP1, "Glob" |
| `file:///...` is a file of the loaded tree: no file is read here, so none outside of the tree can be. | xRFC TP1, "Filesystem transport" |
| A plain name is found by the structured one of its type and path, with no authority or the tree's own. | |
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

from google.protobuf.message import DecodeError

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.model.name_table import Chunk
from fsxds.model.resource_names import FileName, Locator, ResourceName, parse_or_none
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, Resource, Snapshot, version_of_body
from fsxds.model.values import TypeUrl
from fsxds.settings.naming_rules import CollectionRule

COLLECTION = "Collection"
"""The suffix of list collections' types, after the type of their entries."""

_ENTRY_NAME = re.compile(r"[a-zA-Z0-9_\-./]+")

Place: TypeAlias = Key | PurePosixPath
"""A place of a search: a name of a type, a file, or a directory."""


@dataclass(frozen=True, slots=True)
class NotThere:
    """The target does not exist.

    `reason` ends a sentence about the locator; `authority` is empty if the resource is ours.
    """

    reason: str
    authority: str = ""


Found: TypeAlias = Resource | tuple[Resource, ...] | NotThere
"""A resource, or the members of a glob in the order of names."""


class Resolver:
    """Finds resources of one snapshot.

    `root` is the absolute path of the tree, empty if no file can be found. Without `catalogue`, list collections have
    no entries. `folders` has the list collections that are not yet in the snapshot; `looked_at` grows with each search.
    """

    def __init__(
        self, snapshot: Snapshot, authority: str = "", root: str = "", catalogue: Catalogue | None = None
    ) -> None:
        self._snapshot = snapshot
        self._authority = authority
        self._root = PurePosixPath(root) if root else None
        self._catalogue = catalogue
        self.folders: Mapping[str, CollectionRule] = {}
        self.looked_at: set[Place] = set()

    def find(self, locator: Locator, type_url: TypeUrl) -> Found:
        """Return the first existing target, else the first reason."""
        reason: NotThere | None = None
        for choice in locator.choices():
            found = self.find_choice(choice, type_url)
            if not isinstance(found, NotThere):
                return found
            reason = reason or found
        return reason or NotThere("leads nowhere")

    def find_choice(self, choice: Locator, type_url: TypeUrl) -> Found:
        """Return one choice's target; add searched places to `looked_at`."""
        if isinstance(choice.target, FileName):
            return self._in_files(choice.target, choice.entry, type_url)
        if not choice.entry:
            return self._named(choice.target, type_url)
        of_list = self._named(choice.target, TypeUrl(type_url + COLLECTION))
        if isinstance(of_list, NotThere) and str(choice.target) in self.folders:
            return self._in_folder(self.folders[str(choice.target)], choice.entry, type_url)
        return self._entry(of_list, choice.entry, type_url) if isinstance(of_list, Resource) else of_list

    # Names

    def _named(self, name: ResourceName, type_url: TypeUrl) -> Found:
        if name.type_url != type_url:
            return NotThere(f"is of the type {name.message_type}")
        rows, text = self._snapshot.resources(type_url), str(name)
        self.looked_at.add((type_url, text))
        if name.is_glob:
            directory = text.partition("?")[0].removesuffix("*")
            members = tuple(row for other, row in rows.starting_with(directory) if _glob_of(other) == text)
            return members or self._absent(name)
        found = rows.get(text)
        if found is None and not name.context and name.authority in {"", self._authority}:
            self.looked_at.add((type_url, name.path))
            found = rows.get(name.path)
        return found or self._absent(name)

    def _absent(self, name: ResourceName) -> NotThere:
        if name.authority in {"", self._authority}:
            return NotThere("which is the name of no resource" if not name.is_glob else "which has no resource")
        return NotThere(f"of the authority {name.authority}", name.authority)

    # Inline entries

    def _entry(self, of_list: Resource, entry: str, type_url: TypeUrl) -> Found:
        packed = None if self._catalogue is None else _packed_entry(of_list, entry, self._catalogue)
        if packed is None:
            return NotThere(f"but {of_list.origin} has no inline entry {entry}")
        found_type, body = packed
        if found_type != type_url:
            return NotThere(f"but the entry {entry} at {of_list.origin} is of another type")
        return Resource(type_url, entry, body, version_of_body(type_url, body), of_list.origin)

    def _in_folder(self, rule: CollectionRule, entry: str, type_url: TypeUrl) -> Found:
        if not rule.is_inline:
            return NotThere(f"but the collection of the folder {rule.folder} has locators, and no inline entries")
        folder = PurePosixPath(rule.folder)
        self.looked_at.add(folder)
        rows = self._snapshot.resources(type_url)
        by_path = (each for chunk in rows.chunks for each in chunk.once(_names_by_path).items())
        names = sorted(name for path, several in by_path if folder in path.parents for name in several)
        found = next((name for name in names if entry_name_of(name) == entry), None)
        return NotThere(f"but no listener in the folder {rule.folder} has this name") if found is None else rows[found]

    # Files

    def _in_files(self, file: FileName, entry: str, type_url: TypeUrl) -> Found:
        path = self._within(file)
        if path is None:
            return NotThere("which is outside of the tree")
        if file.is_glob:
            self.looked_at.add(path.parent)
            return self._in_directory(path.parent, type_url) or NotThere("which has no loaded resource of this type")
        self.looked_at.add(path)
        here = tuple(self._of_file(path, type_url))
        if entry:
            lists = tuple(self._of_file(path, TypeUrl(type_url + COLLECTION)))
            if len(lists) == 1:
                return self._entry(lists[0], entry, type_url)
            here = tuple(one for one in here if one.name == entry)
            if not here:
                return NotThere(f"which has no entry {entry}")
        if len(here) == 1:
            return here[0]
        return NotThere("which has no loaded resource of this type" if not here else _several(here))

    def _within(self, file: FileName) -> PurePosixPath | None:
        path = PurePosixPath(file.path)
        if self._root is None or not path.is_relative_to(self._root) or ".." in path.parts:
            return None
        return path.relative_to(self._root)

    def _of_file(self, path: PurePosixPath, type_url: TypeUrl) -> Iterator[Resource]:
        rows = self._snapshot.resources(type_url)
        for chunk in rows.chunks:
            yield from (rows[name] for name in chunk.once(_names_by_path).get(path, ()))

    def _in_directory(self, directory: PurePosixPath, type_url: TypeUrl) -> tuple[Resource, ...]:
        rows = self._snapshot.resources(type_url)
        found = (chunk.once(_names_by_path) for chunk in rows.chunks)
        return tuple(
            rows[name]
            for by_path in found
            for path, names in sorted(by_path.items())
            if path.parent == directory
            for name in names
        )


def _several(resources: tuple[Resource, ...]) -> str:
    return f"which holds {len(resources)} of this type; add #entry=<name> to name one"


def entry_name_of(name: str) -> str:
    """Return an entry name in a folder's collection, or an empty text."""
    structured = parse_or_none(name)
    path = structured.path if structured else name
    return path if _ENTRY_NAME.fullmatch(path) else ""


def _glob_of(name: str) -> str:
    structured = parse_or_none(name)
    return "" if structured is None else str(structured.glob)


def _names_by_path(chunk: Chunk[Resource]) -> Mapping[PurePosixPath, tuple[str, ...]]:
    found: defaultdict[PurePosixPath, list[str]] = defaultdict(list)
    for name, resource in zip(chunk.names, chunk.values, strict=True):
        found[resource.origin.path].append(name)
    return {path: tuple(names) for path, names in found.items()}


def _packed_entry(of_list: Resource, entry: str, catalogue: Catalogue) -> tuple[TypeUrl, bytes] | None:
    row = BY_TYPE_URL.get(of_list.type_url)
    if row is None:
        return None
    try:
        message: DynamicMessage = catalogue.message_class(row.message_type).FromString(of_list.body)
    except DecodeError:
        return None
    for each in message.entries:
        if each.HasField("inline_entry") and each.inline_entry.name == entry:
            return TypeUrl(each.inline_entry.resource.type_url), bytes(each.inline_entry.resource.value)
    return None


def places_of(resource: Resource) -> Iterator[Place]:
    """Yield a resource's name, glob, file and all directories."""
    yield resource.type_url, resource.name
    glob = _glob_of(resource.name)
    if glob:
        yield resource.type_url, glob
    yield resource.origin.path
    yield from resource.origin.path.parents
