"""Which clients are connected, on any transport, and what each was sent, ACKed and NACKed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fsxds.protocol.messages import ClientStatus


class Clients:
    """Knows the status of all clients; touched from the event loop only."""

    def __init__(self) -> None:
        self._streams: dict[object, Callable[[], ClientStatus]] = {}
        self._others: list[Callable[[], Iterator[ClientStatus]]] = []

    def add(self, statuses: Callable[[], Iterator[ClientStatus]]) -> None:
        """Add the clients that have no stream; `statuses` yields the status of each."""
        self._others.append(statuses)

    def opened(self, status: Callable[[], ClientStatus]) -> object:
        """Add a stream, and return the token for `closed`. `status` is called for each report, so it must be quick."""
        token = object()
        self._streams[token] = status
        return token

    def closed(self, token: object) -> None:
        """Remove a stream, unless it was removed before."""
        self._streams.pop(token, None)

    def statuses(self) -> Iterator[ClientStatus]:
        """Yield the status of every client: streams first, in the order in which they opened.

        A client that goes while the iterator is used may be in it or not.
        """
        for token in tuple(self._streams):
            status = self._streams.get(token)
            if status is not None:
                yield status()
        for others in self._others:
            yield from others()
