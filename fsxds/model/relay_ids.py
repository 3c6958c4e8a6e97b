"""Which relays a response passes, by an id of each process: how a relay finds that it is its own upstream.

Calls to an upstream name the relay and those below it in a header; responses name it and those above it, over gRPC in
`control_plane.identifier`, over REST in the same header. Touched from the event loop only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from fsxds.model.errors import ProtocolError

HEADER = "fsxds-relays"
SERVER = "fsxds"
# A part of the text of each error of a loop: a code of its own gRPC does not have.
OWN_UPSTREAM = "is its own upstream"
# Why a relay rejects a resource: its manifest may come later, and the resource is offered again then.
NOT_LISTED = "is not what a manifest lists"
# A header has room for them, and no tree has more levels. Of the relays below these many are named: a loop that is not
# found by them is found by the responses.
MOST_IDS = 64
REMEDY = "take one of these relays out of the --upstream of another"
_ID = re.compile(r"\b[0-9a-f]{16}\b")


class LoopError(ProtocolError):
    """A call came from a relay that is above this one as well, or is this one."""

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact}; {REMEDY}", "FAILED_PRECONDITION")


class RelayIds:
    """Knows the relays around this process.

    Args:
        own: the id of this process, 16 hexadecimal digits; empty where it has no upstream, and is no relay.

    Attributes:
        listeners: by whom they belong to: what receives the relays of a call that was rejected because it came round. An
            upstream that was asked, and did not answer yet, is one of these.
    """

    def __init__(self, own: str = "") -> None:
        self.own = own
        self.listeners: dict[object, Callable[[tuple[str, ...]], object]] = {}
        self._below: Counter[str] = Counter()
        self._above: dict[object, tuple[str, ...]] = {}

    @property
    def upwards(self) -> str:
        """What calls to an upstream name: this relay, and those that are connected to it now, directly or not."""
        return ",".join((self.own, *self._below)[:MOST_IDS])

    @property
    def downwards(self) -> str:
        """What responses name: this relay, and those that are above it. Empty where it is none."""
        above = dict.fromkeys(relay for relays in self._above.values() for relay in relays)
        return ",".join((self.own, *above)[:MOST_IDS]) if self.own else ""

    @property
    def identifier(self) -> str:
        """The `control_plane.identifier` of responses."""
        return f"{SERVER} {self.downwards}".rstrip()

    @contextmanager
    def calling(self, relays: Collection[str]) -> Iterator[None]:
        """Count the relays that a call names as below, while the context lasts.

        Raises:
            LoopError: this relay is among them, or one that is above it.
        """
        if self.own and relays:
            if self.own in relays:
                for listener in tuple(self.listeners.values()):
                    listener(tuple(relays))
                raise LoopError(f"relay {self.own} {OWN_UPSTREAM}: it asks itself through {_path(relays)}")
            above = {relay for each in self._above.values() for relay in each}
            if both := sorted(above & set(relays)):
                raise LoopError(f"relay {both[0]} {OWN_UPSTREAM}: relay {self.own} gets from it what it asks for")
        self._below.update(relays)
        try:
            yield
        finally:
            self._below.subtract(relays)
            self._below += Counter()

    def receive(self, upstream: object, relays: tuple[str, ...]) -> str:
        """Take the relays that a response names as above; return why there is a loop, in words, empty where there is none.

        Those of a response with a loop are not above: it is not taken in.
        """
        own = {self.own, *self._below}
        if found := [relay for relay in relays if relay in own]:
            self._above.pop(upstream, None)
            return f"relay {found[0]} {OWN_UPSTREAM}, through {_path(relays)}; {REMEDY}"
        self._above[upstream] = relays
        return ""

    def disconnected(self, upstream: object) -> None:
        """Forget what is above by an upstream that is not connected any more."""
        self._above.pop(upstream, None)


def relays_in(text: str) -> tuple[str, ...]:
    """Return the ids in a header; what is none is passed over.

    >>> relays_in("00112233aabbccdd, nonsense,0123456789abcdef")
    ('00112233aabbccdd', '0123456789abcdef')
    """
    return tuple(dict.fromkeys(part for part in map(str.strip, text.split(",")) if _ID.fullmatch(part)))[:MOST_IDS]


def relays_of_identifier(identifier: str) -> tuple[str, ...]:
    """Return the ids in the identifier of a control plane.

    >>> relays_of_identifier("fsxds 00112233aabbccdd")
    ('00112233aabbccdd',)
    """
    server, _, relays = identifier.partition(" ")
    return relays_in(relays) if server == SERVER else ()


def relays_of_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[str, ...]:
    """Return the ids that the headers of a gRPC call name."""
    return relays_in(",".join(str(value) for key, value in metadata if key == HEADER))


def relays_of_words(words: str) -> tuple[str, ...]:
    """Return the ids in the words of a loop.

    >>> relays_of_words("relay 0123456789abcdef is its own upstream")
    ('0123456789abcdef',)
    """
    return tuple(dict.fromkeys(_ID.findall(words)))[:MOST_IDS]


def _path(relays: Iterable[str]) -> str:
    return ", ".join(list(relays)[:8])
