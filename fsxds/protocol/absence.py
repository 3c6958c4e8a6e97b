"""Which names that do not exist are reported as removed on a Delta stream, and when."""

from __future__ import annotations

from dataclasses import replace

from fsxds.model.resource_names import glob_of
from fsxds.model.resource_types import ResourceType
from fsxds.model.resources import Snapshot
from fsxds.protocol.acks import NOTHING, Acks
from fsxds.protocol.lookup import Changes, Lookup
from fsxds.protocol.on_demand import Unanswered, nothing_unanswered
from fsxds.protocol.subscription import WILDCARD
from fsxds.rollout.uses import names_in_use


class Absence:
    """Decides which names are reported as removed; the others once it is certain that they do not exist.

    | where | not reported |
    | --- | --- |
    | a file that was never good may define the type | names that may be in that file |
    | no file ever mentioned the type | what the client brings from another process, which may have had files of it |
    | another server may have it that has not answered | the name, and of hosts of virtual hosts that these are unknown |
    | the client brings it from another process, and what is served names it | the name: requests would fail |
    | it would hang an Envoy (ENVOY.md E38) | anything; of a type of which it lets go (E86), what it waits for |

    What this process saw removed from files is reported in any case: the client got it from here.
    """

    __slots__ = ("_brought", "_in_use", "_is_hidden", "_lets_go", "_type_url", "_unanswered", "unreported")

    def __init__(self, row: ResourceType, *, is_envoy: bool, unanswered: Unanswered = nothing_unanswered) -> None:
        self.unreported = NOTHING
        self._type_url, self._unanswered = row.type_url, unanswered
        self._is_hidden, self._lets_go = is_envoy and row.absence_hangs_envoy, row.lets_go_of_removed
        # What the client got before this process began, and has not existed since.
        self._brought = NOTHING
        # Those of them that something served named: they stay until the client connects again, when it is led.
        self._in_use = NOTHING

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

    def withhold(self, changes: Changes, snapshot: Snapshot, subscribed: frozenset[str], acks: Acks) -> Changes:
        """Return changes without what is not reported now.

        Args:
            changes: what is to be reported.
            snapshot: what is served.
            subscribed: the names that the client subscribed to.
            acks: knows what it was sent, and may not hold.
        """
        if self._is_hidden:
            removed = changes.removed - acks.unconfirmed if changes.removed and self._lets_go else NOTHING
            changes = replace(changes, absent=NOTHING, removed=removed)
        self.unreported = self._uncertain(changes, snapshot, subscribed)
        if not self.unreported:
            return changes
        return replace(
            changes,
            absent=changes.absent - self.unreported,
            removed=changes.removed - self.unreported,
            unpopulated=changes.unpopulated - self.unreported,
        )

    def _uncertain(self, changes: Changes, snapshot: Snapshot, subscribed: frozenset[str]) -> frozenset[str]:
        brought = changes.removed & self._brought
        named = (changes.removed | changes.absent) & self._brought
        self._in_use |= names_in_use(snapshot, self._type_url, named - self._in_use)
        # What nobody asked for any more was let go, and may be asked for again just now.
        unanswered = self._unanswered_among(
            changes.absent | changes.unpopulated | (changes.removed & subscribed), brought - subscribed, subscribed
        )
        if self._type_url in snapshot.incomplete:
            return unanswered | changes.absent | brought
        if self._type_url in snapshot.undeclared:
            return unanswered | (self._brought & (changes.absent | changes.removed))
        self._brought &= unanswered | self._in_use
        return unanswered | (named & self._in_use)

    def _unanswered_among(
        self, names: frozenset[str], brought: frozenset[str], subscribed: frozenset[str]
    ) -> frozenset[str]:
        """Return those of `names` and of `brought` that may exist elsewhere.

        Nobody asks for what a client brings that did not subscribe to it by its name, but for its collection or for everything.
        """
        if not names and not brought:
            return NOTHING
        asked_as = {name: glob if (glob := glob_of(name)) in subscribed else WILDCARD for name in brought}
        unanswered = self._unanswered(self._type_url, names.union(asked_as.values()))
        return (unanswered & names).union(name for name, asked in asked_as.items() if asked in unanswered)

    def reportable(self, removed: frozenset[str]) -> frozenset[str]:
        """Return those of these names, which the client was sent, that may be reported as removed."""
        return NOTHING if self._is_hidden else removed
