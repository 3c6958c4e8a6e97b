"""Definitions and mentions of names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.api.fields import camel_case
from fsxds.editor.outline import Form, TextOutline, Trail
from fsxds.editor.text_positions import Span
from fsxds.lint.tree_names import choices_of
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import CLAIMED, Key, ParsedFile, key_of
from fsxds.model.values import FieldPath, TypeUrl
from fsxds.snapshots.names import NameWriter
from fsxds.snapshots.references import ANY, IN_FILE
from fsxds.snapshots.shape import wrapper_path


@dataclass(frozen=True, slots=True)
class NamePlace:
    """An occurrence of a name.

    `resource_path` is the enclosing resource's. `is_static`: the bootstrap has to define it.
    """

    path: PurePosixPath
    document: int
    field_path: FieldPath
    resource_path: FieldPath = ()
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class ResourceNames:
    """The names of a tree; a mention of `*` is for all of its type."""

    definitions: Mapping[Key, tuple[NamePlace, ...]]
    mentions: Mapping[Key, tuple[NamePlace, ...]]

    @classmethod
    def of(cls, files: Iterable[ParsedFile]) -> ResourceNames:
        """Collect files' names."""
        definitions: defaultdict[Key, list[NamePlace]] = defaultdict(list)
        mentions: defaultdict[Key, list[NamePlace]] = defaultdict(list)
        for parsed in files:
            for number, document in enumerate(parsed.documents):
                for unread in document.unread:
                    place = NamePlace(parsed.path, number, unread.field_path, unread.field_path)
                    definitions[unread.type_url, unread.name].append(place)
                for edit in document.edits:
                    if edit.patch is None:
                        place = NamePlace(parsed.path, number, edit.origin.field_path)
                        mentions[edit.key].append(place)
            for resource in parsed.resources:
                origin = resource.origin
                place = NamePlace(parsed.path, origin.document, origin.field_path, origin.field_path)
                definitions[key_of(resource)].append(place)
                for one in resource.references:
                    if one.type_url in CLAIMED or one.type_url.startswith(IN_FILE):
                        continue
                    field_path = origin.field_path + one.field_path
                    place = NamePlace(parsed.path, origin.document, field_path, origin.field_path, one.is_static)
                    for name in dict.fromkeys((one.name, *choices_of(one.name))):
                        mentions[one.type_url, name].append(place)
        return cls(
            {key: tuple(places) for key, places in definitions.items()},
            {key: tuple(places) for key, places in mentions.items()},
        )

    def of_type(self, type_url: TypeUrl) -> list[str]:
        """Return the defined names of a type, sorted."""
        return sorted(name for one, name in self.definitions if one == type_url and name != ANY)


def name_trails(outline: TextOutline, key: Key, definition: NamePlace, names: NameWriter) -> list[Trail]:
    """Return the trails to a name in its resource and its wrapper."""
    row = BY_TYPE_URL[key[0]]
    candidates: list[FieldPath] = []
    if row.name_field is not None:
        spellings = dict.fromkeys((row.name_field, camel_case(row.name_field)))
        candidates += [(*definition.field_path, spelling) for spelling in spellings]
    around = wrapper_path(definition.field_path)
    if around != definition.field_path:
        candidates.append((*around, "name"))
    trails = (outline.follow(definition.document, path) for path in candidates)
    found = ((trail, text) for trail in trails if trail is not None and (text := scalar_text(trail)) is not None)
    return [trail for trail, text in found if names.written_name(text, row) == key[1]]


def scalar_text(trail: Trail | None) -> str | None:
    """Return a scalar's text; None for anchors, aliases and other values."""
    node = trail.value if trail is not None else None
    if node is None or node.form is not Form.SCALAR or (not node.quote and node.text.startswith(("&", "*"))):
        return None
    return node.text


def span_of(trail: Trail) -> Span:
    """Return the last value's span, else its key's, else the text's start."""
    if trail.value is not None:
        return trail.value.start, trail.value.end
    last = trail.steps[-1].member if trail.steps else None
    return last.span if last is not None else (0, 0)
