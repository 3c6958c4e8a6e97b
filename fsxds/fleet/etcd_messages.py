"""The messages of etcd's API that fsxds uses, built from a table.

Field numbers are those of `rpc.proto` and `kv.proto` of etcd 3; other fields are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "etcd"

_SCALARS = {
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "string": FieldDescriptorProto.TYPE_STRING,
    "int": FieldDescriptorProto.TYPE_INT64,
    "bool": FieldDescriptorProto.TYPE_BOOL,
}

# Each field: its number and its type, after `repeated` if it is. Oneofs need no declaration: fsxds sets one field.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "ResponseHeader": {"revision": (3, "int")},
    "KeyValue": {
        "key": (1, "bytes"),
        "create_revision": (2, "int"),
        "mod_revision": (3, "int"),
        "value": (5, "bytes"),
        "lease": (6, "int"),
    },
    "Event": {"type": (1, "int"), "kv": (2, "KeyValue")},
    "RangeRequest": {
        "key": (1, "bytes"),
        "range_end": (2, "bytes"),
        "limit": (3, "int"),
        "revision": (4, "int"),
        "keys_only": (8, "bool"),
    },
    "RangeResponse": {"header": (1, "ResponseHeader"), "kvs": (2, "repeated KeyValue"), "more": (3, "bool")},
    "PutRequest": {"key": (1, "bytes"), "value": (2, "bytes"), "lease": (3, "int")},
    "PutResponse": {"header": (1, "ResponseHeader")},
    "DeleteRangeRequest": {"key": (1, "bytes"), "range_end": (2, "bytes")},
    "DeleteRangeResponse": {"header": (1, "ResponseHeader")},
    "RequestOp": {
        "request_range": (1, "RangeRequest"),
        "request_put": (2, "PutRequest"),
        "request_delete_range": (3, "DeleteRangeRequest"),
    },
    "ResponseOp": {
        "response_range": (1, "RangeResponse"),
        "response_put": (2, "PutResponse"),
        "response_delete_range": (3, "DeleteRangeResponse"),
    },
    # `target`: CREATE or MOD; `result` is EQUAL, which is 0.
    "Compare": {
        "target": (2, "int"),
        "key": (3, "bytes"),
        "create_revision": (5, "int"),
        "mod_revision": (6, "int"),
    },
    "TxnRequest": {
        "compare": (1, "repeated Compare"),
        "success": (2, "repeated RequestOp"),
        "failure": (3, "repeated RequestOp"),
    },
    "TxnResponse": {
        "header": (1, "ResponseHeader"),
        "succeeded": (2, "bool"),
        "responses": (3, "repeated ResponseOp"),
    },
    "WatchRequest": {"create_request": (1, "WatchCreateRequest")},
    "WatchCreateRequest": {"key": (1, "bytes"), "range_end": (2, "bytes"), "start_revision": (3, "int")},
    "WatchResponse": {
        "header": (1, "ResponseHeader"),
        "created": (3, "bool"),
        "canceled": (4, "bool"),
        "compact_revision": (5, "int"),
        "cancel_reason": (6, "string"),
        "events": (11, "repeated Event"),
    },
    "LeaseGrantRequest": {"TTL": (1, "int"), "ID": (2, "int")},
    "LeaseGrantResponse": {"header": (1, "ResponseHeader"), "ID": (2, "int"), "TTL": (3, "int")},
    "LeaseRevokeRequest": {"ID": (1, "int")},
    "LeaseRevokeResponse": {"header": (1, "ResponseHeader")},
    "LeaseKeepAliveRequest": {"ID": (1, "int")},
    "LeaseKeepAliveResponse": {"header": (1, "ResponseHeader"), "ID": (2, "int"), "TTL": (3, "int")},
    "AuthenticateRequest": {"name": (1, "string"), "password": (2, "string")},
    "AuthenticateResponse": {"header": (1, "ResponseHeader"), "token": (2, "string")},
}

# Numbers of etcd's enums.
COMPARE_CREATED, COMPARE_MODIFIED = 1, 2
EVENT_DELETED = 1


def _classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="etcd.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, words) in fields.items():
            made = message.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            *repeated, of = words.split()
            if repeated:
                made.label = FieldDescriptorProto.LABEL_REPEATED
            if of in _SCALARS:
                made.type = _SCALARS[of]
            else:
                made.type, made.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{of}"
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


MESSAGES = _classes()
"""The class of each message, by name."""

# By method: its path, and its messages for request and response.
METHODS: Mapping[str, tuple[str, str, str]] = {
    "range": ("/etcdserverpb.KV/Range", "RangeRequest", "RangeResponse"),
    "txn": ("/etcdserverpb.KV/Txn", "TxnRequest", "TxnResponse"),
    "watch": ("/etcdserverpb.Watch/Watch", "WatchRequest", "WatchResponse"),
    "grant": ("/etcdserverpb.Lease/LeaseGrant", "LeaseGrantRequest", "LeaseGrantResponse"),
    "revoke": ("/etcdserverpb.Lease/LeaseRevoke", "LeaseRevokeRequest", "LeaseRevokeResponse"),
    "keep_alive": ("/etcdserverpb.Lease/LeaseKeepAlive", "LeaseKeepAliveRequest", "LeaseKeepAliveResponse"),
    "authenticate": ("/etcdserverpb.Auth/Authenticate", "AuthenticateRequest", "AuthenticateResponse"),
}
