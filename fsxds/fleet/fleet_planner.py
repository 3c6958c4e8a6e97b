"""The publisher of a fleet: its clients are servers, and some of their nodes.

| rule | reason |
| --- | --- |
| A server has taken a step when all its awaited clients have. It has a vote for each node that rejects nothing. | Each leads its clients by separate steps. |
| A server that does not report in time is not waited for. | |
| A node that rejects versions is a separate client, and not waited for. | As at a single server. |
| Each canary is a separate client. | Others follow when canaries have lived with a change. |
| A view that no server has served for ten minutes is dropped, unless rolled back. | It costs a load of the tree, and space in etcd. |

Rules: which servers the next publication of a fleet waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Never, TypeAlias, TypeVar

from fsxds.events.event import Event, Observer
from fsxds.events.file_events import SnapshotPublished
from fsxds.events.fleet_events import PublicationFailed, SecretsNotPublished
from fsxds.fleet.fleet_names import AbsentNames, UpstreamNames
from fsxds.fleet.key_values import EngineError
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Order, ViewKey
from fsxds.fleet.publication import Publication
from fsxds.fleet.records import FleetHistory, FleetPlaces, Records, read_places
from fsxds.fleet.reports import MemberReport, NodeName, Servers, ViewClients
from fsxds.model.errors import ProtocolError
from fsxds.model.resources import Snapshot
from fsxds.model.values import WHOLE_TREE, Layers, TypeUrl
from fsxds.protocol.messages import ClientStatus, Node, SyncState
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.node_channels import DROPPED_AFTER_S
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.rollout import Step
from fsxds.rollout.machine import RolloutState
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import Nack
from fsxds.rollout.step import Standing
from fsxds.runtime.access import SECRET
from fsxds.runtime.channels import Channel, ChannelKey, Latest, node_key
from fsxds.runtime.views import ViewLoading

# A server waits for its own clients, so the publisher waits longer for the server.
PATIENCE_SHARE = 3.0

# Between two attempts to publish.
PAUSE_S = 0.5
COLLECT_EVERY_S = 10.0

# The longest wait of an operator until a decision would survive this publisher.
KEPT_WITHIN_S = 5.0


def rules_of_fleet(rules: PublishRules) -> PublishRules:
    """The publisher waits longer than servers."""
    return replace(rules, rollout=replace(rules.rollout, step_timeout_s=rules.rollout.step_timeout_s * PATIENCE_SHARE))


@dataclass(frozen=True, slots=True)
class PublisherStart:
    """The state to continue from."""

    records: Records
    places: Mapping[ViewKey, RolloutState]
    history: FleetHistory
    names: UpstreamNames | None

    @classmethod
    async def by(cls, publication: Publication, tree: Path | None, names: UpstreamNames | None) -> PublisherStart:
        """Read earlier records; the git commit of `tree` is noted."""
        records = Records(publication)
        await records.begin()
        return cls(records, await read_places(records), FleetHistory(records, tree), names)


class FleetPlanner:
    """Publishes for a fleet. Run `run`."""

    def __init__(
        self,
        rules: PublishRules,
        observer: Observer,
        kept: PublisherStart,
        loading: ViewLoading,
    ) -> None:
        # Count of noted changes, and how many of them are published and kept.
        self._changed, self._kept = Latest(0), Latest(0)
        publication = kept.records.publication
        self._places = FleetPlaces(kept.records, kept.places, self._note)
        self._history, self._absent = kept.history, AbsentNames(publication, kept.names, self._note)
        self._observer = observer
        self.publisher = Publisher(rules_of_fleet(rules), self.report, self._places)
        self._exposed: set[ViewKey] = set()
        # Unneeded objects are to be removed before the next publication: a removal must not cross one.
        self._is_collecting = False
        self._publication = publication
        self._servers = Servers(publication.content, self._receive_reports)
        # The snapshots of the tree, and when they changed; taken in when the servers are known.
        self._targets: tuple[Mapping[Layers, Snapshot], float] = {}, 0.0
        self._is_known = False
        self._loading = loading
        self._clients = FleetClients(self.publisher, self._order_of, self._rollout_of)
        # By view: generation and order of the last publication.
        self._published: dict[ViewKey, tuple[int, Order]] = {}
        # When the last server left a view, on the clock of the event loop.
        self._unused_since_s: dict[Layers, float] = {}
        now_s = asyncio.get_running_loop().time()
        for rollout in tuple(self.publisher.rollouts.values()):
            # The servers are known, so no client has to return first.
            rollout.machine.end_rest(now_s)
            self._follow(rollout)

    def change_rules(self, rules: PublishRules) -> None:
        """Apply other rules from now on."""
        self.publisher.change_rules(rules_of_fleet(rules))

    def receive(self, targets: Mapping[Layers, Snapshot], detected_s: float) -> None:
        """Take the tree's snapshots."""
        self._targets = targets, detected_s
        if self._is_known:
            for layers in targets:
                self._rollout_of(ViewKey(layers))
            self.publisher.receive(targets, detected_s)
            self._note()

    def _receive_reports(self) -> None:
        reports = self._servers.reports
        for layers in self._served_layers():
            self._loading.want(layers)
        self._clients.receive(reports)
        if not self._is_known:
            self._is_known = True
            self.receive(*self._targets)
        self._note()

    def _served_layers(self) -> set[Layers]:
        return {view.layers for report in self._servers.reports.values() for view in report.taken}

    def _order_of(self, key: ViewKey, generation: int) -> Order | None:
        published, order = self._published.get(key, (0, NOTHING_PUBLISHED))
        return order if published >= generation else None

    def _rollout_of(self, key: ViewKey) -> ChannelRollout:
        rollout = self.publisher.rollout_of(ChannelKey(*key))
        self._follow(rollout)
        return rollout

    def report(self, event: Event) -> None:
        """Omit publications: servers report their own."""
        if not isinstance(event, SnapshotPublished):
            self._observer(event)

    def _note(self) -> None:
        self._changed.replace(self._changed.current + 1)

    def _follow(self, rollout: ChannelRollout) -> None:
        rollout.channel.store.listeners[self] = self._note

    async def until_kept(self) -> None:
        """Wait until decisions are kept, at most `KEPT_WITHIN_S`."""
        for rollout in self.publisher.rollouts.values():
            self.publisher.keep(rollout)
        wanted = self._changed.current
        try:
            async with asyncio.timeout(KEPT_WITHIN_S):
                while self._kept.current < wanted:
                    await self._kept.replaced()
        except TimeoutError:
            fact = (
                f"it is done, but etcd did not keep it within {KEPT_WITHIN_S:g} s: the next publisher would not know it"
            )
            raise ProtocolError(f"{fact}; decide again when etcd answers", "UNAVAILABLE") from None

    async def run(self) -> None:
        """Publish until cancelled. Raises NoPublisherError."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._servers.keep_current())
            tasks.create_task(self.publisher.keep_publishing())
            tasks.create_task(self._keep_published())
            tasks.create_task(self._keep_collected())

    async def _keep_published(self) -> Never:
        failed = ""
        while True:
            seen = self._changed.current
            if self._is_collecting:
                # Also while publishing fails: etcd may be full.
                with suppress(EngineError):
                    await self._collect()
            try:
                await self._publish()
                self._kept.replace(seen)
            except EngineError as error:
                if str(error) != failed:
                    failed = str(error)
                    self._observer(PublicationFailed(failed))
                await asyncio.sleep(PAUSE_S)
                continue
            failed = ""
            await self._changed.other_than(seen)

    async def _publish(self) -> None:
        reported = max((one.order for one in self._servers.reports.values()), default=NOTHING_PUBLISHED)
        if self._publication.advance_past(reported):
            self._published.clear()
        self._absent.take()
        await self._publication.publish_head(self._loading.existing)
        dropped = [key for key in self._publication.served if ChannelKey(*key) not in self.publisher.rollouts]
        await self._publication.remove(dropped)
        for channel_key, rollout in tuple(self.publisher.rollouts.items()):
            key, current = ViewKey(channel_key.layers, channel_key.is_canary), rollout.channel.store.current
            if current is not None and self._published.get(key, (0, NOTHING_PUBLISHED))[0] != current.generation:
                if self._is_exposed(key, current):
                    continue
                self._published[key] = current.generation, await self._publication.publish(key, current)
                # A server may have reported it before its publication was known here.
                self._clients.ask(key)
        await self._absent.write()
        await self._places.write()
        for channel_key, rollout in tuple(self.publisher.rollouts.items()):
            if channel_key == ChannelKey(channel_key.layers) and (good := rollout.machine.good) is not None:
                key = ViewKey(channel_key.layers)
                if self._publication.content.may_keep(good):
                    await self._history.add(key.layers, good)

    def _is_exposed(self, key: ViewKey, snapshot: Snapshot) -> bool:
        """Whether etcd would keep secrets in clear; reported once."""
        if self._publication.content.may_keep(snapshot):
            self._exposed.discard(key)
            return False
        if key not in self._exposed:
            self._exposed.add(key)
            self._observer(SecretsNotPublished(str(next(iter(snapshot.resources(SECRET).values())).origin)))
        return True

    async def _keep_collected(self) -> Never:
        while True:
            await asyncio.sleep(COLLECT_EVERY_S)
            self._drop_unused()
            self._is_collecting = True
            self._note()

    async def _collect(self) -> None:
        self._is_collecting = False
        reports = self._servers.reports.values()
        # A server that has nothing yet, or whose report is not understood, reads everything published anew.
        orders = (one.order for one in reports if one.order != NOTHING_PUBLISHED)
        if await self._publication.collect(min(orders, default=self._publication.order)):
            self._is_collecting = True
            self._note()

    def _drop_unused(self) -> None:
        now_s, rollouts = asyncio.get_running_loop().time(), self.publisher.rollouts
        rolled_back = {key.layers for key, one in rollouts.items() if one.target.is_rolled_back}
        unused = {key.layers for key in rollouts} - self._served_layers() - rolled_back - {WHOLE_TREE}
        self._unused_since_s = {layers: self._unused_since_s.get(layers, now_s) for layers in unused}
        dropped = {layers for layers, since_s in self._unused_since_s.items() if now_s - since_s >= DROPPED_AFTER_S}
        for key, rollout in tuple(rollouts.items()):
            if key.layers in dropped:
                self.publisher.drop(rollout)
                self._published.pop(ViewKey(key.layers, key.is_canary), None)
        for layers in dropped:
            self._loading.drop(layers)
        if dropped:
            self._note()


# Limit of the nodes of a server with equal rejections that become clients; more make no difference to any share.
MOST_OF_GROUP = 1000

OrderOf: TypeAlias = Callable[[ViewKey, int], "Order | None"]
"""Returns the order of a view's publication with this generation; None while it is not published."""


