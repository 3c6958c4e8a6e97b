"""What must hold in a simulation, whatever happens.

| rule | checked |
| --- | --- |
| A client that answers as an Envoy loses nothing that its routes name, directly or not, whatever it rejects. | when its content changes |
| It has the newest content that it may have, within a bound that follows from the slowest client. | when nothing happened for so long |
| No channel serves an address twice. | when a client or a channel goes on |
| Nobody loses a version that too few reject, or that nobody can be blamed for. | when a version is held back from all |
| The others get a version when all canaries that are there took it, and one of them had it for the time to bake. | when a channel follows the tree |
| A rejected version is offered to its client no sooner than the back-off allows. | at the end |
| What was rolled back stays until its own content changes in the tree, or the rollback ends. | within the bound, and at the end |
| All that is held back has a true reason, and everything else is as in the tree. | at the end |
| Who accepts in the end has what it rejected before. | at the end |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING

from fsxds.events.rollout_events import VersionsHeld
from fsxds.model.resources import Key, Resource, Snapshot, claims_of, key_of
from fsxds.model.values import Layers, TypeUrl, Version
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.node_channels import MOST_HELD
from fsxds.rollout.holding import LEAST_RESOURCES, Hold, HoldReason
from fsxds.rollout.pending import BACK_OFF, ResourceVersion
from fsxds.rollout.rejections import VOTES_FOR_S
from fsxds.rollout.uses import demands_of
from fsxds.runtime.channels import ChannelKey
from tests.simulation.fleet import CDS, EDS, LDS, RDS, TYPES, Delivery, SimulatedClient, names_in
from tests.simulation.scenario import Scenario

if TYPE_CHECKING:
    from tests.simulation.world import World

STEP_TIMEOUT_S = 5.0
BAKE_S = 3.0
# A rollout has so many steps; when something is rejected within it, there are as many more.
STEPS = 3
# A poller asks again after so long at most, and each step takes so many messages there and back.
PAUSE_S = 0.3
MESSAGES = 8
# For so long the place of a client that left is remembered.
REMEMBERED_S = 3600.0
# Timers are compared with each other.
TOLERANCE_S = 0.01
# What lingered may end just now, and clients need time to take that.
SETTLES_WITHIN_S = 3.0
# Happenings that have a step wait for a client until it times out.
DELAYS = {"freeze", "leave", "restart_client", "restart", "restart_on", "see_others"}
# After these, what a client rejects may not be known.
MOVING = {"restart", "restart_on", "see_others"}
# After these, clients have what lingers, which the server may not know.
LINGERING = {"restart_on", "see_others"}


class ViolatedError(AssertionError):
    """Something that must always hold does not."""


def bound_s(scenario: Scenario) -> float:
    """Return after how long each client has what it may have: steps wait for slow clients, up to the timeout."""
    habits = scenario.fleet.values()
    slowest_s = max((one.latency_s for one in habits if not one.comes_once), default=0.0)
    is_delayed = any(not one.answers for one in habits) or any(each.method in DELAYS for each in scenario.happenings)
    step_s = STEP_TIMEOUT_S if is_delayed else min(STEP_TIMEOUT_S, PAUSE_S + MESSAGES * slowest_s)
    # Those who see another view, or another server, drain there what they used before.
    moves_s = scenario.rules["linger"] if any(each.method in LINGERING for each in scenario.happenings) else 0.0
    canary_s = moves_s + BAKE_S + STEPS * step_s if scenario.rules["canary"] else moves_s
    return (
        2 * STEPS * step_s + canary_s + SETTLES_WITHIN_S
        if step_s < STEP_TIMEOUT_S
        else (STEPS * step_s + canary_s + SETTLES_WITHIN_S)
    )


class Checks:
    """Checks a world. Each `receive_…` notes what happened, or checks it at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        # Which clients had everything so far.
        self._whole: dict[str, bool] = {}
        # What was rolled back, of each view: what is served, and what the tree had.
        self._pins: dict[Layers, dict[Key, tuple[Version | None, Version | None]]] = {}
        self._began_at_s = 0.0
        # Clients that were connected to a process that ended may be away for the whole life of the next one.
        self._absent: set[str] = set()
        # The tree that each channel follows.
        self._followed: dict[ChannelKey, Snapshot | None] = {}
        self._is_promoted = False
        # What clients have, and since when.
        self._had: dict[str, dict[Key, tuple[Version | None, float]]] = {}

    # What happened.

    def receive_start(self) -> None:
        """Note that a process begins."""
        self._began_at_s = self._world.now_s
        self._followed = {}

    def receive_end(self, *, has_state: bool) -> None:
        """Note that a process ends: who was away during all of its life may come to a process that does not know it."""
        away = {client.name for client in self._world.clients.values() if not client.is_wanted}
        for name in away & self._absent:
            self._whole.pop(name, None)
        self._absent = away
        if not has_state:
            # Delta requests alone say what a client has.
            self._whole = {name: True for name, whole in self._whole.items() if whole and self._is_told_by(name)}
            self._pins.clear()

    def receive_save(self) -> None:
        """Note another tree: what was rolled back follows it where its own content is another one."""
        for layers, pins in self._pins.items():
            tree = self._world.targets[layers]
            self._pins[layers] = {key: pin for key, pin in pins.items() if _version(tree, key) == pin[1]}

    def receive_rollback(self, earlier: dict[Layers, Snapshot]) -> None:
        """Note that what an earlier tree had is served."""
        for layers, tree in self._world.targets.items():
            keys = {(url, name) for url in TYPES for name in {*tree.resources(url), *earlier[layers].resources(url)}}
            pins = {key: (_version(earlier[layers], key), _version(tree, key)) for key in keys}
            self._pins[layers] = {key: pin for key, pin in pins.items() if pin[0] != pin[1]}

    def receive_resumption(self) -> None:
        """Note that the tree is followed again."""
        self._pins.clear()

    def receive_promotion(self) -> None:
        """Note that changes do not wait for canaries any more."""
        self._is_promoted = True

    def forget(self, client: SimulatedClient) -> None:
        """Note that a client may lack something from now on."""
        self._whole.pop(client.name, None)

    def receive_applied(self, client: SimulatedClient) -> None:
        """Check that a good client has everything that its routes name, if it had so far."""
        world = self._world
        self._check_addresses()
        if world.rules.canary:
            self._note_content(client)
        if not self._is_to_be_whole(client) or client.habits.latency_s >= STEP_TIMEOUT_S:
            return
        missing = ((CDS, one[0].rpartition(" ")[2]) for one in client.broken_references())
        broken = [
            one for one, key in zip(client.broken_references(), missing, strict=True) if key not in world.undefined
        ]
        if broken and self._whole.get(client.name) and not client.is_frozen:
            what, user = broken[0]
            raise_later(f"{client.name} ({client.habits.wire}) has {user} without {what}, at {world.now_s:.2f} s")
        has_all = bool(client.held[LDS]) and client.wanted(RDS) <= client.held[RDS].keys()
        is_ordered = world.now_s > world.unordered_until_s or self._is_told_by(client.name)
        self._whole[client.name] = not broken and has_all and is_ordered

    def _is_to_be_whole(self, client: SimulatedClient) -> bool:
        """Whether a client is to have what its routes name, also if it rejects something; what else it rejects may be unknown."""
        scenario = self._world.scenario
        is_moved = any(each.method in MOVING for each in scenario.happenings)
        shares = scenario.rules["most_held"] < MOST_HELD
        return self._is_good(client) or (_is_envoy(client) and not (is_moved or shares))

    def _is_told_by(self, name: str) -> bool:
        """Whether a client says what it has when it connects, and answers within the timeout."""
        habits = self._world.clients[name].habits
        return habits.wire == "delta" and 2 * habits.latency_s < STEP_TIMEOUT_S

    def _check_addresses(self) -> None:
        """Check that no two listeners that are served claim the same."""
        for key, rollout in self._world.server.publisher.rollouts.items():
            current = rollout.channel.store.current
            listeners = () if current is None else current.resources(LDS).values()
            claims = Counter(claim for one in listeners for claim in claims_of(one))
            if twice := [name for (_, name), count in claims.items() if count > 1]:
                raise_later(f"{twice[0]} is the address of two listeners of {key}, at {self._world.now_s:.2f} s")

    def _note_content(self, client: SimulatedClient) -> None:
        """Note since when a client has what it has."""
        had, now_s = self._had.setdefault(client.name, {}), self._world.now_s
        held = {(url, name): one.version for url in TYPES for name, one in client.held[url].items()}
        for key in had.keys() | held.keys():
            version = held.get(key)
            if key not in had or had[key][0] != version:
                had[key] = version, now_s

    def receive_held(self, event: VersionsHeld) -> None:
        """Check that enough clients reject what is held back from all, and those alone can be blamed."""
        if self._world.now_s <= self._began_at_s:
            # A process before decided that.
            return
        for version in event.versions:
            if problem := self._unjust(version):
                raise_later(f"{version[0][1]} is taken back though {problem}, at {self._world.now_s:.2f} s")

    def _unjust(self, version: ResourceVersion) -> str:
        """Return why a version is not to be held back; empty where it is."""
        clients, limit = self._world.clients.values(), self._world.rules.nack_limit
        rejecting = sum(self._may_reject(client, version) for client in clients)
        taken = sum(self._has_taken(client, version) for client in clients)
        if limit is None:
            return "nothing ever is to be"
        if not rejecting:
            return "nobody rejects it"
        if limit.count is not None:
            return "" if rejecting > limit.count else f"no more than {limit.count} reject it"
        return "" if rejecting > limit.share * (rejecting + taken) else f"{rejecting} reject it and {taken} took it"

    def _may_reject(self, client: SimulatedClient, version: ResourceVersion) -> bool:
        """Whether a client may count among those that reject a version: it was so when it got it last, and it is there."""
        sent = [one for one in client.deliveries.get(version[0], ()) if one.version == version[1]]
        # It may have taken it a moment ago.
        newest_s = self._world.now_s - 2 * client.habits.latency_s - SETTLES_WITHIN_S
        recent = [one for one in sent if one.at_s >= newest_s] or sent[-1:]
        is_there = client.is_wanted or self._world.now_s - client.left_at_s <= VOTES_FOR_S + SETTLES_WITHIN_S
        return is_there and any(one.is_blamed for one in recent)

    def _has_taken(self, client: SimulatedClient, version: ResourceVersion) -> bool:
        """Whether a client is certain to count among those that took a version."""
        habits, now_s = client.habits, self._world.now_s
        held = client.held[version[0][0]].get(version[0][1])
        sent = [one.at_s for one in client.deliveries.get(version[0], ()) if one.version == version[1]]
        is_there = client.since_s is not None and client.since_s < now_s - SETTLES_WITHIN_S and not client.is_frozen
        rollouts = self._world.server.publisher.rollouts.items()
        # It may just leave a view that has it.
        moves = any(key.lane for key, one in rollouts for each in one.channel.clients if each.node.id == client.name)
        return (
            self._is_good(client)
            and habits.latency_s < PAUSE_S
            and is_there
            and not moves
            and held is not None
            and held.version == version[1]
            and bool(sent)
            and sent[-1] < now_s - SETTLES_WITHIN_S
        )

    def receive_progress(self) -> None:
        """Check that no address is served twice, and that a canary took what other nodes get."""
        self._check_addresses()
        if not self._world.rules.canary:
            return
        for key, rollout in self._world.server.publisher.rollouts.items():
            tree, before = rollout.target.tree, self._followed.get(key)
            if key.lane or key.held is not None or key.is_canary or tree is before:
                continue
            self._followed[key] = tree
            if before is None or tree is None or self._is_promoted:
                continue
            for changed in _differences(before, tree):
                version = _version(tree, changed)
                if problem := self._untaken(changed, version, key.layers):
                    raise_later(f"nodes get {changed[1]} ({version}) though {problem}, at {self._world.now_s:.2f} s")

    def _untaken(self, key: Key, version: Version | None, layers: Layers) -> str:
        """Return why canaries have not taken a version of a resource, or its removal, for nodes with some layers."""
        canaries = self._canaries(key, version, layers)
        there = [one for one in canaries if one.habits.answers and not one.habits.comes_once]
        until_s = self._world.now_s - BAKE_S + TOLERANCE_S
        if not any(one.connected_at_s <= until_s for one in there):
            return "no canary lived so long"
        asking = [one for one in canaries if self._asks(one, key, until_s)]
        if not asking or (version is None and key[0] not in {CDS, LDS}):
            # Endpoints and routes that nothing names are asked for by nobody, and an Envoy may keep them.
            return ""
        if not any(self._has_since(one, key, version) <= until_s for one in asking if one in there):
            return "no canary took it, and lived so long"
        lacking = [one.name for one in asking if one.connected_at_s <= until_s and not self._has(one, key, version)]
        return f"{lacking[0]} has not taken it" if lacking else ""

    def _canaries(self, key: Key, version: Version | None, layers: Layers) -> list[SimulatedClient]:
        """Return the canaries that are connected, and are to have a version, or its removal."""
        found: dict[str, SimulatedClient] = {}
        for one, rollout in self._world.server.publisher.rollouts.items():
            tree = self._world.targets.get(one.layers)
            is_due = one.is_canary and tree is not None and _version(tree, key) == version
            is_removed = one.layers == layers or any(
                _found(each[one.layers], key) is not None for each in self._world.history if one.layers in each
            )
            if is_due and (version is not None or is_removed):
                found.update({each.node.id: self._world.clients[each.node.id] for each in rollout.channel.clients})
        return [*found.values()]

    def _asks(self, client: SimulatedClient, key: Key, since_s: float) -> bool:
        """Whether a client has subscribed to a resource since a time."""
        if key[0] in {CDS, LDS} or not client.habits.is_envoy:
            return client.habits.is_envoy or key[0] == CDS
        users = client.held[CDS if key[0] == EDS else LDS].values()
        had = self._had.get(client.name, {})
        return any(key[1] in names_in(one, key[0]) and had.get(key_of(one), (None, inf))[1] <= since_s for one in users)

    def _has_since(self, client: SimulatedClient, key: Key, version: Version | None) -> float:
        """Return since when a client has a version, or lost it; infinite for not."""
        had, since_s = self._had.get(client.name, {}).get(key, (None, 0.0))
        if had == version:
            return since_s
        return client.connected_at_s if self._has(client, key, version) else inf

    def _has(self, client: SimulatedClient, key: Key, version: Version | None) -> bool:
        """Whether a client has a version, or lost it; what is removed may linger."""
        held = _found(client.held, key)
        if held is None or version is not None:
            return (None if held is None else held.version) == version
        rollouts = self._world.server.publisher.rollouts.values()
        following = [one for one in rollouts if any(each.node.id == client.name for each in one.channel.clients)]
        return any(key in one.machine.lingering for one in following)

    # What must hold after a while.

    def _is_good(self, client: SimulatedClient) -> bool:
        """Whether a client answers as an Envoy, and accepted everything always."""
        return _is_envoy(client) and not self._world.scenario.fleet[client.name].rejects

    def check_bound(self) -> None:
        """Check that every good client has the newest content that it may have."""
        world = self._world
        clients = world.clients.values()
        if world.rules.canary and any(one.habits.latency_s > 1 or not self._is_good(one) for one in clients):
            # Canaries may take as long as they want.
            return
        for client in clients:
            is_quick = client.habits.latency_s < 1.0 and not client.is_frozen
            if (
                self._is_good(client)
                and is_quick
                and client.since_s is not None
                and client.since_s < world.changed_at_s
            ):
                self._check_content(client)

    def _check_content(self, client: SimulatedClient) -> None:
        world = self._world
        rollouts = world.server.publisher.rollouts.values()
        rollout = next((one for one in rollouts for each in one.channel.clients if each.node.id == client.name), None)
        if rollout is None:
            raise ViolatedError(f"{client.name} is served by no channel, at {world.now_s:.2f} s")
        if rollout.channel.key.lane:
            raise ViolatedError(f"{client.name} catches up still, at {world.now_s:.2f} s")
        if rollout.target.composed is None:
            return
        if rollout.wanted is not rollout.target.tree and not rollout.waits:
            raise ViolatedError(f"the channel of {client.name} does not follow the tree, at {world.now_s:.2f} s")
        if world.now_s - rollout.published_s < SETTLES_WITHIN_S:
            # What lingered went just now.
            return
        kept = rollout.machine.lingering.keys()
        wanted = rollout.target.composed.snapshot
        differing = [key for key in _lacking(client, wanted) if key not in kept]
        streams = [one for one in rollout.channel.clients if one.node.id == client.name]
        due_removals = frozenset[Key]().union(*(getattr(one, "due_removals", ()) for one in streams))
        differing = [key for key in differing if key not in due_removals or _found(wanted, key) is not None]
        if client.habits.wire == "delta":
            # It is not told that what it brought is gone, if the tree named it when it came.
            differing = [key for key in differing if key not in world.named or _found(wanted, key) is not None]
        if differing:
            has, due = (_text(_found(one, differing[0])) for one in (client.held, wanted))
            raise ViolatedError(
                f"{client.name} ({client.habits.wire}) has {has} and not {due} of {differing[0][1]}, at {world.now_s:.2f} s;"
                f" it rests since {world.changed_at_s:.2f} s; {rollout.channel.key}"
            )
        self._check_pins(rollout)

    def _check_pins(self, rollout: ChannelRollout) -> None:
        """Check that what was rolled back is served, or named as held because of something else."""
        pins = self._pins.get(rollout.channel.key.layers, {})
        for key, (kept, _) in pins.items():
            hold = rollout.target.holds.get(key) or rollout.waits.get(key)
            has = None if hold is None or hold.kept is None else hold.kept.version
            if hold is None and any(one.is_blamed for one in self._sent(key, kept)):
                # What was rolled back to is rejected, and what was good before is in the tree.
                continue
            if hold is None or (hold.reason is HoldReason.PINNED and has != kept):
                raise ViolatedError(f"{key[1]} was rolled back, and follows the tree, at {self._world.now_s:.2f} s")

    def _sent(self, key: Key, version: Version | None) -> Iterator[Delivery]:
        """Yield how often clients were sent a version of a resource."""
        for client in self._world.clients.values():
            yield from (one for one in client.deliveries.get(key, ()) if one.version == version)

    def check_rest(self) -> None:
        """Check that at rest the tree is served, except for what is held back with a reason, and everybody has that."""
        world = self._world
        for key, rollout in world.server.publisher.rollouts.items():
            tree = world.targets.get(key.layers)
            if key.lane or not rollout.channel.clients or rollout.target.composed is None or tree is None:
                continue
            self._check_holds(rollout, tree)
        for client in world.clients.values():
            # Polls do not show whether a rejection was one.
            if _is_envoy(client) and not client.habits.rejects and client.since_s is not None:
                self._check_content(client)
        self.check_offers()

    def _check_holds(self, rollout: ChannelRollout, tree: Snapshot) -> None:
        served, now_s = rollout.machine.served, self._world.now_s
        if served is None or rollout.target.tree is None or _differ(rollout.target.tree, tree):
            raise ViolatedError(f"{rollout.channel.key} does not follow the tree, at {now_s:.2f} s")
        holds = rollout.target.holds
        for key in _differences(served, tree):
            if key not in holds and key not in rollout.machine.lingering:
                raise ViolatedError(
                    f"{key[1]} is not as in the tree, and is not said to be held; {rollout.channel.key}"
                )
        for key, hold in holds.items():
            if _version(tree, key) != (None if hold.asked is None else hold.asked.version):
                raise ViolatedError(f"{key[1]} is said to be held, and the tree has something else")
            if not self._is_true(key, hold, rollout, tree):
                raise ViolatedError(f"{key[1]} is held, and it is not true that it {hold.reason.value}")

    def _is_true(self, key: Key, hold: Hold, rollout: ChannelRollout, tree: Snapshot) -> bool:
        """Whether the reason is true for which something is held."""
        holds, base = rollout.target.holds, rollout.base
        clients = self._world.clients.values()
        if hold.reason is HoldReason.REJECTED:
            asked = None if hold.asked is None else hold.asked.version
            versions = {asked, *(version for one, version in rollout.target.before if one == key)}
            return any(each.is_blamed and each.version in versions for one in clients for each in one.deliveries[key])
        if hold.reason is HoldReason.PINNED:
            return key in rollout.target.pins
        if hold.reason is HoldReason.REMOVAL:
            rows, before = tree.resources(key[0]), () if base is None else base.resources(key[0])
            return len(before) >= LEAST_RESOURCES and len(rows) < len(before)
        if hold.reason in {HoldReason.IN_USE, HoldReason.CLAIMS}:
            user = (
                None
                if hold.other is None or rollout.machine.served is None
                else _found(rollout.machine.served, hold.other)
            )
            pin = rollout.target.pins.get(key)
            wanted = hold.asked, None if pin is None else pin.kept
            claimed = {claim for one in wanted if one is not None for claim in claims_of(one)}
            named = {(one.type_url, one.name) for one in (() if user is None else user.references)}
            return not named.isdisjoint({key} if hold.reason is HoldReason.IN_USE else claimed)
        if hold.reason is HoldReason.DEPENDS:
            return hold.other in holds or hold.other in rollout.target.pins
        # What was rolled back may name it, too.
        is_named = key in rollout.target.pins or (hold.asked is not None and hold.other in demands_of(hold.asked))
        return is_named and _found(tree, hold.other) is None

    def check_offers(self) -> None:
        """Check that no version was offered to a node that rejects it sooner than the back-off allows."""
        for client in self._world.clients.values():
            for key, deliveries in client.deliveries.items():
                rejected: dict[Version, tuple[float, int]] = {}
                for each in deliveries:
                    last = rejected.get(each.version)
                    if last is not None and self._is_renewed(key, last[0] - 2 * client.habits.latency_s, each.at_s):
                        last = None
                    if client.habits.wire != "delta" and each.is_news:
                        # A full state has all that is rejected, whatever it is sent for.
                        last = None
                    if last is not None and not each.is_first and not _may_be_offered(client, each.at_s, last):
                        raise ViolatedError(
                            f"{client.name} ({client.habits.wire}) is offered {key[1]} again {each.at_s - last[0]:.2f} s after"
                            f" its NACK number {last[1]}, at {each.at_s:.2f} s"
                        )
                    if each.is_rejected:
                        count = last[1] if last else 0
                        # What it asks for as one that has nothing is not offered to it.
                        rejected[each.version] = each.at_s, max(count + (not each.is_first), 1)

    def _is_renewed(self, key: Key, since_s: float, until_s: float) -> bool:
        """Whether something happened after which a version may be offered at once."""
        renewals = self._world.renewals
        return any(since_s <= at_s <= until_s and (keys is None or key in keys) for at_s, keys in renewals)


