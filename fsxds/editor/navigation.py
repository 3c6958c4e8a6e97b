"""Finds names, their definitions and mentions, and symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.editor.api_places import ApiPlaces, Expectation, named_type, own_name_type
from fsxds.editor.diagnostics import problem_positions, span_of_problem
from fsxds.editor.edited_tree import TreeView
from fsxds.editor.mentions_of_names import NamePlace, name_trails, scalar_text, span_of
from fsxds.editor.outline import Form, OutlineNode, TextOutline, Trail, read_outline
from fsxds.editor.text_positions import Span
from fsxds.lint.tree_names import choices_of
from fsxds.model.memo import Lru
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Key
from fsxds.model.values import Problem, TypeUrl
from fsxds.snapshots.names import NameWriter
from fsxds.snapshots.references import ANY, CLUSTER, ENDPOINTS

MOST_SYMBOLS = 500
"""The most symbols per response: an editor asks again for each letter."""

MOST_OUTLINES = 16
"""The most cached outlines."""

OutlineMemory: TypeAlias = Lru[tuple[PurePosixPath, str], TextOutline]
"""Outlines by file and text."""

# Levels of named parts within a resource, such as virtual hosts and filters.
_DEEPEST_SYMBOL = 12


@dataclass(frozen=True, slots=True)
class TextPlace:
    """A span of a file."""

    path: PurePosixPath
    span: Span


@dataclass(frozen=True, slots=True)
class NameAt:
    """The resources of a name, and its span.

    A cluster's name may be its endpoints' as well.
    """

    keys: tuple[Key, ...]
    span: Span
    is_definition: bool


@dataclass(frozen=True, slots=True)
class Symbol:
    """A resource or a named part; `span` covers it, `name_span` its name."""

    name: str
    noun: str
    span: Span
    name_span: Span
    parts: tuple[Symbol, ...] = ()


@dataclass(frozen=True, slots=True)
class TreeSymbol:
    """A resource and its name's span."""

    name: str
    noun: str
    path: PurePosixPath
    span: Span


