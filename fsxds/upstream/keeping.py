"""Keeps upstreams' resources across restarts.

Rules: the disk is never behind the served resources of upstreams.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Never

from fsxds.events.event import Observer
from fsxds.events.upstream_events import UpstreamsRestored
from fsxds.model.resources import Snapshot
from fsxds.runtime.row_source import KeptUpstream, UpstreamKeeper
from fsxds.upstream.upstream import Upstream


class UpstreamKeeping:
    """Keeps upstreams' resources in the state directory; `keep_noted` is a task of each."""

    def __init__(self, upstreams: Collection[Upstream], keeper: UpstreamKeeper, observer: Observer) -> None:
        """Restore nothing yet."""
        self._upstreams = upstreams
        self._keeper = keeper
        self._observer = observer
        keeper.read_upstreams = self._read

    def _read(self) -> tuple[KeptUpstream, ...]:
        return tuple(KeptUpstream(each.rule.name, each.rule.servers, each.held) for each in self._upstreams)

    def restore(self, served: Snapshot | None, now_s: float) -> None:
        """Restore and report an earlier process's resources. Blocks; for the start.

        `served` shares bodies; `now_s` is since 1970.
        """
        found = self._keeper.restored_upstreams(self._read(), served)
        for each in self._upstreams:
            if each.rule.name in found.held:
                each.restore(found.held[each.rule.name], now_s)
        if found.held:
            times_s = [
                one.received_s for held in found.held.values() for table in held.values() for one in table.values()
            ]
            counts = {name: sum(map(len, held.values())) for name, held in found.held.items()}
            age_s = max(now_s - min(times_s), 0.0)
            self._observer(UpstreamsRestored(self._keeper.directory, counts, age_s))

    async def keep_noted(self, upstream: Upstream) -> Never:
        """Have each change written soon, until cancelled."""
        held = upstream.held
        # An earlier run may have missed a change.
        self._keeper.note_upstreams()
        while True:
            await upstream.changed.replaced()
            if upstream.held is not held:
                held = upstream.held
                self._keeper.note_upstreams()
