"""The newest manifests that were trusted, in the database: an older one is known as such after a restart, too."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from fsxds.events.event import Observer
from fsxds.events.state_events import StateIgnored
from fsxds.model.errors import StateError
from fsxds.model.tree_trust import SeenManifest

if TYPE_CHECKING:
    from fsxds.history.state import State


def read_seen(connection: sqlite3.Connection, subject: str) -> SeenManifest | None:
    """Return the newest manifest of a subject; None where none is kept."""
    query = "SELECT serial, digest FROM seen_manifests WHERE subject = ?"
    row = connection.execute(query, (subject,)).fetchone()
    return None if row is None else SeenManifest(int(row[0]), row[1].decode())


def write_seen(connection: sqlite3.Connection, subject: str, seen: SeenManifest) -> None:
    """Keep the newest manifest of a subject."""
    row = subject, seen.serial, seen.digest
    connection.execute("INSERT OR REPLACE INTO seen_manifests (subject, serial, digest) VALUES (?, ?, ?)", row)


class SeenInState:
    """Remembers in a state directory. Blocks; for one caller at a time.

    What cannot be written is remembered as long as the process lasts, and written with the next one: serving goes on.
    """

    def __init__(self, state: State, observer: Observer) -> None:
        """Remember in a directory that is held; `observer` receives what fails."""
        self._state, self._observer = state, observer
        # {subject: the newest one, and whether it is on the disk}
        self._seen: dict[str, tuple[SeenManifest, bool]] = {}

    def newest(self, subject: str) -> SeenManifest | None:
        """Return the newest one; None for a subject of which none was seen."""
        if subject not in self._seen:
            try:
                kept = self._state.newest_manifest(subject)
            except StateError as error:
                self._report("which manifests were seen cannot be read", error)
                return None
            if kept is None:
                return None
            self._seen[subject] = kept, True
        seen, is_kept = self._seen[subject]
        if not is_kept:
            self.keep(subject, seen)
        return seen

    def keep(self, subject: str, seen: SeenManifest) -> None:
        """Remember a newer one."""
        self._seen[subject] = seen, False
        try:
            self._state.keep_manifest(subject, seen)
            self._seen[subject] = seen, True
        except StateError as error:
            self._report("which manifest was seen cannot be written", error)

    def _report(self, fact: str, error: StateError) -> None:
        self._observer(StateIgnored(str(self._state.path), f"{fact}: {error}"))
