"""The places of a fleet's rollouts, for the next publisher.

A rollout that serves its target and holds nothing is not written: it begins with the published snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from fsxds.fleet.pointers import ViewKey
from fsxds.fleet.publication import Publication
from fsxds.fleet.records import KeptRecord, Records, snapshot_in
from fsxds.history.rollout_rows import (
    OtherFormError,
    decode_state,
    encode_state,
    is_same_place,
    snapshots_of,
)
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.protocol.absence import Tombstones
from fsxds.rollout import Rejections, RolloutState
from fsxds.runtime.channels import ChannelKey
from fsxds.snapshots.encoding import DamagedBytesError, Digest
from fsxds.snapshots.load import same_content

PREFIX = "place/"


class FleetPlaces:
    """A fleet's `PlaceKeeper`. Reports restore rejections."""

    def __init__(
        self,
        publication: Publication,
        records: Records,
        kept: Mapping[ViewKey, RolloutState],
        on_due: Callable[[], object],
    ) -> None:
        self.read_members: Callable[[], Mapping[Layers, Tombstones]] = dict
        self.read_behind: Callable[[], Mapping[ChannelKey, RolloutState]] = dict
        self._publication = publication
        self._records = records
        self._restored = kept
        self._on_due = on_due
        self._due: dict[ViewKey, Callable[[], RolloutState | None]] = {}
        # The last written states, with the time of writing.
        self._written: dict[ViewKey, tuple[RolloutState, float]] = {}

    def restored(self) -> dict[ChannelKey, RolloutState]:
        """Return the initial states of rollouts."""
        return {
            ChannelKey(*key): _at(served, self._restored.get(key)) for key, served in self._publication.served.items()
        }

    def restored_members(self) -> dict[Layers, Tombstones]:
        """Return nothing: servers know the removed members."""
        return {}

    def restore_rejections(self, rejections: Rejections) -> None:
        """Do nothing: reports restore rejections."""

    def note_rejections(self) -> None:
        """Do nothing: reports restore rejections."""

    def save(self, key: ChannelKey, read: Callable[[], RolloutState | None]) -> None:
        """Write a rollout's place soon, as it is then."""
        if key.is_main:
            self._due[ViewKey(key.layers, key.is_canary)] = read
            self._on_due()

    def forget(self, key: ChannelKey) -> None:
        """Remove a rollout's place soon."""
        if key.is_main:
            self._due[ViewKey(key.layers, key.is_canary)] = _no_state
            self._on_due()

    async def write(self) -> None:
        """Write due places. NoPublisherError, UnreachableError, RejectedRequestError: they cannot be written."""
        may_keep = self._publication.content.may_keep
        for key, read in tuple(self._due.items()):
            state, now_s = read(), time.time()
            if state is None or _is_plain(state) or not all(map(may_keep, snapshots_of(state).values())):
                await self._records.remove(PREFIX + key.text)
                self._written.pop(key, None)
            elif key not in self._written or not is_same_place(*self._written[key], state, now_s):
                kept: RolloutState = state

                def text_of(digests: Mapping[str, Digest], kept: RolloutState = kept, now_s: float = now_s) -> str:
                    return encode_state(kept, digests, now_s)

                await self._records.keep(PREFIX + key.text, snapshots_of(state), text_of)
                self._written[key] = state, now_s
            if self._due.get(key) is read:
                del self._due[key]


async def read_places(records: Records, publication: Publication) -> dict[ViewKey, RolloutState]:
    """Return readable places of an earlier publisher."""
    found: dict[ViewKey, RolloutState] = {}
    for name, record in records.found.items():
        if name.startswith(PREFIX):
            try:
                key = ViewKey.of(name.removeprefix(PREFIX))
                found[key] = await _read(record, records, publication.served.get(key))
            except (DamagedBytesError, OtherFormError):
                continue
    return found


async def _read(record: KeptRecord, records: Records, near: Snapshot | None) -> RolloutState:
    snapshots = {root: await snapshot_in(records.content, record, root, near) for root in record.roots}

    def restore(digest: Digest) -> Snapshot:
        try:
            return snapshots[digest]
        except KeyError:
            raise DamagedBytesError("a place names a snapshot that is not kept") from None

    return decode_state(record.text.encode(), restore, time.time())


def _at(served: Snapshot, kept: RolloutState | None) -> RolloutState:
    """The published snapshot may be later than the kept state."""
    if kept is None:
        return RolloutState(served, served, served)
    target = served if same_content(kept.target, served) else kept.target
    good = served if kept.good is not None and same_content(kept.good, served) else kept.good
    return replace(kept, served=served, target=target, good=good)


def _is_plain(state: RolloutState) -> bool:
    is_decided = bool(state.pins) or state.pinned is not None or bool(state.before) or bool(state.held_for_s)
    return state.target is state.served and not is_decided and not state.draining


def _no_state() -> None:
    """Return the place of a rollout that is forgotten."""
