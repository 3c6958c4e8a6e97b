"""What keeps the places of rollouts across restarts, as the publisher sees it: a capability, see `history/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from fsxds.channels import ChannelKey
from fsxds.protocol.tombstones import Tombstones
from fsxds.rollout import Rejections, RolloutState
from fsxds.values import Layers


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
