"""What a Delta client is to be told, and its making."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fsxds.protocol.delta_names import NOTHING
from fsxds.resources import NO_RESOURCES, ResourceList
from fsxds.values import Version


@dataclass(frozen=True, slots=True)
class News:
    """What a client is to be told now.

    `resources` are new to it or asked for, by the names in `requested`. `absent` are names that it asked for and that do
    not exist, `unpopulated` the hosts among them. `gone` are names that it is to hold no more. `woken` are told as removed
    to end a wait, and are nobody's names.
    """

    version: Version
    resources: ResourceList = NO_RESOURCES
    requested: frozenset[str] = NOTHING
    absent: frozenset[str] = NOTHING
    unpopulated: frozenset[str] = NOTHING
    gone: frozenset[str] = NOTHING
    woken: frozenset[str] = NOTHING

    def without_gone(self) -> News | None:
        """Return the part that takes nothing away; None where there is none."""
        rest = replace(self, gone=NOTHING)
        return rest if self.resources or self.absent or self.unpopulated or not self.gone else None

    def gone_alone(self) -> News | None:
        """Return the part that takes something away; None where there is none."""
        return News(self.version, gone=self.gone) if self.gone else None


@dataclass(slots=True)
class Draft:
    """News in the making; names only. Each of `fresh` exists."""

    fresh: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    unpopulated: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    woken: set[str] = field(default_factory=set)
    is_all: bool = False
    is_due: bool = False
