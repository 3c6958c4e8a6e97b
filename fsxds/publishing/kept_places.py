"""What is kept across restarts, as the publisher sees it (a capability, see `history/`), and the members that were removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.protocol.tombstones import NO_TOMBSTONES, Tombstones, after_change, after_parting
from fsxds.rollout import Rejections, RolloutState
from fsxds.runtime.channels import ChannelKey


class PlaceKeeper(Protocol):
    """Keeps the places of rollouts, what nodes reject, and what was removed from views. What it restores blocks.

    Attributes:
        read_members: returns what was removed from views, at this moment.
        read_behind: returns where nodes are that are behind the others, at this moment, each place as a lane.
    """

    read_members: Callable[[], Mapping[Layers, Tombstones]]
    read_behind: Callable[[], Mapping[ChannelKey, RolloutState]]

    def restored(self) -> dict[ChannelKey, RolloutState]:
        """Return the places of all rollouts when a process wrote them last."""

    def restored_members(self) -> dict[Layers, Tombstones]:
        """Return the members that were removed from views, as a process noted them last."""

    def restore_rejections(self, rejections: Rejections) -> None:
        """Have what nodes reject kept from now on, as when a process wrote it last."""

    def note_rejections(self) -> None:
        """Have what nodes reject written soon, as it is then."""

    def save(self, key: ChannelKey, read: Callable[[], RolloutState | None]) -> None:
        """Have the place of a rollout written soon, as it is then."""

    def forget(self, key: ChannelKey) -> None:
        """Have the place of a rollout removed soon: nobody follows it any more."""


class RemovedMembers:
    """Notes which members go, in whatever channel of a view.

    Attributes:
        by_layers: what is noted, by the layers of views; views of which nothing is noted are not in it.
    """

    def __init__(self, restored: Mapping[Layers, Tombstones]) -> None:
        """Begin with what a process before noted."""
        self.by_layers = dict(restored)

    def receive_change(self, layers: Layers, before: Snapshot | None, after: Snapshot) -> Tombstones:
        """Take what a channel serves from now on; return what is noted of its view."""
        return self._note(layers, after_change(self.by_layers.get(layers, NO_TOMBSTONES), before, after))

    def receive_parting(self, layers: Layers, last: Snapshot | None) -> None:
        """Note what a channel served that nobody follows any more: its clients may come back."""
        self._note(layers, after_parting(self.by_layers.get(layers, NO_TOMBSTONES), last))

    def _note(self, layers: Layers, noted: Tombstones) -> Tombstones:
        if noted:
            self.by_layers[layers] = noted
        return noted
