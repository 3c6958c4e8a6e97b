"""Names that clients ask for: each server with upstreams asks them for all servers' names.

| key | value |
| --- | --- |
| `n/`, a server's id, `/` and a number | names that its clients ask for, under its lease |
| `u/` | upstreams are asked only for names that a client asks for |
| `u/` and a number | asked names that no upstream has, and the order of the publication before |

| rule | reason |
| --- | --- |
| Servers with a tree that do not publish ask, too. | Else the next publisher's tree would lack the resources. |
| A name is absent at a server that serves the publication before. | That may have the name, or resources of `*`. |
| Names are divided by a hash. | One more name writes a 64th of them. |
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing, suppress
from types import MappingProxyType
from typing import Never
from zlib import crc32

from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import (
    Delete,
    EngineError,
    KeyValue,
    Lease,
    Put,
    followed,
)
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Order
from fsxds.fleet.publication import Publication
from fsxds.model.values import TypeUrl
from fsxds.protocol.subscription import OnDemand
from fsxds.runtime.asked_names import AskedNames, can_exist
from fsxds.runtime.channels import Latest
from fsxds.snapshots.encoding import DamagedBytesError, decoding

DIVISIONS = 64
RETRY_S = 0.5
CHECK_INTERVAL_S = 1.0

NamesByType = Mapping[TypeUrl, frozenset[str]]
Rows = dict[bytes, dict[str, list[str]]]
"""Names by type, by the key of their division."""

NO_NAMES: NamesByType = MappingProxyType({})


def _division_of(name: str) -> int:
    return crc32(name.encode()) % DIVISIONS


def _divided(names: NamesByType) -> dict[int, dict[str, list[str]]]:
    divided: dict[int, dict[str, list[str]]] = {}
    for type_url, each in names.items():
        for name in sorted(each):
            divided.setdefault(_division_of(name), {}).setdefault(type_url, []).append(name)
    return divided


def _encoded(names: Mapping[str, list[str]], order: Order = NOTHING_PUBLISHED) -> bytes:
    return json.dumps([order, names], separators=(",", ":")).encode()


def _decoded(encoded: bytes) -> tuple[Order, NamesByType]:
    """Raises DamagedBytesError."""
    with decoding("a list of names"):
        order, names = json.loads(encoded)
        return Order.of(order), {TypeUrl(url): frozenset(map(str, each)) for url, each in names.items()}


class FleetNames:
    """A server's `OnDemand`: names that its clients ask for, and absent ones.

    Run `keep_reported` and `keep_answered`.

    Args:
        is_asking: upstreams are asked only for names that clients ask for; if false, the key `u/` decides.
    """

    def __init__(self, content: FleetContent, lease: Lease, applied: Latest[Order], *, is_asking: bool) -> None:
        self._asked = AskedNames()
        self.listeners = self._asked.listeners
        self._content = content
        self._lease = lease
        self._applied = applied
        self._is_always_asking, self._has_key = is_asking, False
        self._absent: dict[bytes, NamesByType] = {}

    @property
    def is_asking(self) -> bool:
        """Whether upstreams are asked only for clients' names."""
        return self._is_always_asking or self._has_key

    def ask(self, client: object, type_url: TypeUrl, names: AbstractSet[str]) -> None:
        """Replace a client's names; `*` is all."""
        self._asked.ask(client, type_url, names)

    def forget(self, client: object) -> None:
        """Drop a client's names."""
        self._asked.forget(client)

    def unanswered(self, type_url: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        """Return names that an upstream may have."""
        if not self.is_asking:
            return frozenset()
        prefix = self._content.keys.absent
        return frozenset(
            name
            for name in names
            if name not in self._absent.get(prefix + b"%d" % _division_of(name), NO_NAMES).get(type_url, ())
            and can_exist(type_url, name)
        )

    async def keep_reported(self, server: str) -> Never:
        """Report clients' names, until cancelled."""
        prefix = self._content.keys.names + server.encode() + b"/"
        written: dict[int, dict[str, list[str]]] = {}
        of_lease = 0
        while True:
            lease, names = self._lease.current.current, self._asked.changed.current
            if lease != of_lease:
                written, of_lease = {}, lease
            rows = _divided(names) if lease else {}
            changes: list[Put | Delete] = []
            for number in rows.keys() | written.keys():
                key, row = prefix + b"%d" % number, rows.get(number)
                if row is None:
                    changes.append(Delete(key))
                elif row != written.get(number):
                    changes.append(self._content.put(key, _encoded(row), lease))
            try:
                await self._content.write(changes)
                written = rows
            except EngineError:
                # Some changes may have been written.
                written = {number: {} for number in rows.keys() | written.keys()}
                await asyncio.sleep(RETRY_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_INTERVAL_S):
                    await self._asked.changed.other_than(names)

    async def keep_answered(self) -> Never:
        """Follow the absent names, until cancelled."""
        prefix = self._content.keys.absent
        while True:
            with suppress(EngineError, DamagedBytesError):
                async with aclosing(followed(self._content.engine, prefix)) as following:
                    async for values, is_all in following:
                        if is_all:
                            self._absent.clear()
                            self._has_key = prefix in values
                        for key, found in values.items():
                            await self._receive(key, found)
                        self._asked.answered()
            await asyncio.sleep(RETRY_S)

    async def _receive(self, key: bytes, found: KeyValue | None) -> None:
        if key == self._content.keys.absent:
            self._has_key = found is not None
        elif found is None:
            self._absent.pop(key, None)
        else:
            order, names = _decoded(self._content.sealing.opened(key, found.value))
            while self._applied.current < order:
                await self._applied.replaced()
            self._absent[key] = names


class UpstreamNames:
    """Asks this server's upstreams for all servers' names. Run `keep_asked`."""

    def __init__(self, content: FleetContent, upstreams: OnDemand) -> None:
        self.listeners: dict[object, Callable[[], object]] = {}
        self._content = content
        self._upstreams = upstreams
        upstreams.listeners[self] = self._note
        # The names of each report by its key, and their union.
        self._reported: dict[bytes, NamesByType] = {}
        self._asked: NamesByType = NO_NAMES

    def absent(self) -> NamesByType:
        """Return asked names that no upstream has."""
        return {
            type_url: names - self._upstreams.unanswered(type_url, names) for type_url, names in self._asked.items()
        }

    async def keep_asked(self) -> Never:
        """Ask until cancelled."""
        while True:
            with suppress(EngineError):
                async with aclosing(followed(self._content.engine, self._content.keys.names)) as following:
                    async for values, is_all in following:
                        self._receive(values, {} if is_all else self._reported)
            await asyncio.sleep(RETRY_S)

    def _receive(self, values: Mapping[bytes, KeyValue | None], reported: dict[bytes, NamesByType]) -> None:
        for key, found in values.items():
            reported.pop(key, None)
            if found is not None:
                # Names from a server of another version, or with another key, stay unknown.
                with suppress(DamagedBytesError):
                    reported[key] = _decoded(self._content.sealing.opened(key, found.value))[1]
        asked: dict[TypeUrl, frozenset[str]] = {}
        for each in reported.values():
            for type_url, names in each.items():
                asked[type_url] = asked.get(type_url, frozenset()) | names
        for type_url in asked.keys() | self._asked.keys():
            self._upstreams.ask(self, type_url, asked.get(type_url, frozenset()))
        self._reported, self._asked = reported, asked
        self._note()

    def _note(self) -> None:
        for listener in tuple(self.listeners.values()):
            listener()


class AbsentNames:
    """Publishes absent names; `names` is None if upstreams are not asked."""

    def __init__(self, publication: Publication, names: UpstreamNames | None, on_due: Callable[[], object]) -> None:
        """Call only this `on_due` when absent names may have changed."""
        self._publication = publication
        self._names = names
        self._on_due = on_due
        self._is_due = True
        # Taken, and not written yet.
        self._taken: Rows | None = None
        # None until the keys of an earlier publisher were read.
        self._written: Rows | None = None
        if names is not None:
            names.listeners[AbsentNames] = self._note

    def _note(self) -> None:
        self._is_due = True
        self._on_due()

    def take(self) -> None:
        """Take the absent names, if changed: `write` them after the next publication."""
        if not self._is_due:
            return
        self._taken, self._is_due = {}, False
        if self._names is not None:
            prefix = self._publication.content.keys.absent
            divided = _divided(self._names.absent())
            self._taken = {prefix: {}, **{prefix + b"%d" % number: one for number, one in divided.items()}}

    async def write(self) -> None:
        """Write the taken names, until it succeeds once. Raises NoPublisherError."""
        if (rows := self._taken) is None:
            return
        content, order, known = self._publication.content, self._publication.order, self._written
        if known is None:
            prefix = content.keys.absent
            found = await content.engine.read_prefix(prefix, is_keys_only=True)
            known = self._written = {key: {"": []} for key in found.values}
        changes: list[Put | Delete] = [Delete(key) for key in known.keys() - rows.keys()]
        changes += (content.put(key, _encoded(row, order)) for key, row in rows.items() if row != known.get(key))
        # Until the write is known to have succeeded.
        known |= {change.key: {"": []} for change in changes}
        await self._publication.write(changes)
        self._written, self._taken = rows, None
