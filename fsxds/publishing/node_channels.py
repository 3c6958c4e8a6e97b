"""Assigns nodes to channels, and moves them without a break.

| rule | source |
| --- | --- |
| A node that rejects versions, or is offered them again, shares a channel with others that hold back the same. | `rollout.rejections` |
| Above a number of such channels, nodes share one without any rejected version. | |
| A node moves at once if one step leads from its snapshot to the new one. | `Rollout.is_near` |
| Else it catches up in a lane: a channel that continues the node's step, until it serves the same. | |
| Nodes that let a step time out, or may not stay, catch up likewise: no rollout waits for them. | |
| A node that left, or a poller away when the wait ends, catches up from there when it is back. | |
| A node moves to another view when that is loaded, by the current rules; its holds stay. | |

Rules: which nodes follow a channel of their own: they reject a version, are slow, or move to another view.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, takewhile

from fsxds.model.errors import ProtocolError
from fsxds.model.resources import Snapshot
from fsxds.model.values import WHOLE_TREE, Layers
from fsxds.protocol.messages import Attributes, Node
from fsxds.protocol.subscription import NoUpstreams, OnDemand
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.publisher import Publisher
from fsxds.rollout.machine import Rollout, RolloutOptions, RolloutState
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import NodeKey
from fsxds.rollout.step import Standing
from fsxds.runtime.channels import Channel, ChannelClient, ChannelKey, HoldsOf, holds_nothing, node_key
from fsxds.runtime.views import NodeRules, ViewLoading, Views
from fsxds.settings.rollout_forms import is_in_share

# The time without followers after which a channel is dropped, and its layers are no longer loaded.
DROPPED_AFTER_S = 600.0
CHECK_INTERVAL_S = 60.0

# How long, and for how many nodes, the place at which they left is remembered.
REMEMBERED_FOR_S = 3600.0
MOST_REMEMBERED = 10_000

# A node that comes back more often without taking its snapshot gets everything at once: its polls may say nothing.
MOST_RETURNS = 3

# Nodes that return within this time share a lane.
GATHERS_S = 0.1

# The number of channels of a view for nodes with equal rejections; nodes with others share one.
MOST_HELD = 64


@dataclass(frozen=True, slots=True)
class _Left:
    """Nodes' place when they left a channel.

    `has_taken`: they had the snapshot, or may be one step behind. `returns`: how often they came back, and left before
    taking it. `attributes`: None after a restart.
    """

    machine: Rollout
    key: ChannelKey
    lane: int
    left_s: float = 0.0
    has_taken: bool = True
    returns: int = 0
    attributes: Attributes | None = None

    def was_seen_as(self, node: Node) -> bool:
        """Whether only settings can have changed a node's view."""
        return self.attributes == node.attributes


