"""Pointers to a fleet's snapshots.

A server that serves the snapshot before applies the changes, and checks the digest; else it reads the objects that it
lacks (`snapshots/encoding.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Resource, Snapshot
from fsxds.model.values import Layers, TypeUrl
from fsxds.snapshots.encoding import (
    Digest,
    decode_resources,
    decoding,
    encode_resources,
    facts_of,
    object_of,
    snapshot_with,
)

# Larger changes are read as objects.
MOST_CHANGED_BYTES = 256 * 1024
MOST_CHANGED = 2_000

_LENGTH_BYTES = 4


class Order(NamedTuple):
    """Numbers of a publisher and its publication: later ones are greater."""

    epoch: int
    serial: int

    @classmethod
    def of(cls, row: Any) -> Order:
        """Read JSON. Raises ValueError, TypeError."""
        epoch, serial = row
        return cls(int(epoch), int(serial))


NOTHING_PUBLISHED = Order(0, 0)


class ViewKey(NamedTuple):
    """A view's canaries, or others."""

    layers: Layers = ()
    is_canary: bool = False

    @property
    def text(self) -> str:
        """The key as JSON."""
        return json.dumps([list(self.layers), self.is_canary], separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> ViewKey:
        """Read a key. Raises DamagedBytesError."""
        with decoding(f"the view {text!r}"):
            layers, is_canary = json.loads(text)
            return cls(tuple(map(str, layers)), bool(is_canary))


@dataclass(frozen=True, slots=True)
class RowsDifference:
    """The changes from a snapshot to the next.

    Attributes:
        facts: of the next snapshot, beside its resources.
        updated: new and changed resources, by `encode_resources`.
    """

    before: Digest
    facts: bytes
    removed: Mapping[TypeUrl, tuple[str, ...]]
    updated: bytes

    @classmethod
    def between(cls, before: Snapshot, after: Snapshot) -> RowsDifference | None:
        """Return the changes; None if large."""
        removed, updated = dict[TypeUrl, tuple[str, ...]](), list[Resource]()
        for type_url, rows in after.by_type.items():
            old = before.resources(type_url)
            change = rows.changes_since(old)
            # A line added to a file moves all of its resources to other lines, which clients do not see.
            moved = (name for name in change.moved if rows[name].origin.path != old[name].origin.path)
            names = change.fresh.union(change.renewed, moved)
            if len(names) + len(change.removed) > MOST_CHANGED:
                return None
            updated += map(rows.__getitem__, sorted(names))
            if change.removed:
                removed[type_url] = tuple(sorted(change.removed))
        if sum(len(one.body) for one in updated) > MOST_CHANGED_BYTES:
            return None
        digest = object_of(before, is_packed=True).digest
        return cls(digest, facts_of(after), MappingProxyType(removed), encode_resources(updated))

    def applied_to(self, before: Snapshot) -> Snapshot:
        """Return the next snapshot. Raises DamagedBytesError."""
        updated: dict[TypeUrl, list[Resource]] = {row.type_url: [] for row in RESOURCE_TYPES}
        for resource in decode_resources(self.updated):
            updated.get(resource.type_url, []).append(resource)
        rows = {
            type_url: before.resources(type_url).with_changes(each, self.removed.get(type_url, ())).prepared()
            for type_url, each in updated.items()
        }
        return snapshot_with(self.facts, rows)


@dataclass(frozen=True, slots=True)
class Pointer:
    """A view's published snapshot.

    Attributes:
        difference: None if large, or without a snapshot before.
        key_id: the key that it and its objects are sealed with; set by the reader.
    """

    order: Order
    root: Digest
    difference: RowsDifference | None = None
    key_id: bytes = b""

    def encoded(self) -> bytes:
        """Return bytes."""
        head: dict[str, Any] = {"order": self.order, "root": self.root.hex()}
        updated = b""
        if self.difference is not None:
            one, updated = self.difference, self.difference.updated
            head["since"] = {"root": one.before.hex(), "facts": one.facts.decode(), "removed": dict(one.removed)}
        text = json.dumps(head, separators=(",", ":")).encode()
        return len(text).to_bytes(_LENGTH_BYTES) + text + updated

    @classmethod
    def decoded(cls, encoded: bytes) -> Pointer:
        """Decode a pointer. Raises DamagedBytesError."""
        with decoding("a pointer"):
            end = _LENGTH_BYTES + int.from_bytes(encoded[:_LENGTH_BYTES])
            head = json.loads(encoded[_LENGTH_BYTES:end])
            difference = None
            if (since := head.get("since")) is not None:
                removed = {TypeUrl(type_url): tuple(map(str, each)) for type_url, each in since["removed"].items()}
                facts = str(since["facts"]).encode()
                difference = RowsDifference(bytes.fromhex(since["root"]), facts, removed, encoded[end:])
            return cls(Order.of(head["order"]), bytes.fromhex(head["root"]), difference)


@dataclass(frozen=True, slots=True)
class Head:
    """The last publication; a folder in `existing` may be a layer."""

    order: Order = NOTHING_PUBLISHED
    publisher: str = ""
    existing: frozenset[str] = frozenset()

    def encoded(self) -> bytes:
        """Return bytes."""
        row = {"order": self.order, "publisher": self.publisher, "existing": sorted(self.existing)}
        return json.dumps(row, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, encoded: bytes) -> Head:
        """Decode a head. Raises DamagedBytesError."""
        with decoding("the last publication"):
            row = json.loads(encoded)
            return cls(Order.of(row["order"]), str(row["publisher"]), frozenset(map(str, row["existing"])))
