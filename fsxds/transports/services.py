"""The frame for services beside discovery, and the registry of all clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import grpc

from fsxds.api.catalogue import Catalogue
from fsxds.model.values import OfferedManifest
from fsxds.protocol.messages import ClientStatus, OwnStatus
from fsxds.runtime.access import AccessInUse
from fsxds.runtime.store import Latest
from fsxds.transports.rest.http_edge import Handler


class Clients:
    """Knows all clients' status. For the event loop."""

    def __init__(self) -> None:
        self._streams: dict[object, Callable[[], ClientStatus]] = {}
        self._others: list[Callable[[], Iterator[ClientStatus]]] = []

    def add(self, statuses: Callable[[], Iterator[ClientStatus]]) -> None:
        """Add clients without a stream, by their statuses."""
        self._others.append(statuses)

    def opened(self, status: Callable[[], ClientStatus]) -> object:
        """Add a stream; return its token. `status` must be quick."""
        token = object()
        self._streams[token] = status
        return token

    def closed(self, token: object) -> None:
        """Remove a stream, if it is there."""
        self._streams.pop(token, None)

    def statuses(self) -> Iterator[ClientStatus]:
        """Yield every client's status: streams first, in order of opening.

        A client that leaves meanwhile may be missing.
        """
        for token in tuple(self._streams):
            status = self._streams.get(token)
            if status is not None:
                yield status()
        for others in self._others:
            yield from others()


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """A service's dependencies, for `services(context)`; `own`: this process as an upstream client."""

    clients: Clients
    catalogue: Catalogue
    access: AccessInUse
    own: Callable[[], Iterable[OwnStatus]]
    offered: Latest[tuple[OfferedManifest, ...]]


@dataclass(frozen=True, slots=True)
class ExtraServices:
    """A service's handlers, by path and for gRPC."""

    posts: Mapping[str, Handler] = field(default_factory=lambda: MappingProxyType({}))
    documents: Mapping[str, Handler] = field(default_factory=lambda: MappingProxyType({}))
    calls: tuple[grpc.GenericRpcHandler, ...] = ()
