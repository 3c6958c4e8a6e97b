"""What is told of each resource of a client: was it sent, and what did the client make of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from fsxds.api.secrets import mask_reason
from fsxds.protocol.messages import ClientStatus, WatchStatus, without_message
from fsxds.protocol.subscription import WILDCARD
from fsxds.resources import Resource
from fsxds.values import TypeUrl, Version


class ConfigStatus(IntEnum):
    """`envoy.service.status.v3.ConfigStatus`: how we see it."""

    SYNCED = 1
    NOT_SENT = 2
    STALE = 3
    ERROR = 4


class ClientStand(IntEnum):
    """`envoy.admin.v3.ClientResourceStatus`: how the client sees it."""

    UNKNOWN = 0
    REQUESTED = 1
    DOES_NOT_EXIST = 2
    ACKED = 3
    NACKED = 4


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """Where one resource, or a name that was asked for, stands with one client.

    `version` is the one that the client was sent last, or where it rejected that, the one before; None where there was
    none. `refused` and `reason` are there for a rejected one alone. `resource` is None where nothing was sent.
    """

    type_url: TypeUrl
    name: str
    config_status: ConfigStatus
    stand: ClientStand
    version: Version | None = None
    resource: Resource | None = None
    refused: Version | None = None
    reason: str | None = None


def resource_statuses(status: ClientStatus) -> Iterator[ResourceStatus]:
    """Tell of all resources that a client was sent or asked for, those of each watch together.

    A client that wants everything of a type and was sent nothing has asked for `*`.
    """
    tells_each_version = status.service.startswith("Delta")
    for watch in status.watches:
        yield from _held(watch, tells_each_version=tells_each_version)
        yield from _not_held(watch)


def _held(watch: WatchStatus, *, tells_each_version: bool) -> Iterator[ResourceStatus]:
    verdict = _verdict(watch)
    reason = _reason(watch)
    for resource in watch.resources:
        if resource.name in watch.rejected:
            yield _refused(watch, resource, reason, tells_each_version=tells_each_version)
        else:
            version = resource.version if tells_each_version else _version(watch)
            yield ResourceStatus(watch.type_url, resource.name, *verdict, version, resource)


def _not_held(watch: WatchStatus) -> Iterator[ResourceStatus]:
    """Tell of what was rejected and is gone, of names that do not exist, and of what nothing was said of yet."""
    gone = sorted(watch.rejected - {resource.name for resource in watch.resources}) if watch.rejected else ()
    reason = _reason(watch) if gone else None
    for name in gone:
        yield ResourceStatus(
            watch.type_url,
            name,
            ConfigStatus.ERROR,
            ClientStand.NACKED,
            refused=watch.nacked,
            reason=reason,
        )
    missing = frozenset(watch.missing) - watch.rejected
    for name in sorted(missing):
        yield ResourceStatus(watch.type_url, name, ConfigStatus.NOT_SENT, ClientStand.DOES_NOT_EXIST)
    if watch.sent is None:
        awaited = frozenset((WILDCARD,)) if watch.names is None else watch.names - missing
        for name in sorted(awaited):
            yield ResourceStatus(watch.type_url, name, ConfigStatus.NOT_SENT, ClientStand.REQUESTED)


def _verdict(watch: WatchStatus) -> tuple[ConfigStatus, ClientStand]:
    """Tell where the resources stand that were not rejected."""
    if watch.acked is None:
        return ConfigStatus.STALE, ClientStand.REQUESTED
    if watch.sent in (watch.acked, watch.nacked):
        return ConfigStatus.SYNCED, ClientStand.ACKED
    # Nothing tells which of the resources are as they were in the version before, so the client's view is not known.
    return ConfigStatus.STALE, ClientStand.UNKNOWN


def _version(watch: WatchStatus) -> Version | None:
    """Return the version of what was not rejected."""
    return watch.acked if watch.acked is not None and watch.sent == watch.nacked else watch.sent


def _refused(watch: WatchStatus, resource: Resource, reason: str | None, *, tells_each_version: bool) -> ResourceStatus:
    return ResourceStatus(
        watch.type_url,
        resource.name,
        ConfigStatus.ERROR,
        ClientStand.NACKED,
        # Which version of its own the client kept is not known.
        version=None if tells_each_version else watch.acked,
        resource=resource,
        refused=resource.version if tells_each_version else watch.nacked,
        reason=reason,
    )


def _reason(watch: WatchStatus) -> str | None:
    # Envoy prints the message that it refuses, secrets included.
    return None if watch.reason is None else mask_reason(without_message(watch.reason))
