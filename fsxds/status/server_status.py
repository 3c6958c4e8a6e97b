"""The server's status for `/api/status`.

Rules: how upstreams stand, as operators see it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fsxds import __version__
from fsxds.api.secrets import mask_text
from fsxds.events.event import quoted, type_name
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.runtime.row_source import UpstreamStatus
from fsxds.status.channel_facts import ChannelFacts
from fsxds.status.loaded_files import LoadedFiles
from fsxds.transports.admin.admin_reports import (
    MOST_ROLLOUTS,
    ChannelReport,
    ClientList,
    FileList,
    HeldType,
    ListenerReport,
    NodeReport,
    RolloutControl,
    RowQuery,
    ServerReport,
    UpstreamReport,
)


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The process's facts; callables return current values.

    `started_s` is event loop time; `waits_for` is "" after the start; `degraded` components failed since.
    """

    directory: str
    started_s: float
    listeners: Callable[[], Sequence[ListenerReport]]
    waits_for: Callable[[], str]
    degraded: Callable[[], tuple[str, ...]]
    upstreams: Upstreams = tuple


class ServerStatus:
    """All facts about the server: a `StatusFacts`."""

    def __init__(
        self, process: ProcessFacts, control: RolloutControl, channels: ChannelFacts, files: LoadedFiles
    ) -> None:
        self._process = process
        self._control = control
        self._channels = channels
        self._files = files

    async def report(self) -> ServerReport:
        """Return the answer of `GET /api/status`."""
        process = self._process
        files, problems, counts = await self._files.problems()
        views, view_count = await self._channels.views()
        clients = await self._channels.counts()
        rollouts = await self._control.channels()
        waits_for, state = process.waits_for(), self._control.state_directory
        return ServerReport(
            version=__version__,
            pid=os.getpid(),
            uptime_s=asyncio.get_running_loop().time() - process.started_s,
            directory=process.directory,
            state=None if state is None else str(state),
            generation=self._channels.generation,
            listeners=tuple(process.listeners()),
            is_ready=not waits_for,
            waits_for=waits_for,
            degraded=process.degraded(),
            files=files,
            problems=problems,
            problem_count=counts.error + counts.warning + counts.note,
            views=views,
            view_count=view_count,
            clients=clients,
            rollouts=tuple(sorted(rollouts, key=_is_quiet)[:MOST_ROLLOUTS]),
            rollout_count=len(rollouts),
            upstreams=tuple(upstream_report(each, time.time()) for each in process.upstreams()),
            fleet=tuple(await self._control.servers()),
            problem_counts=counts,
        )

    async def clients(self, query: RowQuery) -> ClientList:
        """Return some clients."""
        return await self._channels.clients(query)

    async def node(self, name: str) -> NodeReport:
        """Return a node's clients."""
        return await self._channels.node(name)

    async def files(self, query: RowQuery) -> FileList:
        """Return some files."""
        return await self._files.files(query)


def _is_quiet(channel: ChannelReport) -> bool:
    is_noted = bool(channel.held or channel.pinned or channel.approval or channel.lingering)
    return channel.is_done and not is_noted


# Of an upstream, in a report; the log has all.
MOST_REJECTED = 20

Upstreams: TypeAlias = Callable[[], Iterable[UpstreamStatus]]
"""In order of precedence."""


def upstream_report(status: UpstreamStatus, now_s: float) -> UpstreamReport:
    """Return an upstream's report; `now_s` is since 1970."""
    held = status.resources
    return UpstreamReport(
        name=mask_text(status.name),
        servers=tuple(map(mask_text, status.servers)),
        server=mask_text(status.server),
        wire=status.wire,
        state=status.state,
        since_s=max(0.0, now_s - status.since_s) if status.since_s else 0.0,
        trouble=quoted(status.trouble),
        resources=tuple(
            HeldType(row.short_name, held[row.type_url]) for row in RESOURCE_TYPES if held.get(row.type_url)
        ),
        pending=tuple(map(type_name, status.pending)),
        age_s=None if status.last_update_s is None else max(0.0, now_s - status.last_update_s),
        rejected=tuple(quoted(text) for text in status.rejected[:MOST_REJECTED]),
    )
