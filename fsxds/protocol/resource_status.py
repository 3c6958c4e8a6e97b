"""The state of each resource with a client: of one that is served, and of this process as a client of others.

Source: envoy/service/status/v3/csds.proto.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from fsxds.protocol.messages import Node
from fsxds.resources import Resource
from fsxds.values import TypeUrl, Version


class ConfigStatus(IntEnum):
    """`envoy.service.status.v3.ConfigStatus`: how we see it; unknown where this process is the client."""

    UNKNOWN = 0
    SYNCED = 1
    NOT_SENT = 2
    STALE = 3
    ERROR = 4


class ClientResourceStatus(IntEnum):
    """`envoy.admin.v3.ClientResourceStatus`: how the client sees it."""

    UNKNOWN = 0
    REQUESTED = 1
    DOES_NOT_EXIST = 2
    ACKED = 3
    NACKED = 4


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """The state of one resource, or of a name that was asked for, with one client.

    `version` is the one that the client was sent last, or where it rejected that, the one before; None where there was
    none. `nacked` and `reason` are of a rejected one alone. `resource` is None where nothing was sent. `updated_s` is when
    the content came, in seconds since 1970, where that is known.
    """

    type_url: TypeUrl
    name: str
    config_status: ConfigStatus
    client_status: ClientResourceStatus
    version: Version | None = None
    resource: Resource | None = None
    nacked: Version | None = None
    reason: str | None = None
    updated_s: float | None = None


@dataclass(frozen=True, slots=True)
class OwnStatus:
    """The state of this process as a client of others.

    Attributes:
        node: how it shows itself.
        service: of whom it is a client, and how.
        count: how many resources there are, or more.
        resources: their states, and those of names that it asks for; can be iterated once.
    """

    node: Node
    service: str
    count: int
    resources: Iterable[ResourceStatus]
