"""The layout `resources`: one `Resource` per file, at its name's path; a glob is a folder.

`xdstp://<own authority>/<type>/foo/bar` is `<type>/foo/bar.yaml`, and so is the type's plain name `foo/bar`, as in
URLs. Other authorities are in `@<authority>/<type>/...`. Source: xRFC TP1, "File transport".
Envoy reads none of these files, except lists (ENVOY.md E88).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from fsxds.events.mirror_events import Remark
from fsxds.model.resource_names import ResourceName, parse_or_none
from fsxds.model.resource_types import BY_MESSAGE_TYPE, BY_TYPE_URL, RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Key, Resource, Snapshot
from fsxds.model.values import TypeUrl
from fsxds.transports.mirror.files import FORMS, Held, Layout, MirrorFile, file_name_of

# Longer paths become one cut file name: systems allow 4096 bytes.
LONGEST_PATH = 1000

_OTHERS = "@"
_ENDS = tuple(f".{form}" for form in FORMS)


def path_of_resource(row: ResourceType, name: str, authority: str) -> PurePosixPath:
    """Return a path without suffix; `authority` is the tree's.

    Unique among structured names; a plain name may share it.
    """
    found = parse_or_none(name) or ResourceName("", row.message_type, name)
    written, question_mark, parameters = found.without_authority.removeprefix(f"/{found.message_type}/").partition("?")
    *folders, last = written.split("/") if len(written) <= LONGEST_PATH else [written]
    file_name = file_name_of(f"{last}{question_mark}{parameters}")
    of_others = [f"{_OTHERS}{file_name_of(found.authority)}"] if found.authority not in {"", authority} else []
    return PurePosixPath(*of_others, found.message_type, *map(_folder_name_of, folders), file_name)


def _folder_name_of(segment: str) -> str:
    name = file_name_of(segment)
    stem, dot, end = name.rpartition(".")
    return f"{stem}%2E{end}" if dot and f".{end}" in _ENDS else name


def is_path_of_resource(path: PurePosixPath) -> bool:
    """Whether a file may be in this layout."""
    parts = path.parts[1:] if path.parts[:1] and path.parts[0].startswith(_OTHERS) else path.parts
    return len(parts) > 1 and parts[0] in BY_MESSAGE_TYPE and ".." not in parts


class ResourceLayoutMaker:
    """Makes layouts of successive snapshots; `authority` is the tree's or empty."""

    def __init__(self, suffix: str, authority: str) -> None:
        self.suffix = suffix
        self.authority = authority
        # Making the paths takes longer than the rest.
        self._paths: dict[Key, PurePosixPath] = {}

    def lay_out(self, snapshot: Snapshot, held: Held) -> Layout:
        """Return a snapshot's layout, given our files on disk."""
        files: dict[PurePosixPath, MirrorFile] = {}
        remarks: list[Remark] = []
        paths: dict[Key, PurePosixPath] = {}
        for resource in _served(snapshot):
            key = resource.type_url, resource.name
            path = paths[key] = self._paths.get(key) or self._path_of(resource)
            file = MirrorFile(path, resource.type_url, resource.version, (resource,), is_wrapped=True)
            other = files.get(path)
            if other is not None and not _goes_before(file, other, held):
                remarks.append(_same_file(file, other))
                continue
            if other is not None:
                remarks.append(_same_file(other, file))
            files[path] = file
        self._paths = paths
        kept = {
            path: file.type_url
            for path, file in held.items()
            if path not in files and _is_unsure(snapshot, file.type_url)
        }
        remarks += [Remark(str(path), _reason_to_keep(snapshot, type_url)) for path, type_url in kept.items()]
        return Layout(files, frozenset(kept), tuple(sorted(remarks)))

    def _path_of(self, resource: Resource) -> PurePosixPath:
        path = path_of_resource(BY_TYPE_URL[resource.type_url], resource.name, self.authority)
        return path.with_name(path.name + self.suffix)


def _served(snapshot: Snapshot) -> Iterator[Resource]:
    for row in RESOURCE_TYPES:
        if row.type_url not in snapshot.withheld:
            yield from snapshot.resources(row.type_url).values()


def _goes_before(file: MirrorFile, other: MirrorFile, held: Held) -> bool:
    """The present owner keeps a path, else the structured name wins."""
    present = held.get(file.path)
    if present is not None and present.names in {file.names, other.names}:
        return present.names == file.names
    return parse_or_none(file.names[0]) is not None


def _same_file(left_out: MirrorFile, file: MirrorFile) -> Remark:
    return Remark(
        str(file.path), f"{left_out.names[0]} has no file: {file.names[0]} has the same path; rename one of the two"
    )


def _is_unsure(snapshot: Snapshot, type_url: TypeUrl) -> bool:
    return type_url in snapshot.incomplete | snapshot.withheld | snapshot.undeclared


def _reason_to_keep(snapshot: Snapshot, type_url: TypeUrl) -> str:
    noun = BY_TYPE_URL[type_url].noun
    if type_url in snapshot.undeclared:
        return f"kept: no document defines {noun}; write an empty list of them to remove the file"
    return f"kept: a file that may define {noun} was never good; repair it or remove it"
