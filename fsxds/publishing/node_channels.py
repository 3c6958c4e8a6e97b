"""Which channel each node follows, and how nodes move to another one without a break.

A node whose layers change goes on with what it is served: in a channel of its own, which rolls out what its new layers ask
for, and ends when it serves the same as the channel of all others with these layers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Protocol, TypeAlias

from fsxds.channels import Channel, ChannelClient, ChannelKey
from fsxds.errors import ProtocolError
from fsxds.protocol.messages import Node
from fsxds.protocol.on_demand import NoUpstreams, OnDemand
from fsxds.publishing.canaries import is_in_share
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.publisher import Publisher
from fsxds.settings.rollout_forms import Canary
from fsxds.values import WHOLE_TREE, Layers
from fsxds.views import Views

# A channel that nobody followed for so long is dropped, and its layers are not loaded any more.
DROPPED_AFTER_S = 600.0
LOOK_EVERY_S = 60.0

_Identity: TypeAlias = tuple[str, str]
"""What streams and polls of one node have in common: its id and its cluster."""


class ViewLoading(Protocol):
    """What loads views."""

    @property
    def existing(self) -> frozenset[str]:
        """The folders of the tree that was loaded last, each of which may be a layer."""

    def want(self, layers: Layers) -> None:
        """Have a view loaded, now and with each tree."""

    def drop(self, layers: Layers) -> None:
        """Load a view no more."""


class NodeChannels:
    """Knows the channel of each node. Touched from the event loop only.

    Args:
        publisher: has the rollouts of all channels.
        views: says which layers a node has.
        loading: loads the views that are wanted.
        canary: which nodes get a change first; None for none.

    Attributes:
        on_demand: has other servers asked for what clients ask for; to be set before the first client comes.
        admit: is asked, with the number of channels, before there is one more for a node; LimitError rejects the node.
        on_moved: is called when nodes may follow other channels than before, for those that wait and are no clients.
    """

    def __init__(self, publisher: Publisher, views: Views, loading: ViewLoading, canary: Canary | None = None) -> None:
        self.on_demand: OnDemand = NoUpstreams()
        self.admit: Callable[[int], object] = lambda _: None
        self.on_moved: Callable[[], object] = lambda: None
        self._publisher = publisher
        self._views = views
        self._canary = canary
        self._loading = loading
        # The layers as they were when clients moved last.
        self._existing: frozenset[str] = frozenset()
        # Where nodes are that follow another channel than new nodes of their layers.
        self._moved: dict[_Identity, ChannelRollout] = {}
        self._transitions = count(1)
        # Some clients are to move when the views are loaded that they move to.
        self._is_moving = False
        self._idle_since_s: dict[ChannelRollout, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        # What `views` was made of last, and what it was.
        self._possible: tuple[tuple[Views, frozenset[str]], tuple[tuple[str, Layers], ...]] | None = None
        publisher.on_received = self.receive_views
        publisher.on_rest = self.merge

    async def channel_of(self, node: Node) -> Channel:
        """Return the channel of a node, as soon as what it serves is loaded.

        Raises:
            ProtocolError: no view is for this node; with the code `NOT_FOUND`.
            LimitError: its view is one too many.
        """
        is_whole = self._views.is_whole
        restored = None if is_whole else self._restored(node)
        if not is_whole and restored is None:
            # Before the first tree nobody knows which layers exist.
            await self._publisher.until_received()
            if self._key_of(node) not in self._publisher.rollouts:
                self.admit(len(self._publisher.rollouts))
        rollout = restored or self._rollout_of(node)
        if is_whole and rollout.wanted is None:
            return rollout.channel
        await rollout.channel.store.newer_than(0)
        # Meanwhile the tree may have got other layers, or the settings other rules.
        has_moved = restored is None and self._rollout_of(node) is not rollout
        return await self.channel_of(node) if has_moved else rollout.channel

    @property
    def views(self) -> tuple[tuple[str, Layers], ...]:
        """The name of each view with layers that it has; a name comes again where nodes have different layers."""
        made_of = self._views, self._loading.existing
        # With a thousand views it takes long.
        if self._possible is None or any(
            one is not other for one, other in zip(self._possible[0], made_of, strict=True)
        ):
            named = tuple((view.name, view.layers) for view in self._views.possible(self._loading.existing))
            self._possible = made_of, named
        return self._possible[1]

    def view_of(self, node: Node) -> str:
        """Return the name of the view of a node; empty for the whole tree, and where no rule is for it any more."""
        view = self._views.layers_of(node, self._loading.existing)
        return "" if view is None else view.name

    def change_rules(self, views: Views, canary: Canary | None) -> None:
        """Follow other rules from now on; nodes that they move go on with what they are served."""
        self._views, self._canary = views, canary
        self._move_all()

    def receive_views(self) -> None:
        """Let clients move to other channels, if that is to be, after a tree was loaded."""
        if self._loading.existing != self._existing or self._is_moving:
            self._existing = self._loading.existing
            self._move_all()

    def merge(self, rollout: ChannelRollout) -> None:
        """Let the clients of channels that are on their way follow the one of all others, where that serves the same.

        To be called with one of either, whenever it waits for no client.
        """
        lasting_key = replace(rollout.channel.key, transition=0)
        lasting = self._publisher.rollouts.get(lasting_key)
        if lasting is None:
            return
        for moved in {rollout, *self._moved.values()}:
            key = moved.channel.key
            if key.transition and replace(key, transition=0) == lasting_key and _serve_the_same(moved, lasting):
                self._let_follow(tuple(moved.channel.clients), moved, lasting)
                self._drop(moved)

    def _restored(self, node: Node) -> ChannelRollout | None:
        """Return the rollout of a process before that a node follows until the first tree is there; None for none.

        The layers that exist are taken to be those that exist in rollouts: when the tree is there, clients move if they must.
        """
        if self._publisher.published.current is not None:
            return None
        existing = frozenset(layer for key in self._publisher.rollouts for layer in key.layers)
        rollout = self._publisher.rollouts.get(self._key_of(node, existing)) if existing else None
        return (
            None
            if rollout is None or rollout.channel.store.current is None
            else self._wanted_rollout(rollout.channel.key)
        )

    def _key_of(self, node: Node, existing: frozenset[str] | None = None) -> ChannelKey:
        view = self._views.layers_of(node, self._loading.existing if existing is None else existing)
        if view is None:
            fact = "no view is for this node: no rule of `views` in the settings matches what it says of itself"
            raise ProtocolError(f"{fact}; add a rule that does", "NOT_FOUND")
        canary = self._canary
        is_canary = canary is not None and (
            view.name == canary.view if canary.share is None else is_in_share(node.id, canary.share)
        )
        return ChannelKey(view.layers, is_canary)

    def _rollout_of(self, node: Node) -> ChannelRollout:
        key = self._key_of(node)
        if not node.id:
            return self._wanted_rollout(key)
        moved = self._moved.get(_identity(node))
        if moved is not None and replace(moved.channel.key, transition=0) == key:
            return moved
        if self._is_moving and (present := self._present(node, key)) is not None:
            return present
        return self._wanted_rollout(key)

    def _wanted_rollout(self, key: ChannelKey) -> ChannelRollout:
        """Return the rollout of a channel, and have its view loaded."""
        rollout = self._publisher.rollout_of(key)
        if key.layers == WHOLE_TREE:
            return rollout
        self._loading.want(key.layers)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._drop_idle)
        return rollout

    def _present(self, node: Node, key: ChannelKey) -> ChannelRollout | None:
        """Return where a node is that is about to move, None where it is nowhere."""
        for rollout in self._publisher.rollouts.values():
            if rollout.channel.key != key and any(
                _identity(client.node) == _identity(node) for client in rollout.channel.clients
            ):
                return rollout
        return None

    def _move_all(self) -> None:
        """Let each client follow the channel that it is to follow now."""
        self._is_moving = False
        for rollout in tuple(self._publisher.rollouts.values()):
            here = replace(rollout.channel.key, transition=0)
            leaving: dict[ChannelKey, list[ChannelClient]] = defaultdict(list)
            for client in rollout.channel.clients:
                key = self._key_of_present(client)
                if key is not None and key != here:
                    leaving[key].append(client)
            for key, clients in leaving.items():
                self._move(clients, rollout, key)
        self.on_moved()

    def _key_of_present(self, client: ChannelClient) -> ChannelKey | None:
        """Return where a client belongs; None where no rule is for it any more: it stays where it is."""
        try:
            return self._key_of(client.node)
        except ProtocolError:
            return None

    def _move(self, clients: list[ChannelClient], rollout: ChannelRollout, key: ChannelKey) -> None:
        """Let clients go on with what they are served, in a channel that leads to another one."""
        if not self._publisher.is_loaded(key.layers):
            self._is_moving = True
            self._wanted_rollout(key)
            return
        is_taken = key in self._publisher.rollouts
        new_key = replace(key, transition=next(self._transitions)) if is_taken else key
        moved = self._publisher.split(rollout, new_key)
        self._let_follow(clients, rollout, moved)
        self._moved |= {_identity(client.node): moved for client in clients}

    def _let_follow(self, clients: Iterable[ChannelClient], rollout: ChannelRollout, other: ChannelRollout) -> None:
        for client in clients:
            other.channel.join(client)
            rollout.channel.leave(client)
            client.follow(other.channel)

    def _drop_idle(self) -> None:
        """Drop the channels that nobody has followed for long, and look again later while there are others."""
        loop = asyncio.get_running_loop()
        rollouts = {one for key, one in self._publisher.rollouts.items() if key.layers != WHOLE_TREE}
        idle = {one: self._idle_since_s.get(one, loop.time()) for one in rollouts if _is_idle(one.channel)}
        dropped = {one for one, since_s in idle.items() if loop.time() - since_s >= DROPPED_AFTER_S}
        self._idle_since_s = {one: since_s for one, since_s in idle.items() if one not in dropped}
        for rollout in dropped:
            self._drop(rollout)
        followed = {key.layers for key in self._publisher.rollouts}
        for layers in {one.channel.key.layers for one in dropped} - followed:
            self._loading.drop(layers)
        self._timer = loop.call_later(LOOK_EVERY_S, self._drop_idle) if rollouts != dropped else None

    def _drop(self, rollout: ChannelRollout) -> None:
        self._publisher.drop(rollout)
        self._moved = {identity: one for identity, one in self._moved.items() if one is not rollout}
        if rollout.channel.readers:
            self.on_moved()


def _is_idle(channel: Channel) -> bool:
    return not channel.clients and not channel.readers


def _identity(node: Node) -> _Identity:
    return node.id, node.cluster


def _serve_the_same(rollout: ChannelRollout, other: ChannelRollout) -> bool:
    """Whether two rollouts have come to the same end, and nothing lingers in either."""
    if not (rollout.has_completed and other.has_completed):
        return False
    status, others = rollout.machine.status, other.machine.status
    return not status.lingering and status.served_id == others.served_id
