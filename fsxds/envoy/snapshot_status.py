"""A local Envoy's status on a snapshot: in effect, NACKed, or pending.

By gRPC Envoy itself ACKs and NACKs (`StreamAcks`). By REST and files, its admin page shows changed versions and
counters of rejections (`StatisticsAcks`, ENVOY.md E57, E59).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fsxds.envoy.admin import VERSION_TEXT, WARMING, Expected, Scope, Statistics, scopes_in
from fsxds.envoy.envoy_log import LoggedRejection, origin_of
from fsxds.model.resource_types import BY_TYPE_URL, ResourceType
from fsxds.model.resources import Key, Origin, Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.messages import WatchStatus
from fsxds.rollout.pending import ResourceVersion
from fsxds.runtime.channels import SnapshotStore


@dataclass(frozen=True, slots=True)
class InEffect:
    """All subscribed resources are in effect; `types` have new ones."""

    types: tuple[ResourceType, ...]


@dataclass(frozen=True, slots=True)
class Nacked:
    """Envoy NACKed an update in each of `scopes`.

    `origins` has known places of resources no longer served.
    """

    scopes: tuple[Scope, ...]
    origins: Mapping[Key, Origin] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RejectedResource:
    """A rejection's reason and known place."""

    reason: str | None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class InProgress:
    """`scopes` lack their versions, or clusters and listeners are `warming`."""

    scopes: tuple[Scope, ...]
    warming: int


@dataclass(frozen=True, slots=True)
class EnvoyNack:
    """One reason of a NACK; `resource_name` may be unknown (None).

    Attributes:
        reason: in Envoy's words; None if its log has none.
        origins: the resource's place, else the changed files behind the update.
    """

    resource_type: ResourceType
    resource_name: str | None
    reason: str | None
    origins: tuple[Origin, ...]


def status_by_statistics(
    expected: Expected, before: Statistics, now: Statistics, reasons: Sequence[LoggedRejection]
) -> InEffect | Nacked | InProgress:
    """Derive the status of a snapshot. Source: ENVOY.md E57, E59.

    `before` are the statistics before its publication, empty for a new Envoy; `reasons` are logged since.
    """
    scopes = scopes_in(now)
    doubted = [one for one in scopes if one.prefix in expected.doubted]
    unproven = [one for one in doubted if not _rose(f"{one.prefix}.update_success", before, now)]
    behind = [one for one in scopes if one in unproven or not expected.is_settled(one, _version_text(one, now))]
    # A file that Envoy cannot read counts as a failed update, but so does a poll without a server (ENVOY.md E60).
    is_unreadable = any(one.is_failure for one in reasons)
    counters = ("update_rejected", "update_failure") if is_unreadable else ("update_rejected",)
    if nacked := tuple(one for one in behind if any(_rose(f"{one.prefix}.{name}", before, now) for name in counters)):
        return Nacked(nacked)
    late = tuple(one for one in behind if one.resource_type.type_url not in expected.unsure)
    warming = sum(int(now.get(gauge, 0)) for gauge in WARMING)
    if late or warming:
        return InProgress(late, warming)
    moved = {
        one.resource_type for one in scopes if one in doubted or _version_text(one, now) != _version_text(one, before)
    }
    return InEffect(tuple(sorted(moved, key=lambda row: row.short_name)))


def status_by_streams(
    snapshot: Snapshot,
    watches: Sequence[WatchStatus],
    accepted_before: Mapping[TypeUrl, Version | None],
    statistics: Statistics,
) -> InEffect | Nacked | InProgress:
    """Derive the status from the ACKs and NACKs on streams.

    `watches` are empty before Envoy opened a stream; `accepted_before` are the previous snapshot's versions.
    """
    if nacked := tuple(_scope_of(watch) for watch in watches if watch.rejected):
        return Nacked(nacked)
    behind = tuple(_scope_of(watch) for watch in watches if not _is_in_step(watch, snapshot))
    warming = sum(int(statistics.get(gauge, 0)) for gauge in WARMING)
    if behind or warming or not watches:
        return InProgress(behind, warming)
    moved = {watch.type_url for watch in watches if watch.acked != accepted_before.get(watch.type_url)}
    return InEffect(tuple(sorted((BY_TYPE_URL[type_url] for type_url in moved), key=lambda row: row.short_name)))


