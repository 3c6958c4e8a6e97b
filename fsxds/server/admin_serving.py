"""A server's admin address: operators' API, status page, health checks and metrics."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic

from fsxds.events.event import Event, Observer, type_name
from fsxds.events.file_events import TreeLoaded
from fsxds.events.rollout_events import HoldsChanged
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.observe.metrics import OTHER, Labels, Metrics, Readings
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher
from fsxds.publishing.rollout_operator import RolloutOperator
from fsxds.runtime.access import Access
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.row_source import UpstreamStatus
from fsxds.server.app import ADMIN, GRACE_S, Application
from fsxds.settings.forms import Address
from fsxds.status.channel_facts import ChannelFacts
from fsxds.status.loaded_files import LoadedFiles
from fsxds.status.server_status import ProcessFacts, ServerStatus
from fsxds.transports.admin.admin_api import AdminApi, AdminPaths
from fsxds.transports.admin.admin_reports import ListenerReport
from fsxds.transports.admin.page_paths import ChangeFeed, PageApi, page_paths
from fsxds.transports.admin.status_paths import RolloutPaths, health_paths, metrics_paths, outline_paths, status_paths
from fsxds.transports.rest.http_server import listening
from fsxds.transports.sockets import is_local

MOST_VIEWS = 100
WHOLE = "whole tree"
STEP_AGE = "fsxds_rollout_step_age_seconds"
# Of channels with the same labels, the largest value counts.
OLDEST = frozenset({STEP_AGE, "fsxds_rollback_timestamp_seconds"})


class AdminAddress:
    """Serves operators; uses other components only once it listens."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._metrics = Metrics(lambda: readings_of(application))
        self._changes = ChangeFeed(lambda: application.publisher.generation)
        self._files = LoadedFiles(self._is_word)
        self._is_exposed = False
        self.observers: Mapping[str, Observer] = {
            "metrics": self._metrics.receive,
            "files": self._receive,
            "pages": self._changes.receive,
        }

    def check(self, access: Access) -> None:
        """Raise UsageError if others could make decisions."""
        if self._is_exposed and not access.guards_admin:
            fact = "admin: other machines can reach it, and all who do may decide; give --admin-token FILE, a rule of `access`"
            raise UsageError(f"{fact} with `admin: true`, a loopback address or unix:PATH")

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncIterator[Address]:
        """Serve operators at an address."""
        of = self._application
        access = of.credentials.access
        api = AdminApi(self._paths(), address, of.observer, access)
        options = of.security.http("admin", address, is_admin=True)
        application = api.application()
        # Lasting answers would delay the end.
        application.on_shutdown.append(self._changes.close)
        async with listening(application, address, grace_s=GRACE_S, options=options) as bound:
            self._is_exposed = not is_local(bound)
            self.check(access.current)
            yield bound

    def _is_word(self, word: str) -> bool:
        return self._application.catalogue.knows_word(word)

    def _receive(self, event: Event) -> None:
        match event:
            case TreeLoaded() if (views := self._application.reload.views) is not None:
                self._files.receive(views, monotonic())
            case HoldsChanged(problems):
                self._files.receive_holds(problems, monotonic())

    def _paths(self) -> AdminPaths:
        of = self._application
        history = of.keeper.state if of.keeper else None
        operator = of.member.control(partial(RolloutOperator, views=lambda: of.channels.views, kept=history))
        process = ProcessFacts(
            directory="" if of.directory is None else str(of.directory),
            started_s=of.started_s,
            listeners=self._listener_reports,
            waits_for=lambda: of.unready() and (of.waits_for() or of.unready()),
            degraded=lambda: of.supervisor.degraded.current,
            upstreams=of.upstreams.statuses,
        )
        channels = ChannelFacts(of.publisher, of.channels)
        status = ServerStatus(process, operator, channels, self._files)
        return {
            **RolloutPaths(operator).paths,
            **status_paths(status),
            **page_paths(PageApi(operator, of.catalogue, of.is_static), self._changes),
            **outline_paths(operator),
            **metrics_paths(self._metrics.registry),
            **health_paths(of.unready),
        }

    def _listener_reports(self) -> list[ListenerReport]:
        of = self._application
        return [
            ListenerReport(name, str(listener.address), of.security.has_tls(listener.address, is_admin=name == ADMIN))
            for name, listener in of.listeners.items()
        ]


part = AdminAddress