def _may_be_offered(client: SimulatedClient, at_s: float, last: tuple[float, int]) -> bool:
    rejected_s, count = last
    # A poll does not say that it rejects: the first time, it may be that the response was lost.
    count -= client.habits.wire == "rest"
    if not client.habits.is_named:
        # Several may be to blame, and one that is offered with others was rejected once less alone.
        count -= 2
    pause_s = BACK_OFF.pause_s(max(count, 1)) - 2 * client.habits.latency_s
    return at_s - rejected_s >= pause_s - TOLERANCE_S


def _is_envoy(client: SimulatedClient) -> bool:
    habits = client.habits
    return habits.is_envoy and habits.answers and not habits.comes_once


def raise_later(text: str) -> None:
    """Fail the run: what a callback of the event loop raises would only be logged."""
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": text, "exception": ViolatedError(text)})


def _lacking(client: SimulatedClient, intended: Snapshot) -> list[Key]:
    """Return what a client has otherwise than it is to have it; an Envoy keeps endpoints and routes that are nowhere."""
    found = []
    for url in TYPES if client.habits.is_envoy else (CDS,):
        rows, held = intended.resources(url), client.held[url]
        is_whole = url in {CDS, LDS}
        for name in sorted({*rows, *held} if is_whole else client.wanted(url) & rows.keys()):
            has, due = held.get(name), rows.get(name)
            if has is None or due is None or has.version != due.version:
                found.append((url, name))
    return found


def _differences(one: Snapshot, other: Snapshot) -> list[Key]:
    return [
        (url, name)
        for url in TYPES
        for name in sorted({*one.resources(url), *other.resources(url)})
        if _version(one, (url, name)) != _version(other, (url, name))
    ]


def _differ(one: Snapshot, other: Snapshot) -> bool:
    return one is not other and bool(_differences(one, other))


def _found(where: Snapshot | Mapping[TypeUrl, Mapping[str, Resource]], key: Key | None) -> Resource | None:
    if key is None:
        return None
    rows = where.get(key[0], {}) if not isinstance(where, Snapshot) else where.resources(key[0])
    return rows.get(key[1])


def _version(snapshot: Snapshot, key: Key) -> Version | None:
    found = _found(snapshot, key)
    return None if found is None else found.version


def _text(resource: Resource | None) -> str:
    return "nothing" if resource is None else resource.body.decode()
