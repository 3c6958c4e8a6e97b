"""Reads one document."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath
from typing import NamedTuple

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.constraints import FieldRules
from fsxds.api.converter import Converted, Converter
from fsxds.api.fields import camel_case
from fsxds.api.v2_spellings import similar_type
from fsxds.api.walk import Unreadable, unreadable_parts
from fsxds.formats.decoded import MAX_FAULTS, MessageDocument, PlainDocument
from fsxds.model.resource_names import Locator, MalformedName, is_locator, is_structured
from fsxds.model.resource_types import BY_MESSAGE_TYPE, ResourceType
from fsxds.model.resources import LayerEdit, Origin, Reference, Resource, UnreadResource, version_of_body
from fsxds.model.values import Fault, FieldPath, PlainValue, Severity, TypeUrl
from fsxds.settings.naming_rules import NO_RULES, NamingRules
from fsxds.snapshots import names, redirect_payloads, shape
from fsxds.snapshots.layer_documents import KIND, read_layer_document
from fsxds.snapshots.names import (
    LISTENER,
    ONLY_ONE,
    VIRTUAL_HOST,
    NameWriter,
    may_hold_names,
    name_of_unnamed,
    unmatchable_fault,
    unnamed_fault,
)
from fsxds.snapshots.shape import (
    DISCOVERY_RESPONSE,
    RESOURCE_WRAPPER,
    Piece,
    TypeClaim,
    rules_of,
    shape_of,
    wrapper_path,
)


@dataclass(slots=True)
class DocumentDraft:
    """A document while it is read.

    `broken` counts resources with errors.
    """

    number: int
    resources: list[Resource] = field(default_factory=list)
    unread: list[UnreadResource] = field(default_factory=list)
    declared: set[TypeUrl] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    version_info: str | None = None
    broken: int = 0
    with_ttl: set[TypeUrl] = field(default_factory=set)
    edits: tuple[LayerEdit, ...] = ()

    def reject(self, fault: Fault) -> None:
        """Add a resource's error."""
        self.faults.append(fault)
        self.broken += 1


@dataclass(frozen=True, slots=True)
class Tools:
    """`unknown_fields` is the severity of unknown fields."""

    catalogue: Catalogue
    converter: Converter
    field_rules: FieldRules
    unknown_fields: Severity = Severity.ERROR
    naming: NamingRules = NO_RULES


