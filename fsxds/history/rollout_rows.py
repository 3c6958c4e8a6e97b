"""A rollout's stored place, its snapshots by digest, the rest as JSON; and the removed members of collections.

Times are remaining seconds; with the stored time of day, elapsed time is subtracted, also after the machine's restart.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Key, Rows, Snapshot
from fsxds.model.values import Layers, PlainValue, TypeUrl, Version
from fsxds.protocol.absence import NO_TOMBSTONES, Tombstones
from fsxds.rollout.machine import RolloutState
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.planning import DrainingListener
from fsxds.rollout.target import Pin
from fsxds.runtime.channels import ChannelKey
from fsxds.snapshots.encoding import Digest, decoding

FORMAT = 2
"""The version of the form.

A state in another form is not used, except form 1, which has one rollback for all resources.
"""

_READABLE = (1, FORMAT)
_SNAPSHOTS = ("served", "target", "good", "pinned")
_PINS = "pins"


# The maximum number of views, those that changed last; `tombstones.py` bounds the rows of each.
MOST_VIEWS = 1000

# Databases of earlier versions get it when they are opened.
MEMBERS_SCHEMA = """
CREATE TABLE IF NOT EXISTS removed_members (
  number INTEGER PRIMARY KEY AUTOINCREMENT, layers TEXT NOT NULL, type TEXT NOT NULL, collection TEXT NOT NULL,
  name TEXT NOT NULL, UNIQUE (layers, type, collection, name)
)
"""
_INSERT = "INSERT OR REPLACE INTO removed_members (layers, type, collection, name) VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM removed_members WHERE layers = ? AND type = ? AND collection = ? AND name = ?"


class OtherFormError(Exception):
    """This version of fsxds does not read a form."""


def channel_text(key: ChannelKey) -> str:
    """Encode a channel's key."""
    text: list[PlainValue] = [list(key.layers), key.is_canary]
    if not key.is_main:
        held: list[PlainValue] = [[*resource, version] for resource, version in sorted(key.held or ())]
        text += [None if key.held is None else held, key.lane, *([True] if key.is_shared else [])]
    return json.dumps(text)


def channel_key(text: bytes) -> ChannelKey:
    """Decode `channel_text`. Raises DamagedBytesError."""
    with decoding("it"):
        layers, is_canary, *more = json.loads(text)
        held, lane, *shared = more or (None, 0)
        versions = None if held is None else frozenset(map(read_version, held))
        return ChannelKey(tuple(map(str, layers)), bool(is_canary), versions, int(lane), bool(shared))


def snapshots_of(state: RolloutState) -> dict[str, Snapshot]:
    """Return a rollout's snapshots by role."""
    found = {name: getattr(state, name) for name in _SNAPSHOTS}
    found[_PINS] = _kept_snapshot(state.pins)
    found |= {_before(number): snapshot for number, snapshot in enumerate(_distinct(state.before.values()))}
    return {name: snapshot for name, snapshot in found.items() if snapshot is not None}


def encode_state(state: RolloutState, digests: Mapping[str, Digest], now_s: float) -> str:
    """Encode a state; `digests` are by the snapshot's role."""
    facts: dict[str, PlainValue] = {
        "format": FORMAT,
        "saved_s": now_s,
        "snapshots": {name: digest.hex() for name, digest in digests.items()},
        "pinned_at_s": state.pinned_at_s,
        "pins": [
            [*key, *sorted(pin.asked, key=str)] for key, pin in sorted(state.pins.items(), key=lambda each: each[0])
        ],
        "before": [
            [*key, version, _before(_distinct(state.before.values()).index(snapshot))]
            for (key, version), snapshot in sorted(state.before.items(), key=lambda each: each[0])
        ],
        "held": [[*key, held_for_s] for key, held_for_s in sorted(state.held_for_s.items())],
        "nodes": [[*node] for node in sorted(state.nodes)],
        "draining": [[one.name, _names(one.keys), _names(one.patterns), one.ends_at_s] for one in state.draining],
    }
    return json.dumps(facts)


def decode_state(text: bytes, restore: Callable[[Digest], Snapshot], now_s: float) -> RolloutState:
    """Decode a state, with remaining times adjusted to now.

    Raises:
        OtherFormError: another version of fsxds wrote it.
        DamagedBytesError: it, or a snapshot, is damaged.
    """
    with decoding("it"):
        facts = json.loads(text)
        if facts["format"] not in _READABLE:
            raise OtherFormError(f"its form is {facts['format']!r}, and not {FORMAT}")
        # A clock that was set back prolongs nothing.
        passed_s = max(now_s - _seconds(facts["saved_s"]), 0.0)
        found = {name: restore(bytes.fromhex(digest)) for name, digest in facts["snapshots"].items()}
        pinned_at_s = facts.get("pinned_at_s", facts["saved_s"] if "pinned" in found else None)
        return RolloutState(
            found["served"],
            found["target"],
            found.get("good"),
            tuple(_draining(row, passed_s) for row in facts["draining"]),
            dict(_pin(row, found.get(_PINS)) for row in facts.get("pins", ())),
            None if pinned_at_s is None else _seconds(pinned_at_s),
            before={read_version(version): found[name] for *version, name in facts.get("before", ())},
            nodes=frozenset((str(node), str(cluster)) for node, cluster in facts.get("nodes", ())),
            pinned=found.get("pinned"),
            held_for_s={_key(*key): _seconds(age_s) + passed_s for *key, age_s in facts.get("held", ())},
        )