def _is_in_step(watch: WatchStatus, snapshot: Snapshot) -> bool:
    if watch.sent != watch.acked or watch.type_url in snapshot.withheld:
        return watch.sent == watch.acked
    rows = snapshot.resources(watch.type_url)
    held = {resource.name: resource for resource in watch.resources}
    wanted = rows if watch.names is None else {name: rows[name] for name in watch.names if name in rows}
    return all(name in held and held[name].equals_for_clients(row) for name, row in wanted.items())


def _scope_of(watch: WatchStatus) -> Scope:
    row = BY_TYPE_URL[watch.type_url]
    (name,) = watch.rejected if len(watch.rejected) == 1 else (None,)
    return Scope(row.noun, row, name)


def _version_text(scope: Scope, statistics: Statistics) -> str:
    return str(statistics.get(scope.prefix + VERSION_TEXT, ""))


def _rose(name: str, before: Statistics, now: Statistics) -> bool:
    return int(now.get(name, 0)) > int(before.get(name, 0))


def nacks_of(nacked: Nacked, reasons: Sequence[LoggedRejection], snapshot: Snapshot) -> tuple[EnvoyNack, ...]:
    """Return reasons and places, a NACK per type at least."""
    nacks: list[EnvoyNack] = []
    for resource_type in dict.fromkeys(scope.resource_type for scope in nacked.scopes):
        scopes = [scope for scope in nacked.scopes if scope.resource_type is resource_type]
        nacks += _nacks_of_type(resource_type, scopes, reasons, snapshot)
    found = ((nack, nacked.origins.get((nack.resource_type.type_url, nack.resource_name or ""))) for nack in nacks)
    return tuple(nack if origin is None else replace(nack, origins=(origin,)) for nack, origin in found)


def _nacks_of_type(
    resource_type: ResourceType, scopes: Sequence[Scope], reasons: Sequence[LoggedRejection], snapshot: Snapshot
) -> list[EnvoyNack]:
    of_type = [one for one in reasons if one.type_url == resource_type.type_url]
    chosen = [one for one in of_type if one.resource_name is not None] or of_type
    chosen = chosen or [one for one in reasons if one.type_url is None]
    reported: list[tuple[str | None, str | None]] = [(one.resource_name, one.reason) for one in chosen] or [
        (None, None)
    ]
    names = [scope.name for scope in scopes]
    only_name = names[0] if len(names) == 1 else None
    return [
        EnvoyNack(
            resource_type, name or only_name, reason, _origins(resource_type, name or only_name, reason or "", snapshot)
        )
        for name, reason in dict.fromkeys(reported)
    ]


def _origins(resource_type: ResourceType, name: str | None, reason: str, snapshot: Snapshot) -> tuple[Origin, ...]:
    resources = snapshot.resources(resource_type.type_url)
    if name is not None and name in resources:
        return (resources[name].origin,)
    if origin := origin_of(reason, resources.values()):
        return (origin,)
    change = snapshot.changes.get(resource_type.type_url)
    return tuple(Origin(path, 1) for path in change.files) if change else ()


SnapshotStatus = InEffect | Nacked | InProgress


class AckSource(Protocol):
    """Follows one Envoy from snapshot to snapshot."""

    def begin(self, snapshot: Snapshot) -> bool:
        """Start; return whether a part of the previous snapshot was NACKed."""

    def status(
        self, before: Statistics, now: Statistics, reasons: Sequence[LoggedRejection]
    ) -> tuple[SnapshotStatus, Sequence[LoggedRejection]]:
        """Return the status, and the reasons of rejections.

        `before` are the statistics before the publication, empty for a new Envoy; `reasons` are logged since.
        """

    def note_reported(self) -> None:
        """Note that the status was reported."""


