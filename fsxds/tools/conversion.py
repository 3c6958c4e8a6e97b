"""Converts files without loss, comments apart, which reading back proves."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final, cast

import yaml
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.converter import Converter
from fsxds.api.fields import ANY, LIST_VALUE, STRUCT, VALUE, FieldValue, is_map
from fsxds.api.printing import Printer
from fsxds.api.walk import unreadable_parts
from fsxds.formats import Format
from fsxds.formats.decoded import PlainDocument
from fsxds.formats.json_format import encode_plain as encode_json
from fsxds.formats.yaml_format import encode_plain as encode_yaml
from fsxds.model.resource_types import PREFIX, ResourceType
from fsxds.model.values import Fault, FieldPath, PlainValue, Problem, SourceFile, TypeUrl
from fsxds.snapshots import shape
from fsxds.snapshots.parse import problems_of
from fsxds.snapshots.shape import DISCOVERY_RESPONSE, RESOURCE_WRAPPER, is_envelope, is_wrapper

_READ_BACK = PurePosixPath("read-back")


@dataclass(frozen=True, slots=True)
class Part:
    """One document: DiscoveryResponses, `Resource`s, or bare resources."""

    messages: tuple[Message, ...]
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """The documents of a file; meaningless with an ERROR among the problems."""

    parts: tuple[Part, ...]
    problems: tuple[Problem, ...] = ()


class ConversionReader:
    """Reads any format, without Envoy's constraints on values."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._converter = Converter(catalogue)

    def read(self, file: SourceFile, file_format: Format, hint: ResourceType | None) -> Input:
        """Report all problems of a file; bad content never raises.

        `hint` is the type of resources without one, or None.
        """
        decoded = file_format.decode(file.content, self._catalogue, hint.message_type if hint else None)
        faults = [(0, fault) for fault in decoded.faults]
        parts: list[Part] = []
        for number, document in enumerate(decoded.documents):
            if isinstance(document, PlainDocument):
                reading = _Reading(self._converter, hint)
                parts += reading.part(document.value)
                faults += ((number, fault) for fault in reading.faults)
            else:
                for part in unreadable_parts(document.message, self._catalogue):
                    place = part.field_path
                    if part.is_known:
                        faults.append((number, replace(shape.broken_message(part.message_type, place), line=1)))
                    elif part.message_type:
                        similar = self._catalogue.similar(part.message_type)
                        faults.append((number, replace(shape.unknown_type(part.message_type, similar, place), line=1)))
                parts.append(Part((document.message,)))
        if not parts and not faults:
            fact = "the file is empty"
            faults.append((0, Fault("empty-file", fact, "write `resources: []` for an empty list", (), 1, 1)))
        return Input(tuple(parts), tuple(sorted(problems_of(file, file_format.locate, faults, self._catalogue))))


