"""What people may see of resources: their contents without secrets, as bytes of the wire and as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.api.printing import Printer, dump
from fsxds.api.secrets import HIDDEN, Masker
from fsxds.errors import ApiError
from fsxds.resource_types import RESOURCE_TYPES
from fsxds.resources import Resource
from fsxds.values import PlainValue, TypeUrl, Version

_SECRET = frozenset(row.type_url for row in RESOURCE_TYPES if row.is_secret)
_NODE = "envoy.config.core.v3.Node"
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_HIDDEN_BYTES = base64.b64encode(HIDDEN.encode()).decode()


class Contents:
    """Shows resources without their secrets: `<hidden>` stands in place of each.

    A Secret is not shown at all, and neither is what the catalogue has no type for: nothing tells its secrets. What was
    shown lately is kept by its version; see `turn`.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._converter = Converter(catalogue)
        self._masker = Masker(catalogue, hide_bytes=lambda _: _HIDDEN_BYTES)
        self._bodies: _Lately[tuple[TypeUrl, Version], bytes | None] = _Lately()
        self._jsons: _Lately[tuple[TypeUrl, Version], bytes | None] = _Lately()
        self._nodes: _Lately[bytes, bytes] = _Lately()

    def turn(self, *, with_contents: bool = True) -> None:
        """Begin another report: what was not shown in this one and the one before will be forgotten."""
        self._nodes.turn()
        if with_contents:
            self._bodies.turn()
            self._jsons.turn()

    def body_of(self, resource: Resource) -> bytes | None:
        """Return the serialized resource without its secrets; None where nothing of it is shown."""
        key = resource.type_url, resource.version
        return self._bodies.get(key, lambda: self._body(resource.type_url, resource.body))

    def json_of(self, resource: Resource) -> bytes | None:
        """Return the resource without its secrets as proto JSON with its `@type`; None where nothing of it is shown."""
        return self._jsons.get((resource.type_url, resource.version), lambda: self._json(resource))

    def node_json(self, node: Message) -> bytes:
        """Return a Node without its secrets as proto JSON."""
        return self._nodes.get(node.SerializeToString(), lambda: dump(self.plain_node(node)))

    def plain_node(self, node: Message) -> dict[str, PlainValue]:
        """Return a Node without its secrets as the plain values of its JSON."""
        if not self._catalogue.knows(_NODE):
            return {}
        plain = self._printer.to_plain(self._catalogue.message_class(_NODE).FromString(node.SerializeToString()))
        return self._masker.masked_message(plain, _NODE)

    def _json(self, resource: Resource) -> bytes | None:
        body = self.body_of(resource)
        # What cannot be written as JSON, such as a time out of bounds, has no body here.
        return None if body is None else self._printer.any_json(resource.type_url, body)

    def _body(self, type_url: TypeUrl, body: bytes) -> bytes | None:
        if type_url in _SECRET:
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


class _Lately(Generic[_Key, _Value]):
    """Keeps what was asked for in this turn and the one before."""

    def __init__(self) -> None:
        self._now: dict[_Key, _Value] = {}
        self._before: dict[_Key, _Value] = {}

    def __len__(self) -> int:
        return len({**self._before, **self._now})

    def turn(self) -> None:
        """Forget what was asked for in the turn before this one alone, and begin another."""
        self._now, self._before = {}, self._now

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """Return what is kept, or else what `make` makes."""
        if key not in self._now:
            self._now[key] = self._before[key] if key in self._before else make()
        return self._now[key]
