"""A file as the messages that its author wrote, in their shape: to be written in another format, not to be served."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.api.nested import unreadable_parts
from fsxds.api.quotes import shown_pointer
from fsxds.formats import Format, PlainDocument
from fsxds.formats.positions import locate_all
from fsxds.resource_types import ResourceType
from fsxds.snapshots import shape_faults
from fsxds.snapshots.shape import DISCOVERY_RESPONSE, RESOURCE_WRAPPER, is_envelope, is_wrapper
from fsxds.values import Fault, FieldPath, PlainValue, Problem, SourceFile


@dataclass(frozen=True, slots=True)
class Part:
    """One document: a message, or a list of messages.

    A message is a DiscoveryResponse, a `Resource`, or any other by itself.
    """

    messages: tuple[Message, ...]
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """The documents of a file, and what is wrong with them; with an ERROR among the problems the parts mean nothing."""

    parts: tuple[Part, ...]
    problems: tuple[Problem, ...] = ()


class ConversionReader:
    """Reads files of any format; one catalogue, any number of files.

    The rules of Envoy for values are not asked: what a message can hold can be converted.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._converter = Converter(catalogue)

    def read(self, file: SourceFile, file_format: Format, hint: ResourceType | None) -> Input:
        """Read a file. Every problem in it is reported; bad content never raises.

        Args:
            file: its path is for the problems only.
            file_format: how it is written.
            hint: the type of resources that do not tell their own, None where nothing says so.
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
                faults += ((number, fault) for fault in self._unreadable(document.message))
                parts.append(Part((document.message,)))
        if not parts and not faults:
            fact = "the file is empty"
            faults.append((0, Fault("empty-file", fact, "write `resources: []` for none on purpose", (), 1, 1)))
        return Input(tuple(parts), tuple(sorted(self._placed(file, file_format, faults))))

    def _placed(self, file: SourceFile, file_format: Format, faults: list[tuple[int, Fault]]) -> Iterator[Problem]:
        wanted = {(number, fault.field_path) for number, fault in faults if fault.line is None}
        places = locate_all(file.content, wanted, is_textproto=file_format.name == "textproto") if wanted else {}
        for number, fault in faults:
            line, column = (fault.line, fault.column) if fault.line else places[number, fault.field_path]
            pointer = shown_pointer(fault.field_path, fault.message, self._catalogue)
            yield Problem(
                file.path, line, column or 1, pointer, fault.rule, fault.message, fault.remedy, fault.severity
            )

    def _unreadable(self, message: Message) -> Iterator[Fault]:
        """Yield a fault for each Any that cannot be read; one that is empty is fine."""
        for part in unreadable_parts(message, self._catalogue):
            if part.is_known:
                yield replace(shape_faults.broken_message(part.message_type, part.field_path), line=1)
            elif part.message_type:
                similar = self._catalogue.similar(part.message_type)
                yield replace(shape_faults.unknown_type(part.message_type, similar, part.field_path), line=1)


class _Reading:
    """Reads one document of plain values."""

    def __init__(self, converter: Converter, hint: ResourceType | None) -> None:
        self.faults: list[Fault] = []
        self._converter = converter
        self._hint = hint

    def part(self, value: PlainValue) -> Iterator[Part]:
        """Yield what a document holds; nothing for a void one."""
        if isinstance(value, list):
            messages = (self._message(element, (index,)) for index, element in enumerate(value))
            yield Part(tuple(message for message in messages if message is not None), is_list=True)
        elif value is not None:
            message = self._message(value, ())
            yield Part((message,) if message is not None else ())

    def _message(self, value: PlainValue, path: FieldPath) -> Message | None:
        if not isinstance(value, dict):
            self.faults.append(shape_faults.not_an_object(path))
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
        claim = _text_of(value, "type_url", "typeUrl")
        resources = value.get("resources")
        if resources is None:
            fact = "`resources` has no value, which Envoy reads as: delete everything"
            self.faults.append(Fault("no-resources", fact, "write the resources, or `resources: []` for none", path))
            return None
        typed: PlainValue
        if isinstance(resources, list):
            parts = (self._typed(part, (*path, "resources", at), claim) for at, part in enumerate(resources))
            typed = [part for part in parts if part is not None]
        else:
            typed = self._typed(resources, (*path, "resources"), claim)
        message: Any = self._convert({**_bare(value), "resources": typed}, DISCOVERY_RESPONSE, path)
        if message is not None and not message.resources and not message.type_url and self._hint:
            # Nothing else would tell the type once the file has another name.
            message.type_url = self._hint.type_url
        return message if isinstance(message, Message) else None

    def _typed(self, value: PlainValue, path: FieldPath, claim: str | None) -> dict[str, PlainValue] | None:
        """Return a resource, or a `Resource` around one, with its `@type`; None, and a fault, where nothing tells it."""
        if not isinstance(value, dict):
            self.faults.append(shape_faults.not_an_object(path))
            return None
        if is_wrapper(value):
            wrapper = {"@type": f"type.googleapis.com/{RESOURCE_WRAPPER}", **value}
            if value.get("resource") is not None:
                wrapper["resource"] = self._typed(value["resource"], (*path, "resource"), claim)
            return wrapper
        type_url = claim or (self._hint.type_url if self._hint else None)
        if "@type" in value or type_url is not None:
            return {"@type": type_url, **value}
        self.faults.append(shape_faults.no_type(path))
        return None

    def _convert(self, value: dict[str, PlainValue], message_type: str | None, path: FieldPath) -> Message | None:
        converted = self._converter.convert(value, message_type) if message_type else self._converter.convert_any(value)
        self.faults += (replace(fault, field_path=path + fault.field_path) for fault in converted.faults)
        return converted.message


def _bare(value: dict[str, PlainValue]) -> dict[str, PlainValue]:
    return {key: part for key, part in value.items() if key != "@type"}


def _text_of(value: dict[str, PlainValue], *spellings: str) -> str | None:
    return next((text for key in spellings if isinstance(text := value.get(key), str) and text), None)
