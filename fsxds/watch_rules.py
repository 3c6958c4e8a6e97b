"""What the settings say about watching a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from fsxds.reload import bounds_of
from fsxds.settings.options import Settings
from fsxds.source.listing import TreeBounds
from fsxds.source.targets import WatchMode, WatchOptions


@dataclass(frozen=True, slots=True)
class WatchRules:
    """What a watcher has to be restarted for when it changes."""

    options: WatchOptions
    exclude: tuple[str, ...]
    bounds: TreeBounds

    @classmethod
    def of(cls, settings: Settings) -> WatchRules:
        """Return what the settings say."""
        options = WatchOptions(
            mode=cast("WatchMode", settings.watch),  # its form has these words alone
            settle_s=settings.settle_s,
            settle_cap_s=settings.settle_cap_s,
            writer_patience_s=settings.writer_patience_s,
            rescan_s=settings.rescan_s,
            poll_s=settings.poll_s,
        )
        return cls(options, settings.exclude, bounds_of(settings))
