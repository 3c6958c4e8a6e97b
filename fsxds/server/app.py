"""Wires the components together, and runs them in one task group.

A transport is a line in `TRANSPORTS`, a source in `Application.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Never, Protocol

from fsxds.disk_cache.member_names import MemberNames
from fsxds.events.event import Event, Level, Observer
from fsxds.events.file_events import TreeLoaded
from fsxds.events.process_events import (
    ApiFound,
    LingeringDropped,
    ListeningStarted,
    PlainTextExposed,
    SettingsRejected,
    SettingsReloaded,
    StartDelayed,
)
from fsxds.events.rollout_events import VersionsHeld, VersionsReleased
from fsxds.formats.yaml_format import require_libyaml
from fsxds.model.errors import FsxdsError, UsageError
from fsxds.model.relay_ids import NOT_LISTED
from fsxds.model.resources import Key, Snapshot
from fsxds.model.tree_trust import SeenInProcess, SeenManifests
from fsxds.model.values import OfferedManifest
from fsxds.observe.log import Log, observed_by
from fsxds.publishing.membership import SingleServer
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.runtime.access import Access
from fsxds.runtime.channels import Latest, SnapshotStore
from fsxds.runtime.row_source import RowSource, rules_of
from fsxds.runtime.supervisor import Supervisor, error_message
from fsxds.runtime.views import NodeRules, Views
from fsxds.server.loading_rules import LoadingRules, WatchRules, cache_of, find_catalogue, scanner_of, verifier_of
from fsxds.server.mirror_settings import require_views
from fsxds.server.parsing import Parsing
from fsxds.server.readiness import (
    FirstAnswers,
    Readiness,
    has_no_resources,
    reject_exposed_secrets,
    reported_wait,
    unready_reason,
)
from fsxds.server.reload import NOTHING, LoadContext, Loader, Reload
from fsxds.settings.forms import OFF, Address, parse_address
from fsxds.settings.options import Settings
from fsxds.settings.reading import SettingsChange, SettingsReader
from fsxds.snapshots.proposals import Check
from fsxds.source.watcher import Settled, watch
from fsxds.transports.credentials import Credentials, ListenerSecurity, read_access
from fsxds.transports.exchange import Clients, Exchange, ExtraServices, ServiceContext
from fsxds.transports.grpc_streams.discovery import GrpcServices
from fsxds.transports.grpc_streams.grpc_server import listening_grpc
from fsxds.transports.grpc_streams.stream import StreamContext
from fsxds.transports.limits import Limiter
from fsxds.transports.rest.application import RestContext, RestJson, make_application
from fsxds.transports.rest.http_server import listening, raise_open_files_limit
from fsxds.transports.sockets import Listener, reject_unbindable

if TYPE_CHECKING:
    from fsxds.history.state_writer import StateWriter
    from fsxds.transports.config_sources import Rewriting

# Milliseconds, or as long as clients read their responses; less than `supervisor.STOP_WITHIN_S`.
GRACE_S = 6.5

# Besides the content of the bootstrap.
_CHECK_OPTIONS = frozenset({"rules", "bootstrap", "static_clusters"})

ADMIN = "admin"

CheckOf = Callable[[Settings], Check]
"""Makes the check of files, or raises UsageError."""


class MirroredDirectory(Protocol):
    """A directory of mirrored files."""

    @property
    def root(self) -> Path:
        """The directory."""

    @property
    def has_written(self) -> asyncio.Event:
        """Set with the first snapshot."""

    def change(self, settings: Settings) -> None:
        """Apply other settings."""


class ListeningPart(Protocol):
    """A capability with an address, made before other components.

    Its `observers` fail alone.
    """

    observers: Mapping[str, Observer]

    def check(self, access: Access) -> None:
        """Raise UsageError if this access does not suffice."""

    def listen(self, address: Address) -> AbstractAsyncContextManager[Address]:
        """Serve within the context; yield the bound address."""


class Application:
    """Every lasting command's components: a directory is watched, loaded and served.

    Attributes:
        views: `reload`, or the publisher of this server's fleet.
        clients_channels: `channels` for new clients, which may wait until this server has caught up with its fleet.
        directory: the tree; None for upstreams alone.
        services: for clients' other requests.
        parts: listening capabilities, by transport.
        member: this server's role in its fleet, or alone.
        offered: manifests for relays below.
        keeper: of the state directory until `close`, or None.
    """

    def __init__(self, directory: Path | None, settings: Settings, log: Log, check_of: CheckOf) -> None:
        self.settings = settings
        self.directory = directory
        self.started_s = monotonic()
        self._log = log
        self.parts: Mapping[str, ListeningPart] = {
            row.name: part for row in TRANSPORTS if (part := row.part_of(self)) is not None
        }
        observers = {name: observer for part in self.parts.values() for name, observer in part.observers.items()}
        self.observer = observed_by(log.receive, **observers)
        self._check_of = check_of
        require_libyaml()
        self.security = ListenerSecurity(settings, self.observer)
        self.credentials = Credentials(settings, self.observer)
        self.offered: Latest[tuple[OfferedManifest, ...]] = Latest(())
        with reported_wait("the API of Envoy to be read", self.report_wait):
            self.catalogue = find_catalogue(settings)
        self.observer(ApiFound(self.catalogue.description))
        self.keeper = self._opened_state(settings)
        self._seen: SeenManifests = SeenInProcess() if self.keeper is None else self.keeper.seen_manifests
        self._members = None if self.keeper else MemberNames.of(directory, settings, self.observer)
        self._rewriting = self._rewriting_of(settings)
        self.limiter = Limiter(settings)
        self._loading = Latest(LoadingRules.of(settings, self.catalogue, check_of(settings), directory))
        self.upstreams = self._upstreams_of(self._loading.current)
        self.member = self._member_of(settings)
        with reported_wait("the content of the previous process to be read", self.report_wait):
            keeper = self.keeper or self._members
            self.publisher = Publisher(self._publish_rules(settings), self._receive, keeper, self._rewriting)
        self.reload = Reload(self.member.targets(self.publisher), self._receive, self.upstreams.receive_loaded)
        self.views = self.member.views(self.reload)
        self.channels = NodeChannels(self.publisher, self.views, self._node_rules(settings), self.upstreams.asked)
        self.clients_channels = self.member.channels(self.channels)
        self.clients = Clients()
        self.supervisor = Supervisor(self.observer)
        services = ServiceContext(
            self.clients, self.catalogue, self.credentials.access, self.upstreams.own_statuses, self.offered
        )
        self.services: list[ExtraServices] = [import_module(name).services(services) for name in SERVICES]
        self._trees: Latest[Settled | None] = Latest(None)
        self._watching = Latest(WatchRules.of(settings))
        self.mirrors: list[MirroredDirectory] = []
        self.listeners: Mapping[str, Listener] = {}
        self.readiness = Readiness(self.unready, self.supervisor.degraded, self.observer)
        if self.keeper is not None:
            with reported_wait("the stored resources of upstreams to be read", self.report_wait):
                self.upstreams.keep_in(self.keeper, self.store.current)

    def _opened_state(self, settings: Settings) -> StateWriter | None:
        if settings.state is None:
            return None
        from fsxds.history.state_writer import StateWriter  # noqa: PLC0415 - a capability, loaded if it is used

        return StateWriter.open(settings.state, self.directory, self.observer)

    def _upstreams_of(self, rules: LoadingRules) -> RowSource:
        if not rules_of(self.settings):
            return RowSource()
        from fsxds.upstream.upstreams import UpstreamContext, Upstreams  # noqa: PLC0415 - loaded if it is used

        check = rules.parsing.check
        upstreams = Upstreams(
            UpstreamContext(
                lambda: self.settings, self._receive, self.catalogue, check, self._seen, self._offer_manifests
            )
        )
        upstreams.change_rules(check, rules.anchors)
        return upstreams

    def _rewriting_of(self, settings: Settings) -> Rewriting | None:
        if not settings.ads_config_sources and settings.redirects != "client":
            return None
        from fsxds.transports.config_sources import rewriting_of  # noqa: PLC0415 - loaded if it is used

        return rewriting_of(settings, self.catalogue, self.observer)

    def _member_of(self, settings: Settings) -> SingleServer:
        if settings.fleet is None:
            return SingleServer()
        from fsxds.fleet.member import member_of  # noqa: PLC0415 - a capability, loaded if it is used

        has_source = self.directory is not None or bool(rules_of(settings))
        return member_of(settings, self._receive, self.directory, has_source=has_source)

    def _publish_rules(self, settings: Settings) -> PublishRules:
        return self.member.rules(PublishRules.of(settings, self.is_static))

    def _node_rules(self, settings: Settings) -> NodeRules:
        return NodeRules(Views(settings.views, settings.variables), settings.canary, self.limiter.admit_view)

    def _offer_manifests(self) -> None:
        offered = (*self.reload.trust.offered, *self.upstreams.offered)
        if offered != self.offered.current:
            self.offered.replace(offered)
            self.publisher.verdicts.forget_reason(NOT_LISTED)

    @property
    def store(self) -> SnapshotStore:
        """The whole tree's store."""
        return self.publisher.whole.store

    def close(self) -> None:
        """Release the state directory, or report lost lingering resources."""
        if self.keeper is not None:
            self.keeper.state.close()
        elif count := sum(len(rollout.machine.lingering) for rollout in self.publisher.rollouts.values()):
            self.observer(LingeringDropped(count))

    def start(self, tasks: asyncio.TaskGroup, component: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a component as a task."""
        tasks.create_task(self.supervisor.run(component, work))

    async def run(self) -> None:
        """Watch, load, and report until cancelled, beside `serving` and mirrors."""
        async with asyncio.TaskGroup() as tasks:
            self.start(tasks, "log", self._log.report_changes)
            self.start(tasks, "publisher", self.publisher.keep_publishing)
            self.start(tasks, "readiness", self._keep_readiness)
            self.start(tasks, "certificates", self.security.keep_current)
            self.start(tasks, "tokens", self.credentials.keep_current)
            if self.keeper is not None:
                self.start(tasks, "state", self.keeper.keep_written)
            elif self._members is not None:
                self.start(tasks, "members", self._members.keep_written)
            tasks.create_task(self._loading.run_with(self._load))
            if self.directory is None:
                self._trees.replace(Settled(NOTHING, monotonic()))
            else:
                watch_again = partial(self.supervisor.run, "watcher", partial(self._watch, self.directory))
                tasks.create_task(self._watching.run_with(lambda _: watch_again()))
            tasks.create_task(self.upstreams.keep_connected(self.supervisor))
            tasks.create_task(self._follow_upstreams())
            tasks.create_task(self.member.run(self.supervisor))
            if self._rewriting is not None:
                self.start(tasks, "ADS rewriting", self._rewriting.keep_rewritten)

    async def until_loaded(self) -> None:
        """Await the first resource; UsageError if a secret may not be served."""
        # Like a process that listens, wait for a mistake in the tree to be corrected.
        self.supervisor.is_starting = False
        while not (views := _loaded_views(self.publisher)) or (
            all(map(has_no_resources, views))
            and not (self.member.asks_names or self.settings.upstream_names == "asked")
        ):
            await self.publisher.published.replaced()
        await self.reject_exposed_secrets({each.name: each.address_of(self.settings) for each in TRANSPORTS})
        self.supervisor.is_starting = True

    async def reject_exposed_secrets(self, addresses: Mapping[str, str]) -> None:
        """Raise UsageError if others could read the first tree's secrets."""
        clear = {name: each for name, each in addresses.items() if each != OFF and self.is_cleartext(name, each)}
        if clear and not self.settings.insecure_secrets:
            await reject_exposed_secrets(clear, self.publisher, self.channels, self.views)

    async def _load(self, rules: LoadingRules) -> None:
        limits, directory = rules.limits, self.directory
        if self.reload.views is not None:
            # Only the first load may take longer.
            limits = replace(limits, first_patience_s=limits.patience_s)
        cache = None if directory is None else cache_of(directory, self.settings, rules.parsing, self.observer)
        with Parsing(rules.parsing, limits, self._load_again, cache) as parsing:
            self.reload.change_rules()
            self._load_again()
            # Without a directory nothing is signed.
            verifier = None if directory is None else verifier_of(rules.anchors, self._seen)
            around = LoadContext(rules.resolution, self.upstreams.elsewhere, verifier)
            loader = Loader(parsing, rules.acceptance, rules.view_rules, around)
            async with asyncio.TaskGroup() as tasks:
                self.start(tasks, "parser", parsing.keep_parsing)
                self.start(tasks, "parse cache", parsing.keep_written)
                self.start(tasks, "reload", partial(self.reload.keep_current, self._trees, loader))

    def _load_again(self) -> None:
        if self._trees.current is not None:
            self._trees.replace(replace(self._trees.current, detected_s=monotonic()))

    async def _follow_upstreams(self) -> Never:
        while True:
            await self.upstreams.contents.replaced()
            self._load_again()

    async def _watch(self, directory: Path) -> None:
        scanner, options = scanner_of(directory, self.settings), self._watching.current.options
        last = None if self._trees.current is None else self._trees.current.tree
        async with aclosing(watch(scanner, options, self.observer, last=last)) as trees:
            async for settled in trees:
                self._trees.replace(settled)

    async def _keep_readiness(self) -> None:
        mirrored = [mirror.has_written for mirror in self.mirrors]
        await self.readiness.keep_current(self.publisher.published, mirrored, self.upstreams.answered_within_s)

    def report_wait(self, waits_for: str, elapsed_s: float) -> None:
        """Report what the start waits for."""
        self.observer(StartDelayed(waits_for, elapsed_s))

    async def keep_settings(self, reader: SettingsReader) -> Never:
        """Apply changeable settings after SIGHUP; mistakes keep old ones."""
        while True:
            await reader.wanted()
            self.security.look_now()
            try:
                change, loading, access = await asyncio.to_thread(self._read_settings, reader)
            except FsxdsError as error:
                self.observer(SettingsRejected("; ".join(str(error).splitlines())))
            else:
                self._apply(change, loading)
                self.credentials.change(change.settings, access)

    def _read_settings(self, reader: SettingsReader) -> tuple[SettingsChange, LoadingRules, Access]:
        change = SettingsChange.between(self.settings, reader.read(), reader.command)
        require_views(change.settings)
        access = read_access(change.settings)
        for part in self.parts.values():
            part.check(access)
        check = self._check_of(change.settings)
        loading = LoadingRules.of(change.settings, self.catalogue, check, self.directory)
        return change, loading, access

    def _apply(self, change: SettingsChange, loading: LoadingRules) -> None:
        settings, changed = change.settings, change.changed
        before = self._loading.current
        if loading.parsing.check != before.parsing.check and _CHECK_OPTIONS.isdisjoint(changed):
            changed = (*changed, "bootstrap")  # another content
        self.settings = self.limiter.settings = settings
        self._log.write_from(Level[settings.log_level.upper()])
        self.upstreams.change_rules(loading.parsing.check, loading.anchors)
        self.publisher.change_rules(self._publish_rules(settings))
        self.channels.change_rules(self._node_rules(settings))
        for mirror in self.mirrors:
            mirror.change(settings)
        if loading != before:
            self._loading.replace(loading)
        if (watching := WatchRules.of(settings)) != self._watching.current:
            self._watching.replace(watching)
        self.observer(SettingsReloaded(changed, change.needs_restart))

    def unready(self) -> str:
        """Return why clients should use another server, or ""."""
        lost = [name for name in self.supervisor.degraded.current if name in LISTENERS]
        views, is_mirrored = _loaded_views(self.publisher), not self._waits_for_mirror()
        return unready_reason(views, is_mirrored=is_mirrored, lost=lost, answers=self._first_answers())

    def _first_answers(self) -> FirstAnswers:
        is_over = monotonic() - self.started_s >= self.upstreams.answered_within_s
        return FirstAnswers.of(self.upstreams.statuses(), is_over=is_over, asks_others=self.member.asks_names)

    def waits_for(self) -> str:
        """Name what the first snapshot or mirrored files await, or ""."""
        settled, directory = self._trees.current, self.directory
        if settled is None:
            return f"{directory} to be read: it is not there, large, or written to all the time"
        count, size_bytes = len(settled.tree.files), sum(file.size_bytes for file in settled.tree.files)
        snapshots = self.publisher.published.current
        if snapshots is None and (waits_for := self.member.waits_for()):
            return waits_for
        if snapshots is None:
            return f"{count} files of {size_bytes:,} bytes in all to be parsed"
        answers = self._first_answers()
        has_no_resources_anywhere = (
            bool(snapshots) and not answers.has_unasked and all(map(has_no_resources, snapshots.values()))
        )
        if answers.silent and (has_no_resources_anywhere or not answers.is_over):
            return str(answers)
        return _first_resource(directory, count) if has_no_resources_anywhere else self._waits_for_mirror()

    def _waits_for_mirror(self) -> str:
        waiting = next((each for each in self.mirrors if not each.has_written.is_set()), None)
        return "" if waiting is None else f"the first mirrored files in {waiting.root}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[asyncio.TaskGroup]:
        """Listen within the context, then drain all listeners in parallel. Raises UsageError for unbindable addresses.

        Tasks of the yielded group end with the listeners.
        """
        raise_open_files_limit()
        shares = self.settings.reuse_port
        wanted = {row: parse_address(text) for row in TRANSPORTS if (text := row.address_of(self.settings)) != OFF}
        by_option = {row.option or row.name: address for row, address in wanted.items()}
        await reject_unbindable(by_option, is_shared=shares)
        self.listeners = listeners = {
            row.name: Listener(address, partial(row.listen, self), is_shared=shares) for row, address in wanted.items()
        }
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self.supervisor.run(f"{name} listener", listener.serve))
                    for name, listener in listeners.items()
                ]
                for name, listener in listeners.items():
                    await listener.is_up.wait()
                    self.observer(ListeningStarted(name, str(listener.address)))
                    if self.security.is_exposed(listener.address, is_admin=name == ADMIN):
                        self.observer(PlainTextExposed(name, str(listener.address)))
                self.supervisor.is_starting = False
                yield tasks
                for task in running:
                    task.cancel()
        except ExceptionGroup as group:
            if self.supervisor.is_starting and (words := error_message(group)):
                raise UsageError(words) from group
            raise

    def _receive(self, event: Event) -> None:
        self.observer(event)
        match event:
            case TreeLoaded():
                self._offer_manifests()
            case VersionsHeld():
                self.upstreams.receive_held(event.versions, event.nodes)
            case VersionsReleased():
                self.upstreams.receive_released(event.versions)
            case _ if self.upstreams.is_concerned_by(event):
                for status in self.upstreams.statuses():
                    self.supervisor.note(f"upstream {status.name}", is_idle=status.state != "connected")
                if self.readiness.reason.current:
                    self.readiness.look()

    def listen_rest(self, address: Address) -> AbstractAsyncContextManager[Address]:
        """Serve polls at an address."""
        exchange = Exchange(self.clients_channels, self.limiter, self.credentials.access)
        context = RestContext(
            exchange,
            self.catalogue,
            self.observer,
            self.clients,
            address,
            self.upstreams.relays,
            posts={path: answer for one in self.services for path, answer in one.posts.items()},
            documents={path: answer for one in self.services for path, answer in one.documents.items()},
        )
        application = make_application(RestJson(context))
        for name in REST_PARTS:
            import_module(name).join(context, application)
        options = replace(
            self.security.http("http", address), max_connections=lambda: self.limiter.settings.max_connections
        )
        return listening(application, address, grace_s=GRACE_S, options=options)

    def listen_grpc(self, address: Address) -> AbstractAsyncContextManager[Address]:
        """Serve streams at an address."""
        exchange = Exchange.of_streams(self.clients_channels, self.limiter, self.credentials.access)
        shared = StreamContext(exchange, self.observer, self.clients, self.upstreams.relays)
        shared.forgets_members = self.keeper is None and self._members is None
        more = tuple(call for one in self.services for call in one.calls)
        services = GrpcServices(shared, more, unready=self.readiness.reason)
        security = self.security.grpc(address, self.settings)
        return listening_grpc(services, address, self.supervisor, grace_s=GRACE_S, security=security)

    @property
    def addresses(self) -> Mapping[str, str]:
        """The addresses by transport, absent if off."""
        return {name: str(listener.address) for name, listener in self.listeners.items()}

    @property
    def file_count(self) -> int:
        """Number of files in the directory."""
        return 0 if self._trees.current is None else len(self._trees.current.tree.files)

    def is_static(self, key: Key) -> bool:
        """Whether the bootstrap defines a resource."""
        return self._loading.current.parsing.check.is_static(key)

    def is_cleartext(self, name: str, address: str) -> bool:
        """Whether others can read a transport's traffic."""
        return name != ADMIN and self.security.is_exposed(parse_address(address))