class RemoteClient:
    """A client at another server, or that server; `taken` by all its clients."""

    transport = "fleet"
    has_returned = True
    is_away = False

    def __init__(self, name: NodeName, view: ViewKey, order_of: OrderOf) -> None:
        self.node = Node(*name)
        self.node_count = 1
        self.taken = NOTHING_PUBLISHED
        self.view = view
        self._order_of = order_of

    @property
    def name(self) -> str:
        """The id of the node or server."""
        return self.node.id

    @property
    def identity(self) -> str:
        """The name."""
        return self.node.id

    def has_taken(self, generation: int) -> bool:
        """Whether a generation was taken."""
        order = self._order_of(self.view, generation)
        return order is not None and self.taken >= order

    def standing(self, step: Step) -> Standing:
        """Return TAKEN or PENDING."""
        return Standing.TAKEN if self.has_taken(step.snapshot.generation) else Standing.PENDING

    def selected(self, type_url: TypeUrl, names: frozenset[str]) -> frozenset[str]:
        """Return all names: any may be subscribed."""
        return names

    def reachable(self, _type_url: TypeUrl, _names: frozenset[str]) -> frozenset[str]:
        """Return no names: this is not reported."""
        return frozenset()

    def sync_state(self) -> SyncState:
        """Return SYNCED; see subclasses."""
        return SyncState.SYNCED

    def status(self) -> ClientStatus:
        """Return the node and the transport."""
        return ClientStatus(self.node, self.transport)

    def wake(self) -> None:
        """Do nothing: servers follow."""

    def follow(self, channel: Channel) -> None:
        """Do nothing: servers follow."""


