"""A server of a fleet.

| rule | reason |
| --- | --- |
| Every server, also the publisher, serves only published snapshots. | If a server with an unpublished one is lost, clients would go back. |
| A server leads its clients from their versions to the published ones by separate steps. | It may have missed publications. |
| The publisher alone decides on holds. | |
| Only a server with a loaded source is elected. | |
| A publisher whose tree changed before the last publication waits for its next tree. | Its copy may be late. |

Rules: who publishes for a fleet, and from which state a server leads its clients.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Never

from fsxds.client.client_tls import ClientTls
from fsxds.events.event import Observer
from fsxds.events.fleet_events import PublisherElected, PublisherLost, PublisherWaits
from fsxds.events.process_events import InternalError
from fsxds.fleet.content import FleetContent, Keys
from fsxds.fleet.etcd import EtcdKeyValues, Members
from fsxds.fleet.fleet_commands import CommandedPublisher, FleetCommands, Request
from fsxds.fleet.fleet_names import FleetNames, UpstreamNames
from fsxds.fleet.fleet_planner import FleetPlanner, PublisherStart
from fsxds.fleet.following import Barrier, FleetChannels, Following
from fsxds.fleet.key_values import (
    Delete,
    EngineError,
    Guard,
    Lease,
    Put,
)
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Order, ViewKey
from fsxds.fleet.publication import NoPublisherError, Publication
from fsxds.fleet.reports import ClientsReporter, MemberReport, MemberReporter
from fsxds.fleet.sealing import Cleartext, Sealing
from fsxds.model.errors import ProtocolError, UsageError
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.membership import SingleServer, Targets
from fsxds.publishing.node_channels import NodeChannels
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.rollout.holding import HoldingRules
from fsxds.runtime.channels import ChannelKey, Channels, Latest
from fsxds.runtime.supervisor import Supervisor
from fsxds.runtime.views import ViewLoading
from fsxds.settings.options import Settings
from fsxds.snapshots.encoding import DamagedBytesError
from fsxds.snapshots.load import same_content

if TYPE_CHECKING:
    from fsxds.fleet.fleet_control import FleetControl
    from fsxds.transports.admin.page_paths import AdminControl, OperatorControl

# Between two attempts to be elected.
PAUSE_S = 0.3

# A server that could not read the published snapshots is not elected again for this time.
RESIGNED_FOR_S = 5.0

# The longest wait of a new publisher for its tree to change.
LATE_TREE_PATIENCE_S = 30.0

# The longest wait of a server that ends for its lease to be revoked.
REVOKE_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class MemberContext:
    """A server's environment; `tree` is None for another source, or none.

    Attributes:
        asks_names: upstreams are asked only for clients' names.
        lag_patience_s: the longest wait of a client from another server until this one has caught up.
    """

    content: FleetContent
    observer: Observer
    has_source: bool
    asks_names: bool = False
    lag_patience_s: float = 5.0
    tree: Path | None = None


def member_of(settings: Settings, observer: Observer, tree: Path | None, *, has_source: bool) -> Member:
    """Return the member for these settings.

    Raises:
        UsageError: a file of the settings is unusable.
    """
    rule = settings.fleet
    if rule is None:
        raise UsageError("there is no fleet; give --fleet ETCD")
    if (settings.fleet_cert is None) != (settings.fleet_key is None):
        raise UsageError("--fleet-cert and --fleet-key belong together; give both, or neither")
    tls = ClientTls.of(settings.fleet_ca, settings.fleet_cert, settings.fleet_key)
    user = None if settings.fleet_user is None else _read_user(settings.fleet_user)
    key = settings.fleet_encryption_key
    is_private = rule.is_private or settings.insecure_secrets
    sealing = Cleartext(may_have_secrets=is_private) if key is None else Sealing.of(key)
    engine = EtcdKeyValues(Members(rule.targets, None if tls is None else tls.grpc_credentials(), user))
    content = FleetContent(engine, Keys(f"/{rule.prefix}/".encode()), sealing)
    asks_names = settings.upstream_names == "asked"
    return Member(MemberContext(content, observer, has_source, asks_names, settings.lag_patience_s, tree))


def _read_user(path: Path) -> tuple[str, str]:
    try:
        name, colon, password = path.read_text().strip().partition(":")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"fleet_user: {path} cannot be read: {type(error).__name__}") from error
    if not (name and colon and password):
        raise UsageError(f"fleet_user: {path} has no user; write NAME:PASSWORD")
    return name, password


class Member(SingleServer):
    """This server in its fleet. Run `run`.

    Attributes:
        planner: None while another server publishes.
    """

    def __init__(self, context: MemberContext, name: str = "") -> None:
        """Without a name, make one."""
        super().__init__()
        self.name = name or f"{socket.gethostname()}-{token_hex(3)}"
        self.planner: FleetPlanner | None = None
        self._context = context
        self._content = context.content
        self._engine, self._keys = self._content.engine, self._content.keys
        self.following = Following(self._content, context.observer, self._serve)
        self._barrier = Barrier(self._content, self.following, self._is_served)
        self._lease = Lease(self._engine)
        self._names = FleetNames(self._content, self._lease, self.following.applied, is_asking=context.asks_names)
        self._upstream_names: UpstreamNames | None = None
        self._control: FleetControl | None = None
        key = self._keys.servers + self.name.encode()
        self._reporter = MemberReporter(self._content, key, self._lease, self._report)
        self._rules: PublishRules | None = None
        self._clients: ClientsReporter | None = None
        self._loading: ViewLoading | None = None
        # The last loaded tree, and when it changed.
        self._loaded: Latest[tuple[Mapping[Layers, Snapshot], float] | None] = Latest(None)
        self._taken: dict[ViewKey, Order] = {}
        # Something published was served, and when another server published something else last.
        self._is_serving, self._other_served_s = False, 0.0

    @property
    def asks_names(self) -> bool:
        """Whether upstreams are asked for clients' names."""
        return self._names.is_asking

    def rules(self, rules: PublishRules) -> PublishRules:
        """Return rules that hold nothing back."""
        self._rules = rules
        if self.planner is not None:
            self.planner.change_rules(rules)
        return replace(
            rules,
            holding=HoldingRules(keeps_references=False, max_removal=None),
            nack_limit=None,
            canary=None,
        )

    def targets(self, publisher: Publisher) -> Targets:
        """Take the publisher of this server's clients; return a receiver of trees."""
        self._publisher = publisher
        publisher.on_progress = self._note_progress
        self._clients = ClientsReporter(publisher)
        return self

    def views(self, loading: ViewLoading) -> ViewLoading:
        """Take the loader of the tree's views; return that of clients' views."""
        self._loading = loading
        return self.following

    def channels(self, channels: NodeChannels) -> Channels:
        """Return channels that let clients from servers ahead wait."""
        if self._context.has_source and self._context.asks_names:
            self._upstream_names = UpstreamNames(self._content, channels.on_demand)
        return FleetChannels(channels, self._barrier, self._context.lag_patience_s, self._names)

    def _note_progress(self) -> None:
        self._reporter.note()
        self._barrier.note()

    def _is_served(self, view: ViewKey) -> bool:
        rollout = None if self._publisher is None else self._publisher.rollouts.get(ChannelKey(*view))
        if rollout is None or view not in self.following.orders:
            return True
        served, wanted, published = rollout.machine.served, rollout.wanted, self.following.snapshots[view]
        is_wanted = wanted is not None and same_content(wanted, published)
        # Its clients may not have taken it: one of them may be the waiting one.
        is_last = served is not None and rollout.machine.target is wanted and same_content(served, published)
        return (is_wanted and is_last) or self._taken_of(view, rollout) >= self.following.orders[view]

    def control(self, make: Callable[[Publisher], OperatorControl]) -> AdminControl:
        """Return the fleet's control."""
        from fsxds.fleet.fleet_control import FleetControl  # noqa: PLC0415 - for a capability

        def publishing() -> tuple[OperatorControl, FleetPlanner] | None:
            return None if self.planner is None else (make(self.planner.publisher), self.planner)

        def holding() -> HoldingRules:
            return HoldingRules() if self._rules is None else self._rules.holding

        own, commands = super().control(make), FleetCommands(self._content, self._lease, self.name)
        self._control = FleetControl(own, publishing, holding, commands)
        return self._control

    async def _answer(self, request: Request) -> object:
        if self._control is None:
            fact = f"{self.name} publishes, and has no admin address to decide at; give it --admin"
            raise ProtocolError(fact, "FAILED_PRECONDITION")
        try:
            return await self._control.answer(request)
        except ProtocolError:
            raise
        # The edge of one request: the publisher goes on.
        except Exception as error:
            self._context.observer(InternalError("fleet commands", error))
            raise ProtocolError(f"fsxds itself failed; the log of {self.name} says how", "INTERNAL") from error

    def waits_for(self) -> str:
        """Return the lack of a first snapshot."""
        return "" if self.following.snapshots else "what the fleet publishes"

    async def run(self, supervisor: Supervisor) -> None:
        """Run until cancelled."""
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "fleet": self.following.keep_current,
            "fleet lease": self._lease.keep_alive,
            "fleet reports": self._reporter.keep_reported,
            "fleet barrier": self._barrier.keep_reading,
            "fleet names": partial(self._names.keep_reported, self.name),
            "fleet absent names": self._names.keep_answered,
        }
        if self._upstream_names is not None:
            works["fleet upstream names"] = self._upstream_names.keep_asked
        if self._context.has_source:
            works["fleet publisher"] = self._keep_elected
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, work in works.items():
                    tasks.create_task(supervisor.run(name, work))
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(REVOKE_WITHIN_S):
                    await self._lease.revoke()

    def _serve(self, snapshots: Mapping[ViewKey, Snapshot]) -> None:
        if self._publisher is not None:
            others = {key.layers: one for key, one in snapshots.items() if not key.is_canary}
            canaries = {key.layers: one for key, one in snapshots.items() if key.is_canary}
            now_s = asyncio.get_running_loop().time()
            if self._is_serving and self.planner is None:
                self._other_served_s = now_s
            self._is_serving = True
            self._publisher.receive(others, now_s, canaries)

    def _report(self) -> MemberReport:
        if self._publisher is None:
            return MemberReport()
        rollouts = self._publisher.rollouts
        main = {ViewKey(key.layers, key.is_canary): one for key, one in rollouts.items() if key.is_main}
        self._taken = {view: self._taken_of(view, rollout) for view, rollout in main.items()}
        clients = {} if self._clients is None else self._clients.by_view(self.following.snapshots)
        return MemberReport(self.following.applied.current, self._taken, clients)

    def _taken_of(self, view: ViewKey, rollout: ChannelRollout) -> Order:
        published, wanted = self.following.snapshots.get(view), rollout.wanted
        if published is not None and wanted is not None and rollout.has_completed and same_content(wanted, published):
            return self.following.orders[view]
        return self._taken.get(view, NOTHING_PUBLISHED)

    def receive(self, targets: Mapping[Layers, Snapshot], detected_s: float) -> None:
        """Keep this server's tree, for when it publishes."""
        if self._loaded.current is not None:
            before, since_s = self._loaded.current
            if all(same_content(before[layers], one) for layers, one in targets.items() if layers in before):
                # The tree was loaded again, for another view or by other rules.
                detected_s = since_s
        self._loaded.replace((targets, detected_s))
        if self.planner is not None and not self._is_late():
            self.planner.receive(targets, detected_s)

    def _is_late(self) -> bool:
        """Whether another server published since the tree changed."""
        return self._loaded.current is not None and self._loaded.current[1] < self._other_served_s

    async def _keep_elected(self) -> Never:
        await self._loaded.other_than(None)
        while True:
            lease = self._lease.current.current
            try:
                fence = await self._elected(lease)
                if fence is not None:
                    await self._publish(fence, lease)
            except* NoPublisherError as group:
                self._context.observer(PublisherLost(str(group.exceptions[0])))
            except* DamagedBytesError as group:
                self._context.observer(PublisherLost(str(group.exceptions[0])))
                await self._resign(lease)
            except* EngineError:
                # `Following` reports it.
                pass
            finally:
                self.planner = None
            await asyncio.sleep(PAUSE_S)

    async def _resign(self, lease: int) -> None:
        """Another server may have the key that is missing here."""
        with suppress(EngineError):
            found = (await self._engine.read([self._keys.publisher])).values.get(self._keys.publisher)
            if found is not None and found.value == self.name.encode():
                fence = Guard(self._keys.publisher, created=found.created)
                await self._engine.write([Delete(self._keys.publisher)], [fence])
        await asyncio.sleep(RESIGNED_FOR_S)

    async def _elected(self, lease: int) -> Guard | None:
        """Wait to be the publisher; return the fence, or None for another attempt."""
        key = self._keys.publisher
        if not lease:
            return None
        created = await self._engine.write([Put(key, self.name.encode(), lease)], [Guard(key, created=0)])
        if created is not None:
            return Guard(key, created=created)
        found = await self._engine.read([key])
        if (other := found.values.get(key)) is None:
            return None
        if other.value == self.name.encode():
            # An earlier write had succeeded without an answer.
            return Guard(key, created=other.created)
        async with aclosing(self._engine.watch(key, found.revision + 1)) as watching:
            async for changed in watching:
                if changed.values.get(key) is None:
                    return None
        return None

    async def _publish(self, fence: Guard, lease: int) -> None:
        publication = Publication(self._content, fence, self.name)
        await publication.begin(await self._content.published(), self.following.snapshots)
        self._context.observer(PublisherElected(publication.order.epoch))
        if self._rules is None or self._loading is None or self._loaded.current is None:
            return
        kept = await PublisherStart.by(publication, self._context.tree, self._upstream_names)
        self.planner = FleetPlanner(self._rules, self._context.observer, kept, self._loading)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._until_lost(lease))
            commanded = CommandedPublisher(self._content, fence, lease, self._answer)
            tasks.create_task(commanded.keep_answered())
            tasks.create_task(self.planner.run())
            tasks.create_task(self._publish_loaded(self.planner))

    async def _publish_loaded(self, planner: FleetPlanner) -> None:
        """Publish this server's tree; if late, the next one, after `LATE_TREE_PATIENCE_S` at most."""
        if self._is_late():
            self._context.observer(PublisherWaits(LATE_TREE_PATIENCE_S))
            with suppress(TimeoutError):
                async with asyncio.timeout(LATE_TREE_PATIENCE_S):
                    while self._is_late():
                        await self._loaded.replaced()
            self._other_served_s = 0.0
        if self._loaded.current is not None:
            planner.receive(*self._loaded.current)

    async def _until_lost(self, lease: int) -> None:
        await self._lease.current.other_than(lease)
        raise NoPublisherError(self._lease.reason or "its lease was lost")
