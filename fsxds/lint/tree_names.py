"""The names that each file defines and mentions, and those that a bootstrap defines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fsxds.errors import UsageError
from fsxds.formats.decoded import PlainDocument, UnreadableError, read_text, unreadable
from fsxds.formats.yaml_format import read_yaml
from fsxds.resource_types import route_configuration_of
from fsxds.resources import Key, ParsedFile, Reference, Resource, key_of
from fsxds.snapshots.references import ANY, CLAIMED, IN_FILE, LB_ENDPOINT, VIRTUAL_HOST
from fsxds.values import FieldPath, PlainValue, Severity, TypeUrl

_IN_COLLECTIONS = frozenset({LB_ENDPOINT, VIRTUAL_HOST})


@dataclass(frozen=True, slots=True, eq=False)
class FileNames:
    """The names in one file.

    `defined` are those of its resources, and `ANY` for each of their types. `mentioned` are all that its resources may use, `demanded` those of them that have to be there, `static` those that
    the bootstrap has to define. `claims` are what no two resources may have, and `in_files` what is looked for in files,
    each with its resource. `collections` are those that its resources ask for, with the place of the first mention, and
    `members` the first resource in each collection.
    """

    parsed: ParsedFile
    defined: frozenset[Key]
    declared: frozenset[TypeUrl]
    mentioned: frozenset[Key]
    demanded: frozenset[Key]
    static: frozenset[Key]
    claims: tuple[tuple[Resource, Reference], ...]
    in_files: tuple[tuple[Resource, Reference], ...]
    collections: Mapping[Key, tuple[Resource, FieldPath]]
    members: Mapping[Key, Resource]

    @classmethod
    def of(cls, parsed: ParsedFile) -> FileNames:
        """Collect the names of a file."""
        resources = parsed.resources
        mentioned, demanded, static = set(), set(), set()
        claims, in_files = [], []
        collections: dict[Key, tuple[Resource, FieldPath]] = {}
        members: dict[Key, Resource] = {}
        for resource in resources:
            if resource.type_url in _IN_COLLECTIONS:
                members.setdefault((resource.type_url, collection_of(resource.type_url, resource.name)), resource)
            for reference in resource.references:
                key = (reference.type_url, reference.name)
                if reference.is_static:
                    static.add(key)
                elif reference.type_url in CLAIMED:
                    claims.append((resource, reference))
                elif reference.type_url.startswith(IN_FILE):
                    in_files.append((resource, reference))
                elif reference.type_url in _IN_COLLECTIONS:
                    asked = collection_of(reference.type_url, reference.name)
                    collections.setdefault((reference.type_url, asked), (resource, reference.field_path))
                else:
                    mentioned.add(key)
                    if reference.severity is not Severity.NOTE:
                        demanded.add(key)
        types = {each.type_url for each in resources} | {each.type_url for each in parsed.unread}
        return cls(
            parsed,
            frozenset(
                (
                    *map(key_of, resources),
                    *((each.type_url, each.name) for each in parsed.unread),
                    *((type_url, ANY) for type_url in types),
                )
            ),
            parsed.declared,
            frozenset(mentioned),
            frozenset(demanded),
            frozenset(static),
            tuple(claims),
            tuple(in_files),
            collections,
            members,
        )


def collection_of(type_url: TypeUrl, name: str) -> str:
    """Return the collection that a resource is in by its name, or that is asked for by this one: both give the same.

    That of virtual hosts is `<route configuration>/*`. Of `xdstp://authority/type/directory/name?key=value`, directory and
    parameters make the collection, in any order of these.
    """
    if type_url == VIRTUAL_HOST:
        return f"{route_configuration_of(name)}/{ANY}"
    path, mark, parameters = name.partition("?")
    directory = path.rpartition("/")[0]
    return f"{directory}/{ANY}{mark}{'&'.join(sorted(parameters.split('&')))}"


class NamesOfFiles:
    """The names of many files; those of a file that was parsed once are collected once, from one tree to the next."""

    def __init__(self, before: Mapping[object, FileNames]) -> None:
        self._before = before
        self._names: dict[object, FileNames] = {}

    def of(self, parsed: ParsedFile) -> FileNames:
        """Return the names of a file."""
        names = self._names.get(parsed.mark)
        if names is None:
            names = self._names[parsed.mark] = self._before.get(parsed.mark) or FileNames.of(parsed)
        return names

    def of_all(self, parsed: Iterable[ParsedFile]) -> list[FileNames]:
        """Return the names of many files."""
        return [self._names.get(file.mark) or self.of(file) for file in parsed]

    @property
    def memory(self) -> Mapping[object, FileNames]:
        """All names that were asked for, by the marks of the files: `before` of the next tree."""
        return self._names


def union(sets: Iterable[frozenset[Key]]) -> frozenset[Key]:
    """Return everything that is in any of many sets."""
    return frozenset[Key]().union(*sets)


@dataclass(frozen=True, slots=True)
class StaticNames:
    """Names of a bootstrap's static resources; None where they are not known."""

    clusters: frozenset[str] | None = None
    secrets: frozenset[str] | None = None


def static_names(bootstrap: PlainValue) -> StaticNames:
    """Return what a bootstrap defines, in either spelling; what has not the form of one defines nothing."""
    static = _field(bootstrap, "static_resources", "staticResources")
    return StaticNames(
        frozenset(_names(_field(static, "clusters"))),
        frozenset(_names(_field(static, "secrets"))),
    )


def _field(value: PlainValue, *spellings: str) -> PlainValue:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in spellings if name in value), None)


def _names(resources: PlainValue) -> Iterator[str]:
    # Envoy's reader accepts one object where a list is expected.
    for resource in resources if isinstance(resources, list) else [resources]:
        name = _field(resource, "name")
        if isinstance(name, str):
            yield name


def read_bootstrap_file(path: Path) -> PlainValue:
    """Return the content of a bootstrap; UsageError where it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; --bootstrap names Envoy's bootstrap") from error
    try:
        decoded = read_yaml(read_text(content))
    except UnreadableError as error:
        decoded = unreadable(error.fault)
    if decoded.faults:
        fault = decoded.faults[0]
        raise UsageError(f"{path}:{fault.line or 1}:{fault.column or 1}: {fault.message}; {fault.remedy}")
    return next((document.value for document in decoded.documents if isinstance(document, PlainDocument)), None)
