"""Which names that do not exist are reported as removed on a Delta stream, and when."""

from __future__ import annotations

from dataclasses import replace

from fsxds.protocol.acks import NOTHING
from fsxds.protocol.lookup import Changes, Lookup
from fsxds.resources import Snapshot
from fsxds.values import TypeUrl


class Absence:
    """Decides which names are reported as removed; the others once it is certain that they do not exist.

    | where | not reported |
    | --- | --- |
    | a file that was never good may define the type | names that may be in that file |
    | no file ever mentioned the type | what the client brings from another process, which may have had files of it |
    | it would hang the client (`is_hidden`, ENVOY.md E38) | anything |

    What this process saw removed is reported in any case: the client got it from here.
    """

    __slots__ = ("_brought", "_is_hidden", "_type_url", "unreported")

    def __init__(self, type_url: TypeUrl, *, is_hidden: bool) -> None:
        self.unreported = NOTHING
        self._type_url, self._is_hidden = type_url, is_hidden
        # What the client got before this process began, and has not existed since.
        self._brought = NOTHING

    def begin(self, brought: frozenset[str]) -> None:
        """Note which names a client brings that do not exist."""
        self._brought = brought

    @property
    def is_open(self) -> bool:
        """Whether there is something to decide again."""
        return bool(self.unreported or self._brought)

    def reconsider(self, names: frozenset[str], after: Lookup) -> frozenset[str]:
        """Return what was not reported, does still not exist, and is still wanted: `withhold` decides again."""
        if not self.is_open:
            return NOTHING
        absent = self.unreported | self._brought
        absent -= after.existing(absent)
        self._brought &= absent
        unreported, self.unreported = self.unreported & absent, NOTHING
        return unreported & (names | self._brought)

    def withhold(self, changes: Changes, snapshot: Snapshot) -> Changes:
        """Return changes without what is not reported now."""
        absent, removed = changes.absent, changes.removed
        if self._is_hidden:
            return replace(changes, absent=NOTHING, removed=NOTHING)
        if self._type_url in snapshot.incomplete:
            self.unreported = absent | (removed & self._brought)
        elif self._type_url in snapshot.undeclared:
            self.unreported = self._brought & (absent | removed)
        else:
            self._brought = NOTHING
        if not self.unreported:
            return changes
        return replace(changes, absent=absent - self.unreported, removed=removed - self.unreported)

    def reportable(self, removed: frozenset[str]) -> frozenset[str]:
        """Return those of these names, which the client was sent, that may be reported as removed."""
        return NOTHING if self._is_hidden else removed