class DocumentReader:
    """Reads one document's resources."""

    def __init__(
        self,
        tools: Tools,
        path: PurePosixPath,
        document: PlainDocument | MessageDocument,
        hint: ResourceType | None,
    ) -> None:
        self._catalogue = tools.catalogue
        self._tools = tools
        self._names = NameWriter(tools.catalogue, tools.naming, path)
        self._authority = tools.naming.authority
        self._path = path
        self._document = document
        self._hint = hint

    def read(self, number: int) -> DocumentDraft:
        """`number` is the document's index in its file."""
        draft = DocumentDraft(number)
        if isinstance(self._document, PlainDocument):
            self._read_plain(self._document, draft)
        else:
            self._read_message(self._document.message, draft)
            for at, fault in enumerate(draft.faults):
                index = next((step for step in fault.field_path if isinstance(step, int)), None)
                draft.faults[at] = replace(fault, line=self._line_of(index))
        return draft

    def _read_plain(self, document: PlainDocument, draft: DocumentDraft) -> None:
        value = document.value
        # No resource has a field `kind`.
        if isinstance(value, dict) and value.get("kind") == KIND:
            origin = Origin(self._path, document.line, draft.number)
            draft.edits, draft.faults = read_layer_document(value, origin, self._names.edited_name)
            return
        shape = shape_of(value, self._tools.unknown_fields)
        draft.version_info = shape.version_info
        draft.faults += shape.faults
        for piece in shape.pieces:
            self._read_piece(piece, draft)
            if draft.broken > MAX_FAULTS:
                break  # more faults than are reported; and broken files are not served
        if shape.is_empty_on_purpose:
            self._declare_empty(shape.claim, draft)

    def _read_message(self, message: DynamicMessage, draft: DocumentDraft) -> None:
        if message.DESCRIPTOR.full_name != DISCOVERY_RESPONSE:
            self._read_item(message, (), 0, draft)
            return
        draft.version_info = message.version_info or None
        for index, packed in enumerate(message.resources):
            self._read_item(packed, ("resources", index), index, draft)
        if not message.resources:
            self._declare_empty(TypeClaim(message.type_url, ("type_url",)) if message.type_url else None, draft)

    def _read_piece(self, piece: Piece, draft: DocumentDraft) -> None:
        wrapping = self._wrapping(piece, draft)
        if wrapping is None:
            return
        expected = self._hint if piece.claim is None else BY_MESSAGE_TYPE.get(piece.claim.type_url.rpartition("/")[2])
        if wrapping.redirect and piece.value is None:
            self._add_named_redirect(_Place(piece.field_path, piece.position, wrapping), expected, draft)
            return
        if piece.wrapper is not None and isinstance(piece.value, str) and is_locator(piece.value):
            wrapping = replace(wrapping, redirect=piece.value)
            self._add_named_redirect(_Place(piece.field_path, piece.position, wrapping), expected, draft)
            return
        if not isinstance(piece.value, dict):
            draft.reject(shape.not_an_object(piece.field_path))
            return
        row: ResourceType | None
        if "@type" in piece.value:
            row = BY_MESSAGE_TYPE.get(str(piece.value["@type"]).rpartition("/")[2])
            converted = self._converted(piece.value, row, self._tools.converter.convert_any)
        else:
            row = self._row(piece.claim, piece.field_path, draft, piece.value)
            if row is None:
                return
            convert = partial(self._tools.converter.convert, message_type=row.message_type)
            converted = self._converted(piece.value, row, convert)
        draft.faults += _conversion_faults(piece, converted.faults)
        place = _Place(piece.field_path, piece.position, wrapping, piece.value)
        if converted.message is not None:
            self._add_payload(converted.message, place, expected, draft)
            return
        draft.broken += 1
        if row is not None and (name := _written_name(row, place)):
            draft.unread.append(UnreadResource(row.type_url, self._names.written_name(name, row), place.field_path))

    def _converted(
        self, value: dict[str, PlainValue], row: ResourceType | None, convert: Callable[[PlainValue], Converted]
    ) -> Converted:
        rules = rules_of(row)
        if rules is None:
            return convert(value)
        plain, faults = rules.read(value, self._authority)
        converted = convert(plain)
        return Converted(None, (*converted.faults, *faults)) if faults else converted

    def _declare_empty(self, claim: TypeClaim | None, draft: DocumentDraft) -> None:
        row = self._row(claim, (), draft)
        if row is not None:
            draft.declared.add(row.type_url)

    def _row(
        self, claim: TypeClaim | None, field_path: FieldPath, draft: DocumentDraft, value: Collection[str] = ()
    ) -> ResourceType | None:
        if claim is None:
            if self._hint is None:
                draft.faults.append(shape.no_type(field_path, value))
            return self._hint
        message_type = claim.type_url.rpartition("/")[2]
        row = BY_MESSAGE_TYPE.get(message_type)
        if row is None:
            fault = (
                shape.not_served(message_type, claim.field_path)
                if self._catalogue.knows(message_type)
                else shape.unknown_type(message_type, similar_type(self._catalogue, message_type), claim.field_path)
            )
            # Report it once, however many resources the envelope has.
            draft.faults += [fault] if fault not in draft.faults else []
        return row

    def _wrapping(self, piece: Piece, draft: DocumentDraft) -> _Wrapping | None:
        """None if the `Resource` is empty."""
        if piece.wrapper is None:
            return _NO_WRAPPING
        if piece.value is None and not redirect_payloads.is_named_in(piece.wrapper):
            draft.faults.append(shape.heartbeat(piece.wrapper_path))
            return None
        converted = self._tools.converter.convert(piece.wrapper, RESOURCE_WRAPPER)
        draft.faults += (replace(fault, field_path=piece.wrapper_path + fault.field_path) for fault in converted.faults)
        return _wrapping_of(converted.message) if converted.message is not None else _NO_WRAPPING

    def _read_item(self, message: DynamicMessage, field_path: FieldPath, index: int, draft: DocumentDraft) -> None:
        wrapping = _NO_WRAPPING
        while True:
            name = message.DESCRIPTOR.full_name
            if name == RESOURCE_WRAPPER:
                wrapping = _wrapping_of(message)
                if not message.HasField("resource"):
                    if wrapping.redirect:
                        self._add_named_redirect(_Place(field_path, index, wrapping), self._hint, draft)
                        return
                    draft.faults.append(shape.heartbeat(field_path))
                    return
                message = message.resource
            elif name == "google.protobuf.Any":
                message_type = message.type_url.rpartition("/")[2]
                message = self._catalogue.unpacked(message)
                if message is None:
                    part = Unreadable(field_path, message_type, is_known=self._catalogue.knows(message_type))
                    draft.faults.append(self._unreadable(part))
                    return
            else:
                faults = [self._unreadable(part) for part in unreadable_parts(message, self._catalogue, field_path)]
                draft.faults += faults
                if not faults:
                    self._add_payload(message, _Place(field_path, index, wrapping), self._hint, draft)
                return

    def _unreadable(self, part: Unreadable) -> Fault:
        if part.is_known:
            return shape.broken_message(part.message_type, part.field_path)
        return shape.unknown_type(part.message_type, similar_type(self._catalogue, part.message_type), part.field_path)

    def _add_named_redirect(self, place: _Place, expected: ResourceType | None, draft: DocumentDraft) -> None:
        wrapping = place.wrapping
        try:
            locator = redirect_payloads.locator_of_text(wrapping.redirect, wrapping.name, expected, self._authority)
        except MalformedName as error:
            named = (*wrapper_path(place.field_path), "resource_name", "name")
            at = place.field_path if place.field_path[-1:] == ("resource",) else named
            draft.reject(redirect_payloads.malformed(error, at))
            return
        self._add_redirect(locator, place, expected, draft)

    def _add_redirect(
        self, locator: Locator, place: _Place, expected: ResourceType | None, draft: DocumentDraft
    ) -> None:
        redirect = redirect_payloads.read_redirect(place.wrapping.name, locator, expected, place.field_path)
        if isinstance(redirect, Fault):
            draft.reject(redirect)
            return
        row, canonical = redirect.row, self._canonical_around(redirect.row, place, draft)
        draft.declared.add(row.type_url)
        if canonical is None:
            draft.broken += 1
            return
        wrapping = canonical.wrapping
        if row is VIRTUAL_HOST and (fault := names.table_fault(wrapping.name, place.field_path)):
            draft.reject(fault)
            return
        self._check_ttl(row, wrapping.ttl_s, place, draft)
        origin = Origin(self._path, self._line_of(place.position), draft.number, place.field_path)
        draft.resources.append(redirect.as_resource(wrapping.name, wrapping.aliases, wrapping.ttl_s, origin))

    def _add_payload(
        self, payload: Message, place: _Place, expected: ResourceType | None, draft: DocumentDraft
    ) -> None:
        if payload.DESCRIPTOR.full_name not in redirect_payloads.PAYLOADS:
            self._add(payload, place, draft)
            return
        try:
            locator = redirect_payloads.locator_in(payload, self._authority)
        except MalformedName as error:
            draft.reject(redirect_payloads.malformed(error, place.field_path))
            return
        self._add_redirect(locator, place, expected, draft)

    def _add(self, message: DynamicMessage, place: _Place, draft: DocumentDraft) -> None:
        row = BY_MESSAGE_TYPE.get(message.DESCRIPTOR.full_name)
        if row is None:
            draft.faults.append(shape.not_served(message.DESCRIPTOR.full_name, place.field_path))
            return
        draft.declared.add(row.type_url)
        prepared = self._prepared(message, row, place, draft)
        if prepared is None:
            draft.broken += 1
            return
        place, body = prepared
        wrapping = place.wrapping
        own_name = str(getattr(message, row.name_field)) if row.name_field else ""
        is_unnamed = row is LISTENER and not own_name
        if is_unnamed:
            own_name = self._name_listener(message, place, draft)
            body = message.SerializeToString(deterministic=True)
        fault = names.naming_fault(row, own_name, wrapping.name, place.field_path, lambda: _name_path(row, place))
        if fault is not None:
            draft.reject(fault)
            return
        self._check_ttl(row, wrapping.ttl_s, place, draft)
        name, aliases = wrapping.name or own_name, wrapping.aliases
        version = version_of_body(row.type_url, body)
        origin = Origin(self._path, self._line_of(place.position), draft.number, place.field_path)
        references = self._check(message, place, draft)
        if may_hold_names(body):
            references = self._checked_references(references, place, draft)
        if is_unnamed:
            references += (ONLY_ONE,)
        if (rules := rules_of(row)) is not None:
            references += tuple(rules.references_of(message))
        if row is VIRTUAL_HOST:
            fault = names.lasting_fault(name, own_name, place.field_path)
            draft.faults += [fault] if fault else []
            references += tuple(names.claims_of(name, message, aliases))
            aliases = names.aliases_of(name, message, aliases)
        draft.resources.append(Resource(row.type_url, name, body, version, origin, aliases, wrapping.ttl_s, references))

    def _prepared(
        self, message: Message, row: ResourceType, place: _Place, draft: DocumentDraft
    ) -> tuple[_Place, bytes] | None:
        body = message.SerializeToString(deterministic=True)
        if may_hold_names(body) or any(map(is_structured, (place.wrapping.name, *place.wrapping.aliases))):
            canonical = self._canonical(message, row, place, draft)
            if canonical is None:
                return None
            place, body = canonical, message.SerializeToString(deterministic=True)
        if (rules := rules_of(row)) is not None:
            faults = [
                replace(fault, field_path=place.field_path + authored_path(place.written, fault.field_path))
                for fault in rules.complete(message, place.written, self._catalogue, self._authority)
            ]
            if (of_name := rules.name_fault(place.wrapping.name)) is not None:
                around = wrapper_path(place.field_path)
                faults.insert(0, replace(of_name, field_path=around + of_name.field_path))
            draft.faults += faults
            body = message.SerializeToString(deterministic=True)
            return None if faults else (place, body)
        return place, body

    def _canonical(self, message: Message, row: ResourceType, place: _Place, draft: DocumentDraft) -> _Place | None:
        own = (
            ""
            if row.name_field is None
            else self._names.resource_name(str(getattr(message, row.name_field)), row, _name_path(row, place))
        )
        canonical = self._canonical_around(row, place, draft)
        if isinstance(own, Fault):
            draft.faults.append(own)
        if isinstance(own, Fault) or canonical is None:
            return None
        fault = None if canonical.wrapping.name else unmatchable_fault(own, row, _name_path(row, place))
        draft.faults += [fault] if fault else []
        if row.name_field is not None:
            # Most resources have no other structured name: without their own, there is nothing to rewrite.
            setattr(message, row.name_field, "")
        self._names.rewrite(message)
        if row.name_field is not None:
            setattr(message, row.name_field, own)
        return canonical

    def _canonical_around(self, row: ResourceType, place: _Place, draft: DocumentDraft) -> _Place | None:
        around = wrapper_path(place.field_path)
        written = [(place.wrapping.name, (*around, "name"))]
        written += [(alias, (*around, "aliases", index)) for index, alias in enumerate(place.wrapping.aliases)]
        found = [self._names.resource_name(text, row, field_path) for text, field_path in written]
        faults = [one for one in found if isinstance(one, Fault)]
        draft.faults += faults
        if faults:
            return None
        name, *aliases = [one for one in found if isinstance(one, str)]
        fault = unmatchable_fault(name, row, written[0][1]) if name else None
        draft.faults += [fault] if fault else []
        if not name and not aliases:
            return place
        return place._replace(wrapping=replace(place.wrapping, name=name, aliases=tuple(aliases)))

    def _name_listener(self, message: DynamicMessage, place: _Place, draft: DocumentDraft) -> str:
        """Return a stable name; empty without an address."""
        name = name_of_unnamed(message, place.wrapping.name)
        if name:
            message.name = name
            draft.faults.append(unnamed_fault(name, _name_path(LISTENER, place)))
        return name

    def _check_ttl(self, row: ResourceType, ttl_s: float | None, place: _Place, draft: DocumentDraft) -> None:
        if ttl_s is None:
            return
        fault = shape.wrong_ttl(ttl_s, place.field_path)
        if fault is None and row.type_url not in draft.with_ttl:
            draft.with_ttl.add(row.type_url)
            fault = shape.dropped_ttl(row, place.field_path)
        if fault is not None:
            draft.faults.append(fault)
            draft.broken += fault.severity is Severity.ERROR

    def _check(self, message: Message, place: _Place, draft: DocumentDraft) -> tuple[Reference, ...]:
        walk = self._tools.field_rules.check(message)
        if walk.faults:
            draft.broken += any(fault.severity is Severity.ERROR for fault in walk.faults)
            for fault in walk.faults:
                path = place.field_path + authored_path(place.written, fault.field_path)
                draft.faults.append(replace(fault, field_path=path))
        return tuple(
            [
                one
                if (path := authored_path(place.written, one.field_path)) == one.field_path
                else one._replace(field_path=path)
                for one in walk.references
            ]
        )

    def _checked_references(
        self, references: tuple[Reference, ...], place: _Place, draft: DocumentDraft
    ) -> tuple[Reference, ...]:
        checked = tuple(self._names.checked(references))
        wrong = [
            replace(one, field_path=place.field_path + one.field_path) for one in checked if isinstance(one, Fault)
        ]
        if wrong:
            found = {fault.field_path for fault in draft.faults}
            new = [fault for fault in wrong if fault.field_path not in found]
            draft.faults += new
            draft.broken += bool(new)
        return tuple(one for one in checked if isinstance(one, Reference))

    def _line_of(self, index: int | None) -> int:
        lines = self._document.item_lines
        return lines[index] if index is not None and index < len(lines) else self._document.line


