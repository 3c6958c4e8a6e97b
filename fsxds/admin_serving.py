"""The admin address of a server: what operators see and decide, the status page, health checks and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from fsxds.access import Access
from fsxds.app import ADMIN, GRACE_S, Application
from fsxds.errors import UsageError
from fsxds.events import Event, HoldsChanged, Observer, TreeLoaded
from fsxds.observe.metrics import Metrics
from fsxds.publishing.rollout_operator import RolloutOperator
from fsxds.readings import Readers
from fsxds.settings.forms import Address
from fsxds.status.channel_facts import ChannelFacts
from fsxds.status.loaded_files import LoadedFiles
from fsxds.status.server_status import ProcessFacts, ServerStatus
from fsxds.transports.admin.admin_api import AdminApi, AdminPaths, is_exposed
from fsxds.transports.admin.change_feed import ChangeFeed
from fsxds.transports.admin.page_paths import PageApi, page_paths
from fsxds.transports.admin.rollout_paths import RolloutPaths
from fsxds.transports.admin.status_paths import StatusPaths, health_paths, metrics_paths, outline_paths
from fsxds.transports.admin.status_reports import ListenerReport
from fsxds.transports.rest.http_server import listening


class AdminAddress:
    """Serves operators: a `ListeningPart` of an application, of which nothing is asked before it listens."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._metrics = Metrics(lambda: self._readers().read())
        self._changes = ChangeFeed(lambda: application.publisher.generation)
        self._files = LoadedFiles(self._is_word)
        self._is_exposed = False
        self.observers: Mapping[str, Observer] = {
            "metrics": self._metrics.receive,
            "files": self._receive,
            "pages": self._changes.receive,
        }

    def check(self, access: Access) -> None:
        """Raise UsageError if everybody on other machines could decide."""
        if self._is_exposed and not access.guards_admin:
            fact = "admin: other machines can reach it, and all who do may decide; give --admin-token FILE, a rule of `access`"
            raise UsageError(f"{fact} with `admin: true`, a loopback address or unix:PATH")

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncIterator[Address]:
        """Let operators ask and decide at an address."""
        of = self._application
        access = of.credentials.access
        api = AdminApi(self._paths(), address, of.observer, access)
        options = of.security.http("admin", address, is_admin=True)
        application = api.application()
        # Answers that last would delay the end.
        application.on_shutdown.append(self._changes.close)
        async with listening(application, address, grace_s=GRACE_S, options=options) as bound:
            self._is_exposed = is_exposed(bound)
            self.check(access.current)
            yield bound

    def _is_word(self, word: str) -> bool:
        """Whether a word is a name of the API, which may be shown."""
        return self._application.catalogue.knows_word(word)

    def _receive(self, event: Event) -> None:
        """Note what happens to files, for the status."""
        match event:
            case TreeLoaded() if (views := self._application.reload.views) is not None:
                self._files.receive(views, monotonic())
            case HoldsChanged(problems):
                self._files.receive_holds(problems, monotonic())

    def _paths(self) -> AdminPaths:
        """Return what the admin address answers."""
        of = self._application
        history = of.keeper.state if of.keeper else None
        operator = RolloutOperator(of.publisher, lambda: of.channels.views, history)
        process = ProcessFacts(
            directory="" if of.directory is None else str(of.directory),
            started_s=of.started_s,
            listeners=self._listener_reports,
            waits_for=lambda: of.unready() and (of.waits_for() or of.unready()),
            degraded=lambda: of.supervisor.degraded.current,
        )
        channels = ChannelFacts(of.publisher, of.channels)
        status = ServerStatus(process, operator, channels, self._files)
        status.upstreams = of.upstreams.statuses
        return {
            **RolloutPaths(operator).paths,
            **StatusPaths(status).paths,
            **page_paths(PageApi(operator, of.catalogue, of.is_static), self._changes),
            **outline_paths(operator),
            **metrics_paths(self._metrics.registry),
            **health_paths(of.unready),
        }

    def _readers(self) -> Readers:
        """Return what is asked for what is there now."""
        of = self._application
        return Readers(
            of.reload,
            lambda: of.file_count,
            of.publisher,
            of.channels,
            of.supervisor,
            lambda: of.limiter.held,
            of.unready,
            of.upstreams.statuses,
        )

    def _listener_reports(self) -> list[ListenerReport]:
        of = self._application
        return [
            ListenerReport(name, str(listener.address), of.security.has_tls(listener.address, is_admin=name == ADMIN))
            for name, listener in of.listeners.items()
        ]


part = AdminAddress
