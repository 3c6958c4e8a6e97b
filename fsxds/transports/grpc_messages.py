"""The messages that discovery requests are read as: the API's, without what says nothing about what to serve.

A field that is not declared here stays a run of bytes when a message is parsed. As the API declares them, 16 MiB of a
hostile request become 700 MiB of objects, and the node is parsed in every message in which a client repeats it.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

# Messages of these names are what clients are told to send.
_PACKAGE = "envoy.service.discovery.v3"


def _add(message: DescriptorProto, name: str, number: int, field_type: int | str, *, repeated: bool = False) -> None:
    field = message.field.add(name=name, number=number)
    field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    if isinstance(field_type, str):
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{field_type}"
    else:
        field.type = field_type  # type: ignore[assignment]


def _declare() -> tuple[Any, Any]:
    text, raw = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES
    file = FileDescriptorProto(name="fsxds/discovery.proto", package=_PACKAGE, syntax="proto3")
    status = file.message_type.add(name="Status")
    _add(status, "message", 2, text)
    # A map on the wire is a list of these; as a map, it takes twice the time.
    held = file.message_type.add(name="Held")
    _add(held, "key", 1, text)
    _add(held, "value", 2, text)
    sotw = file.message_type.add(name="DiscoveryRequest")
    _add(sotw, "version_info", 1, text)
    _add(sotw, "node", 2, raw)
    _add(sotw, "resource_names", 3, text, repeated=True)
    _add(sotw, "type_url", 4, text)
    _add(sotw, "response_nonce", 5, text)
    _add(sotw, "error_detail", 6, "Status")
    delta = file.message_type.add(name="DeltaDiscoveryRequest")
    _add(delta, "node", 1, raw)
    _add(delta, "type_url", 2, text)
    _add(delta, "resource_names_subscribe", 3, text, repeated=True)
    _add(delta, "resource_names_unsubscribe", 4, text, repeated=True)
    _add(delta, "initial_resource_versions", 5, "Held", repeated=True)
    _add(delta, "response_nonce", 6, text)
    _add(delta, "error_detail", 7, "Status")
    pool = DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return tuple(GetMessageClass(find(f"{_PACKAGE}.{name}")) for name in ("DiscoveryRequest", "DeltaDiscoveryRequest"))  # type: ignore[return-value]


DiscoveryRequest, DeltaDiscoveryRequest = _declare()