class Navigator:
    """Finds names in one view of a tree."""

    def __init__(
        self,
        view: TreeView,
        catalogue: Catalogue,
        newer: Mapping[PurePosixPath, str] | None = None,
        outlines: OutlineMemory | None = None,
    ) -> None:
        """`newer` are texts changed since loading; `outlines` is a shared cache."""
        self.view = view
        self.catalogue = catalogue
        self._newer = newer or {}
        self._known: OutlineMemory = Lru(MOST_OUTLINES) if outlines is None else outlines

    def text(self, path: PurePosixPath) -> str:
        """Return a file's current text."""
        newer = self._newer.get(path)
        return self.view.text(path) if newer is None else newer

    def outline(self, path: PurePosixPath) -> TextOutline:
        """Return a file's outline."""
        text = self.text(path)
        return self._known.find((path, text), lambda: read_outline(text))

    def name_at(self, path: PurePosixPath, index: int) -> NameAt | None:
        """Return the name at an index, or None."""
        trail = self.outline(path).trail_to(index)
        text = scalar_text(trail)
        if trail is None or not text or not trail.steps or trail.is_key:
            return None
        expected = ApiPlaces(self.catalogue, path).along(trail)
        key = trail.steps[-1].key
        own = own_name_type(expected[-2], key)
        found = own or named_type(expected[-1])
        if found is None:
            return None
        name = self.canonical(path, text, BY_TYPE_URL[found] if own else None)
        keys = [(found, choice) for choice in choices_of(name)] or [(found, name)]
        place = (path, trail.document, trail.path)
        if own and any((one.path, one.document, one.field_path) == place for one in self._mentions((ENDPOINTS, name))):
            keys.append((ENDPOINTS, name))
        return NameAt(tuple(keys), span_of(trail), own is not None)

    def canonical(self, path: PurePosixPath, text: str, row: ResourceType | None) -> str:
        """Return the canonical name of a resource, or of a reference if `row` is None."""
        names = self.names_in(path)
        return names.reference(text) if row is None else names.written_name(text, row)

    def names_in(self, path: PurePosixPath) -> NameWriter:
        """Return the rules for names."""
        return NameWriter(self.catalogue, self.view.naming, path)

    def names_of(self, type_url: TypeUrl) -> list[str]:
        """Return a type's names that may be mentioned, sorted."""
        static = self.view.static_clusters if type_url == CLUSTER else frozenset()
        return sorted({*self.view.names.of_type(type_url), *static})

    def problems_between(self, path: PurePosixPath, start: int, end: int) -> list[Problem]:
        """Return problems that overlap a span."""
        positions = problem_positions(path, self.text(path))
        own = [problem for problem in self.view.problems if problem.path == path]
        spans = [(problem, span_of_problem(problem, positions)) for problem in own]
        return [problem for problem, span in spans if span[0] <= end and start <= span[1]]

    def definitions(self, key: Key) -> list[TextPlace]:
        """Return definitions: names, or else starts."""
        return [self._defined(key, place) for place in self.view.names.definitions.get(key, ())]

    def mentions(self, key: Key) -> list[TextPlace]:
        """Return a resource's mentions."""
        found = (self.outline(one.path).follow(one.document, one.field_path) for one in self._mentions(key))
        places = zip(self._mentions(key), found, strict=True)
        named = ((one, trail, self.mentioned(key[0], one, trail)) for one, trail in places if trail is not None)
        return [
            TextPlace(one.path, span_of(trail)) for one, trail, name in named if key[1] in (name, *choices_of(name))
        ]

    def mentioned(self, type_url: TypeUrl, place: NamePlace, trail: Trail) -> str:
        """Return a mention's canonical name, or empty."""
        # Endpoints may be found by the name of their cluster.
        is_own = type_url == ENDPOINTS and place.field_path == (*place.resource_path, "name")
        return self.canonical(place.path, scalar_text(trail) or "", BY_TYPE_URL[CLUSTER] if is_own else None)

    def symbols(self, path: PurePosixPath) -> list[Symbol]:
        """Return the current text's resources, with named parts."""
        outline, places = self.outline(path), ApiPlaces(self.catalogue, path)
        found: list[Symbol] = []
        for number, root in enumerate(outline.documents):
            if root is not None:
                (expected,) = places.along(Trail(number, root, ()))
                found += _resource_symbols(places, expected, root)
        return found

    def tree_symbols(self, query: str) -> list[TreeSymbol]:
        """Find resources by a part of their names."""
        wanted = query.lower()
        order = {row.type_url: number for number, row in enumerate(RESOURCE_TYPES)}
        keys = [key for key in self.view.names.definitions if wanted in key[1].lower()]
        keys.sort(key=lambda key: (order[key[0]], key[1]))
        return [
            TreeSymbol(key[1], BY_TYPE_URL[key[0]].noun, place.path, place.span)
            for key in keys[:MOST_SYMBOLS]
            for place in self.definitions(key)
        ]

    def _mentions(self, key: Key) -> tuple[NamePlace, ...]:
        return () if key[1] == ANY else self.view.names.mentions.get(key, ())

    def _defined(self, key: Key, place: NamePlace) -> TextPlace:
        outline = self.outline(place.path)
        named = name_trails(outline, key, place, self.names_in(place.path))
        trail = named[0] if named else outline.follow(place.document, place.field_path)
        return TextPlace(place.path, span_of(trail) if trail is not None else (0, 0))


def _resource_symbols(places: ApiPlaces, expected: Expectation, node: OutlineNode | None) -> Iterator[Symbol]:
    if node is None:
        return
    if node.form is Form.SEQUENCE:
        for element in node.elements:
            yield from _resource_symbols(places, places.settled(places.element_of(expected), element), element)
        return
    if expected.is_resource and expected.row is not None:
        yield _symbol(node, expected.row.noun, node.text_of(expected.row.name_field or "name", "clusterName") or "", 0)
        return
    for name in ("resources", "resource"):
        member = node.member(name)
        if member is not None and member.value is not None:
            inner = places.within(expected, node, name)
            yield from _resource_symbols(places, places.settled(inner, member.value), member.value)


def _symbol(node: OutlineNode, noun: str, name: str, depth: int) -> Symbol:
    member = node.member("name", "cluster_name", "clusterName")
    name_span = (member.value.start, member.value.end) if member and member.value else (node.start, node.start)
    parts = tuple(_named_parts(node, depth + 1)) if depth < _DEEPEST_SYMBOL else ()
    return Symbol(name or f"({noun})", noun, (node.start, node.end), name_span, parts)


def _named_parts(node: OutlineNode, depth: int) -> Iterator[Symbol]:
    if depth >= _DEEPEST_SYMBOL:
        return
    inner = [(member.key, member.value) for member in node.members]
    inner += [("", element) for element in node.elements]
    for key, value in inner:
        if value is None or value.form is Form.SCALAR:
            continue
        name = value.text_of("name") if value.form is Form.MAPPING else None
        if name:
            yield _symbol(value, key or "part", name, depth)
        else:
            yield from _named_parts(value, depth + 1)