class RejectingClient(RemoteClient):
    """A node that rejects versions."""

    def __init__(self, name: NodeName, view: ViewKey, order_of: OrderOf) -> None:
        super().__init__(name, view, order_of)
        self.reasons: Mapping[ResourceVersion, str] = {}

    def standing(self, step: Step) -> Standing:
        """Return TAKEN: its server leads it apart."""
        return Standing.TAKEN

    def sync_state(self) -> SyncState:
        """Return NACK."""
        return SyncState.NACK


class CanaryClient(RemoteClient):
    """A canary; `is_synced` if it has taken all it is served."""

    is_synced = False

    def sync_state(self) -> SyncState:
        """Return SYNCED or STALE."""
        return SyncState.SYNCED if self.is_synced else SyncState.STALE


Client = TypeVar("Client", bound=RemoteClient)


class FleetClients:
    """Keeps the clients that servers report."""

    def __init__(
        self, publisher: Publisher, order_of: OrderOf, rollout_of: Callable[[ViewKey], ChannelRollout]
    ) -> None:
        self._publisher = publisher
        self._order_of = order_of
        self._rollout_of = rollout_of
        # By server and view: the server itself, or one of its nodes there.
        self._clients: dict[tuple[type[RemoteClient], str, ViewKey, NodeName], RemoteClient] = {}

    def receive(self, reports: Mapping[str, MemberReport]) -> None:
        """Update the clients from reports."""
        seen = set[RemoteClient]()
        for server, report in reports.items():
            for view, taken in report.taken.items():
                for client in self._clients_of(server, view, report.clients.get(view, ViewClients())):
                    seen.add(client)
                    client.taken = taken
        for key, client in tuple(self._clients.items()):
            if client not in seen:
                del self._clients[key]
                rollout = self._publisher.rollouts.get(ChannelKey(*client.view))
                if rollout is not None:
                    rollout.channel.leave(client)
        self.ask()

    def ask(self, view: ViewKey | None = None) -> None:
        """Query a view's clients, or all, again."""
        for client in tuple(self._clients.values()):
            rollout = self._publisher.rollouts.get(ChannelKey(*client.view))
            if rollout is not None and view in {None, client.view}:
                rollout.channel.progressed(client)

    def _clients_of(self, server: str, view: ViewKey, clients: ViewClients) -> Iterator[RemoteClient]:
        rejecting = set[NodeName]()
        for group in clients.rejecting:
            # Unnamed nodes get names of the server's.
            unnamed = range(len(group.named), min(group.count, MOST_OF_GROUP))
            for name in (*group.named, *((f"{server}, node {number}", "") for number in unnamed)):
                rejecting.add(name)
                self._receive_reasons(node := self._client(RejectingClient, server, view, name), group.reasons)
                yield node
        if not view.is_canary:
            member = self._client(RemoteClient, server, view, (server, ""))
            member.node_count = max(clients.count - sum(group.count for group in clients.rejecting), 0)
            yield member
        for name, has_taken in clients.canaries.items():
            if name not in rejecting:
                canary = self._client(CanaryClient, server, view, name)
                canary.is_synced = has_taken
                yield canary

    def _receive_reasons(self, client: RejectingClient, reasons: Mapping[ResourceVersion, str]) -> None:
        if client.reasons == reasons:
            return
        before, client.reasons = client.reasons, reasons
        verdicts = self._publisher.verdicts
        taken = before.keys() - reasons.keys()
        if taken and verdicts.rejections.receive_taken(node_key(client), taken.__contains__):
            verdicts.decide_soon({node_key(client)})
        channel = self._rollout_of(client.view).channel
        for version in reasons.keys() - before.keys():
            channel.on_nack(client, Nack(frozenset({version}), is_named=True, words=reasons[version] or None))

    def _client(self, form: type[Client], server: str, view: ViewKey, name: NodeName) -> Client:
        key = form, server, view, name
        client = self._clients.get(key)
        if not isinstance(client, form):
            self._clients[key] = client = form(name, view, self._order_of)
            channel = self._rollout_of(view).channel
            channel.join(client)
            channel.progressed(client)
        return client