class NodeChannels:
    """Knows each node's channel; `on_demand` may be None. Touched from the event loop only."""

    def __init__(
        self, publisher: Publisher, loading: ViewLoading, rules: NodeRules, on_demand: OnDemand | None = None
    ) -> None:
        self.on_demand: OnDemand = on_demand or NoUpstreams()
        self.on_moved: dict[object, Callable[[], object]] = {}
        self.most_held = MOST_HELD
        self._publisher = publisher
        self._rules = rules
        # These stay until a tree was loaded by others.
        self._views = rules.views
        self._loading = loading
        # The layers at the last move of clients.
        self._existing: frozenset[str] = frozenset()
        # The lanes of nodes that catch up.
        self._lanes: dict[NodeKey, ChannelRollout] = {}
        self._lane_numbers = count(1)
        # The places of nodes that left, the latest last.
        self._left: OrderedDict[NodeKey, _Left] = OrderedDict()
        # Some clients will move when their new views are loaded.
        self._is_moving = False
        self._idle_since_s: dict[ChannelRollout, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        # The input of the last `views`, and the result.
        self._possible: tuple[tuple[Views, frozenset[str]], tuple[tuple[str, Layers], ...]] | None = None
        publisher.on_received = self.receive_views
        publisher.on_rest = self.merge
        publisher.on_decided = self.place
        publisher.on_left_behind = self.leave_behind
        publisher.on_gone = self._remember
        publisher.on_kept = self._keep_loaded
        publisher.keep_behind(self._behind)
        loop = asyncio.get_running_loop()
        for key, state in publisher.restored_behind.items():
            self._lane_numbers = count(max(key.lane, next(self._lane_numbers)) + 1)
            machine = publisher.restored_rollout(state)
            left = _Left(machine, replace(key, lane=0), key.lane, loop.time(), machine.step is None)
            self._left |= dict.fromkeys(state.nodes, left)
        # The places of channels when the previous process ended, and the nodes that have come since.
        self._firsts = {
            key: one.machine.split(one.machine.options, loop.time())
            for key, one in publisher.rollouts.items()
            if one.machine.served is not None
        }
        for key, one in publisher.rollouts.items():
            if one.target.is_rolled_back:
                self._keep_loaded(key.layers)
        self._began_s, self._is_new = loop.time(), not self._firsts
        self._seen: set[NodeKey] = set()

    @property
    def rollout(self) -> RolloutOptions:
        """The current rollout options."""
        options = self._publisher.rules.rollout
        return replace(options, unknown_until_s=self._began_s + options.linger_s) if self._is_new else options

    async def channel_of(
        self, node: Node, *, holds: bool | None = None, holds_of: HoldsOf = holds_nothing, is_here: bool = False
    ) -> Channel:
        """Return a node's channel. LimitError: its view is one too many."""
        is_whole = self._views.is_whole
        known = None if is_whole else self._restored_key(node)
        if not is_whole and known is None:
            # Before the first tree the layers are unknown.
            await self._publisher.until_received()
            if (key := self._key_of(node)) not in self._publisher.rollouts:
                self._rules.admit(len(self._publisher.rollouts))
                if holds and key.held is None:
                    # It may have to be led there from another view.
                    await self._wanted_rollout(key).channel.store.newer_than(0)
        if holds:
            self._note_held(node, known or self._key_of(node), holds_of)
        rollout = self._rollout_of(node, known, holds=holds)
        if is_whole and rollout.wanted is None:
            return rollout.channel
        await rollout.channel.store.newer_than(0)
        # Meanwhile the tree may have other layers, or the settings other rules.
        if known is not None or self._rollout_of(node) is rollout:
            return rollout.channel
        return await self.channel_of(node, holds=holds, holds_of=holds_of)

    def correct_place(self, node: Node, holds_of: HoldsOf, published: Iterable[Snapshot]) -> None:
        """Place a node where another server led it; `published` is newest first.

        While a lane rests, each poll may show a later place: polls of one Envoy may have been at several servers. Streams
        have all their types here; those of other Envoys with this id stay.
        """
        if not node.id:
            return
        name = node.id, node.cluster
        lane, left, here = self._lanes.get(name), self._left.get(name), None
        if left is not None:
            here = left.machine.served
        elif lane is not None and lane.machine.is_resting:
            here = lane.origin[0]
            published = takewhile(lambda one: one is not here, published)
        if (left or lane) is not None and (here is None or holds_of(here)):
            return
        if (held := next(filter(holds_of, published), None)) is None:
            return
        if left is None and lane is not None:
            if not lane.channel.leave_with_polls(name):
                return
            left = self._left.get(name)
        machine = self._publisher.restored_rollout(RolloutState(held, held, held))
        if left is None:
            key, now_s = self._key_of(node), asyncio.get_running_loop().time()
            goal = self._publisher.rollouts.get(key)
            is_present = any(node_key(client) == name for client in self._clients())
            if goal is None or goal.machine.is_near(machine) or is_present:
                return
            left = _Left(machine, key, 0, now_s, attributes=node.attributes)
        self._left[name] = replace(left, machine=machine, lane=next(self._lane_numbers), has_taken=True, returns=0)
        self._lanes.pop(name, None)

    @property
    def views(self) -> tuple[tuple[str, Layers], ...]:
        """The views; a name recurs with other layers."""
        made_of = self._views, self._loading.existing
        # This is slow with a thousand views.
        if self._possible is None or any(
            one is not other for one, other in zip(self._possible[0], made_of, strict=True)
        ):
            named = tuple((view.name, view.layers) for view in self._views.possible(self._loading.existing))
            self._possible = made_of, named
        return self._possible[1]

    def view_of(self, node: Node) -> str:
        """Return a node's view, or "" for the whole tree."""
        view = self._views.layers_of(node, self._loading.existing)
        return "" if view is None else view.name

    def change_rules(self, rules: NodeRules) -> None:
        """Follow other rules, from the first tree loaded with them."""
        self._rules, views = rules, rules.views
        for client in [] if views.is_whole else self._clients():
            if (view := views.layers_of(client.node, self._loading.existing)) is not None:
                self._loading.want(view.layers)
        if views.made_of == self._views.made_of:
            self._move_all()

    def receive_views(self) -> None:
        """Move clients after a load, if necessary."""
        is_new = self._rules.views is not self._views and self._loading.is_loaded_by(self._rules.views)
        if is_new:
            self._views = self._rules.views
        if is_new or self._loading.existing != self._existing or self._is_moving:
            self._existing = self._loading.existing
            self._move_all()

    def place(self, nodes: Collection[NodeKey], *, is_apart: bool = False) -> None:
        """Move nodes to their rejections' channels; with `is_apart`, only to separate ones."""
        nodes = {*nodes, *self._sharing()}
        leaving: dict[tuple[ChannelRollout, ChannelKey], list[ChannelClient]] = defaultdict(list)
        for rollout in self._publisher.rollouts.values() if nodes else ():
            for client in rollout.channel.clients:
                key = self._key_of_present(client) if node_key(client) in nodes else None
                if key not in (None, _final_key(rollout)) and not (is_apart and key.held is None):
                    leaving[rollout, key].append(client)
        for (rollout, wanted), clients in leaving.items():
            # Groups before may have got the last channels.
            if (key := self._within_limit(wanted)) != _final_key(rollout):
                self._move(clients, rollout, key)
        for rollout in [one for key, one in self._publisher.rollouts.items() if key.held is not None]:
            self.merge(rollout)

    def _sharing(self) -> Iterator[NodeKey]:
        for key, rollout in tuple(self._publisher.rollouts.items()):
            if key.is_shared and not key.lane and (current := self._shared_key(key)) != key:
                self._publisher.rollout_of(current)
                for one in (rollout, *rollout.lanes):
                    yield from map(node_key, one.channel.clients)

    def leave_behind(self, rollout: ChannelRollout, clients: Collection[ChannelClient]) -> None:
        """Let nodes catch up at their pace or return."""
        for client in clients:
            if client.is_away:
                rollout.channel.leave(client)
                if (
                    rollout.machine.served is rollout.origin[1]
                    and (left := self._left.get(node_key(client))) is not None
                ):
                    self._left[node_key(client)] = replace(left, returns=rollout.returns + 1)
                (rollout.goal or rollout).channel.expect(client)
        nodes = {node_key(client) for client in clients if not client.is_away}
        if leaving := [client for client in rollout.channel.clients if node_key(client) in nodes]:
            self._catch_up(leaving, rollout, rollout.goal or rollout)

    def merge(self, rollout: ChannelRollout) -> None:
        """Move nodes that caught up, or returned with all their polls; for a rollout that waits for no client."""
        for lane in (rollout, *rollout.lanes):
            goal = lane.goal
            if goal is not None and lane.machine.is_resting and not lane.is_led:
                self._lead_on(lane, goal)
            if goal is not None and lane.machine.step is None and self._has_caught_up(lane, goal):
                self._reassign(self._caught_up(lane), lane, goal)
            if not lane.channel.key.is_main and not lane.lanes and self._is_over(lane):
                self._drop(lane)
                if goal is not None and goal.channel.key.held is not None:
                    self.merge(goal)

    def _lead_on(self, lane: ChannelRollout, goal: ChannelRollout) -> None:
        """Let clients that have returned go on: others come later, or never ask for all types."""
        if not (returned := lane.returned):
            return
        machine, held, now_s = lane.machine, lane.channel.key.held, asyncio.get_running_loop().time()
        led = next(
            (one for one in goal.lanes if one.is_led and one.machine.is_resting and one.begins_as(machine, held)),
            None,
        )
        if led is not None:
            self._reassign(returned, lane, led)
        else:
            led = self._publisher.split(lane, self._lane_key(goal.channel.key, held), returned, goal)
            led.is_led, led.returns = True, lane.returns
            led.machine.end_rest(now_s, GATHERS_S)
        self._lanes |= {node_key(client): led for client in returned}

    def _has_caught_up(self, lane: ChannelRollout, goal: ChannelRollout) -> bool:
        return lane.machine.serves_the_same(goal.machine) or (
            not lane.machine.is_resting and self._is_near(lane, goal, lane.channel.clients)
        )

    def _is_near(self, rollout: ChannelRollout, goal: ChannelRollout, clients: Collection[ChannelClient]) -> bool:
        """Whether clients may switch at once; they never get an older snapshot."""
        if rollout.has_completed and not goal.has_completed:
            return False
        verdicts, nodes = self._publisher.verdicts, set(map(node_key, clients))
        return goal.machine.is_near(rollout.machine) and not any(verdicts.serves_rejected(node, goal) for node in nodes)

    def _is_over(self, rollout: ChannelRollout) -> bool:
        key = rollout.channel.key
        if not _is_idle(rollout.channel) or rollout.goal is not None:
            return _is_idle(rollout.channel)
        rejecting = self._publisher.verdicts.rejections.nodes if key.held is not None else ()
        return not any(self._with_held(replace(key, held=None, is_shared=False), node) == key for node in rejecting)

    def _caught_up(self, lane: ChannelRollout) -> list[ChannelClient]:
        asked = lane.asked
        late = {
            node_key(client)
            for client in lane.channel.clients
            if asked is not None and client.standing(asked) is not Standing.TAKEN
        }
        return [client for client in lane.channel.clients if node_key(client) not in late]

    def _restored_key(self, node: Node) -> ChannelKey | None:
        """The restored channel, until the first tree is there; clients move later if they must."""
        if self._publisher.published.current is not None:
            return None
        existing = frozenset(layer for key in self._publisher.rollouts for layer in key.layers)
        rollout = self._publisher.rollouts.get(self._key_of(node, existing)) if existing else None
        return None if rollout is None or rollout.channel.store.current is None else rollout.channel.key

    def _key_of(self, node: Node, existing: frozenset[str] | None = None) -> ChannelKey:
        view = self._views.layers_of(node, self._loading.existing if existing is None else existing)
        if view is None:
            fact = "no view is for this node: no rule of `views` in the settings matches its attributes"
            raise ProtocolError(f"{fact}; add a rule that does", "NOT_FOUND")
        canary = self._rules.canary
        is_canary = canary is not None and (
            view.name == canary.view if canary.share is None else is_in_share(node.id, canary.share)
        )
        return self._with_held(ChannelKey(view.layers, is_canary), (node.id, node.cluster) if node.id else None)

    def _with_held(self, key: ChannelKey, node: NodeKey | None) -> ChannelKey:
        held = None if node is None else self._publisher.held_for(node, key)
        return key if held is None else self._within_limit(replace(key, held=held))

    def _within_limit(self, key: ChannelKey) -> ChannelKey:
        rollouts = self._publisher.rollouts
        if key.held is None or key.is_shared or key in rollouts:
            return key
        of_view = [one for one in rollouts if one.held is not None and one.layers == key.layers and not one.lane]
        if sum(not one.is_shared for one in of_view) < self.most_held:
            return key
        newest = next((one for one in reversed(of_view) if one.is_shared and one.is_canary == key.is_canary), None)
        if newest is not None and newest.held is not None and key.held <= newest.held:
            return newest
        return self._shared_key(key)

    def _shared_key(self, key: ChannelKey) -> ChannelKey:
        main, rejections = self._publisher.main_of(key), self._publisher.verdicts.rejections
        held = frozenset() if main is None else main.replaced_for(rejections.known)
        return ChannelKey(key.layers, key.is_canary, held, is_shared=True)

    def _rollout_of(self, node: Node, known: ChannelKey | None = None, *, holds: bool | None = None) -> ChannelRollout:
        key = known or self._key_of(node)
        if not node.id:
            return self._wanted_rollout(key)
        lane = self._lanes.get((node.id, node.cluster))
        if lane is not None and _final_key(lane) == key:
            if holds is not None:
                self._left.pop((node.id, node.cluster), None)
            return lane
        if self._is_moving and (present := self._present(node, key)) is not None:
            return present
        resumed = None if holds is None else self._resumed(node, key, holds=holds)
        return resumed or self._wanted_rollout(key)

    def _remember(self, rollout: ChannelRollout, client: ChannelClient) -> None:
        node = node_key(client)
        if not client.node.id or any(node_key(one) == node for one in rollout.channel.clients):
            return
        now_s, machine, key = asyncio.get_running_loop().time(), rollout.machine, _final_key(rollout)
        known = next(reversed(self._left.values()), None)
        if known is None or known.machine.served is not machine.served or known.key != key:
            known = _Left(machine.split(machine.options, now_s), key, next(self._lane_numbers))
        # Until the clients that have to take a step are known, none has taken it.
        has_taken = machine.step is None or (machine.waiting is not None and client not in machine.waiting)
        attributes = client.node.attributes
        self._left[node] = replace(known, left_s=now_s, has_taken=has_taken, returns=0, attributes=attributes)
        self._left.move_to_end(node)
        while len(self._left) > MOST_REMEMBERED or next(iter(self._left.values())).left_s < now_s - REMEMBERED_FOR_S:
            self._left.popitem(last=False)

    def _resumed(self, node: Node, key: ChannelKey, *, holds: bool) -> ChannelRollout | None:
        """Return a lane from the place that a node left; None if it may follow its channel."""
        before = self._left_before(node, key)
        left = self._left.pop((node.id, node.cluster), before)
        goal = self._publisher.rollouts.get(key)
        if goal is None and left is not None and key.is_shared:
            goal = self._publisher.rollout_of(key)
        if left is not None and left is not before and goal is not None:
            # The next process must not believe that the node is still there.
            self._publisher.keep(goal)
        if left is None or goal is None or not holds or left.returns > MOST_RETURNS:
            return None
        # A node with a false name must not get the other one's resources.
        if left.key.layers != key.layers and not left.was_seen_as(node):
            return None
        # A channel that waits for returning nodes asks each for its place.
        is_awaited = goal.machine.is_resting and goal.machine.serves_the_same(left.machine)
        if (left.has_taken or is_awaited) and goal.machine.is_near(left.machine):
            return None
        # Nodes that lost their connections together come back together.
        held = self._held_on_the_way((node.id, node.cluster), key)
        same = (
            one
            for one in goal.lanes
            if one.machine.is_resting
            and not one.is_led
            and one.returns == left.returns
            and one.begins_as(left.machine, held)
        )
        lane = next(same, None) or self._publisher.resume_from(left.machine, self._lane_key(key, held), goal)
        lane.returns = left.returns
        self._lanes[node.id, node.cluster] = lane
        return lane

    def _note_held(self, node: Node, key: ChannelKey, holds_of: HoldsOf) -> None:
        name = node.id, node.cluster
        if not node.id or name in self._seen or name in self._left:
            return
        served = {each: one.served for each, one in self._firsts.items() if one.served is not None}
        having = (each for each in (key, *served) if each in served and holds_of(served[each]))
        if (before := next(having, key)).layers != key.layers:
            now_s, machine = asyncio.get_running_loop().time(), self._firsts[before]
            left = _Left(machine, before, next(self._lane_numbers), now_s, machine.step is None)
            self._left[name] = replace(left, attributes=node.attributes)

    def _left_before(self, node: Node, key: ChannelKey) -> _Left | None:
        """After a restart, a node is first taken to be at its channel's place."""
        if not self._firsts or asyncio.get_running_loop().time() > self._began_s + REMEMBERED_FOR_S:
            self._firsts, self._seen = {}, set()
            return None
        is_first = (node.id, node.cluster) not in self._seen
        self._seen.add((node.id, node.cluster))
        machine = self._firsts.get(key) if is_first else None
        return None if machine is None else _Left(machine, key, 0, has_taken=machine.step is None)

    def _behind(self) -> dict[ChannelKey, RolloutState]:
        places: dict[ChannelKey, tuple[Rollout, set[tuple[str, str]]]] = {}
        for lane in set(self._lanes.values()):
            nodes = {(one.node.id, one.node.cluster) for one in lane.channel.clients if one.node.id}
            places[lane.channel.key] = lane.machine, nodes
        for node, left in self._left.items():
            goal = self._publisher.rollouts.get(left.key)
            if isinstance(node, tuple) and (goal is None or goal.machine.served is not left.machine.served):
                places.setdefault(replace(left.key, lane=left.lane), (left.machine, set()))[1].add(node)
        states = {key: (machine.state, frozenset(nodes)) for key, (machine, nodes) in places.items() if nodes}
        return {key: replace(state, nodes=nodes) for key, (state, nodes) in states.items() if state is not None}

    def _wanted_rollout(self, key: ChannelKey) -> ChannelRollout:
        rollout = self._publisher.rollout_of(key)
        self._keep_loaded(key.layers)
        return rollout

    def _keep_loaded(self, layers: Layers) -> None:
        if layers != WHOLE_TREE:
            self._loading.want(layers)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._drop_idle)

    def _present(self, node: Node, key: ChannelKey) -> ChannelRollout | None:
        others = (one for one in self._publisher.rollouts.values() if _final_key(one) != key)
        name = node.id, node.cluster
        return next((one for one in others if any(node_key(client) == name for client in one.channel.clients)), None)

    def _move_all(self) -> None:
        self._is_moving = False
        self.place(set(map(node_key, self._clients())))
        self._report_moved()

    def _clients(self) -> list[ChannelClient]:
        return [client for one in self._publisher.rollouts.values() for client in one.channel.clients]

    def _key_of_present(self, client: ChannelClient) -> ChannelKey | None:
        """None if no rule matches: the client stays."""
        try:
            key = self._key_of(client.node)
        except ProtocolError:
            return None
        return key if client.node.id else self._with_held(key, client)

    def _move(self, clients: list[ChannelClient], rollout: ChannelRollout, key: ChannelKey) -> None:
        if not self._publisher.is_loaded(key.layers):
            self._is_moving = True
            self._wanted_rollout(key)
            return
        goal, waiting = self._publisher.rollouts.get(key), rollout.machine.waiting or ()
        if goal is None and key.is_shared:
            goal = self._publisher.rollout_of(key)
        if goal is None and key.held is not None:
            self._publisher.split(rollout, key, clients)
            self._forget_left(clients)
        elif goal is not None and self._is_near(rollout, goal, clients) and not any(one in waiting for one in clients):
            self._reassign(clients, rollout, goal)
        else:
            goal = self._wanted_rollout(key)
            goal.target.begin_with((rollout.goal or rollout).target)
            self._catch_up(clients, rollout, goal)
        self.merge(rollout)

    def _catch_up(self, clients: Collection[ChannelClient], rollout: ChannelRollout, goal: ChannelRollout) -> None:
        machine, key = rollout.machine, goal.channel.key
        groups: dict[frozenset[ResourceVersion] | None, list[ChannelClient]] = defaultdict(list)
        for client in clients:
            groups[self._held_on_the_way(node_key(client), key)].append(client)
        for held, each in groups.items():
            same = (one for one in goal.lanes if one is not rollout and one.begins_as(machine, held))
            if (lane := next(same, None)) is not None:
                self._reassign(each, rollout, lane)
            else:
                lane = self._publisher.split(rollout, self._lane_key(key, held), each, goal)
                self._forget_left(each)
            self._lanes |= {node_key(client): lane for client in each}

    def _held_on_the_way(self, node: NodeKey, key: ChannelKey) -> frozenset[ResourceVersion] | None:
        """The versions that a lane never serves because its node lacks them, or None."""
        known, main = self._publisher.verdicts.rejections.nodes.get(node), self._publisher.main_of(key)
        return None if known is None or main is None else main.replaced_for(known.unserved) or None

    def _lane_key(self, key: ChannelKey, held: frozenset[ResourceVersion] | None) -> ChannelKey:
        return replace(key, held=held, lane=next(self._lane_numbers))

    def _reassign(self, clients: Collection[ChannelClient], rollout: ChannelRollout, other: ChannelRollout) -> None:
        now_s = asyncio.get_running_loop().time()
        if clients:
            other.machine.receive_clients_of(rollout.machine, now_s)
        for client in tuple(clients):
            other.channel.join(client)
            rollout.channel.leave(client)
            self._lanes.pop(node_key(client), None)
            client.follow(other.channel)
            other.ask(client, now_s)
        self._forget_left(clients)

    def _forget_left(self, clients: Collection[ChannelClient]) -> None:
        for client in clients:
            self._left.pop(node_key(client), None)

    def _drop_idle(self) -> None:
        loop = asyncio.get_running_loop()
        rollouts = {one for key, one in self._publisher.rollouts.items() if key.layers != WHOLE_TREE and key.is_main}
        idle = {
            one: self._idle_since_s.get(one, loop.time())
            for one in rollouts
            if _is_idle(one.channel) and not one.target.is_rolled_back
        }
        dropped = {one for one, since_s in idle.items() if loop.time() - since_s >= DROPPED_AFTER_S}
        self._idle_since_s = {one: since_s for one, since_s in idle.items() if one not in dropped}
        for rollout in dropped:
            self._drop(rollout)
        followed = {key.layers for key in self._publisher.rollouts}
        for layers in {one.channel.key.layers for one in dropped} - followed:
            self._loading.drop(layers)
        self._timer = loop.call_later(CHECK_INTERVAL_S, self._drop_idle) if rollouts != dropped else None

    def _drop(self, rollout: ChannelRollout) -> None:
        if self._publisher.rollouts.get(rollout.channel.key) is not rollout:
            return
        main = self._publisher.main_of(rollout.channel.key)
        if main is not None and main is not rollout:
            for client in tuple(rollout.channel.absent):
                main.channel.expect(client)
        self._publisher.drop(rollout)
        self._lanes = {node: one for node, one in self._lanes.items() if one is not rollout}
        if rollout.channel.readers:
            self._report_moved()

    def _report_moved(self) -> None:
        for receive in tuple(self.on_moved.values()):
            receive()


def _is_idle(channel: Channel) -> bool:
    return not channel.clients and not channel.readers


def _final_key(rollout: ChannelRollout) -> ChannelKey:
    return (rollout.goal or rollout).channel.key
