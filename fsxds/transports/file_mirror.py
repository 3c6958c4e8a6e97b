"""Rewrite files atomically for Envoys that watch paths."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Never, Protocol

from fsxds.resources import Snapshot
from fsxds.store import SnapshotStore
from fsxds.supervisor import Attempts
from fsxds.transports.mirror_writer import Mirror, MirrorOptions, MirrorReport

__all__ = ["Mirror", "MirrorObserver", "MirrorOptions", "MirrorReport", "Mirroring", "write_once"]

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 30.0


class MirrorObserver(Protocol):
    """Hears what became of the files."""

    def files_written(self, report: MirrorReport) -> None:
        """A snapshot is in the directory."""

    def mirror_failed(self, error: OSError, retry_s: float) -> None:
        """The directory could not be written; it is tried again in `retry_s` seconds, or with the next snapshot."""

    def snapshot_set_aside(self, error: BaseException) -> None:
        """Writing a snapshot failed three times in a row by an error of fsxds; the next one is tried."""


def write_once(snapshot: Snapshot, mirror: Mirror) -> MirrorReport:
    """Write one snapshot and give the directory back; raises as `Mirror.write`."""
    with mirror:
        return mirror.write(snapshot)


class Mirroring:
    """Keeps a directory in step with the store; a snapshot that was overtaken is skipped.

    What somebody removes or changes of the files is written again, when the time to look for it has come.

    A full disk, a read-only or missing directory is reported and tried again after 1, 2, 4, … 30 seconds, and with each
    newer snapshot. A snapshot on which it failed three times in a row by an error of fsxds is set aside: the files stay as
    they are until the next one.
    """

    def __init__(self, store: SnapshotStore, mirror: Mirror, observer: MirrorObserver) -> None:
        self._store = store
        self._mirror = mirror
        self._observer = observer
        self._attempts = Attempts(observer.snapshot_set_aside)
        self._generation = 0
        self._retry_s = FIRST_RETRY_S

    async def keep_mirrored(self) -> Never:
        """Write each newer snapshot until cancelled, which ends a write after its present file.

        UsageError, when another process has the directory, is the caller's.
        """
        while True:
            snapshot = await self._next()
            if self._attempts.are_over(snapshot.generation):
                self._generation = snapshot.generation
                continue
            with self._attempts.on(snapshot.generation):
                await self._write(snapshot)

    async def _next(self) -> Snapshot:
        """Return the next snapshot to write: a newer one, or the same again when somebody removed or changed a file."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._mirror.rescan_s):
                    return await self._store.newer_than(self._generation)
            try:
                has_changed = await asyncio.to_thread(self._mirror.has_changed)
            except OSError:
                has_changed = True  # Writing will tell what is wrong.
            if has_changed and self._store.current is not None:
                return self._store.current

    async def _write(self, snapshot: Snapshot) -> None:
        try:
            report = await asyncio.to_thread(self._mirror.write, snapshot)
        except asyncio.CancelledError:
            # The thread goes on; the process shall not wait for ten thousand files.
            self._mirror.interrupt()
            raise
        except OSError as error:
            self._observer.mirror_failed(error, self._retry_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._retry_s):
                    await self._store.newer_than(snapshot.generation)
            self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)
        else:
            self._generation, self._retry_s = snapshot.generation, FIRST_RETRY_S
            self._observer.files_written(report)
