"""The report of each server, under its lease."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Never

from fsxds.fleet.client_reports import ViewClients
from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import LeaseLostError, RejectedRequestError, UnreachableError, followed
from fsxds.fleet.lease import Lease
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Order, ViewKey
from fsxds.snapshots.encoding import DamagedBytesError

# The least time between two reports.
LEAST_PAUSE_S = 0.05
RETRY_S = 0.3

# A server checks its clients at this interval: a client that comes or leaves is not urgent.
CHECK_INTERVAL_S = 3.0


@dataclass(frozen=True, slots=True)
class MemberReport:
    """The standing of a server.

    Attributes:
        order: up to this one, it has all publications of its views.
        taken: the order that all awaited clients of a view have taken.
    """

    order: Order = NOTHING_PUBLISHED
    taken: Mapping[ViewKey, Order] = field(default_factory=lambda: MappingProxyType({}))
    clients: Mapping[ViewKey, ViewClients] = field(default_factory=lambda: MappingProxyType({}))

    def encoded(self) -> bytes:
        """Return the report as bytes."""
        taken = {key.text: order for key, order in sorted(self.taken.items())}
        clients = {key.text: one.row() for key, one in sorted(self.clients.items())}
        row = {"order": self.order, "taken": taken, "clients": clients}
        return json.dumps(row, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, encoded: bytes) -> MemberReport:
        """Decode a report. DamagedBytesError: there is none."""
        try:
            row = json.loads(encoded)
            taken = {ViewKey.of(text): Order.of(each) for text, each in row["taken"].items()}
            clients = {ViewKey.of(text): ViewClients.of(each) for text, each in row["clients"].items()}
            return cls(Order.of(row["order"]), taken, clients)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise DamagedBytesError(f"a report is damaged: {type(error).__name__}") from error


class MemberReporter:
    """Reports this server after changes. Run `keep_reported`."""

    def __init__(self, content: FleetContent, key: bytes, lease: Lease, report: Callable[[], MemberReport]) -> None:
        self._content = content
        self._key = key
        self._lease = lease
        self._report = report
        self._is_due = asyncio.Event()

    def note(self) -> None:
        """Note that the report may have changed."""
        self._is_due.set()

    async def keep_reported(self) -> Never:
        """Report until cancelled."""
        reported: tuple[int, bytes] | None = None
        while True:
            self._is_due.clear()
            lease = self._lease.current.current
            made = lease, self._report().encoded()
            if lease and made != reported:
                with suppress(UnreachableError, RejectedRequestError, LeaseLostError):
                    await self._content.engine.write([self._content.put(self._key, made[1])._replace(lease=lease)])
                    reported = made
                await asyncio.sleep(LEAST_PAUSE_S)
            await self._until_due(lease, CHECK_INTERVAL_S if reported == made else RETRY_S)

    async def _until_due(self, lease: int, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + within_s
        while loop.time() < ends_s and self._lease.current.current == lease:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._is_due.wait()
                    return


class Servers:
    """The reports of servers with leases. Run `keep_current`."""

    def __init__(self, content: FleetContent, on_changed: Callable[[], object]) -> None:
        """Call `on_changed` after the first read, and after each change."""
        self.reports: dict[str, MemberReport] = {}
        self._content = content
        self._prefix = content.keys.servers
        self._on_changed = on_changed

    async def keep_current(self) -> Never:
        """Follow until cancelled. UnreachableError, RejectedRequestError: the reports cannot be read."""
        while True:
            async with aclosing(followed(self._content.engine, self._prefix)) as following:
                async for values, is_all in following:
                    if is_all:
                        self.reports.clear()
                    self._take({key: one and one.value for key, one in values.items()})

    def _take(self, values: Mapping[bytes, bytes | None]) -> None:
        for key, value in values.items():
            name = key[len(self._prefix) :].decode(errors="replace")
            self.reports.pop(name, None)
            if value is not None:
                try:
                    self.reports[name] = MemberReport.decoded(self._content.sealing.opened(key, value))
                except DamagedBytesError:
                    # Another version of fsxds wrote it: the server is present, but is not waited for.
                    self.reports[name] = MemberReport()
        self._on_changed()
