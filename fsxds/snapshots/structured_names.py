"""Rewrites structured names in canonical form, in which they are compared everywhere.

Envoy compares texts. So each name or locator is rewritten, in any field, also in the Struct and the Any of an
extension. Secrets and malformed names stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import cast

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, VALUE, FieldValue, is_map, map_parts
from fsxds.api.secrets import Secrecy, is_secret_field
from fsxds.model.resource_names import Locator, MalformedName, ResourceName, is_structured
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, ResourceType
from fsxds.model.resources import Reference
from fsxds.model.values import Fault, FieldPath, Severity
from fsxds.settings.naming_rules import NamingRules

ROUTES = BY_SHORT_NAME["rds"]
VIRTUAL_HOST = BY_SHORT_NAME["vhds"]

_LONGEST_REMEMBERED = 500
_MARKS = (b"xdstp:", b"udpa:")
# Names the secret that another message uses, and contains none.
_SECRET_NAME = "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig"  # noqa: S105 - the name of a message


def may_hold_names(body: bytes) -> bool:
    """Whether bytes may contain structured names; hardly any do."""
    return any(mark in body for mark in _MARKS)


class NameWriter:
    """Writes one file's names in canonical form."""

    def __init__(self, catalogue: Catalogue, rules: NamingRules, path: PurePosixPath) -> None:
        self._catalogue = catalogue
        self._secrecy = catalogue.once(Secrecy)
        self._authority = rules.authority
        self._context = dict(rules.context_of(path))

    def resource_name(self, text: str, row: ResourceType, place: FieldPath) -> str | Fault:
        """Return the canonical name, or its fault."""
        return self._name(text, row, place, self._context)

    def edited_name(self, text: str, row: ResourceType, place: FieldPath) -> str | Fault:
        """A resource below got its parameters from its own folder."""
        return self._name(text, row, place, {})

    def _name(self, text: str, row: ResourceType, place: FieldPath, context: Mapping[str, str]) -> str | Fault:
        if not is_structured(text):
            return text
        # Envoy requests virtual hosts by the name of their route configuration, of any form, and a slash.
        table, slash, host = text.rpartition("/") if row is VIRTUAL_HOST else (text, "", "")
        try:
            name = ResourceName.parse(table, self._authority)
        except MalformedName as error:
            return _malformed(error, place)
        if name.is_glob:
            return Fault(
                "malformed-name", "is the name of a collection", "write that of one resource, without *", place
            )
        fault = _type_fault(name, ROUTES if row is VIRTUAL_HOST else row, place)
        return fault or f"{name.with_context(context)}{slash}{host}"

    def written_name(self, text: str, row: ResourceType) -> str:
        """Return a malformed text itself."""
        name = self.resource_name(text, row, ())
        return text if isinstance(name, Fault) else name

    def reference(self, text: str) -> str:
        """Malformed and plain names stay."""
        return self._written(text) if is_structured(text) else text

    def checked(self, references: Iterable[Reference]) -> Iterator[Reference | Fault]:
        """Yield references, and the faults of their names.

        A resource of another authority need not be in the tree.
        """
        for reference in references:
            row = BY_TYPE_URL.get(reference.type_url)
            if row is None or row is VIRTUAL_HOST or not is_structured(reference.name):
                yield reference
                continue
            try:
                targets = [choice.target for choice in Locator.parse(reference.name).choices()]
            except MalformedName as error:
                yield _malformed(error, reference.field_path)
                continue
            names = [target for target in targets if isinstance(target, ResourceName)]
            yield from filter(None, [_type_fault(name, row, reference.field_path) for name in names])
            is_own = all(name.authority in {"", self._authority} for name in names) and len(names) == len(targets)
            is_elsewhere = bool(self._authority) and not is_own
            yield reference._replace(severity=Severity.NOTE) if is_elsewhere else reference

    def rewrite(self, message: Message) -> None:
        """Rewrite names, also in packed messages."""
        if may_hold_names(message.SerializeToString()):
            self._rewrite_fields(message, is_secret=False)

    def _rewrite_fields(self, message: Message, *, is_secret: bool) -> None:
        is_secret = is_secret and message.DESCRIPTOR.full_name != _SECRET_NAME
        for field, value in message.ListFields():
            self._rewrite_field(message, field, value, is_secret=is_secret or self._secrecy.covers(field))

    def _rewrite_field(self, message: Message, field: FieldDescriptor, value: FieldValue, *, is_secret: bool) -> None:
        if is_map(field):
            self._rewrite_map(field, value, is_secret=is_secret)
        elif field.message_type is not None:
            for part in value if field.is_repeated else (value,):
                self._rewrite_message(part, is_secret=is_secret)
        elif is_secret or field.type != FieldDescriptor.TYPE_STRING:
            return
        elif field.is_repeated:
            for index, text in enumerate(value):
                if is_structured(text):
                    value[index] = self._written(text)
        elif is_structured(value):
            setattr(message, field.name, self._written(value))

    def _rewrite_map(self, field: FieldDescriptor, value: FieldValue, *, is_secret: bool) -> None:
        of_values = map_parts(field)[1]
        if of_values.message_type is not None:
            for key, part in value.items():
                # In a Struct, the keys mark secrets.
                is_text = part.DESCRIPTOR.full_name == VALUE and part.HasField("string_value")
                self._rewrite_message(part, is_secret=is_secret or (is_text and is_secret_field(str(key))))
        elif of_values.type == FieldDescriptor.TYPE_STRING and not is_secret:
            for key, text in tuple(value.items()):
                if is_structured(text) and not is_secret_field(str(key)):
                    value[key] = self._written(text)

    def _rewrite_message(self, message: Message, *, is_secret: bool) -> None:
        if message.DESCRIPTOR.full_name == ANY:
            self._rewrite_any(cast("AnyMessage", message), is_secret=is_secret)  # of the catalogue's own pool
        else:
            self._rewrite_fields(message, is_secret=is_secret)

    def _rewrite_any(self, packed: AnyMessage, *, is_secret: bool) -> None:
        message_type = packed.type_url.rpartition("/")[2]
        if not may_hold_names(packed.value) or not self._catalogue.knows(message_type):
            return
        try:
            inner = self._catalogue.message_class(message_type).FromString(packed.value)
        except DecodeError:
            return
        self._rewrite_message(inner, is_secret=is_secret)
        packed.value = inner.SerializeToString(deterministic=True)

    def _written(self, text: str) -> str:
        # Many resources have the same references; texts longer than usual names would take much memory.
        read = _remembered_locator if len(text) <= _LONGEST_REMEMBERED else _canonical_locator
        return read(text, self._authority)


def _canonical_locator(text: str, authority: str) -> str:
    """A malformed text stays."""
    try:
        locator = Locator.parse(text, authority)
    except MalformedName:
        return text
    return str(locator)


_remembered_locator = lru_cache(maxsize=4096)(_canonical_locator)


def _malformed(error: MalformedName, place: FieldPath) -> Fault:
    return Fault("malformed-name", error.fact, error.remedy, place)


def _type_fault(name: ResourceName, row: ResourceType, place: FieldPath) -> Fault | None:
    if name.message_type == row.message_type:
        return None
    fact = f"the name is that of another type than {row.message_type}"
    return Fault("name-of-other-type", fact, f"write xdstp://<authority>/{row.message_type}/<path>", place)