def is_same_place(before: RolloutState, before_s: float, after: RolloutState, after_s: float) -> bool:
    """Whether only time elapsed between two states."""
    are_same = before.served is after.served and before.target is after.target and before.good is after.good
    are_same = are_same and before.pinned is after.pinned
    are_same = are_same and (before.pins, before.nodes) == (after.pins, after.nodes)
    are_same = are_same and _ids(before) == _ids(after)
    return are_same and _ends(before, before_s) == _ends(after, after_s)


class RemovedMembersTable:
    """The tombstones by view, the last changed last; a failed transaction makes it wrong: create a new one."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Read the rows. Raises DamagedBytesError."""
        self._connection = connection
        self.by_layers: dict[Layers, Tombstones] = {}
        read: dict[Layers, dict[Key, dict[str, int]]] = {}
        rows = connection.execute("SELECT number, layers, type, collection, name FROM removed_members ORDER BY number")
        for number, *texts in rows:
            with decoding("the table of removed members"):
                layers, type_url, collection, name = (text.decode() for text in texts)
                view = read[_layers(layers)] = read.pop(_layers(layers), {})
            key = TypeUrl(type_url), collection
            names = view[key] = view.pop(key, {})
            names[name] = number
        self.by_layers.update(read)

    def keep(self, noted: Mapping[Layers, Tombstones]) -> None:
        """Write changed tombstones; other views stay."""
        for layers, tombstones in noted.items():
            before = self.by_layers.get(layers, NO_TOMBSTONES)
            if before is not tombstones:
                self._write(layers, before, tombstones)
                self.by_layers.pop(layers, None)
                self.by_layers[layers] = tombstones
        while len(self.by_layers) > MOST_VIEWS:
            oldest = next(iter(self.by_layers))
            self._connection.execute("DELETE FROM removed_members WHERE layers = ?", (json.dumps(oldest),))
            del self.by_layers[oldest]

    def _write(self, layers: Layers, before: Tombstones, after: Tombstones) -> None:
        view = json.dumps(layers)
        for key in before.keys() | after.keys():
            old, new = before.get(key, {}), after.get(key, {})
            if old is new:
                continue
            gone = old.keys() - new.keys()
            self._connection.executemany(_DELETE, [(view, *key, name) for name in gone])
            fresh = [name for name, number in new.items() if old.get(name) != number]
            self._connection.executemany(_INSERT, [(view, *key, name) for name in fresh])


def _ids(state: RolloutState) -> dict[ResourceVersion, int]:
    return {version: id(snapshot) for version, snapshot in state.before.items()}


def _ends(state: RolloutState, now_s: float) -> list[DrainingListener]:
    ends = ((one, one.ends_at_s) for one in state.draining)
    return [one if left_s is None else replace(one, ends_at_s=round(now_s + left_s)) for one, left_s in ends]


def _before(number: int) -> str:
    return f"before {number}"


def _distinct(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    return list({id(snapshot): snapshot for snapshot in snapshots}.values())


def _kept_snapshot(pins: Mapping[Key, Pin]) -> Snapshot | None:
    kept = [pin.kept for pin in pins.values() if pin.kept is not None]
    if not kept:
        return None
    rows = {
        row.type_url: Rows(row.type_url, {one.name: one for one in kept if one.type_url == row.type_url})
        for row in RESOURCE_TYPES
    }
    return Snapshot(0, MappingProxyType(rows))


def _pin(row: list[str | None], kept: Snapshot | None) -> tuple[Key, Pin]:
    type_url, name, *asked = TypeUrl(str(row[0])), str(row[1]), *row[2:]
    found = None if kept is None else kept.resources(type_url).get(name)
    return (type_url, name), Pin(found, frozenset(None if one is None else Version(str(one)) for one in asked))


def read_version(row: list[str]) -> ResourceVersion:
    """Decode a type, name and version."""
    type_url, name, digest = map(str, row)
    return _key(type_url, name), Version(digest)


def _key(type_url: str, name: str) -> Key:
    return TypeUrl(str(type_url)), str(name)


def _seconds(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} seconds")
    return float(value)


_Names = list[list[str]]


def _names(keys: Iterable[Key]) -> PlainValue:
    return [[*key] for key in sorted(keys)]


def _keys(names: _Names) -> frozenset[Key]:
    return frozenset((TypeUrl(str(type_url)), str(name)) for type_url, name in names)


def _draining(row: tuple[str, _Names, _Names, float | None], passed_s: float) -> DrainingListener:
    listener, names, patterns, left_s = row
    ends_at_s = None if left_s is None else max(_seconds(left_s) - passed_s, 0.0)
    return DrainingListener(str(listener), _keys(names), _keys(patterns), ends_at_s)


def _layers(text: str) -> Layers:
    layers = json.loads(text)
    if not isinstance(layers, list):
        raise TypeError("no list")
    return tuple(map(str, layers))
