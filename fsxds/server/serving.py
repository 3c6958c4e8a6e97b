"""Runs `fsxds serve`: the application with mirrors, ready file and reloads.

Rules: a process that shares its addresses listens when it has content to serve.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.values import PlainValue
from fsxds.observe.log import Log
from fsxds.runtime.row_source import rules_of
from fsxds.runtime.supervisor import until_stopped
from fsxds.server.app import Application, CheckOf
from fsxds.server.mirror_settings import mirrors_of, reject_loop, require_views
from fsxds.server.readiness import ReadyFile, report_waits
from fsxds.settings.forms import OFF
from fsxds.settings.options import Settings
from fsxds.settings.reading import SettingsReader, service_environment


class ProcessLink(Protocol):
    """An application's workers, or a worker's link to its parent.

    `is_second`: another process listens until this one has a snapshot.
    """

    is_second: bool

    def start(self, application: Application, tasks: asyncio.TaskGroup) -> None:
        """Start it, with tasks cancelled at the end."""


async def serve(
    directory: Path | None, settings: Settings, log: Log, check_of: CheckOf, reader: SettingsReader
) -> None:
    """Serve a tree (None: none) and upstreams until SIGTERM or Ctrl-C; SIGHUP reads settings again.

    Raises:
        UsageError: a taken address or mirror; alone or in an exception group.
        KeyboardInterrupt: Ctrl-C ended it.
    """
    mirrors = mirrors_of(settings)
    for rule in mirrors:
        if directory is not None:
            reject_loop(directory, rule.directory)
    require_views(settings)
    if directory is None and not rules_of(settings) and settings.fleet is None:
        raise UsageError("no source to serve; give DIR, --upstream ADDRESS or both, or --fleet ETCD")
    if not mirrors and settings.http == settings.grpc == OFF:
        raise UsageError("no transport to serve on: REST and gRPC are off; give --http, --grpc or --mirror")
    ready_file = None if settings.ready_file is None else ReadyFile(settings.ready_file)

    async def work() -> None:
        if settings.workers == 1:
            await run(Application(directory, settings, log, check_of), reader, ready_file)
            return
        from fsxds.server.workers import shared  # noqa: PLC0415 - a capability, loaded if it is used

        async with shared(settings, reader, partial(serve_as_worker, check_of)) as (own, workers):
            await run(Application(directory, own, log, check_of), reader, ready_file, workers)

    if ready_file is None:
        await until_stopped(work(), log.receive)
        return
    try:
        await until_stopped(work(), log.receive, ready_file.remove)
    finally:
        ready_file.remove()


async def serve_as_worker(check_of: CheckOf, reader: SettingsReader, log: Log, beside: ProcessLink) -> None:
    """Serve another process's publications until SIGTERM. Raises UsageError."""
    application = Application(None, reader.read(), log, check_of)
    await until_stopped(run(application, reader, None, beside), log.receive)


async def run(
    application: Application, reader: SettingsReader, ready_file: ReadyFile | None, beside: ProcessLink | None = None
) -> None:
    """Run all parts of `fsxds serve`."""
    async with AsyncExitStack() as stack:
        stack.callback(application.close)
        rules = mirrors_of(application.settings)
        if rules:
            from fsxds.server import mirror_serving  # noqa: PLC0415 - a capability, loaded if it is used

            mirrors = stack.enter_context(mirror_serving.mirrored(application, rules))
        is_second = application.settings.reuse_port if beside is None else beside.is_second
        if is_second:
            # The other process serves until then.
            group = await stack.enter_async_context(asyncio.TaskGroup())
            _start_loading(application, group)
            await application.until_loaded()
        tasks = await stack.enter_async_context(application.serving())
        if rules:
            mirror_serving.start_mirrors(application, tasks, mirrors)
        application.start(tasks, "settings", partial(application.keep_settings, reader))
        if beside is not None:
            beside.start(application, tasks)
        if environment := service_environment():
            from fsxds.server.service_manager import ServiceManager  # noqa: PLC0415 - a capability, loaded if it is used

            if (manager := ServiceManager.of(environment)) is not None:
                stack.callback(manager.stop)
                reported = application.waits_for, application.supervisor.status, lambda: reader.count
                application.start(tasks, "service manager", partial(manager.keep_notified, *reported))
        if ready_file is not None:
            content, readiness = partial(_readiness, application), application.readiness
            application.start(tasks, "ready file", partial(readiness.keep_file, ready_file, application.store, content))
        if not is_second:
            _start_loading(application, tasks)
            tasks.create_task(application.reject_exposed_secrets(application.addresses))
        # Cancelled here, they end in parallel.
        await asyncio.Event().wait()


def _start_loading(application: Application, tasks: asyncio.TaskGroup) -> None:
    application.start(tasks, "start-up", partial(report_waits, application.waits_for, application.report_wait))
    tasks.create_task(application.run())


def _readiness(application: Application, degraded: tuple[str, ...]) -> dict[str, PlainValue]:
    snapshot, mirror, addresses = application.store.current, application.settings.mirror, application.addresses
    versions: dict[str, PlainValue] = {
        BY_TYPE_URL[type_url].short_name: snapshot.authored.get(type_url, version)
        for type_url, version in (snapshot.versions.items() if snapshot else ())
        if snapshot and type_url not in snapshot.withheld
    }
    return {
        "http": addresses.get("REST"),
        "grpc": addresses.get("gRPC"),
        "admin": addresses.get("admin"),
        "mirror": None if mirror is None else str(mirror),
        "mirrors": [str(rule.directory) for rule in application.settings.mirrors or ()],
        "versions": versions,
        "degraded": [*degraded],
        "pid": os.getpid(),
    }
