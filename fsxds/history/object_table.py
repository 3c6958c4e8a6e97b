"""The database table of the objects of `snapshots/encoding.py`."""

from __future__ import annotations

import sqlite3
from collections import Counter

from fsxds.snapshots.encoding import Content, DamagedBytesError, Digest, KeptObject, joined, parted


def read_object(connection: sqlite3.Connection, digest: Digest) -> Content:
    """Return an object's content.

    Raises:
        DamagedBytesError: it is missing.
    """
    row = connection.execute("SELECT content, children FROM objects WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        raise DamagedBytesError(f"an object is missing: {digest.hex()}")
    return Content(row[0], parted(row[1]))


class ObjectTable:
    """The objects, and their reference counts.

    The counts are in memory only: on disk, each change of a cluster would change the counts of all chunks. After a
    failed transaction they are wrong, and a new table has to be created.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Count the references.

        Raises:
            DamagedBytesError: a referenced object is missing.
        """
        self.connection = connection
        named = Counter[Digest]()
        kept = set()
        for digest, children in connection.execute("SELECT digest, children FROM objects"):
            kept.add(digest)
            named.update(parted(children))
        for (roots,) in connection.execute("SELECT snapshot FROM entries UNION ALL SELECT snapshots FROM rollouts"):
            named.update(parted(roots))
        if not named.keys() <= kept:
            raise DamagedBytesError("an object is missing")
        self._uses = named

    def keep(self, kept: KeptObject) -> None:
        """Add a reference, and write the object if it is new."""
        if kept.digest not in self._uses:
            children = kept.children()
            for child in children:
                self.keep(child)
            row = kept.digest, joined(child.digest for child in children), kept.content()
            self.connection.execute("INSERT INTO objects (digest, children, content) VALUES (?, ?, ?)", row)
        self._uses[kept.digest] += 1

    def release(self, digest: Digest) -> None:
        """Remove a reference, and with the last one the object."""
        self._uses[digest] -= 1
        if self._uses[digest]:
            return
        del self._uses[digest]
        children = read_object(self.connection, digest).children
        self.connection.execute("DELETE FROM objects WHERE digest = ?", (digest,))
        for child in children:
            self.release(child)