class _Reading:
    def __init__(self, converter: Converter, hint: ResourceType | None) -> None:
        self.faults: list[Fault] = []
        self._converter = converter
        self._hint = hint

    def part(self, value: PlainValue) -> Iterator[Part]:
        if isinstance(value, list):
            messages = (self._message(element, (index,)) for index, element in enumerate(value))
            yield Part(tuple(message for message in messages if message is not None), is_list=True)
        elif value is not None:
            message = self._message(value, ())
            yield Part((message,) if message is not None else ())

    def _message(self, value: PlainValue, path: FieldPath) -> Message | None:
        if not isinstance(value, dict):
            self.faults.append(shape.not_an_object(path))
            return None
        if is_envelope(value):
            return self._envelope(value, path)
        typed = self._typed(value, path, None)
        if typed is None:
            return None
        if is_wrapper(value):
            return self._convert(_bare(typed), RESOURCE_WRAPPER, path)
        return self._convert(typed, None, path)

    def _envelope(self, value: dict[str, PlainValue], path: FieldPath) -> Message | None:
        claim = next(
            (text for key in ("type_url", "typeUrl") if isinstance(text := value.get(key), str) and text), None
        )
        resources = value.get("resources")
        if resources is None:
            fact = "`resources` has no value, and Envoy would delete every resource"
            self.faults.append(
                Fault("no-resources", fact, "write the resources, or `resources: []` for an empty list", path)
            )
            return None
        typed: PlainValue
        if isinstance(resources, list):
            parts = (self._typed(part, (*path, "resources", at), claim) for at, part in enumerate(resources))
            typed = [part for part in parts if part is not None]
        else:
            typed = self._typed(resources, (*path, "resources"), claim)
        message: DynamicMessage = self._convert({**_bare(value), "resources": typed}, DISCOVERY_RESPONSE, path)
        if message is not None and not message.resources and not message.type_url and self._hint:
            # The type is in the file's name, and the new file may have another name.
            message.type_url = self._hint.type_url
        return message if isinstance(message, Message) else None

    def _typed(self, value: PlainValue, path: FieldPath, claim: str | None) -> dict[str, PlainValue] | None:
        if not isinstance(value, dict):
            self.faults.append(shape.not_an_object(path))
            return None
        if is_wrapper(value):
            wrapper = {"@type": f"type.googleapis.com/{RESOURCE_WRAPPER}", **value}
            if value.get("resource") is not None:
                wrapper["resource"] = self._typed(value["resource"], (*path, "resource"), claim)
            return wrapper
        type_url = claim or (self._hint.type_url if self._hint else None)
        if "@type" in value or type_url is not None:
            return {"@type": type_url, **value}
        self.faults.append(shape.no_type(path))
        return None

    def _convert(self, value: dict[str, PlainValue], message_type: str | None, path: FieldPath) -> Message | None:
        converted = self._converter.convert(value, message_type) if message_type else self._converter.convert_any(value)
        self.faults += (replace(fault, field_path=path + fault.field_path) for fault in converted.faults)
        return converted.message


def _bare(value: dict[str, PlainValue]) -> dict[str, PlainValue]:
    return {key: part for key, part in value.items() if key != "@type"}


class NotOneResponseError(Exception):
    """Documents differ in a field of a DiscoveryResponse."""


class ConversionLossError(Exception):
    """The format cannot hold a value.

    Attributes:
        field_path: of the first difference; empty for the whole message.
    """

    def __init__(self, field_path: FieldPath = ()) -> None:
        super().__init__(field_path)
        self.field_path = field_path


@dataclass(frozen=True, slots=True)
class ConvertedFile:
    """A converted file; `note` describes a change of shape."""

    content: bytes
    note: str = ""


