"""What people may see of resources: their contents without secrets, as bytes of the wire and as JSON."""

from __future__ import annotations

import base64
import json

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.api.fields import type_of_url
from fsxds.api.printing import Printer
from fsxds.api.secrets import HIDDEN, Masker
from fsxds.errors import ApiError
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.values import PlainValue, Resource, TypeUrl, Version

SECRET = BY_SHORT_NAME["sds"].type_url
_NODE = "envoy.config.core.v3.Node"
_HIDDEN_BYTES = base64.b64encode(HIDDEN.encode()).decode()


class Contents:
    """Shows resources without their secrets: `<hidden>` stands in place of each.

    A Secret is not shown at all, and neither is what the catalogue has no type for: nothing tells its secrets. What was
    shown lately is kept by its version; see `turn`. Several threads may ask at once.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._converter = Converter(catalogue)
        self._masker = Masker(catalogue, hide_bytes=lambda _: _HIDDEN_BYTES)
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
        plain = self._printer.to_plain(self._catalogue.message_class(_NODE).FromString(node.SerializeToString()))
        return self._masker.masked_message(plain, _NODE)

    def _body(self, type_url: TypeUrl, body: bytes) -> bytes | None:
        if type_url == SECRET:
            return None
        try:
            plain = json.loads(self._printer.any_json(type_url, body))
        except (ApiError, DecodeError):
            return None
        masked = self._masker.masked(plain)
        if masked == plain:
            return body
        message = self._converter.convert_any(masked).message
        return None if message is None else message.SerializeToString(deterministic=True)

    def _class_of(self, type_url: str) -> type[Message] | None:
        message_type = type_of_url(type_url)
        known = message_type is not None and self._catalogue.knows(message_type)
        return self._catalogue.message_class(str(message_type)) if known else None
