"""Messages as a file of another format, in the shape that they came in as far as the format has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, cast

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.formats import Format
from fsxds.formats.json_format import encode_plain as encode_json
from fsxds.formats.yaml_format import encode_plain as encode_yaml
from fsxds.resource_types import PREFIX, ResourceType
from fsxds.snapshots.conversion_input import ConversionReader, Part
from fsxds.snapshots.message_difference import first_difference
from fsxds.snapshots.shape import DISCOVERY_RESPONSE, RESOURCE_WRAPPER
from fsxds.values import FieldPath, PlainValue, SourceFile, TypeUrl

_READ_BACK = PurePosixPath("read-back")
_ONE_RESPONSE = "became one DiscoveryResponse"


class NotOneResponseError(Exception):
    """Documents differ in what a DiscoveryResponse says once for all of its resources."""


class LostError(Exception):
    """The format cannot hold what is to be written.

    Attributes:
        field_path: leads to the first field that would be read back otherwise, from the top of its message; empty where
            the message as a whole would not come back.
    """

    def __init__(self, field_path: FieldPath = ()) -> None:
        super().__init__(field_path)
        self.field_path = field_path


@dataclass(frozen=True, slots=True)
class Output:
    """A file in its new format; `note` says what became of its shape, empty where it is as it was."""

    content: bytes
    note: str = ""


class ConversionWriter:
    """Writes what a `ConversionReader` of the same catalogue read, and proves that it is read back the same."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._reader = ConversionReader(catalogue)
        self._writers: Mapping[
            str, Callable[[Sequence[Part], Format, ResourceType | None], tuple[list[Message], Output]]
        ]
        self._writers = MappingProxyType(
            {"yaml": self._yaml, "json": self._json, "textproto": self._textproto, "binary": self._binary}
        )

    def write(self, parts: Sequence[Part], file_format: Format, hint: ResourceType | None) -> Output:
        """Write documents in a format.

        Args:
            parts: the documents.
            file_format: the format.
            hint: the type that documents without resources are of.

        Raises:
            NotOneResponseError: the format has one document in a file, and these cannot be one.
            LostError: the format cannot hold a value.
            ApiError: a time is out of bounds, or an Any cannot be read.
        """
        messages, output = self._writers[file_format.name](parts, file_format, hint)
        self._prove(messages, output, file_format)
        return output

    def _yaml(self, parts: Sequence[Part], _: Format, __: ResourceType | None) -> tuple[list[Message], Output]:
        return _messages(parts), Output(encode_yaml([self._plain(part) for part in parts]))

    def _json(self, parts: Sequence[Part], _: Format, __: ResourceType | None) -> tuple[list[Message], Output]:
        messages = _messages(parts)
        if len(parts) == 1:
            return messages, Output(encode_json(self._plain(parts[0])))
        plain: list[PlainValue] = [self._plain_message(message) for message in messages]
        return messages, Output(encode_json(plain), "several documents became one list")

    def _textproto(
        self, parts: Sequence[Part], file_format: Format, hint: ResourceType | None
    ) -> tuple[list[Message], Output]:
        messages, note = _messages(parts), ""
        if len(parts) != 1 or parts[0].is_list:
            messages, note = [self._one_response(messages, hint)], f"{_what(parts)} {_ONE_RESPONSE}"
        header = f"# proto-message: {messages[0].DESCRIPTOR.full_name}\n"
        return messages, Output(header.encode() + file_format.encode(messages[0], self._printer), note)

    def _binary(
        self, parts: Sequence[Part], file_format: Format, hint: ResourceType | None
    ) -> tuple[list[Message], Output]:
        messages, note = _messages(parts), ""
        if len(messages) != 1 or not _is(messages[0], DISCOVERY_RESPONSE):
            messages, note = [self._one_response(messages, hint)], f"{_what(parts)} {_ONE_RESPONSE}"
        return messages, Output(file_format.encode(messages[0], self._printer), note)

    def _plain(self, part: Part) -> PlainValue:
        plain: list[PlainValue] = [self._plain_message(message) for message in part.messages]
        return plain if part.is_list else plain[0]

    def _plain_message(self, message: Message) -> PlainValue:
        name = str(message.DESCRIPTOR.full_name)
        if name == DISCOVERY_RESPONSE:
            plain = self._printer.to_plain(message)
            # Without the list it would look like one that was forgotten.
            return plain if "resources" in plain else {**plain, "resources": []}
        if name == RESOURCE_WRAPPER and cast("Any", message).HasField("resource"):
            return self._printer.to_plain(message)
        plain_any: PlainValue = json.loads(
            self._printer.any_json(TypeUrl(PREFIX + name), message.SerializeToString(deterministic=True))
        )
        return plain_any

    def _one_response(self, messages: Sequence[Message], hint: ResourceType | None) -> Message:
        """Gather documents in one DiscoveryResponse, which says nothing that they do not say."""
        response: Any = self._catalogue.message_class(DISCOVERY_RESPONSE)()
        envelopes = [message for message in messages if _is(message, DISCOVERY_RESPONSE)]
        heads = {_head(envelope) for envelope in envelopes}
        if len(heads) > 1:
            raise NotOneResponseError
        for head in heads:
            response.MergeFromString(head)
        for message in messages:
            if _is(message, DISCOVERY_RESPONSE):
                response.resources.extend(cast("Any", message).resources)
            else:
                body = message.SerializeToString(deterministic=True)
                response.resources.add(type_url=f"{PREFIX}{message.DESCRIPTOR.full_name}", value=body)
        response.type_url = self._type_of(messages, hint)
        checked: Message = response
        return checked

    def _type_of(self, messages: Sequence[Message], hint: ResourceType | None) -> str:
        """Return the one type that documents speak of, empty where there are several."""
        said = {type_url for message in messages for type_url in self._types_of(message)}
        if len(said) > 1 and any(_is_empty_response(message) for message in messages):
            # That there is none of a type would be lost.
            raise NotOneResponseError
        if not said and hint is not None:
            return hint.type_url
        return next(iter(said)) if len(said) == 1 else ""

    def _types_of(self, message: Message) -> set[str]:
        if _is(message, RESOURCE_WRAPPER):
            return {cast("Any", message).resource.type_url} - {""}
        if not _is(message, DISCOVERY_RESPONSE):
            return {f"{PREFIX}{message.DESCRIPTOR.full_name}"}
        envelope: Any = message
        if envelope.type_url:
            return {envelope.type_url}
        wrapped = self._catalogue.message_class(RESOURCE_WRAPPER)
        return {
            part
            for packed in envelope.resources
            for part in (
                self._types_of(wrapped.FromString(packed.value))
                if packed.type_url == PREFIX + RESOURCE_WRAPPER
                else {packed.type_url}
            )
        }

    def _prove(self, messages: Sequence[Message], output: Output, file_format: Format) -> None:
        """Read back what is to be written, and compare."""
        again = self._reader.read(SourceFile.of(_READ_BACK, output.content), file_format, None)
        found = _messages(again.parts)
        for before, after in zip(messages, found, strict=False):
            if before.DESCRIPTOR.full_name != after.DESCRIPTOR.full_name:
                raise LostError
            path = first_difference(before, after, self._catalogue)
            if path is not None:
                raise LostError(path)
        if len(messages) != len(found):
            raise LostError


def _messages(parts: Sequence[Part]) -> list[Message]:
    return [message for part in parts for message in part.messages]


def _is(message: Message, message_type: str) -> bool:
    return bool(message.DESCRIPTOR.full_name == message_type)


def _is_empty_response(message: Message) -> bool:
    return _is(message, DISCOVERY_RESPONSE) and not cast("Any", message).resources


def _head(envelope: Message) -> bytes:
    """Return what an envelope says beside its resources and their type."""
    head: Any = type(envelope)()
    head.CopyFrom(envelope)
    head.ClearField("resources")
    head.ClearField("type_url")
    return bytes(head.SerializeToString(deterministic=True))


def _what(parts: Sequence[Part]) -> str:
    if len(parts) > 1:
        return "several documents"
    return "the list" if parts[0].is_list else "the resource"
