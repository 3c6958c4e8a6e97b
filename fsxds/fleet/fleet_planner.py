"""The publisher of a fleet: its clients are servers.

| rule | reason |
| --- | --- |
| A server has taken a step when all its awaited clients have. | Each server leads its clients by separate steps. |
| A server that does not report in time is not waited for. | |
| A view that no server has served for ten minutes is dropped, unless rolled back. | Each view costs a load of the tree, and space in etcd. |
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Never

from fsxds.events.event import Event, Observer
from fsxds.events.file_events import SnapshotPublished
from fsxds.events.fleet_events import PublicationFailed, SecretsNotPublished
from fsxds.fleet.fleet_clients import FleetClients
from fsxds.fleet.fleet_history import FleetHistory
from fsxds.fleet.fleet_names import AbsentNames, UpstreamNames
from fsxds.fleet.fleet_places import FleetPlaces, read_places
from fsxds.fleet.key_values import RejectedRequestError, UnreachableError
from fsxds.fleet.pointers import NOTHING_PUBLISHED, Order, ViewKey
from fsxds.fleet.publication import Publication
from fsxds.fleet.records import Records
from fsxds.fleet.reports import Servers
from fsxds.model.errors import ProtocolError
from fsxds.model.resources import Snapshot
from fsxds.model.values import WHOLE_TREE, Layers
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.node_channels import DROPPED_AFTER_S, ViewLoading
from fsxds.publishing.publisher import Publisher, PublishRules
from fsxds.rollout.machine import RolloutState
from fsxds.runtime.access import SECRET
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.store import Latest

# A server waits for its own clients, so the publisher waits longer for the server.
PATIENCE_SHARE = 3.0

# Between two attempts to publish.
PAUSE_S = 0.5
COLLECT_EVERY_S = 10.0

# The longest wait of an operator until a decision would survive this publisher.
KEPT_WITHIN_S = 5.0


def rules_of_fleet(rules: PublishRules) -> PublishRules:
    """Let the publisher wait longer than servers wait."""
    return replace(rules, rollout=replace(rules.rollout, step_timeout_s=rules.rollout.step_timeout_s * PATIENCE_SHARE))


@dataclass(frozen=True, slots=True)
class PublisherStart:
    """The state that a publisher continues from."""

    publication: Publication
    records: Records
    places: Mapping[ViewKey, RolloutState]
    history: FleetHistory
    absent: AbsentNames

    @classmethod
    async def by(cls, publication: Publication, tree: Path | None, names: UpstreamNames | None) -> PublisherStart:
        """Read earlier records; the git commit of `tree` is noted."""
        records = Records(publication)
        await records.begin()
        absent = AbsentNames(publication, names)
        await absent.begin()
        places = await read_places(records, publication)
        return cls(publication, records, places, FleetHistory(records, tree), absent)


class FleetPlanner:
    """Publishes for a fleet, as its publisher. Run `run`."""

    def __init__(
        self,
        rules: PublishRules,
        observer: Observer,
        kept: PublisherStart,
        loading: ViewLoading,
    ) -> None:
        # Count of noted changes, and how many of them are published and kept.
        self._changed, self._kept = Latest(0), Latest(0)
        publication = kept.publication
        self._places = FleetPlaces(publication, kept.records, kept.places, self._note)
        self._history, self._absent = kept.history, kept.absent
        self._absent.follow(self._note)
        self.publisher = Publisher(rules_of_fleet(rules), partial(_observe, observer), self._places)
        self._observer = observer
        self._exposed: set[ViewKey] = set()
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

    def _note(self) -> None:
        self._changed.replace(self._changed.current + 1)

    def _follow(self, rollout: ChannelRollout) -> None:
        rollout.channel.store.listeners[self] = self._note

    async def until_kept(self) -> None:
        """Wait until decisions are kept, `KEPT_WITHIN_S` at most."""
        for key, rollout in self.publisher.rollouts.items():
            self._places.save(key, partial(_state_of, rollout))
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
        """Publish until cancelled. NoPublisherError: another server publishes."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._servers.keep_current())
            tasks.create_task(self.publisher.keep_publishing())
            tasks.create_task(self._keep_published())
            tasks.create_task(self._keep_collected())

    async def _keep_published(self) -> Never:
        failed = ""
        while True:
            seen = self._changed.current
            try:
                await self._publish()
                self._kept.replace(seen)
            except (UnreachableError, RejectedRequestError) as error:
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
        """Whether a snapshot has secrets that etcd would keep in clear; reported once."""
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
            reports = self._servers.reports.values()
            # A server that has nothing yet, or whose report is not understood, reads everything published anew.
            orders = (one.order for one in reports if one.order != NOTHING_PUBLISHED)
            reached = min(orders, default=self._publication.order)
            with suppress(UnreachableError, RejectedRequestError):
                await self._publication.collect(reached)

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


def _state_of(rollout: ChannelRollout) -> RolloutState | None:
    return rollout.state


def _observe(observer: Observer, event: Event) -> None:
    # Each server reports its own publications to clients.
    if not isinstance(event, SnapshotPublished):
        observer(event)