def _conversion_faults(piece: Piece, faults: Collection[Fault]) -> list[Fault]:
    written = piece.value.get("@type") if faults and isinstance(piece.value, dict) else ""
    singular = shape.singular_collection(str(written).rpartition("/")[2], piece.field_path)
    if singular is not None:
        return [singular]
    return [replace(fault, field_path=piece.field_path + fault.field_path) for fault in faults]


def _name_path(row: ResourceType, place: _Place) -> FieldPath:
    if row.name_field is None or not isinstance(place.written, dict):
        return place.field_path
    written = authored_path(place.written, (row.name_field,))
    return place.field_path + written if written[0] in place.written else place.field_path


def _written_name(row: ResourceType, place: _Place) -> str:
    if place.wrapping.name or row.name_field is None or not isinstance(place.written, dict):
        return place.wrapping.name
    written = place.written.get(str(authored_path(place.written, (row.name_field,))[0]))
    return written if isinstance(written, str) else ""


def _wrapping_of(wrapper: DynamicMessage) -> _Wrapping:
    ttl_s = wrapper.ttl.seconds + wrapper.ttl.nanos / 1e9 if wrapper.HasField("ttl") else None
    return _Wrapping(wrapper.name, tuple(wrapper.aliases), ttl_s, wrapper.resource_name.name)


@dataclass(frozen=True, slots=True)
class _Wrapping:
    """`redirect` only without content."""

    name: str = ""
    aliases: tuple[str, ...] = ()
    ttl_s: float | None = None
    redirect: str = ""


_NO_WRAPPING = _Wrapping()


class _Place(NamedTuple):
    """`written` is None for a message."""

    field_path: FieldPath
    position: int | None
    wrapping: _Wrapping = _NO_WRAPPING
    written: PlainValue = None


def authored_path(value: PlainValue, field_path: FieldPath) -> FieldPath:
    """Convert the API's path of a field to the author's spelling.

    Authors may write `connectTimeout`, and one object for a list.
    """
    steps: list[str | int] = []
    for number, step in enumerate(field_path):
        if isinstance(step, int):
            if not isinstance(value, list):
                continue
            if step >= len(value):
                return (*steps, *field_path[number:])
            value = value[step]
            steps.append(step)
            continue
        if not isinstance(value, dict):
            return (*steps, *field_path[number:])
        key = step if step in value else camel_case(step)
        if key not in value:
            return (*steps, *field_path[number:])
        value = value[key]
        steps.append(key)
    return tuple(steps)
