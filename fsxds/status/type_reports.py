"""How one client stands with each type, and what it has against what is current. Pure.

| state | of a type |
| --- | --- |
| NACK | the client rejected something of it, and has accepted nothing since that replaces it |
| STALE | it was sent something that it has not answered, or there is something newer for it |
| NOT SENT | it asked for the type, and nothing was sent: there is nothing for it |
| SYNCED | it accepted all that it is to have |

A client is as its worst type is; types of which nothing was sent count only where nothing was sent at all.
Source: `istioctl proxy-status`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import fields as fields_of

from fsxds.api.secrets import mask_reason
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.messages import ClientStatus, SyncState, WatchStatus, combined_state, without_message
from fsxds.protocol.subscription import WILDCARD, Subscription, has_any, version_of
from fsxds.transports.admin.status_reports import MOST_NAMES, ListedNames, TypeDetail, TypeReport


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What a client wants of one type.

    Attributes:
        type_url: the type.
        watches: its subscriptions, of which a node that polls has many.
        states: how it stands with each.
    """

    type_url: TypeUrl
    watches: tuple[WatchStatus, ...]
    states: tuple[SyncState, ...]


def subscribed_types(status: ClientStatus, snapshot: Snapshot | None) -> tuple[Subscribed, ...]:
    """Return the types that a client wants, in push order, where this snapshot is served to it; None before the first."""
    by_type: dict[TypeUrl, list[WatchStatus]] = defaultdict(list)
    for watch in status.watches:
        if watch.names is None or watch.names or watch.sent is not None:
            by_type[watch.type_url].append(watch)
    return tuple(
        Subscribed(row.type_url, tuple(watches), tuple(state_of(watch, snapshot) for watch in watches))
        for row in RESOURCE_TYPES
        if (watches := by_type.get(row.type_url))
    )


def state_of(watch: WatchStatus, snapshot: Snapshot | None) -> SyncState:
    """Return how a client stands with one subscription, where this snapshot is served to it."""
    if watch.state is not SyncState.SYNCED or snapshot is None:
        return watch.state
    if watch.generation is None:
        subscription = _subscription_of(watch)
        is_current = watch.sent == version_of(snapshot, subscription)
        if not (is_current or has_any(snapshot, subscription)):
            return SyncState.NOT_SENT
    else:
        is_current = watch.generation >= snapshot.generation
    return SyncState.SYNCED if is_current else SyncState.STALE


def type_report(
    types: Subscribed, status: ClientStatus, snapshot: Snapshot | None, published_s: float, now_s: float
) -> TypeReport:
    """Return how a client stands with a type; of many subscriptions, the worst one is shown.

    Args:
        types: the subscriptions to the type.
        status: the client.
        snapshot: what is served to it.
        published_s: since when that is.
        now_s: the time.
    """
    state = combined_state(types.states)
    watches = [watch for watch, one in zip(types.watches, types.states, strict=True) if one is state]
    shown = watches[0]
    since_s = min(status.since_s if watch.since_s is None else watch.since_s for watch in watches)
    if state is SyncState.STALE and shown.state is SyncState.SYNCED:
        # What it has was current until then.
        since_s = max(since_s, published_s)
    return TypeReport(
        type=BY_TYPE_URL[types.type_url].short_name,
        state=state.value,
        subscriptions=len(types.watches),
        resources=sum(len(watch.resources) for watch in types.watches),
        sent=shown.sent,
        acked=shown.acked,
        nacked=shown.nacked,
        current=_current(shown, state, status, snapshot),
        reason=mask_reason(without_message(shown.reason)) if shown.reason else None,
        since_s=max(0.0, now_s - since_s),
    )


def type_detail(types: Subscribed, report: TypeReport, snapshot: Snapshot | None) -> TypeDetail:
    """Return also what a client has of a type against what is current."""
    lacks, outdated, surplus, missing = set[str](), set[str](), set[str](), set[str]()
    for watch, state in zip(types.watches, types.states, strict=True):
        held = {resource.name: resource.version for resource in watch.resources}
        (lacks if watch.acked is None else outdated).update(watch.unconfirmed & held.keys())
        # It was told that these are gone.
        surplus |= (watch.unconfirmed | watch.rejected) - held.keys() - {WILDCARD, *watch.missing}
        missing |= set(watch.missing)
        if state is SyncState.STALE and snapshot is not None:
            current = dict(_current_names(watch, snapshot))
            lacks |= current.keys() - held.keys()
            outdated |= {name for name, version in current.items() if held.get(name, version) != version}
            surplus |= held.keys() - current.keys()
    lists = map(_some_of, (lacks, outdated - lacks, surplus - lacks, missing))
    return TypeDetail(*(getattr(report, each.name) for each in fields_of(report)), *lists)


def _some_of(names: set[str]) -> ListedNames:
    return ListedNames(len(names), tuple(sorted(names)[:MOST_NAMES]))


def _current_names(watch: WatchStatus, snapshot: Snapshot) -> Iterable[tuple[str, Version]]:
    """Yield what a client is to have of a subscription, by name."""
    rows = snapshot.resources(watch.type_url)
    if watch.names is None:
        return ((resource.name, resource.version) for resource in rows.everything)
    names = watch.names | {resource.name for resource in watch.resources}  # aliases lead to other names
    return ((resource.name, resource.version) for resource in rows.select(names))


def _current(watch: WatchStatus, state: SyncState, status: ClientStatus, snapshot: Snapshot | None) -> Version | None:
    """Return the version of what a client is to have."""
    if state is SyncState.SYNCED or snapshot is None:
        return watch.sent
    if status.service.startswith("Delta"):
        return snapshot.resources(watch.type_url).version
    return version_of(snapshot, _subscription_of(watch))


def _subscription_of(watch: WatchStatus) -> Subscription:
    return Subscription(watch.type_url, watch.names or frozenset(), wildcard=watch.names is None)
