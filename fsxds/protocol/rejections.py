"""What a client rejected of one type on one stream, and when it is offered again.

A rejected response may have been applied in part (ENVOY.md D3), so everything that it named is owed to the client until a
response that names all of it is accepted. The same content is offered again with back-off: a rejection may heal by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from fsxds.protocol.back_off import back_off_s

# A client that never answers is taken to accept what is older than this many responses.
MOST_UNANSWERED = 64


class Rejections:
    """The names that are owed, and the time before which the same content of them is not offered again.

    Times are readings of any clock that only goes forward, in seconds.
    """

    __slots__ = ("_in_a_row", "names", "retry_at_s")

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        # None while nothing is owed, and while an offer of what is owed awaits its verdict.
        self.retry_at_s: float | None = None
        self._in_a_row = 0

    def reject(self, names: Iterable[str], now_s: float) -> None:
        """Note that a response with these names was rejected: one more in a row."""
        named = frozenset(names)
        # Streams that reject the same share the one set of its names.
        self.names = named if self.names <= named else self.names | named
        self._in_a_row += 1
        self.retry_at_s = now_s + back_off_s(self._in_a_row)

    def accept(self, names: Iterable[str]) -> None:
        """Note that a response with these names was accepted; when nothing is owed any more, the count begins anew."""
        self.forget(names)

    def forget(self, names: Iterable[str]) -> None:
        """Owe these names no more: they were accepted, or the client wants them no longer."""
        self.names -= frozenset(names)
        if not self.names:
            self.retry_at_s, self._in_a_row = None, 0

    def offered(self, *, is_other: bool = False) -> None:
        """Note that all that is owed was just sent again: the client's verdict is awaited.

        `is_other`: it is other content than was rejected, so that the back-off begins anew.
        """
        self.retry_at_s = None
        if is_other:
            self._in_a_row = 0

    def is_due(self, now_s: float) -> bool:
        """Whether the same content may be offered again."""
        return self.retry_at_s is not None and now_s >= self.retry_at_s
