"""What people may see of resources: their contents without secrets, as bytes of the wire and as JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, STRUCT, is_map, type_of_url
from fsxds.api.printing import Printer
from fsxds.api.secrecy import Secrecy
from fsxds.comparison.hiding import HIDDEN, Hiding, is_secret_header, is_secret_text
from fsxds.errors import ApiError
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.values import PlainValue, Resource, TypeUrl, Version

SECRET = BY_SHORT_NAME["sds"].type_url
_NODE = "envoy.config.core.v3.Node"
# The fields that hold what a header is, beside its name.
_HEADER_VALUES = frozenset({"exact", "raw_value", "string_match", "value"})


class Contents:
    """Shows resources without their secrets: `<hidden>` stands in place of each.

    A Secret is not shown at all, and neither is what the catalogue has no type for: nothing tells its secrets. What was
    shown lately is kept by its version; see `turn`. Several threads may ask at once.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._hiding = Hiding(Secrecy(catalogue))
        self._shown: dict[tuple[TypeUrl, Version], bytes | None] = {}
        self._shown_before: dict[tuple[TypeUrl, Version], bytes | None] = {}

    def turn(self) -> None:
        """Begin another report: what was not shown in this one and the one before will be forgotten."""
        self._shown, self._shown_before = {}, self._shown

    def body_of(self, resource: Resource) -> bytes | None:
        """Return the serialized resource without its secrets; None where nothing of it is shown."""
        key = resource.type_url, resource.version
        shown, before = self._shown, self._shown_before
        if key not in shown:
            shown[key] = before[key] if key in before else self._body(resource.type_url, resource.body)
        return shown[key]

    def plain_of(self, resource: Resource) -> dict[str, PlainValue] | None:
        """Return the resource without its secrets as proto JSON with its `@type`; None where nothing of it is shown."""
        body = self.body_of(resource)
        message_class = None if body is None else self._class_of(resource.type_url)
        if body is None or message_class is None:
            return None
        try:
            return {"@type": resource.type_url, **self._printer.to_plain(message_class.FromString(body))}
        except ApiError:
            # A time out of bounds has no JSON; no file in JSON or YAML can say it, but one in binary can.
            return None

    def plain_node(self, node: Message) -> dict[str, PlainValue]:
        """Return a Node as proto JSON."""
        if not self._catalogue.knows(_NODE):
            return {}
        return self._printer.to_plain(self._catalogue.message_class(_NODE).FromString(node.SerializeToString()))

    def _body(self, type_url: TypeUrl, body: bytes) -> bytes | None:
        if type_url == SECRET:
            return None
        try:
            return self._hidden_any(type_url, body, "", is_hidden=False)
        except (ApiError, DecodeError):
            return None

    def _class_of(self, type_url: str) -> type[Message] | None:
        message_type = type_of_url(type_url)
        known = message_type is not None and self._catalogue.knows(message_type)
        return self._catalogue.message_class(str(message_type)) if known else None

    def _hidden_any(self, type_url: str, body: bytes, holder: str, *, is_hidden: bool) -> bytes:
        """Return what an Any holds without its secrets; the same object where it has none."""
        message_class = self._class_of(type_url)
        if message_class is None:
            raise ApiError(f'there is no message type for "{type_url}" in {self._catalogue.description}')
        message = message_class.FromString(body)
        return message.SerializeToString() if self._hide(message, holder, is_hidden=is_hidden) else body

    def _hide(self, message: Any, holder: str, *, is_hidden: bool) -> bool:
        """Hide the secrets of a message in place, all of it where `is_hidden`; tell whether there was any."""
        full_name = message.DESCRIPTOR.full_name
        if full_name == ANY:
            return self._hide_any(message, holder, is_hidden=is_hidden)
        if full_name == STRUCT:
            return self._hide_struct(message, holder, is_hidden=is_hidden)
        is_header = is_secret_header(
            {name: value for name in ("key", "name") if isinstance(value := getattr(message, name, None), str)}
        )
        was_hidden = False
        for field, value in message.ListFields():
            is_secret = self._is_secret(field.name, field, holder, is_hidden=is_hidden)
            is_secret = is_secret or (is_header and field.name in _HEADER_VALUES)
            was_hidden |= self._hide_field(message, field, value, is_hidden=is_secret)
        return was_hidden

    def _is_secret(self, name: str, field: FieldDescriptor | None, holder: str, *, is_hidden: bool) -> bool:
        return not self._hiding.opens(name) if is_hidden else self._hiding.covers(name, field, holder)

    def _hide_field(self, message: Any, field: FieldDescriptor, value: Any, *, is_hidden: bool) -> bool:
        if is_map(field):
            return self._hide_map(message, field, value, is_hidden=is_hidden)
        if field.message_type is not None:
            parts = value if field.is_repeated else (value,)
            # A list, not `any`: each part is to be hidden, whatever the others hold.
            return True in [self._hide(part, field.name, is_hidden=is_hidden) for part in parts]
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            if is_hidden:
                message.ClearField(field.name)
            return is_hidden
        shown = [_shown_text(text, is_hidden=is_hidden) for text in (value if field.is_repeated else (value,))]
        was_hidden = shown != (list(value) if field.is_repeated else [value])
        if was_hidden:
            message.ClearField(field.name)
            if field.is_repeated:
                getattr(message, field.name).extend(shown)
            else:
                setattr(message, field.name, shown[0])
        return was_hidden

    def _hide_map(self, message: Any, field: FieldDescriptor, values: Any, *, is_hidden: bool) -> bool:
        if is_hidden:
            message.ClearField(field.name)
            return True
        was_hidden = False
        for key in tuple(values):
            value = values[key]
            if isinstance(value, Message):
                was_hidden |= self._hide(value, field.name, is_hidden=False)
            elif isinstance(value, str | bytes):
                # Such as the headers, or the variables, that are handed to somebody.
                shown = _shown_text(value, is_hidden=is_secret_header({"key": key}))
                was_hidden |= shown != value
                values[key] = shown
        return was_hidden

    def _hide_any(self, packed: Any, holder: str, *, is_hidden: bool) -> bool:
        if not packed.type_url and not packed.value:
            return False
        value = self._hidden_any(packed.type_url, packed.value, holder, is_hidden=is_hidden)
        if value == packed.value:
            return False
        packed.value = value
        return True

    def _hide_struct(self, struct: Any, holder: str, *, is_hidden: bool) -> bool:
        names = {name: struct.fields[name].string_value for name in ("key", "name") if name in struct.fields}
        is_header = is_secret_header(names)
        was_hidden = False
        for name in tuple(struct.fields):
            is_secret = self._is_secret(name, None, holder, is_hidden=is_hidden)
            is_secret = is_secret or (is_header and name in _HEADER_VALUES)
            was_hidden |= self._hide_value(struct.fields[name], name, is_hidden=is_secret)
        return was_hidden

    def _hide_value(self, value: Any, holder: str, *, is_hidden: bool) -> bool:
        """Hide what is secret in a value of a Struct."""
        chosen = value.WhichOneof("kind")
        if chosen == "struct_value":
            return self._hide_struct(value.struct_value, holder, is_hidden=is_hidden)
        if chosen == "list_value":
            members = value.list_value.values
            return True in [self._hide_value(member, holder, is_hidden=is_hidden) for member in members]
        if is_hidden or is_secret_text(value.string_value):
            value.string_value = HIDDEN
            return True
        return False


def _shown_text(text: str | bytes, *, is_hidden: bool) -> str | bytes:
    if isinstance(text, bytes):
        return HIDDEN.encode() if is_hidden or is_secret_text(text.decode(errors="replace")) else text
    return HIDDEN if is_hidden or is_secret_text(text) else text
