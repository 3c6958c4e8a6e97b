"""What stands in a mirrored file: a DiscoveryResponse, to bytes and back."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.api.printing import Printer
from fsxds.errors import UsageError
from fsxds.formats import FORMATS, Format, MessageDocument, PlainDocument, format_of
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Origin, Resource, version_of_body
from fsxds.transports.mirror_files import FORMS, MirrorFile
from fsxds.values import TypeUrl, Version

RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"


class Content:
    """Writes and reads the content of mirrored files in one form, one of `FORMS`."""

    def __init__(self, catalogue: Catalogue, form: str) -> None:
        if form not in FORMS:
            raise UsageError(f"there are no mirrored files of the form {form!r}; choose one of {', '.join(FORMS)}")
        self.suffix = f".{form}"
        self._catalogue = catalogue
        self._format: Format = next(row for row in FORMATS if self.suffix in row.suffixes)
        self._printer = Printer(catalogue)
        self._response: Any = catalogue.message_class(RESPONSE)
        self._any: Any = catalogue.message_class("google.protobuf.Any")

    def encode(self, file: MirrorFile) -> bytes:
        """Return the bytes of a file. Never with `Resource` wrappers or a ttl (ENVOY.md A5, D4)."""
        packed = [self._any(type_url=resource.type_url, value=resource.body) for resource in file.resources]
        response: Message = self._response(version_info=file.version, type_url=file.type_url, resources=packed)
        return self._format.encode(response, self._printer)

    def decode(self, content: bytes, path: PurePosixPath, type_url: TypeUrl) -> MirrorFile | None:
        """Return what a file of ours holds, of any form; None where it cannot be read."""
        found = format_of(path)
        response = self._response_in(content, found, BY_TYPE_URL[type_url].message_type) if found else None
        if response is None:
            return None
        try:
            resources = tuple(self._resource(packed, path) for packed in response.resources)
        except (DecodeError, KeyError):  # damaged, or of a type that is not ours to write
            return None
        return MirrorFile(path, type_url, Version(response.version_info), resources)

    def _response_in(self, content: bytes, found: Format, message_type: str) -> Any:
        match found.decode(content, self._catalogue, message_type).documents:
            case (MessageDocument(message=message),) if message.DESCRIPTOR.full_name == RESPONSE:
                return message
            case (PlainDocument(value=value),):
                return Converter(self._catalogue).convert(value, RESPONSE).message
        return None

    def _resource(self, packed: Any, path: PurePosixPath) -> Resource:
        row = BY_TYPE_URL[packed.type_url]
        message = self._catalogue.message_class(row.message_type).FromString(packed.value)
        name = str(getattr(message, row.name_field or "name"))
        version = version_of_body(row.type_url, packed.value)
        return Resource(row.type_url, name, packed.value, version, Origin(path, 1))
