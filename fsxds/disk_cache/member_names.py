"""Keeps collection members' names in a user's file, without a state directory.

An Envoy does not report the members that it holds, and keeps them until their removal is sent (ENVOY.md E43): a process
without the former members leaves removed ones in use for good. So their names are kept by default.

A user's processes that serve the same tree, such as replicas, share the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Never, Self

from fsxds.disk_cache.private_directory import PrivateDirectory, evict_old
from fsxds.events.event import Observer
from fsxds.events.process_events import MembersNotWritten, StateIgnored
from fsxds.model.resource_names import SCHEME
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers, TypeUrl
from fsxds.protocol.absence import NO_TOMBSTONES, Tombstones, after_parting, with_removed
from fsxds.rollout.machine import RolloutState
from fsxds.rollout.rejections import Rejections
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.row_source import rules_of
from fsxds.settings.options import Settings
from fsxds.settings.reading import user_state_dir

# The delay between a change and its write.
WITHIN_S = 0.2
# A file unused for this long belongs to a removed tree.
UNUSED_FOR_S = 365 * 24 * 3600.0
_NAME = re.compile(r"[0-9a-f]{32}\.json")

Views = Mapping[Layers, Tombstones]
"""The names that clients of each view may hold."""


class MemberNames:
    """A `PlaceKeeper` of names alone. `keep_written` has to run."""

    def __init__(self, directory: Path, sources: Collection[str], observer: Observer) -> None:
        """Create the directory when there are names; `sources` are the tree and upstreams' addresses."""
        self.read_members: Callable[[], Views] = dict
        self.read_behind: Callable[[], Mapping[ChannelKey, RolloutState]] = dict
        self._directory = directory
        self._name = f"{hashlib.sha256(json.dumps([*sources]).encode()).hexdigest()[:32]}.json"
        self._observer = observer
        self._readers: dict[ChannelKey, Callable[[], RolloutState | None]] = {}
        self._noted = asyncio.Event()
        self._lock = Lock()
        # The removed and the served members at the last write.
        self._written: tuple[Views, Mapping[ChannelKey, Snapshot]] = {}, {}
        self._is_failing = False

    @classmethod
    def of(cls, tree: Path | None, settings: Settings, observer: Observer) -> Self | None:
        """Return the keeper of a tree's and its upstreams' names; None for a user without a home."""
        directory = user_state_dir()
        servers = (server for rule in rules_of(settings) for server in rule.servers)
        fleet = settings.fleet
        # The socket of workers has another path in each run; their addresses stay.
        store = "" if fleet is None else f"{settings.http} {settings.grpc}" if fleet.is_private else str(fleet)
        sources = [str(tree.absolute()) if tree else "", store, *servers]
        return None if directory is None else cls(directory / "members", sources, observer)

    def restored(self) -> dict[ChannelKey, RolloutState]:
        """Return nothing: places are not kept."""
        return {}

    def restored_members(self) -> dict[Layers, Tombstones]:
        """Return earlier processes' names; blocking, for the start."""
        try:
            if not (self._directory / self._name).exists():
                return {}
            with PrivateDirectory.opened(self._directory) as directory:
                return dict(self._read(directory))
        except (OSError, ValueError) as error:
            self._observer(StateIgnored(str(self._directory / self._name), str(error)))
            return {}

    def restore_rejections(self, rejections: Rejections) -> None:
        """Do nothing."""

    def note_rejections(self) -> None:
        """Do nothing."""

    def save(self, key: ChannelKey, read: Callable[[], RolloutState | None]) -> None:
        """Schedule a write of that time's names, if there are new ones."""
        self._readers[key] = read
        state = None if self._noted.is_set() else read()
        if state is not None and self._has_new_names(self.read_members(), {key: state.served}):
            self._noted.set()

    def forget(self, key: ChannelKey) -> None:
        """Stop reading a channel."""
        self._readers.pop(key, None)

    async def keep_written(self) -> Never:
        """Write changes until cancelled, then once more."""
        try:
            while True:
                await self._noted.wait()
                await asyncio.sleep(WITHIN_S)
                self._noted.clear()
                removed, served = dict(self.read_members()), self._served()
                if self._has_new_names(removed, served):
                    self._receive(await asyncio.to_thread(self._write, removed, served), (removed, served))
        finally:
            removed, served = dict(self.read_members()), self._served()
            if self._has_new_names(removed, served):
                self._receive(self._write(removed, served), (removed, served))

    def _served(self) -> dict[ChannelKey, Snapshot]:
        states = ((key, read()) for key, read in self._readers.items())
        return {key: state.served for key, state in states if state is not None}

    def _has_new_names(self, removed: Views, served: Mapping[ChannelKey, Snapshot]) -> bool:
        """An edit without a new member is not written: 100 000 members would take 0.1 s."""
        written_removed, written = self._written
        return any(noted is not written_removed.get(layers) for layers, noted in removed.items()) or any(
            _adds_members(written.get(key), snapshot) for key, snapshot in served.items()
        )

    def _receive(self, error: OSError | None, written: tuple[Views, Mapping[ChannelKey, Snapshot]]) -> None:
        if error is None:
            self._written = written
        elif not self._is_failing:
            self._observer(MembersNotWritten(self._directory, error.strerror or str(error)))
        self._is_failing = error is not None

    def _write(self, removed: Views, served: Mapping[ChannelKey, Snapshot]) -> OSError | None:
        """Any thread may call it."""
        views: dict[Layers, Tombstones] = {}
        for key, snapshot in served.items():
            views[key.layers] = after_parting(views.get(key.layers, NO_TOMBSTONES), snapshot)
        # Last: if there are too many names, these stay.
        views = _with(views, removed)
        if not any(views.values()):
            return None
        with self._lock:
            try:
                with PrivateDirectory.opened(self._directory) as directory:
                    with suppress(ValueError):  # other processes may have written names
                        views = _with(dict(self._read(directory)), views)
                    directory.replace(self._name, [_encoded(views)])
                evict_old(self._directory, _NAME, UNUSED_FOR_S, self._name)
            except OSError as error:
                return error
        return None

    def _read(self, directory: PrivateDirectory) -> Iterable[tuple[Layers, Tombstones]]:
        """Raise ValueError for a damaged file."""
        descriptor = directory.open(self._name)
        if descriptor is None:
            return
        with os.fdopen(descriptor, "rb") as file:
            os.utime(descriptor)
            text = file.read()
        try:
            for layers, of_types in json.loads(text):
                names = ((TypeUrl(str(type_url)), str(name)) for type_url, group in of_types for name in group)
                yield tuple(map(str, layers)), with_removed(NO_TOMBSTONES, names)
        except (TypeError, RecursionError) as error:
            raise ValueError("it is damaged") from error


def _adds_members(before: Snapshot | None, after: Snapshot) -> bool:
    for type_url, rows in after.by_type.items():
        old = None if before is None else before.resources(type_url)
        if old is None:
            is_new = any(True for _ in rows.starting_with(SCHEME))
        else:
            fresh = rows.changes_since(old).fresh if old is not rows else ()
            is_new = any(name.startswith(SCHEME) and name not in old for name in fresh)
        if is_new:
            return True
    return False


def _with(views: dict[Layers, Tombstones], more: Views) -> dict[Layers, Tombstones]:
    for layers, noted in more.items():
        names = ((type_url, name) for (type_url, _), group in noted.items() for name in group)
        views[layers] = with_removed(views.get(layers, NO_TOMBSTONES), names)
    return views


def _encoded(views: Views) -> bytes:
    rows = [
        [[*layers], [[type_url, [*names]] for (type_url, _), names in noted.items()]] for layers, noted in views.items()
    ]
    return json.dumps(rows).encode()