@dataclass(frozen=True, slots=True)
class Transport:
    """A way to serve clients, or operators.

    Attributes:
        address_of: returns the address, or `off`.
        listen: serves within a context, and yields the bound address.
        option: the address's flag.
        module: of a capability with `part(application)`, imported unless `off`.
    """

    name: str
    address_of: Callable[[Settings], str]
    listen: Callable[[Application, Address], AbstractAsyncContextManager[Address]]
    option: str = ""
    module: str = ""

    def part_of(self, application: Application) -> ListeningPart | None:
        """Make the listening part; None if off, or the application's own."""
        if not self.module or self.address_of(application.settings) == OFF:
            return None
        part: ListeningPart = import_module(self.module).part(application)
        return part


TRANSPORTS: tuple[Transport, ...] = (
    Transport("REST", lambda settings: settings.http, Application.listen_rest, "http"),
    Transport("gRPC", lambda settings: settings.grpc, Application.listen_grpc, "grpc"),
    Transport(
        ADMIN,
        lambda settings: settings.admin,
        lambda application, address: application.parts[ADMIN].listen(address),
        "admin",
        "fsxds.server.admin_serving",
    ),
)


# Beside polls: modules with a `join` (`RestContext`), imported when REST listens.
REST_PARTS: tuple[str, ...] = ("fsxds.transports.http_get.get_handler",)

# For other client requests: modules with a function `services`.
SERVICES: tuple[str, ...] = ("fsxds.transports.client_status.status_service", "fsxds.transports.manifests")

# That all clients need.
LISTENERS = frozenset(f"{transport.name} listener" for transport in TRANSPORTS if transport.name != ADMIN)


def _first_resource(directory: Path | None, count: int) -> str:
    if directory is None:
        return "the first resource of an upstream"
    if not count:
        return f"the first file with configuration in {directory}"
    return f"the first file without a mistake: none of {count} in {directory} can be served"


def _loaded_views(publisher: Publisher) -> Collection[Snapshot] | None:
    """None before the first load.

    Snapshots of an earlier process are served until the tree has a good file.
    """
    served = {
        key.layers: snapshot
        for key, rollout in publisher.rollouts.items()
        if key.is_main and (snapshot := rollout.channel.store.current) is not None
    }
    targets = publisher.published.current
    return None if targets is None and not served else {**(targets or {}), **served}.values()
