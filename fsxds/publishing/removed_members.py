"""What is remembered of the removed members of collections, for each view: its channels share it."""

from __future__ import annotations

from collections.abc import Mapping

from fsxds.protocol.tombstones import NO_TOMBSTONES, Tombstones, after_change, after_parting
from fsxds.resources import Snapshot
from fsxds.values import Layers


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
