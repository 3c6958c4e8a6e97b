"""Clients' NACKs, their votes, and when versions are offered again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from fsxds.events.event import Observer
from fsxds.events.rollout_events import VersionsHeld, VersionsReleased
from fsxds.model.resources import Key, Resource, Snapshot
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import SyncState
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import Nack, NodeKey, RejectingNode, Rejections, Votes
from fsxds.rollout.uses import dependencies_of
from fsxds.runtime.channels import ChannelClient, ChannelKey, node_key
from fsxds.settings.rollout_forms import NackLimit

# Clients that have not taken everything they are served.
_UNSETTLED = frozenset((SyncState.NACK, SyncState.STALE))


class Verdicts:
    """Takes NACKs, and decides once per turn of the event loop.

    `limit` is None to hold no version back from all; `rollouts` is live. `on_decided` receives nodes with new
    decisions, and whether such holds changed.
    """

    def __init__(
        self, limit: NackLimit | None, rollouts: Mapping[ChannelKey, ChannelRollout], observer: Observer
    ) -> None:
        self.rejections = Rejections(limit)
        self.on_decided: Callable[[Collection[NodeKey], bool], object] = lambda *_: None
        self._rollouts = rollouts
        self._observer = observer
        # The versions held back from all nodes at the last decision.
        self._held: frozenset[ResourceVersion] = frozenset()
        # The dependencies of rejected versions at their rejection: with other ones, they may be accepted.
        self._dependencies: dict[ResourceVersion, object] = {}
        # The nodes with news; None while no decision is due.
        self._changed: set[NodeKey] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._trees: Collection[Snapshot] = ()
        # The rollouts that rejecting nodes followed at the last decision.
        self._followed: set[ChannelRollout] = set()

    def report_restored(self) -> None:
        """Report the holds of the previous process."""
        self._held = frozenset(self.rejections.held)
        if self._held:
            self._observer(VersionsHeld(self._held, tuple(self._rejecting(self._held))))

    def receive_nack(self, rollout: ChannelRollout, client: ChannelClient, nack: Nack) -> None:
        """Take a client's NACK."""
        if not nack.versions:
            return
        node = node_key(client)
        known = self.rejections.nodes.get(node)
        if not nack.is_named:
            rejected = () if known is None else known.reasons.keys()
            nack = replace(nack, versions=rollout.target.suspects(nack.versions, rejected, rollout.base))
        self.rejections.receive_nack(node, client, nack, _now_s())
        key = rollout.channel.key
        for one in {rollout, self._rollouts.get(ChannelKey(key.layers, key.is_canary), rollout)}:
            # Clients may reject a version that they have; a version reached before is not rejected.
            one.target.remember(nack.versions, one.base, one.machine.good, rollout.base, rollout.machine.good)
        # Not those of the served snapshot while canaries are awaited: they would be forgotten at once.
        if rollout.wanted is not None:
            for version in nack.versions - self._dependencies.keys():
                self._dependencies[version] = dependencies_of(rollout.wanted, version[0])
        self.decide_soon({node})

    def serves_rejected(self, node: NodeKey, rollout: ChannelRollout) -> bool:
        """Whether a channel serves a node's held version."""
        served = rollout.machine.served
        return served is not None and any(has_version(served, one) for one in self.rejections.held_for(node))

    def receive_progress(self, client: ChannelClient) -> None:
        """Note that a client answered, came or left."""
        if (node := node_key(client)) in self.rejections.nodes:
            self.decide_soon({node})

    def receive_rest(self, rollout: ChannelRollout) -> None:
        """Note that a rollout waits for no client."""
        if rollout in self._followed:
            self.decide_soon(())

    def receive_trees(self, trees: Collection[Snapshot]) -> None:
        """Take trees; forget versions gone or with other dependencies."""
        self._trees = trees
        self._forget_past()
        if self.rejections.nodes and self._timer is None:
            # The previous process knew them.
            self.decide_soon(())

    def forget(self, versions: Collection[ResourceVersion]) -> None:
        """Offer versions to all nodes again."""
        if versions:
            nodes = [node for node, one in self.rejections.nodes.items() if not one.reasons.keys().isdisjoint(versions)]
            self.rejections.forget(versions)
            self.decide_soon(nodes)

    def forget_reason(self, words: str) -> None:
        """Offer versions rejected with these words again."""
        nodes = self.rejections.nodes.values()
        self.forget({version for one in nodes for version, (said, _) in one.reasons.items() if words in (said or "")})

    def _forget_past(self) -> None:
        # After a restart the trees are not known yet.
        if not self._trees or not self.rejections.nodes:
            return
        self.forget([version for version in self.rejections.versions if self._is_past(version)])

    def decide_soon(self, nodes: Collection[NodeKey]) -> None:
        """Decide in the next turn, with news of these nodes."""
        if self._changed is None:
            self._changed = set()
            asyncio.get_running_loop().call_soon(self.decide)
        self._changed.update(nodes)

    def decide(self) -> None:
        """Decide now, if that is due."""
        if self._changed is None:
            return
        self._forget_past()
        changed, self._changed = self._changed, None
        rejections, now_s, loop = self.rejections, _now_s(), asyncio.get_running_loop()
        changed.update(self._look_at_nodes(now_s))
        changed.update(offered := rejections.offer(now_s))
        rejections.decide(self._accepting, now_s)
        # Some may have been forgotten before.
        before, self._held = self._held, frozenset(rejections.held)
        has_changed = before != self._held
        if held := self._held - before:
            self._observer(VersionsHeld(held, tuple(self._rejecting(held))))
        if released := before - self._held:
            self._observer(VersionsReleased(released))
        known = rejections.versions
        self._dependencies = {version: one for version, one in self._dependencies.items() if version in known}
        if self._timer is not None:
            self._timer.cancel()
        at_s = rejections.next_s(now_s)
        self._timer = None if at_s is None else loop.call_at(at_s, self.decide_soon, ())
        self.on_decided(changed.union(rejections.nodes) if has_changed else changed, has_changed)
        if offered and any(key.is_shared for key in self._rollouts):
            # The channel that they may share now shows the versions that they need not answer.
            self.decide_soon(())

    def _look_at_nodes(self, now_s: float) -> list[NodeKey]:
        rejections, accepting = self.rejections, list[NodeKey]()
        clients: defaultdict[NodeKey, list[tuple[ChannelRollout, ChannelClient]]] = defaultdict(list)
        absent: set[NodeKey] = set()
        for rollout in self._rollouts.values() if rejections.nodes else ():
            absent.update(map(node_key, rollout.channel.absent))
            for client in rollout.channel.clients:
                if (node := node_key(client)) in rejections.nodes:
                    clients[node].append((rollout, client))
        self._followed = {rollout for each in clients.values() for rollout, _ in each}
        for node in tuple(rejections.nodes):
            rejections.receive_presence(node, now_s, is_there=node in clients or node in absent)
            each = clients.get(node, ())
            rejections.receive_blocked(node, partial(self._is_blocked, [rollout for rollout, _ in each]))
            served = {rollout: rollout.machine.served for rollout, _ in each if rollout.machine.step is None}
            if len(served) == len({rollout for rollout, _ in each}) == 1:
                (snapshot,) = served.values()
                is_settled = not any(client.sync_state() in _UNSETTLED for _, client in each)
                if (
                    snapshot is not None
                    and is_settled
                    and rejections.receive_taken(node, partial(has_version, snapshot))
                ):
                    accepting.append(node)
        return accepting

    def _is_blocked(self, rollouts: Collection[ChannelRollout], version: ResourceVersion) -> bool:
        """Whether only a held dependency keeps a version from all channels."""
        return bool(rollouts) and not any(self._may_come(version, rollout) for rollout in rollouts)

    def _may_come(self, version: ResourceVersion, rollout: ChannelRollout) -> bool:
        key, served = rollout.channel.key, rollout.machine.served
        is_final = rollout.goal is None and not rollout.is_stale and rollout.has_completed
        if not is_final or served is None:
            return True
        if version in (self.rejections.held if key.held is None else key.held):
            # A node that was offered it and found no private channel waits for others.
            return not key.is_shared
        return has_version(served, version)

    def _rejecting(self, versions: Collection[ResourceVersion]) -> Iterator[RejectingNode]:
        return (one for one in self.rejections.nodes.values() if not one.reasons.keys().isdisjoint(versions))

    def _accepting(self, versions: Collection[ResourceVersion]) -> Mapping[ResourceVersion, Votes]:
        """Return accepting nodes' votes, of those that were, or will be, offered the versions.

        A version offered only to its rejecters has none; nor has, after a restart, one for which others may come back.
        A node that is late catches up, and does not count.
        """
        served, awaited = set[ResourceVersion](), set[ResourceVersion]()
        # By sets of versions accepted together, the nodes by identity: mostly all versions of a type, or none.
        groups: defaultdict[frozenset[ResourceVersion], defaultdict[str, set[NodeKey]]]
        groups = defaultdict(lambda: defaultdict(set))
        for key, rollout in self._rollouts.items():
            composed = rollout.target.composed
            places = rollout.machine.served, None if composed is None else composed.snapshot, rollout.base
            offered = frozenset(() if key.lane else (one for one in versions if _is_in_any(places, one)))
            if key.is_main:
                served.update(one for one in offered if _is_in_any(places[:2], one))
                awaited.update(offered if rollout.machine.is_resting else ())
            for type_url in {version[0][0] for version in offered}:
                self._group(rollout, type_url, offered, groups)
        found: dict[ResourceVersion, dict[str, set[NodeKey]]] = {version: {} for version in served}
        for together, nodes in groups.items():
            for version in together:
                known = found.get(version)
                found[version] = (
                    nodes
                    if not known
                    else {
                        identity: known.get(identity, set()) | nodes.get(identity, set())
                        for identity in {**known, **nodes}
                    }
                )
        distinct = {id(nodes): nodes for nodes in found.values()}
        votes = {one: {identity: len(each) for identity, each in nodes.items()} for one, nodes in distinct.items()}
        return {version: votes[id(nodes)] for version, nodes in found.items() if version not in awaited}

    def _group(
        self,
        rollout: ChannelRollout,
        type_url: TypeUrl,
        offered: frozenset[ResourceVersion],
        groups: Mapping[frozenset[ResourceVersion], Mapping[str, set[NodeKey]]],
    ) -> None:
        of_type = frozenset(version for version in offered if version[0][0] == type_url)
        names = frozenset(version[0][1] for version in of_type)
        for client in rollout.channel.clients:
            node, selected = node_key(client), client.selected(type_url, names)
            known = self.rejections.nodes.get(node)
            accepted = of_type
            if selected != names:
                accepted = frozenset(version for version in of_type if version[0][1] in selected)
            if known is not None:
                accepted = accepted.difference(known.reasons)
            if accepted and client.node_count == 1:
                groups[accepted][client.identity].add(node)
            elif accepted:
                for number in range(client.node_count):
                    groups[accepted][f"{client.identity} {number}"].add((node, number))

    def _is_past(self, version: ResourceVersion) -> bool:
        """Whether a version is gone, or has other dependencies than when rejected."""
        if having := [tree for tree in self._trees if has_version(tree, version)]:
            # In another view, the same version may have other dependencies.
            return self._dependencies.get(version) not in (
                None,
                *(dependencies_of(tree, version[0]) for tree in having),
            )
        if any(pin is not None and pin.version == version[1] for pin in self._pinned(version[0])):
            return False
        for rollout in self._rollouts.values():
            if _is_in_any((rollout.machine.served, rollout.base), version) or rollout.target.may_serve(version):
                return False
        return True

    def _pinned(self, key: Key) -> Iterator[Resource | None]:
        return (one.target.pins[key].kept for one in self._rollouts.values() if key in one.target.pins)


def _is_in_any(snapshots: Iterable[Snapshot | None], version: ResourceVersion) -> bool:
    return any(one is not None and has_version(one, version) for one in snapshots)


def has_version(snapshot: Snapshot, version: ResourceVersion) -> bool:
    """Whether a snapshot has a version."""
    (type_url, name), digest = version
    found = snapshot.resources(type_url).get(name)
    return found is not None and found.version == digest


def _now_s() -> float:
    return asyncio.get_running_loop().time()
