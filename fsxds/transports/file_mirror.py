"""Rewrite files atomically for Envoys that watch paths."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Never, Protocol

from fsxds.store import SnapshotStore
from fsxds.transports.mirror_writer import Mirror, MirrorOptions, MirrorReport
from fsxds.values import Snapshot

__all__ = ["Mirror", "MirrorObserver", "MirrorOptions", "MirrorReport", "serve_mirror", "write_once"]

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 30.0


class MirrorObserver(Protocol):
    """Hears what became of the files."""

    def files_written(self, report: MirrorReport) -> None:
        """A snapshot is in the directory."""

    def mirror_failed(self, error: OSError, retry_s: float) -> None:
        """The directory could not be written; it is tried again in `retry_s` seconds, or with the next snapshot."""


def write_once(snapshot: Snapshot, mirror: Mirror) -> MirrorReport:
    """Write one snapshot and give the directory back; raises as `Mirror.write`."""
    with mirror:
        return mirror.write(snapshot)


async def serve_mirror(store: SnapshotStore, mirror: Mirror, observer: MirrorObserver) -> Never:
    """Keep a directory in step with the store until cancelled; a snapshot that was overtaken is skipped.

    A full disk, a read-only or missing directory is told and tried again after 1, 2, 4, … 30 seconds, and with each newer
    snapshot. Cancelling it ends a write after its present file. UsageError, when another process has the directory, is the caller's.
    """
    generation = 0
    retry_s = FIRST_RETRY_S
    while True:
        snapshot = await store.newer_than(generation)
        try:
            report = await asyncio.to_thread(mirror.write, snapshot)
        except asyncio.CancelledError:
            # The thread goes on; the process shall not wait for ten thousand files.
            mirror.interrupt()
            raise
        except OSError as error:
            observer.mirror_failed(error, retry_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_s):
                    await store.newer_than(snapshot.generation)
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)
        else:
            observer.files_written(report)
            generation, retry_s = snapshot.generation, FIRST_RETRY_S
