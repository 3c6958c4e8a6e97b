"""What answers other requests of clients than those for resources, over REST and gRPC: a row of `app.SERVICES` each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import grpc

from fsxds.api.catalogue import Catalogue
from fsxds.model.values import OfferedManifest
from fsxds.protocol.messages import ClientStatus, OwnStatus
from fsxds.runtime.access import AccessInUse
from fsxds.runtime.store import Latest
from fsxds.transports.rest.http_edge import Handler


class ClientRegistry(Protocol):
    """What knows all clients."""

    def statuses(self) -> Iterator[ClientStatus]:
        """Yield the status of every client; one that comes or goes meanwhile is among them or not."""


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What a service may answer with; its module has `services(context)`.

    Attributes:
        clients: who is connected, and what each holds.
        catalogue: the API that resources are of.
        access: decides who may ask.
        own: returns the state of this process as a client of its upstreams.
        offered: the manifests that vouch for what is served.
    """

    clients: ClientRegistry
    catalogue: Catalogue
    access: AccessInUse
    own: Callable[[], Iterable[OwnStatus]]
    offered: Latest[tuple[OfferedManifest, ...]]


@dataclass(frozen=True, slots=True)
class ExtraServices:
    """What answers.

    Attributes:
        posts: handlers of POST, by path.
        documents: handlers of GET, by path.
        calls: handlers of gRPC.
    """

    posts: Mapping[str, Handler] = field(default_factory=lambda: MappingProxyType({}))
    documents: Mapping[str, Handler] = field(default_factory=lambda: MappingProxyType({}))
    calls: tuple[grpc.GenericRpcHandler, ...] = ()
