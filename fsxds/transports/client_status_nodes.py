"""What clients say of themselves, kept to be shown: from JSON to the bytes of a Node, and to a message again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import cast

from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format
from google.protobuf.message import DecodeError, EncodeError

from fsxds.protocol.messages import Node

# Nodes that say more are not kept; an Envoy's takes some hundred characters, its operator's metadata a few thousand.
MOST_TOLD_BYTES = 16 * 1024


def told_in_json(node: Mapping[str, object]) -> bytes:
    """Return a node in proto JSON as `Node.serialized`: serialized, without its extensions.

    A node that protobuf cannot read, or that is very large, is not kept: the answer is empty then.
    """
    try:
        told = json.dumps({name: value for name, value in node.items() if name != "extensions"}, ensure_ascii=False)
    except RecursionError:
        return b""
    return _serialized(told) if len(told) <= MOST_TOLD_BYTES else b""


# An Envoy says the same of itself with every poll, and reading it takes a tenth of a millisecond.
@lru_cache(maxsize=2048)
def _serialized(told: str) -> bytes:
    try:
        message = json_format.Parse(told, base_pb2.Node(), ignore_unknown_fields=True)
        return cast("bytes", message.SerializeToString())
    except (json_format.ParseError, EncodeError):
        return b""


def node_message(node: Node) -> base_pb2.Node:
    """Return a node as it was told, or where that was not kept, with what is known of it."""
    if node.serialized:
        # Messages can be written that stand deeper in one another than they can be read.
        with suppress(DecodeError):
            return base_pb2.Node.FromString(node.serialized)
    return base_pb2.Node(id=node.id, cluster=node.cluster, client_features=sorted(node.features))
