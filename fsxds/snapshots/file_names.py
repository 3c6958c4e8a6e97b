"""Which names each file defines and mentions, as sets that are made once for each content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fsxds.rules.mentions import ADDRESS, IN_FILE
from fsxds.snapshots.parsed import Key, ParsedFile, key_of
from fsxds.values import Reference, Resource, Severity, TypeUrl


@dataclass(frozen=True, slots=True, eq=False)
class FileNames:
    """The names in one file.

    `mentioned` are all that its resources may use, `demanded` those of them that have to be there, `static` those that
    the bootstrap has to define. `claims` are addresses, and `in_files` what is looked for in files, each with its resource.
    """

    parsed: ParsedFile
    defined: frozenset[Key]
    declared: frozenset[TypeUrl]
    mentioned: frozenset[Key]
    demanded: frozenset[Key]
    static: frozenset[Key]
    claims: tuple[tuple[Resource, Reference], ...]
    in_files: tuple[tuple[Resource, Reference], ...]

    @classmethod
    def of(cls, parsed: ParsedFile) -> FileNames:
        """Collect the names of a file."""
        resources = parsed.resources
        mentioned, demanded, static = set(), set(), set()
        claims, in_files = [], []
        for resource in resources:
            for reference in resource.references:
                key = (reference.type_url, reference.name)
                if reference.is_static:
                    static.add(key)
                elif reference.type_url == ADDRESS:
                    claims.append((resource, reference))
                elif reference.type_url.startswith(IN_FILE):
                    in_files.append((resource, reference))
                else:
                    mentioned.add(key)
                    if reference.severity is not Severity.NOTE:
                        demanded.add(key)
        return cls(
            parsed,
            frozenset(map(key_of, resources)),
            parsed.declared,
            frozenset(mentioned),
            frozenset(demanded),
            frozenset(static),
            tuple(claims),
            tuple(in_files),
        )


Pages = Mapping[int, FileNames]
"""The names of files by the identity of what they parsed to; it holds that, so that no other has the same."""


class NameBook:
    """The names of many files, remembered from one tree to the next."""

    def __init__(self, before: Pages) -> None:
        self._before = before
        self._pages: dict[int, FileNames] = {}

    def of(self, parsed: ParsedFile) -> FileNames:
        """Return the names of a file; those of one and the same parse are collected once."""
        key = id(parsed)
        names = self._pages.get(key)
        if names is None:
            names = self._pages[key] = self._before.get(key) or FileNames.of(parsed)
        return names

    def all_of(self, parsed: Iterable[ParsedFile]) -> list[FileNames]:
        """Return the names of many files."""
        return [self._pages.get(id(file)) or self.of(file) for file in parsed]

    @property
    def pages(self) -> Pages:
        """What to remember: everything that was asked for."""
        return self._pages


def union(sets: Iterable[frozenset[Key]]) -> frozenset[Key]:
    """Return everything that is in any of many sets."""
    return frozenset[Key]().union(*sets)
