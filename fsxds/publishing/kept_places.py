"""State kept across restarts (a capability, see `history/`), and removed members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.protocol.tombstones import NO_TOMBSTONES, Tombstones, after_change, after_parting
from fsxds.rollout import Rejections, RolloutState
from fsxds.runtime.channels import ChannelKey


class PlaceKeeper(Protocol):
    """Keeps places, rejections, and removals. Restoring blocks.

    Attributes:
        read_behind: returns the places of nodes behind their channel, each as a lane.
    """

    read_members: Callable[[], Mapping[Layers, Tombstones]]
    read_behind: Callable[[], Mapping[ChannelKey, RolloutState]]

    def restored(self) -> dict[ChannelKey, RolloutState]:
        """Return the last written places."""

    def restored_members(self) -> dict[Layers, Tombstones]:
        """Return the last written removals."""

    def restore_rejections(self, rejections: Rejections) -> None:
        """Restore rejections, and keep them."""

    def note_rejections(self) -> None:
        """Write the rejections soon, as they are then."""

    def save(self, key: ChannelKey, read: Callable[[], RolloutState | None]) -> None:
        """Write a rollout's place soon, as it is then."""

    def forget(self, key: ChannelKey) -> None:
        """Remove a rollout's place soon: it has no followers."""


class RemovedMembers:
    """Notes members removed in any channel; views without any are missing."""

    def __init__(self, restored: Mapping[Layers, Tombstones]) -> None:
        self.by_layers = dict(restored)

    def receive_change(self, layers: Layers, before: Snapshot | None, after: Snapshot) -> Tombstones:
        """Take a snapshot; return its view's removals."""
        return self._note(layers, after_change(self.by_layers.get(layers, NO_TOMBSTONES), before, after))

    def receive_parting(self, layers: Layers, last: Snapshot | None) -> None:
        """Note the last snapshot: clients may come back."""
        self._note(layers, after_parting(self.by_layers.get(layers, NO_TOMBSTONES), last))

    def _note(self, layers: Layers, noted: Tombstones) -> Tombstones:
        if noted:
            self.by_layers[layers] = noted
        return noted
