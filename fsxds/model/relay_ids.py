"""Detects relay loops: calls and responses list the ids of passed processes.

A call lists the relay and those below in a header; a response those above, over gRPC in `control_plane.identifier`,
over REST in that header. For the event loop.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from fsxds.model.errors import ProtocolError

HEADER = "fsxds-relays"
SERVER = "fsxds"
# Part of the text of each loop error: gRPC has no status code for it.
OWN_UPSTREAM = "is its own upstream"
# Why a relay rejects a resource: its manifest may come later, and the resource is offered again then.
NOT_LISTED = "is not what a manifest lists"
# A header has room for this many, and no tree has more levels. The list of the relays below is cut to this length: a
# loop that it misses is found by the responses.
MOST_IDS = 64
REMEDY = "take one of these relays out of the --upstream of another"
_ID = re.compile(r"\b[0-9a-f]{16}\b")


class LoopError(ProtocolError):
    """A call came from a relay above this one, or from this one."""

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact}; {REMEDY}", "FAILED_PRECONDITION")


class RelayIds:
    """The known relays above and below.

    `own` is 16 hexadecimal digits; empty without upstreams. `downwards` is the header of responses: this relay, and
    those above; empty without an upstream. `identifier` is their `control_plane.identifier`. `listeners`, by owner, are
    called with the relays of a call rejected because of a loop; an unanswering upstream is an owner.
    """

    def __init__(self, own: str = "") -> None:
        self.own = own
        self.listeners: dict[object, Callable[[tuple[str, ...]], object]] = {}
        self._below: Counter[str] = Counter()
        self._above: dict[object, tuple[str, ...]] = {}
        self._look_above()

    @property
    def upwards(self) -> str:
        """The header of calls: this relay, and those below."""
        return ",".join((self.own, *self._below)[:MOST_IDS])

    @contextmanager
    def calling(self, relays: Collection[str]) -> Iterator[None]:
        """Count a call's relays as below, within the context. Raises LoopError if this, or one above, is among them."""
        if self.own and relays:
            if self.own in relays:
                for listener in tuple(self.listeners.values()):
                    listener(tuple(relays))
                raise LoopError(f"relay {self.own} {OWN_UPSTREAM}: it asks itself through {_path(relays)}")
            above = {relay for each in self._above.values() for relay in each}
            if both := sorted(above & set(relays)):
                raise LoopError(f"relay {both[0]} {OWN_UPSTREAM}: relay {self.own} gets its resources from it")
        self._below.update(relays)
        try:
            yield
        finally:
            self._below.subtract(relays)
            self._below += Counter()

    def receive(self, upstream: object, relays: tuple[str, ...]) -> str:
        """Record a response's relays as above, or return a loop's description."""
        own = {self.own, *self._below}
        if found := [relay for relay in relays if relay in own]:
            self.disconnected(upstream)
            return f"relay {found[0]} {OWN_UPSTREAM}, through {_path(relays)}; {REMEDY}"
        self._above[upstream] = relays
        self._look_above()
        return ""

    def disconnected(self, upstream: object) -> None:
        """Forget the relays above an upstream."""
        self._above.pop(upstream, None)
        self._look_above()

    def _look_above(self) -> None:
        above = dict.fromkeys(relay for relays in self._above.values() for relay in relays)
        self.downwards = ",".join((self.own, *above)[:MOST_IDS]) if self.own else ""
        self.identifier = f"{SERVER} {self.downwards}".rstrip()


def relays_in(text: str) -> tuple[str, ...]:
    """Return a header's ids; other parts are skipped.

    >>> relays_in("00112233aabbccdd, nonsense,0123456789abcdef")
    ('00112233aabbccdd', '0123456789abcdef')
    """
    return tuple(dict.fromkeys(part for part in map(str.strip, text.split(",")) if _ID.fullmatch(part)))[:MOST_IDS]


def relays_of_identifier(identifier: str) -> tuple[str, ...]:
    """Return the ids in a control plane's identifier.

    >>> relays_of_identifier("fsxds 00112233aabbccdd")
    ('00112233aabbccdd',)
    """
    server, _, relays = identifier.partition(" ")
    return relays_in(relays) if server == SERVER else ()


def relays_of_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[str, ...]:
    """Return the ids in a gRPC call's headers."""
    return relays_in(",".join(str(value) for key, value in metadata if key == HEADER))


def relays_of_words(words: str) -> tuple[str, ...]:
    """Return the ids in a loop's description.

    >>> relays_of_words("relay 0123456789abcdef is its own upstream")
    ('0123456789abcdef',)
    """
    return tuple(dict.fromkeys(_ID.findall(words)))[:MOST_IDS]


def _path(relays: Iterable[str]) -> str:
    return ", ".join(list(relays)[:8])
