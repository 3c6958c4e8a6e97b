"""Reads documents of `kind: Layer`, which edit resources below.

```yaml
kind: Layer
delete:
  clusters: [legacy]
patch:
  clusters:
    web: {connect_timeout: 2s}
```

A type is a word that also names its files (`clusters`, `cds`), a message type or a type URL.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator

from fsxds.api.fields import quoted
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Key, LayerEdit, Origin, ParsedFile
from fsxds.model.values import Fault, FieldPath, PlainValue, Problem, Severity, pointer_of

KIND = "Layer"
DELETE, PATCH = "delete", "patch"

TYPE_WORDS = {
    word: row for row in reversed(RESOURCE_TYPES) for word in (*row.words, row.message_type, str(row.type_url))
}
"""Types by their accepted spellings."""

NameOf = Callable[[str, ResourceType, FieldPath], str | Fault]
"""Returns the canonical form of a resource name at a place, or its fault."""

Adjust = Callable[[Problem], Problem | None]
"""Returns a problem with the severity of its rule, or None if the rule is off."""


def read_layer_document(
    value: dict[str, PlainValue], origin: Origin, name_of: NameOf
) -> tuple[tuple[LayerEdit, ...], list[Fault]]:
    """Return a document's edits and faults."""
    reader = _LayerReader(origin, name_of)
    return tuple(reader.read(value)), reader.faults


class _LayerReader:
    def __init__(self, origin: Origin, name_of: NameOf) -> None:
        self.faults: list[Fault] = []
        self._origin = origin
        self._name_of = name_of
        self._seen: set[tuple[str, str]] = set()

    def read(self, value: dict[str, PlainValue]) -> Iterator[LayerEdit]:
        for key, content in value.items():
            if key in (DELETE, PATCH):
                if content is not None:
                    yield from self._of_types(content, key)
            elif key != "kind":
                self._reject("unknown-field", "a Layer has no such field", f"it has {DELETE} and {PATCH}", (key,))
        if value.keys() <= {"kind"}:
            fact = "a Layer without a deletion or a patch has no effect"
            remedy = f"write {DELETE} or {PATCH}, or remove it"
            self.faults.append(Fault("wrong-value", fact, remedy, (), severity=Severity.WARNING))

    def _of_types(self, content: PlainValue, key: str) -> Iterator[LayerEdit]:
        if not isinstance(content, dict):
            example = "clusters: [web]" if key == DELETE else "clusters: {web: {…}}"
            return self._reject("wrong-value", f"is {_shown(content)}", f"write it by types: `{example}`", (key,))
        for word, named in content.items():
            row = TYPE_WORDS.get(word)
            if row is None:
                self._reject_type(word, (key, word))
            elif key == DELETE:
                yield from self._deletions(row, named, (key, word))
            else:
                yield from self._patches(row, named, (key, word))

    def _deletions(self, row: ResourceType, names: PlainValue, path: FieldPath) -> Iterator[LayerEdit]:
        # As elsewhere, one value may stand for a list.
        for index, name in enumerate(names if isinstance(names, list) else [names]):
            place = (*path, index) if isinstance(names, list) else path
            if not isinstance(name, str) or not name:
                self._reject("wrong-value", f"is {_shown(name)}", "write the name of a resource", place)
            else:
                yield from self._edit(row, name, place, None)

    def _patches(self, row: ResourceType, named: PlainValue, path: FieldPath) -> Iterator[LayerEdit]:
        if not isinstance(named, dict):
            return self._reject("wrong-value", f"is {_shown(named)}", "write it by names: `web: {…}`", path)
        for name, patch in named.items():
            place = (*path, name)
            if not isinstance(patch, dict):
                remedy = f"write the fields to change; a resource is deleted by {DELETE}"
                self._reject("wrong-value", f"is {_shown(patch)}", remedy, place)
            else:
                yield from self._edit(row, name, place, patch)

    def _edit(
        self, row: ResourceType, written: str, place: FieldPath, patch: dict[str, PlainValue] | None
    ) -> Iterator[LayerEdit]:
        name = self._name_of(written, row, place)
        if isinstance(name, Fault):
            self.faults.append(name)
            return
        if (row.short_name, name) in self._seen:
            self._reject("duplicate-name", f'"{name}" is in this document already', "remove one of the two", place)
            return
        self._seen.add((row.short_name, name))
        origin = Origin(self._origin.path, self._origin.line, self._origin.document, place)
        yield LayerEdit(row.type_url, name, origin, 1, patch)

    def _reject_type(self, word: str, path: FieldPath) -> None:
        near = difflib.get_close_matches(word, TYPE_WORDS, 1)
        known = ", ".join(row.noun for row in RESOURCE_TYPES)
        fact = "no type of resources has this name"
        self._reject("unknown-type", fact, f'did you mean "{near[0]}"?' if near else f"there are {known}", path)

    def _reject(self, rule: str, fact: str, remedy: str, path: FieldPath) -> None:
        self.faults.append(Fault(rule, fact, remedy, path))


def _shown(value: PlainValue) -> str:
    return quoted(value, secret=True)


def nothing_below(
    parsed: ParsedFile, bases: Collection[Key], adjusted: Adjust, may_exist: Callable[[Key], bool] = lambda _: False
) -> Iterator[Problem]:
    """Yield a problem for each edited resource that no layer below has.

    Deleting one is none if it `may_exist`, in a broken file.
    """
    for edit in parsed.edits:
        if edit.key in bases:
            continue
        noun, is_uncertain = BY_TYPE_URL[edit.type_url].noun, may_exist(edit.key)
        fact = f'no layer below has "{edit.name}" of the {noun}'
        if is_uncertain and edit.patch is None:
            continue
        if is_uncertain:
            fact = f'no layer below serves "{edit.name}" of the {noun}, because a file there is broken'
            found = edit_problem(edit, "nothing-to-patch", fact, "fix that file", Severity.ERROR)
        elif edit.patch is None:
            found = edit_problem(edit, "nothing-to-delete", fact, "correct the name, or remove it", Severity.WARNING)
        else:
            remedy = "correct the name; or write the whole resource into this layer"
            found = edit_problem(edit, "nothing-to-patch", fact, remedy, Severity.ERROR)
        problem = adjusted(found)
        if problem is not None:
            yield problem


def edit_problem(edit: LayerEdit, rule: str, fact: str, remedy: str, severity: Severity) -> Problem:
    """Return a problem at an edit's place."""
    origin = edit.origin
    return Problem(origin.path, origin.line, edit.column, pointer_of(origin.field_path), rule, fact, remedy, severity)
