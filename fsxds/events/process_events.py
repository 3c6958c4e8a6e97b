"""Events of the process: its start and end, addresses, settings, certificates and tokens, and its components."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsxds.events.event import Event


@dataclass(frozen=True, slots=True)
class ApiFound(Event):
    """The message types were read; `api` says of which Envoy: `Envoy 1.40.0 from …, 557 files`."""

    api: str


@dataclass(frozen=True, slots=True)
class TransportChosen(Event):
    """`fsxds dev` chose how its Envoy gets resources."""

    transport: str
    reason: str


@dataclass(frozen=True, slots=True)
class ListeningStarted(Event):
    """`name` (REST, gRPC) listens at `address`, or a directory is written to."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class PlainTextExposed(Event):
    """What `name` (REST, gRPC, admin) serves at `address` can be read on the network: it has no TLS."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class CertificatesReloaded(Event):
    """Files of TLS changed: new connections begin with what is in them now."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CertificatesKept(Event):
    """Files of TLS changed, and cannot be used for `reason`: those that were read before stay in use."""

    reason: str


@dataclass(frozen=True, slots=True)
class TokensRead(Event):
    """A file of tokens was read, at the start or because it changed.

    Attributes:
        path: the file.
        count: how many tokens it has.
        unknown: the names in rules of `access` that no token has.
    """

    path: Path
    count: int
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokensKept(Event):
    """A file of tokens changed and cannot be used: those that were read before stay valid."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class TokensExposed(Event):
    """Other users of the machine can read a file of tokens."""

    path: Path


@dataclass(frozen=True, slots=True)
class StartDelayed(Event):
    """The start waits for something, for `elapsed_s` seconds so far."""

    waits_for: str
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class ReadinessChanged(Event):
    """Clients are served from now on, or are not for `reason`; empty where they are."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """The process ends, because of a signal."""

    reason: str


@dataclass(frozen=True, slots=True)
class SettingsReloaded(Event):
    """SIGHUP applied new settings: the names of the options that changed, and of those that need a restart to change."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingsRejected(Event):
    """SIGHUP found a mistake in the settings: those in use stay."""

    reason: str


@dataclass(frozen=True, slots=True)
class InternalError(Event):
    """An exception that nobody expected ended a request, a stream or a component: the one that `where` names."""

    where: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class ComponentDegraded(Event):
    """A component failed, for `reason`; it starts again in `retry_s` seconds, and what is served stays."""

    component: str
    reason: str
    retry_s: float


@dataclass(frozen=True, slots=True)
class ComponentRecovered(Event):
    """A component that failed runs again."""

    component: str


@dataclass(frozen=True, slots=True)
class SnapshotSetAside(Event):
    """A component failed on a snapshot three times in a row by an error of fsxds, and waits for the next one."""

    component: str
    error: BaseException
