"""Derives from an Envoy's admin statistics which mirrored files it accepted and which it rejected.

| rule | source |
| --- | --- |
| Clusters and listeners are taken when an update was accepted since, their version shows, and none is warming. | ENVOY.md E57, E59 |
| Routes are taken when each changed route configuration that Envoy subscribes to was accepted once more. | ENVOY.md E58 |
| An update rejected since the write is a NACK. | ENVOY.md E59 |
| An Envoy that shows a list collection's version reads that file, and no listeners beside it. | ENVOY.md E79 |
| A type without subscription is not awaited. | |
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import aiohttp

from fsxds.api.secrets import mask_reason
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import RowsChange, Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.messages import Node
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.rollout import Step
from fsxds.rollout.rejections import Nack, nack_of
from fsxds.rollout.step import Standing
from fsxds.settings.forms import Address, UnixAddress

_CDS, _LDS, _RDS, _LISTS = (BY_SHORT_NAME[name].type_url for name in ("cds", "lds", "rds", "lcds"))
_SCOPES: Final = {_CDS: "cluster_manager.cds", _LDS: "listener_manager.lds"}
_WARMING = ("cluster_manager.warming_clusters", "listener_manager.total_listeners_warming")
_COUNTERS = "update_(success|rejected)"
_ROUTES = re.compile(r"http\..*\.rds\.(?P<name>.+)\.update_(?P<counter>success|rejected)")
_FILTER = "|".join((
    *(rf"^{re.escape(scope)}\.(version_text|{_COUNTERS})$" for scope in _SCOPES.values()),
    *(f"^{re.escape(gauge)}$" for gauge in _WARMING),
    rf"^http\..*\.rds\..*\.{_COUNTERS}$",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class ListVersions:
    """List collections' versions in the files, now and before the last write."""

    now: frozenset[Version] = frozenset()
    before: frozenset[Version] = frozenset()

    def after(self, now: frozenset[Version]) -> ListVersions:
        """Return the versions after a write."""
        return self if now == self.now else ListVersions(now, self.now)


NO_LISTS = ListVersions()


@dataclass(frozen=True, slots=True)
class FileRejection:
    """A rejection: `names` of possible causes, Envoy's message or None."""

    type_url: TypeUrl
    names: frozenset[str]
    reason: str | None = None

    def nack(self, written: Snapshot) -> Nack:
        """NACK the versions that may be meant."""
        return nack_of(written.resources(self.type_url).everything, self.names, self.reason)


class EnvoyReader:
    """Follows one Envoy: `mark` before writing files, `look` afterwards, then `standing`.

    `lists` are the list collections that it may read.
    """

    def __init__(self, page: EnvoyPage) -> None:
        self._page = page
        self.lists = NO_LISTS
        self._before: Statistics = {}
        self._now: Statistics = {}
        self._listener_errors: str | None = None

    async def mark(self, changes: Mapping[TypeUrl, RowsChange] | None = None) -> None:
        """Record statistics before `changes` (None: all types) are written.

        Others stay: an earlier write may be awaited.
        """
        self._now = now = await self._page.statistics(_FILTER)
        if changes is None or not now:
            self._before = now
            return
        kept = {name: value for name, value in self._before.items() if not _is_about(name, changes)}
        self._before = kept | {name: value for name, value in now.items() if _is_about(name, changes)}

    async def look(self) -> bool:
        """Fetch the statistics; return whether they changed."""
        last, self._now = self._now, await self._page.statistics(_FILTER)
        if self._now == last:
            return False
        if _count(self._now, f"{_SCOPES[_LDS]}.update_rejected") > _count(last, f"{_SCOPES[_LDS]}.update_rejected"):
            self._listener_errors = await self._page.listener_errors()
        return True

    def standing(self, step: Step, written: Snapshot) -> Standing | FileRejection:
        """Return the standing with a step since `written` was written."""
        return standing_of(step, written, (self._before, self._now), self._listener_errors, lists=self.lists)


def standing_of(
    step: Step,
    written: Snapshot,
    looks: tuple[Statistics, Statistics],
    listener_errors: str | None = None,
    *,
    lists: ListVersions = NO_LISTS,
) -> Standing | FileRejection:
    """Return an Envoy's standing with a step.

    `written` is in the files, `looks` are statistics before the write and now, `listener_errors` is Envoy's message.
    """
    before, now = looks
    if not now:
        return Standing.PENDING
    if any(_count(now, name) < _count(before, name) for name in before if name.endswith(".update_success")):
        # Envoy restarted since.
        before = {}
    shown = {_version_in(looked, _SCOPES[_LDS]) for looked in (before, now)}
    reads_list = bool(shown & (lists.now | lists.before))

    def standing(type_url: TypeUrl, change: RowsChange) -> Standing | FileRejection:
        if type_url == _RDS:
            return _standing_of_routes(change, before, now)
        if reads_list and type_url != _CDS:
            return _standing_of_all(type_url, change, (before, now), lists.now, listener_errors)
        if type_url == _LISTS:
            return Standing.TAKEN
        version = version_of(written, Subscription(type_url))
        return _standing_of_all(type_url, change, (before, now), version, listener_errors)

    standings = [
        standing(type_url, change)
        for type_url, change in step.changed.items()
        # A TTL or an alias is in no file.
        if (change.fresh or change.removed) and (type_url in {_RDS, _LISTS} or type_url in _SCOPES)
    ]
    rejection = next((standing for standing in standings if isinstance(standing, FileRejection)), None)
    return rejection or (Standing.PENDING if Standing.PENDING in standings else Standing.TAKEN)


