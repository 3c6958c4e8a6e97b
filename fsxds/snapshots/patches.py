"""Applies the edits in a layer's documents to resources of the layers below.

A patched resource is accepted, held back, and kept with the file that patches it. Its problems are those of that file;
in a field that was written below, they are shown there (`Problem.elsewhere`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.fields import shown_pointer
from fsxds.api.merge_patch import PatchMerger
from fsxds.api.printing import Printer
from fsxds.formats.decoded import PlainDocument
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Document, Key, LayerEdit, Origin, ParsedFile, Patched, Resource
from fsxds.model.values import Fault, FieldPath, PlainValue, Problem, Severity, pointer_of
from fsxds.settings.naming_rules import NO_RULES, NamingRules
from fsxds.snapshots import names
from fsxds.snapshots.check_protocol import Check, FieldLocator, problem_at
from fsxds.snapshots.document import DocumentReader, Tools
from fsxds.snapshots.layer_documents import edit_problem, nothing_below
from fsxds.snapshots.parse import field_rules

RESOURCE = "resource"


@dataclass(frozen=True, slots=True)
class PatchedResource:
    """`resource` is None if the result is no message."""

    resource: Resource | None
    origin: Origin
    faults: tuple[Fault, ...]


class Patching:
    """Patches resources, and checks the results."""

    def __init__(
        self, catalogue: Catalogue, unknown_fields: Severity, check: Check, naming: NamingRules = NO_RULES
    ) -> None:
        converter = Converter(catalogue, unknown_fields=unknown_fields)
        self._catalogue = catalogue
        self._check = check
        # A patched resource has the parameters of the folder in which it was written.
        without_contexts = replace(naming, contexts=())
        self._tools = Tools(catalogue, converter, field_rules(catalogue, check), unknown_fields, without_contexts)
        self._merger = PatchMerger(catalogue)
        self._printer = Printer(catalogue)

    def done(
        self,
        parsed: ParsedFile,
        bases: Mapping[Key, Resource],
        may_exist: Callable[[Key], bool],
        locator: FieldLocator,
    ) -> ParsedFile:
        """Apply all edits of a file.

        `bases` are the existing resources that it edits; others `may_exist` in a broken file below. `locator` finds
        this file by its new digest, `digest_of_done`.
        """
        digest = digest_of_done(parsed, bases, may_exist)
        problems = [*parsed.problems, *nothing_below(parsed, bases, self._check.adjusted, may_exist)]
        documents = []
        for document in parsed.documents:
            made = [self._patched(bases[edit.key], edit) for edit in document.edits if edit.patch and edit.key in bases]
            for each in made:
                problems += self._problems(replace(parsed, digest=digest), each, locator)
            resources = tuple(each.resource for each in made if each.resource is not None)
            problems += self._unchanged(document, resources, bases)
            documents.append(_with_resources(document, resources))
        takes = frozenset(edit.key for edit in parsed.edits if edit.key in bases)
        ordered = tuple(sorted(problems))
        return replace(parsed, digest=digest, documents=tuple(documents), problems=ordered, takes=takes)

    def _patched(self, base: Resource, edit: LayerEdit) -> PatchedResource:
        if base.redirect:
            fact = f"the patched resource is a redirect, at {base.origin}: it has no content of its own"
            of_redirect = Fault("malformed-redirect", fact, f"patch its target, {base.redirect}")
            return PatchedResource(None, edit.origin, (of_redirect,))
        row = BY_TYPE_URL[base.type_url]
        message = self._catalogue.message_class(row.message_type).FromString(base.body)
        merged = self._merger.merge(self._printer.to_plain(message), edit.patch or {}, row.message_type)
        around: dict[str, PlainValue] = {"name": base.name, "aliases": [*_authored_aliases(base, message)]}
        if base.ttl_s is not None:
            around["ttl"] = f"{base.ttl_s:.9f}s"
        document = PlainDocument({**around, RESOURCE: {"@type": base.type_url, **merged.value}}, edit.origin.line)
        draft = DocumentReader(self._tools, edit.origin.path, document, None).read(edit.origin.document)
        # Faults of the wrapper are those of the layer below.
        found = (
            replace(one, field_path=one.field_path[1:]) for one in draft.faults if one.field_path[:1] == (RESOURCE,)
        )
        faults = tuple(fault for one in found if (fault := self._check.adjusted(one)) is not None)
        origin = replace(edit.origin, patched=Patched(base.origin, merged.sources))
        resource = replace(draft.resources[0], origin=origin) if draft.resources else None
        return PatchedResource(resource, origin, faults)

    def _problems(self, parsed: ParsedFile, patched: PatchedResource, locator: FieldLocator) -> Iterator[Problem]:
        places = locator.places(parsed, [(patched.origin, fault.field_path) for fault in patched.faults])
        for fault, place in zip(patched.faults, places, strict=True):
            yield problem_at(place, fault, partial(self._pointer, fault.message, patched.origin.field_path))

    def _pointer(self, message: str, known: FieldPath, field_path: FieldPath) -> str:
        """The name of a resource may be shown, as it leads to a patch."""
        if field_path[: len(known)] != known:
            return shown_pointer(field_path, message, self._catalogue)
        rest = shown_pointer(field_path[len(known) :], message, self._catalogue)
        return pointer_of(known) + ("." if rest[:1].isalnum() else "") + rest

    def _unchanged(
        self, document: Document, patched: tuple[Resource, ...], bases: Mapping[Key, Resource]
    ) -> Iterator[Problem]:
        after = {(resource.type_url, resource.name): resource for resource in patched}
        for edit in document.edits:
            resource, base = after.get(edit.key), bases.get(edit.key)
            is_empty = edit.patch is not None and not edit.patch and base is not None
            if is_empty or (resource is not None and base is not None and resource.equals_for_clients(base)):
                noun = BY_TYPE_URL[edit.type_url].noun
                fact = f'the patch changes nothing of "{edit.name}" of the {noun} below'
                problem = self._check.adjusted(
                    edit_problem(edit, "patch-without-effect", fact, "remove it", Severity.WARNING)
                )
                if problem is not None:
                    yield problem


def digest_of_done(parsed: ParsedFile, bases: Mapping[Key, Resource], may_exist: Callable[[Key], bool]) -> str:
    """Return a file's digest after its edits."""
    found = [(edit.key, _text(bases.get(edit.key)) or may_exist(edit.key)) for edit in parsed.edits]
    return hashlib.sha256(repr((parsed.digest, found)).encode()).hexdigest()


def _text(base: Resource | None) -> tuple[object, ...] | None:
    return None if base is None else (base.version, base.ttl_s, base.aliases, str(base.origin))


def _with_resources(document: Document, resources: tuple[Resource, ...]) -> Document:
    declared = document.declared | {resource.type_url for resource in resources}
    return replace(document, resources=(*document.resources, *resources), declared=declared, edits=())


def _authored_aliases(base: Resource, message: Message) -> tuple[str, ...]:
    """Omit aliases derived from the content."""
    if base.type_url != names.VIRTUAL_HOST.type_url:
        return base.aliases
    made = names.aliases_of(base.name, message, ())
    return tuple(alias for alias in base.aliases if alias not in made)