class StatisticsAcks:
    """Compares shown versions with sent ones, for REST and files."""

    def __init__(self) -> None:
        self._expected: Expected | None = None
        # The prefixes of the subscriptions that NACKed their last update.
        self._nacked: frozenset[str] = frozenset()

    def begin(self, snapshot: Snapshot) -> bool:
        """Compute the expected versions."""
        self._expected = Expected.of(snapshot, self._expected, self._nacked)
        return bool(self._nacked)

    def status(
        self, before: Statistics, now: Statistics, reasons: Sequence[LoggedRejection]
    ) -> tuple[SnapshotStatus, Sequence[LoggedRejection]]:
        """Compare the versions."""
        if self._expected is None:
            raise RuntimeError("status() needs begin()")
        status = status_by_statistics(self._expected, before, now, reasons)
        if isinstance(status, Nacked):
            self._nacked |= {scope.prefix for scope in status.scopes}
        elif isinstance(status, InEffect):
            self._nacked = frozenset()
        return status, reasons

    def note_reported(self) -> None:
        """Do nothing: counters of rejections stay."""


class StreamAcks:
    """Reads ACKs and NACKs on streams.

    `rejected` includes versions no longer served.
    """

    def __init__(
        self,
        store: SnapshotStore,
        watches: Callable[[], Iterable[WatchStatus]],
        rejected: Callable[[], Mapping[ResourceVersion, RejectedResource]] = dict,
    ) -> None:
        self._store = store
        self._watches = watches
        self._rejected = rejected
        # The reported versions that it rejects.
        self._reported: frozenset[ResourceVersion] = frozenset()
        self._generation = 0
        # The accepted versions when the previous snapshot was in effect, and for this one.
        self._before: dict[TypeUrl, Version | None] = {}
        self._accepted: dict[TypeUrl, Version | None] = {}
        self._is_nacked = False

    def begin(self, snapshot: Snapshot) -> bool:
        """Note the versions accepted so far."""
        self._generation = snapshot.generation
        self._before = self._accepted
        was_nacked, self._is_nacked = self._is_nacked, False
        return was_nacked

    def status(
        self, before: Statistics, now: Statistics, reasons: Sequence[LoggedRejection]
    ) -> tuple[SnapshotStatus, Sequence[LoggedRejection]]:
        """Read the streams, and warming in statistics."""
        current = self._store.current
        if current is None or current.generation < self._generation:
            return InProgress((), 0), ()
        watches, rejected = tuple(self._watches()), self._rejected()
        self._reported &= rejected.keys()
        if new := sorted(rejected.keys() - self._reported):
            self._is_nacked = True
            return _nacked_of({version: rejected[version] for version in new})
        status = status_by_streams(current, watches, self._before, now)
        if isinstance(status, InEffect):
            self._accepted = {watch.type_url: watch.acked for watch in watches}
        self._is_nacked = isinstance(status, Nacked)
        reasons_of_nacks = [
            LoggedRejection(watch.reason, watch.type_url) for watch in watches if watch.rejected and watch.reason
        ]
        return status, reasons_of_nacks

    def note_reported(self) -> None:
        """Ignore the current rejections until there are others."""
        self._reported = frozenset(self._rejected())


def _nacked_of(rejected: Mapping[ResourceVersion, RejectedResource]) -> tuple[Nacked, Sequence[LoggedRejection]]:
    rows = ((BY_TYPE_URL[type_url], name) for (type_url, name), _ in rejected)
    scopes = tuple(Scope(row.noun, row, name) for row, name in rows)
    origins = {key: one.origin for (key, _), one in rejected.items() if one.origin is not None}
    reasons = [LoggedRejection(one.reason, *key) for (key, _), one in rejected.items() if one.reason]
    return Nacked(scopes, origins), reasons