def _standing_of_all(
    type_url: TypeUrl,
    change: RowsChange,
    looks: tuple[Statistics, Statistics],
    wanted: Version | frozenset[Version],
    listener_errors: str | None,
) -> Standing | FileRejection:
    """`wanted` is the version in the file, or those of the lists, of which its own may be unchanged."""
    (before, now), scope = looks, _SCOPES[_CDS if type_url == _CDS else _LDS]
    if f"{scope}.update_success" not in now:
        return Standing.TAKEN
    if _has_grown(f"{scope}.update_rejected", before, now):
        return FileRejection(type_url, change.fresh, None if type_url == _CDS else listener_errors)
    version, has_new = _version_in(now, scope), _has_grown(f"{scope}.update_success", before, now)
    is_there = has_new and version == wanted
    if isinstance(wanted, frozenset):
        is_there = version in wanted and (has_new or version == _version_in(before, scope))
    is_accepted = is_there and not any(_count(now, gauge) for gauge in _WARMING)
    return Standing.TAKEN if is_accepted else Standing.PENDING


def _version_in(statistics: Statistics, scope: str) -> Version:
    return Version(statistics.get(f"{scope}.version_text", "").strip('"'))


def _standing_of_routes(change: RowsChange, before: Statistics, now: Statistics) -> Standing | FileRejection:
    successes, rejections = (
        {name for name, count in _by_route(counter, now).items() if count > _by_route(counter, before).get(name, 0)}
        for counter in ("success", "rejected")
    )
    if rejected := change.fresh & rejections:
        return FileRejection(_RDS, rejected)
    subscribed = change.fresh & _by_route("success", now).keys()
    return Standing.TAKEN if subscribed <= successes else Standing.PENDING


def _by_route(counter: str, statistics: Statistics) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for name in statistics:
        found = _ROUTES.fullmatch(name)
        if found is not None and found["counter"] == counter:
            counts[found["name"]] += _count(statistics, name)
    return counts


def _is_about(name: str, changes: Mapping[TypeUrl, RowsChange]) -> bool:
    if found := _ROUTES.fullmatch(name):
        routes = changes.get(_RDS, RowsChange())
        return found["name"] in routes.fresh | routes.removed
    types = {_LDS: (_LDS, _LISTS), _CDS: (_CDS,)}
    return any(
        name.startswith(f"{scope}.") and not changes.keys().isdisjoint(types[url]) for url, scope in _SCOPES.items()
    )


def _has_grown(name: str, before: Statistics, now: Statistics) -> bool:
    return _count(now, name) > _count(before, name)


def _count(statistics: Statistics, name: str) -> int:
    value = statistics.get(name, "0")
    return int(value) if value.isdecimal() else 0


Statistics = Mapping[str, str]
"""Values by name, as the admin page prints them; empty if it did not answer."""

PATIENCE_S = 5.0
_OK = 200


class EnvoyPage:
    """Queries an admin page; answers are empty while Envoy starts, ends or is busy."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def statistics(self, pattern: str) -> Statistics:
        """Return matching statistics of one moment."""
        text = await self._get("/stats", {"filter": pattern})
        return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)

    async def listener_errors(self) -> str | None:
        """Return Envoy's last rejection of listeners, like its NACK, without secrets."""
        content = await self._get("/config_dump", {"resource": "dynamic_listeners", "mask": "name,error_state.details"})
        errors = "\n".join(_errors(content))
        return mask_reason(f"Error adding/updating listener(s) {errors}") if errors else None

    async def _get(self, path: str, query: Mapping[str, str]) -> str:
        address = self._address
        is_unix = isinstance(address, UnixAddress)
        connector = (
            aiohttp.UnixConnector(str(address.path)) if isinstance(address, UnixAddress) else aiohttp.TCPConnector()
        )
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        url = f"http://{'envoy' if is_unix else address}{path}"
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.get(url, params=query) as response,
            ):
                return await response.text() if response.status == _OK else ""
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return ""


def _errors(content: str) -> Iterator[str]:
    try:
        listeners = json.loads(content)["configs"]
    except (ValueError, KeyError, TypeError):
        return
    for listener in listeners:
        if details := listener.get("error_state", {}).get("details"):
            yield f"{listener.get('name', '')}: {details}"


class Audience(NamedTuple):
    """A directory's node, and its Envoy's reader."""

    node: Node = Node("")
    reader: EnvoyReader | None = None


UNKNOWN_AUDIENCE = Audience()
"""The readers are unknown."""
