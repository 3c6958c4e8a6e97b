"""Database rows of removed members of collections."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from fsxds.model.resources import Key
from fsxds.model.values import Layers, TypeUrl
from fsxds.protocol.absence import NO_TOMBSTONES, Tombstones
from fsxds.snapshots.encoding import DamagedBytesError

# The maximum number of views, those that changed last; `tombstones.py` bounds the rows of each.
MOST_VIEWS = 1000

# Databases of earlier versions get it when they are opened.
SCHEMA = """
CREATE TABLE IF NOT EXISTS removed_members (
  number INTEGER PRIMARY KEY AUTOINCREMENT, layers TEXT NOT NULL, type TEXT NOT NULL, collection TEXT NOT NULL,
  name TEXT NOT NULL, UNIQUE (layers, type, collection, name)
)
"""
_INSERT = "INSERT OR REPLACE INTO removed_members (layers, type, collection, name) VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM removed_members WHERE layers = ? AND type = ? AND collection = ? AND name = ?"


class RemovedMembersTable:
    """The tombstones by view, the last changed last; a failed transaction makes it wrong: create a new one."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Read the rows. Raises DamagedBytesError."""
        self._connection = connection
        self.by_layers: dict[Layers, Tombstones] = {}
        read: dict[Layers, dict[Key, dict[str, int]]] = {}
        rows = connection.execute("SELECT number, layers, type, collection, name FROM removed_members ORDER BY number")
        for number, *texts in rows:
            try:
                layers, type_url, collection, name = (text.decode() for text in texts)
                view = read[_layers(layers)] = read.pop(_layers(layers), {})
            except (AttributeError, TypeError, ValueError, RecursionError) as error:
                raise DamagedBytesError(f"the removed members are damaged: {type(error).__name__}") from error
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


def _layers(text: str) -> Layers:
    layers = json.loads(text)
    if not isinstance(layers, list):
        raise TypeError("no list")
    return tuple(map(str, layers))