def readings_of(application: Application) -> Readings:
    """Yield gauges: names, labels and values."""
    yield "fsxds_ready", (), float(not application.unready())
    yield "fsxds_polls_held", (), float(application.limiter.held)
    held = () if application.reload.views is None else application.reload.views.held
    good = sum(file.has_last_good for file in held)
    yield "fsxds_files", ("good",), float(max(0, application.file_count - len(held)))
    yield "fsxds_files", ("held",), float(good)
    yield "fsxds_files", ("broken",), float(len(held) - good)
    for status in application.upstreams.statuses():
        yield from upstream_readings(status, time.time())
    degraded = application.supervisor.degraded.current
    for component in sorted(application.supervisor.components):
        yield "fsxds_component_degraded", (component,), float(component in degraded)
    merged: dict[tuple[str, Labels], float] = {}
    for name, labels, value in _channels(application.publisher, application.channels):
        before = merged.get((name, labels), 0.0)
        merged[name, labels] = max(before, value) if name in OLDEST else before + value
    yield from ((name, labels, value) for (name, labels), value in merged.items())


def _channels(publisher: Publisher, channels: NodeChannels) -> Readings:
    labels, now_s = view_labels(channels.views), asyncio.get_running_loop().time()
    rejections, gate = publisher.verdicts.rejections, publisher.gate
    yield "fsxds_rejecting_nodes", (), float(len(rejections.nodes))
    yield "fsxds_held_versions", (), float(len(rejections.held))
    yield "fsxds_canary_wait_seconds", (), 0.0 if gate is None else gate.wait_s(now_s)
    for rollout in publisher.followed(labels):
        key, snapshot = rollout.channel.key, rollout.channel.store.current
        view = labels.get(key.layers, OTHER)
        if snapshot is not None and key == ChannelKey(key.layers):
            yield from _served(view, snapshot)
        yield from _rollout(rollout, (view, key.cohort), now_s)
        for client in rollout.channel.known:
            yield "fsxds_clients", (client.transport, view, client.sync_state().value), 1.0


def view_labels(views: tuple[tuple[str, Layers], ...]) -> Mapping[Layers, str]:
    """Return views' labels: names, with layers if ambiguous."""
    counts = Counter(name for name, _ in views)
    labels = {layers: name if counts[name] == 1 else f"{name} ({'+'.join(layers)})" for name, layers in views}
    return {
        layers: (label or WHOLE) if index < MOST_VIEWS else OTHER
        for index, (layers, label) in enumerate(labels.items())
    }


def _served(view: str, snapshot: Snapshot) -> Readings:
    for type_url, rows in snapshot.by_type.items():
        if type_url not in snapshot.withheld:
            short_name = BY_TYPE_URL[type_url].short_name
            yield "fsxds_resources", (view, short_name), float(len(rows))
            if view != OTHER:
                version = snapshot.authored.get(type_url, rows.version)
                yield "fsxds_version_info", (view, short_name, version), 1.0


def _rollout(rollout: ChannelRollout, labels: tuple[str, str], now_s: float) -> Readings:
    machine, target = rollout.machine, rollout.target
    yield "fsxds_rollouts_active", labels, float(not rollout.has_completed)
    yield "fsxds_rollout_waiting_clients", labels, float(len(machine.waiting or ()))
    yield "fsxds_rollout_clients", labels, float(len(rollout.channel.clients))
    yield "fsxds_approvals_pending", labels, float(target.composed is not None and bool(target.composed.removals))
    for reason, count in Counter(hold.reason.value for hold in target.holds.values()).items():
        yield "fsxds_held_resources", (*labels, reason), float(count)
    if target.pinned_at_s is not None:
        yield "fsxds_rollback_timestamp_seconds", labels, target.pinned_at_s
    if machine.step is not None and rollout.step_since_s is not None:
        yield STEP_AGE, (*labels, machine.step.step_kind.value), max(0.0, now_s - rollout.step_since_s)
    for type_url, count in Counter(type_url for type_url, _ in machine.lingering).items():
        yield "fsxds_lingering_resources", (labels[0], type_name(type_url)), float(count)


def upstream_readings(status: UpstreamStatus, now_s: float) -> Readings:
    """Yield an upstream's gauges; `now_s` is since 1970."""
    yield "fsxds_upstream_connected", (status.name,), float(status.state == "connected")
    yield "fsxds_upstream_pending_types", (status.name,), float(len(status.pending))
    if status.last_update_s is not None:
        yield "fsxds_upstream_age_seconds", (status.name,), max(0.0, now_s - status.last_update_s)
    for type_url, count in status.resources.items():
        yield "fsxds_upstream_resources", (status.name, type_name(type_url)), float(count)