class ConversionWriter:
    """Writes parts, and proves that they read back the same."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._reader = ConversionReader(catalogue)

    def write(self, parts: Sequence[Part], file_format: Format, hint: ResourceType | None) -> ConvertedFile:
        """Write documents; `hint` is their type if they have no resources.

        Raises:
            NotOneResponseError: the format has one document per file, and these cannot be merged.
            ConversionLossError: the format cannot hold a value.
            ApiError: a time is out of bounds, or an Any unreadable.
        """
        messages, name = _messages(parts), file_format.name
        if name == "yaml":
            output = ConvertedFile(encode_yaml([self._plain(part) for part in parts]))
        elif name == "json" and len(parts) == 1:
            output = ConvertedFile(encode_json(self._plain(parts[0])))
        elif name == "json":
            plain: list[PlainValue] = [self._plain_message(message) for message in messages]
            output = ConvertedFile(encode_json(plain), "several documents became one list")
        else:
            is_one = len(parts) == 1 and not parts[0].is_list
            if name == "binary":
                is_one = len(messages) == 1 and _is(messages[0], DISCOVERY_RESPONSE)
            if not is_one:
                messages = [self._one_response(messages, hint)]
            header = "" if name == "binary" else f"# proto-message: {messages[0].DESCRIPTOR.full_name}\n"
            content = header.encode() + file_format.encode(messages[0], self._printer)
            output = ConvertedFile(content, "" if is_one else f"{_names_of_parts(parts)} became one DiscoveryResponse")
        self._prove(messages, output, file_format)
        return output

    def _plain(self, part: Part) -> PlainValue:
        plain: list[PlainValue] = [self._plain_message(message) for message in part.messages]
        return plain if part.is_list else plain[0]

    def _plain_message(self, message: Message) -> PlainValue:
        name = str(message.DESCRIPTOR.full_name)
        if name == DISCOVERY_RESPONSE:
            plain = self._printer.to_plain(message)
            # Reading a response without the list would be an error.
            return plain if "resources" in plain else {**plain, "resources": []}
        if name == RESOURCE_WRAPPER and cast("DynamicMessage", message).HasField("resource"):
            return self._printer.to_plain(message)
        plain_any: PlainValue = json.loads(
            self._printer.any_json(TypeUrl(PREFIX + name), message.SerializeToString(deterministic=True))
        )
        return plain_any

    def _one_response(self, messages: Sequence[Message], hint: ResourceType | None) -> Message:
        response: DynamicMessage = self._catalogue.message_class(DISCOVERY_RESPONSE)()
        envelopes = [message for message in messages if _is(message, DISCOVERY_RESPONSE)]
        heads = set()
        for envelope in envelopes:
            head: DynamicMessage = type(envelope)()
            head.CopyFrom(envelope)
            head.ClearField("resources")
            head.ClearField("type_url")
            heads.add(head.SerializeToString(deterministic=True))
        if len(heads) > 1:
            raise NotOneResponseError
        for serialized in heads:
            response.MergeFromString(serialized)
        for message in messages:
            if _is(message, DISCOVERY_RESPONSE):
                response.resources.extend(cast("DynamicMessage", message).resources)
            else:
                body = message.SerializeToString(deterministic=True)
                response.resources.add(type_url=f"{PREFIX}{message.DESCRIPTOR.full_name}", value=body)
        found = {type_url for message in messages for type_url in self._types_of(message)}
        if len(found) > 1 and not all(cast("DynamicMessage", envelope).resources for envelope in envelopes):
            # The fact that there is no resource of a type would be lost.
            raise NotOneResponseError
        if len(found) == 1:
            response.type_url = found.pop()
        elif not found and hint is not None:
            response.type_url = hint.type_url
        checked: Message = response
        return checked

    def _types_of(self, message: Message) -> set[str]:
        if _is(message, RESOURCE_WRAPPER):
            return {cast("DynamicMessage", message).resource.type_url} - {""}
        if not _is(message, DISCOVERY_RESPONSE):
            return {f"{PREFIX}{message.DESCRIPTOR.full_name}"}
        envelope: DynamicMessage = message
        if envelope.type_url:
            return {envelope.type_url}
        wrapped = self._catalogue.message_class(RESOURCE_WRAPPER)
        found: set[str] = set()
        for packed in envelope.resources:
            is_wrapped = packed.type_url == PREFIX + RESOURCE_WRAPPER
            found |= self._types_of(wrapped.FromString(packed.value)) if is_wrapped else {packed.type_url}
        return found

    def _prove(self, messages: Sequence[Message], output: ConvertedFile, file_format: Format) -> None:
        again = self._reader.read(SourceFile.of(_READ_BACK, output.content), file_format, None)
        found = _messages(again.parts)
        for before, after in zip(messages, found, strict=False):
            if before.DESCRIPTOR.full_name != after.DESCRIPTOR.full_name:
                raise ConversionLossError
            path = first_difference(before, after, self._catalogue)
            if path is not None:
                raise ConversionLossError(path)
        if len(messages) != len(found):
            raise ConversionLossError


def _messages(parts: Sequence[Part]) -> list[Message]:
    return [message for part in parts for message in part.messages]


def _is(message: Message, message_type: str) -> bool:
    return bool(message.DESCRIPTOR.full_name == message_type)


def _names_of_parts(parts: Sequence[Part]) -> str:
    if len(parts) > 1:
        return "several documents"
    return "the list" if parts[0].is_list else "the resource"


# Fields of these messages are not in a path: a struct is written as its content.
_WITHOUT_FIELDS = frozenset({LIST_VALUE, STRUCT, VALUE})


def first_difference(before: Message, after: Message, catalogue: Catalogue) -> FieldPath | None:
    """Return the path of the first difference, or None.

    Numbers are equal if their bits are. Unknown fields count.
    """
    return next(_differences(before, after, catalogue, ()), None)


def _differences(before: Message, after: Message, catalogue: Catalogue, path: FieldPath) -> Iterator[FieldPath]:
    descriptor = cast("Descriptor", before.DESCRIPTOR)
    if descriptor.full_name == ANY:
        yield from _in_any(before, after, catalogue, path)
        return
    if _unknown(before) != _unknown(after):
        yield path
    fields = {field.number: field for field, _ in (*before.ListFields(), *after.ListFields())}
    for number in sorted(fields):
        field = fields[number]
        here = path if descriptor.full_name in _WITHOUT_FIELDS else (*path, field.name)
        yield from _in_field(field, before, after, catalogue, here)


def _in_any(
    before: DynamicMessage, after: DynamicMessage, catalogue: Catalogue, path: FieldPath
) -> Iterator[FieldPath]:
    if before.type_url != after.type_url:
        yield path
        return
    if before.value == after.value:
        return
    message_type = before.type_url.rpartition("/")[2]
    try:
        message_class = catalogue.message_class(message_type)
        inner = message_class.FromString(before.value), message_class.FromString(after.value)
    except (KeyError, DecodeError):
        yield path
        return
    yield from _differences(*inner, catalogue, path)


def _in_field(
    field: FieldDescriptor, before: Message, after: Message, catalogue: Catalogue, path: FieldPath
) -> Iterator[FieldPath]:
    old: FieldValue = getattr(before, field.name)
    new: FieldValue = getattr(after, field.name)
    if is_map(field):
        yield from _in_members({key: old[key] for key in old}, {key: new[key] for key in new}, catalogue, path)
    elif field.is_repeated:
        yield from _in_members(dict(enumerate(old)), dict(enumerate(new)), catalogue, path)
    elif field.has_presence and before.HasField(field.name) != after.HasField(field.name):
        yield path
    elif field.message_type is not None:
        yield from _differences(old, new, catalogue, path)
    elif not _are_same(old, new):
        yield path


def _in_members(
    old: Mapping[object, FieldValue], new: Mapping[object, FieldValue], catalogue: Catalogue, path: FieldPath
) -> Iterator[FieldPath]:
    for key in (*old, *(key for key in new if key not in old)):
        here = (*path, key if isinstance(key, int) and not isinstance(key, bool) else str(key))
        if key not in old or key not in new:
            yield here
        elif isinstance(old[key], Message):
            yield from _differences(old[key], new[key], catalogue, here)
        elif not _are_same(old[key], new[key]):
            yield here


def _are_same(before: object, after: object) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        return struct.pack("<d", before) == struct.pack("<d", after)
    return before == after


def _unknown(message: Message) -> list[tuple[int, int, str]]:
    fields = UnknownFieldSet(message)
    found = (fields[index] for index in range(len(fields)))
    return [(field.field_number, field.wire_type, repr(field.data)) for field in found]


_QUOTED_OR_COMMENT: Final = re.compile(
    r""" "(?:[^"\\\n]|\\.)*+" | '(?:[^'\\\n]|\\.)*+' | \#(?P<comment>[^\n]*+) """, re.VERBOSE
)
# Other formats have the type in place of this header.
_HEADER: Final = re.compile(r"\s*proto-(?:file|message):")


def has_comments(content: bytes, format_name: str) -> bool:
    """Return whether a file has comments, text format's header apart."""
    if b"#" not in content:
        return False
    if format_name == "yaml":
        text, end = content.decode("utf-8-sig"), 0
        # Within a token, a # is text.
        for token in yaml.scan(text, Loader=yaml.CSafeLoader):
            if "#" in text[end : token.start_mark.index]:
                return True
            end = token.end_mark.index
        return "#" in text[end:]
    if format_name == "textproto":
        found = _QUOTED_OR_COMMENT.finditer(content.decode("utf-8-sig"))
        return any(match["comment"] is not None and not _HEADER.match(match["comment"]) for match in found)
    return False
