"""What a Delta client wants of one type: names that it adds and gives up, one by one.

Source: xDS protocol, "How the client specifies what resources to return", "Subscribing to Resources", "Unsubscribing from
Resources".
"""

from __future__ import annotations

from fsxds.protocol.lookup import Lookup
from fsxds.protocol.messages import DeltaRequest
from fsxds.protocol.subscription import WILDCARD
from fsxds.protocol.xdstp_names import collection_of, is_glob

NOTHING: frozenset[str] = frozenset()


class DeltaNames:
    """The subscription of one client to one type.

    A name may be a resource's own, or stand for one otherwise (an alias, a host): what those stand for is looked up again
    with every change, so they are kept apart. On demand, all names are of that kind, and `*` selects nothing by itself.
    """

    __slots__ = ("_brought", "_has_named", "_indirect", "_is_on_demand", "has_left", "names", "wildcard")

    def __init__(self, *, is_on_demand: bool) -> None:
        self.names = NOTHING
        self.wildcard = False
        # Whether something was given up that the client is to be told of.
        self.has_left = False
        self._is_on_demand = is_on_demand
        self._has_named = False
        # Those names that were nobody's own when the client was told of them last.
        self._indirect = NOTHING
        # Virtual hosts that the client got over another stream, by their own names.
        self._brought = NOTHING

    @property
    def selects_all(self) -> bool:
        """Whether everything is wanted."""
        return self.wildcard and not self._is_on_demand

    def take(self, request: DeltaRequest) -> frozenset[str]:
        """Take the names of a request; return those that have to be answered, `*` among them for everything.

        A name that is subscribed to again is answered again: the client may have forgotten its resource. One that is given
        up is answered only under a wildcard, because the client cannot know whether that selects it as well. What a client
        gives up without having it is ignored. Who never named anything wants everything.
        """
        asked = frozenset(request.subscribe)
        given_up = frozenset(request.unsubscribe) - asked
        if not (asked or given_up or self._has_named or self.wildcard):
            self.wildcard = True
            return frozenset((WILDCARD,))
        self._has_named = self._has_named or bool(asked) or WILDCARD in given_up
        self.wildcard = (self.wildcard or WILDCARD in asked) and WILDCARD not in given_up
        self._brought -= given_up
        given_up &= self.names
        if added := asked - self.names - {WILDCARD}:
            self.names |= added
        if given_up:
            self._give_up(given_up)
        return asked | given_up if self.selects_all else asked

    def _give_up(self, given_up: frozenset[str]) -> None:
        self.names -= given_up
        if self._is_on_demand and self.wildcard:
            self.has_left = True
        else:
            self._indirect -= given_up

    def bring(self, held: frozenset[str]) -> None:
        """Take the virtual hosts that a client has from another stream; it may not say by which hosts it got them."""
        self._brought = held

    @property
    def _own(self) -> frozenset[str]:
        """Names that stand for resources of these names."""
        return self._brought if self._is_on_demand else self.names

    def globs(self) -> frozenset[str]:
        """Return the collections that are wanted as a whole."""
        return frozenset(collection_of(name) for name in self._indirect if is_glob(name))

    def settle(self, asked: frozenset[str], after: Lookup) -> None:
        """Note that the client is told what the names in `asked` stand for, according to `after`."""
        self.has_left = False
        if self._is_on_demand:
            self._indirect = self.names
        elif asked:
            self._indirect |= (asked - after.rows.keys()) & self.names

    def change(
        self, updated: frozenset[str], removed: frozenset[str], before: Lookup, after: Lookup
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names of the resources that are news to the client, and the names that it is to hold no more.

        Args:
            updated: the resources that are new or different.
            removed: those that are gone.
            before: finds resources as the client was told of them.
            after: finds them as they are now.
        """
        if self.selects_all:
            return updated, removed
        if not updated and not removed and not self.has_left:
            return NOTHING, NOTHING
        indirect = self._indirect
        own = self._own
        lost = own & removed
        if not indirect and not lost:
            return updated & own, NOTHING
        still = indirect & self.names if self._is_on_demand else _without_own(indirect | lost, after)
        was, now = before.names(indirect), after.names(still)
        self._indirect = still
        fresh = (updated & own) | (updated & now)
        fresh |= frozenset(name for name in now - was if name not in own or name not in before.rows)
        gone = lost | frozenset(name for name in was - now if name not in own or name not in after.rows)
        if not self._is_on_demand:
            existed = before.existing(indirect & still)
            gone |= frozenset(name for name in existed - after.existing(existed) if not is_glob(name))
        elif unknown := frozenset(name for name in indirect - still if not before.find(name)):
            gone |= unknown
        return fresh, gone

    def told(self, lookup: Lookup) -> frozenset[str]:
        """Return the own names of the virtual hosts that the client was told of, as far as they exist."""
        return (self._own & lookup.rows.keys()) | lookup.names(self._indirect)

    def held(self, lookup: Lookup) -> frozenset[str]:
        """Return the own names of all that is wanted and exists; not to be asked where everything is wanted."""
        if not self._is_on_demand and not self._indirect:
            return self.names & lookup.rows.keys()
        own = self._own & lookup.rows.keys()
        return own | lookup.names(self.names if self._is_on_demand else self._indirect)

    def wants(self, name: str, lookup: Lookup) -> bool:
        """Whether a resource of this name is wanted."""
        return self.selects_all or name in self.names or name in self._own or name in lookup.names(self._indirect)


def _without_own(names: frozenset[str], lookup: Lookup) -> frozenset[str]:
    return names - (names & lookup.rows.keys())
