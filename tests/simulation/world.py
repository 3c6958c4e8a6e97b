"""Runs a scenario: edits, faults and decisions happen to a server and a fleet, and `checks` has what must hold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from math import inf

from fsxds.model.resources import Key, Snapshot, key_of
from fsxds.model.values import Layers
from fsxds.publishing.publisher import PublishRules
from fsxds.publishing.rollout_operator import RolloutOperator
from fsxds.rollout.holding import HoldingRules
from fsxds.rollout.machine import RolloutOptions
from fsxds.rollout.uses import demands_of
from fsxds.runtime.views import NodeRules, Views
from fsxds.settings.options import BY_NAME
from fsxds.settings.rollout_forms import NACK_LIMIT, Canary
from tests.simulation.checks import BAKE_S, REMEMBERED_S, STEP_TIMEOUT_S, Checks, bound_s
from tests.simulation.fleet import RECONNECT_S, TYPES, SimulatedClient
from tests.simulation.scenario import OTHER, Scenario
from tests.simulation.server import KeptState, LoadedViews, Server
from tests.support.rollouts import Tree, tree_snapshot

# Longer than any back-off, and than slow clients take for three steps.
REST_S = 150.0
# For so long after a restart without state, a slow client gets what it lacks in any order.
UNORDERED_S = 60.0


class World:
    """A server, a fleet, and the tree.

    Attributes:
        scenario: what is run.
        server: the process that serves.
        clients: the fleet, by the names of the clients.
        rules: how changes are published.
        targets: what the tree asks for, of each view.
        history: what it asked for before, the newest last.
        undefined: names that nothing defined in what a process without state serves of a view first, which it takes for static ones.
        named: names that nothing defined at some time, which clients that bring them keep.
        changed_at_s: when something happened last.
        unordered_until_s: until then, a slow client gets what it lacks in any order.
        renewals: when versions of a resource may be offered again whoever rejected them; None is about all.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.server: Server
        self.rules = _rules_of(scenario)
        self.undefined: set[Key] = set()
        self.named: set[Key] = set()
        self.changed_at_s = self.unordered_until_s = 0.0
        self.renewals: list[tuple[float, frozenset[Key] | None]] = []
        self._tree: Tree = dict(scenario.tree)
        self.targets = self._targets({})
        self.history = [self.targets]
        self.checks = Checks(self)
        self.clients = {
            name: SimulatedClient(name, habits, self.checks.receive_applied) for name, habits in scenario.fleet.items()
        }
        self._kept = KeptState()
        self._is_swapped = False
        self._loading = LoadedViews(self._views(), self._load)

    async def run(self) -> None:
        """Run the scenario to its end; ViolatedError where something does not hold."""
        self._start()
        for happening in self.scenario.happenings:
            await self._pass(happening.after_s)
            getattr(self, happening.method)(*happening.arguments)
            self.changed_at_s = self.now_s
            await self._pass(0.0)
        await self._pass(bound_s(self.scenario))
        self.checks.check_bound()
        for client in self.clients.values():
            if client.is_frozen:
                self._thaw(client)
            self.heal(client.name)
        if self.scenario.rules["retries"]:
            self.retry()
        self.server.publisher.promote()
        self.approve()
        self.checks.receive_promotion()
        await self._pass(REST_S)
        self.checks.check_rest()
        self.server.end()

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return asyncio.get_running_loop().time()

    async def _pass(self, time_s: float) -> None:
        await asyncio.sleep(time_s)
        self.server.check()

    def _start(self) -> None:
        self._loading = LoadedViews(self._views(), self._load)
        self._loading.wanted |= {key.layers for key in self._kept.states}
        self.server = Server(
            self.rules, self._kept, self._loading, self.checks.receive_held, self.scenario.rules["most_held"]
        )
        self._operator = RolloutOperator(self.server.publisher, lambda: [("", layers) for layers in self.targets], None)
        self.server.publisher.on_progress = self.checks.receive_progress
        self.checks.receive_start()
        self._load()
        for client in self.clients.values():
            self._connect(client)

    def _lacking(self) -> set[Key]:
        """Return the names that the tree names and nothing defines."""
        return set[Key]().union(*(_demanded(one) - _defined(one) for one in self.targets.values()))

    def _connect(self, client: SimulatedClient) -> None:
        if self.server.is_up and client.is_wanted:
            client.connect(self.server)

    def _load(self) -> None:
        if self.server.is_up:
            found = {layers: one for layers, one in self.targets.items() if layers in self._loading.wanted}
            rollouts = self.server.publisher.rollouts.items()
            is_served = {key.layers for key, rollout in rollouts if rollout.machine.served is not None}
            for layers in found.keys() - is_served if not self._kept.states else ():
                self.undefined |= _demanded(found[layers]) - _defined(found[layers])
            self.named |= self.undefined
            self.server.load(found)

    def _targets(self, before: Mapping[Layers, Snapshot]) -> dict[Layers, Snapshot]:
        """Return what the tree asks for, of each view: in the second one, all clusters have other names."""
        if not self.scenario.rules["has_views"]:
            return {(): tree_snapshot(self._tree, before.get(()))}
        trees = {("one",): self._tree, ("two",): _with_other_names(self._tree)}
        return {layers: tree_snapshot(tree, before.get(layers)) for layers, tree in trees.items()}

    def _views(self) -> Views:
        """Return the rules by which nodes see views."""
        if not self.scenario.rules["has_views"]:
            return Views(None)
        names = ("two", "one") if self._is_swapped else ("one", "two")
        rows = [
            {"name": cluster, "match": {"cluster": cluster}, "layers": [name]}
            for cluster, name in zip(("edge", "inner"), names, strict=True)
        ]
        return Views(BY_NAME["views"].form.read(rows))

    # What happens.

    def rest(self) -> None:
        """Nothing happens."""

    def save(self, files: Mapping[str, Mapping[str, str]]) -> None:
        """Save some files of the tree."""
        self._tree, before = {**self._tree, **files}, self.targets
        self.targets = self._targets(before)
        self.named |= self._lacking()
        self.history.append(self.targets)
        changed = frozenset[Key]().union(*(_renewed(before[layers], one) for layers, one in self.targets.items()))
        self.renewals.append((self.now_s, changed))
        self.checks.receive_save()
        self._load()

    def freeze(self, name: str, for_s: float) -> None:
        """Let a client do nothing for a while, and then go on."""
        client = self.clients[name]
        client.freeze()
        asyncio.get_running_loop().call_later(for_s, self._thaw, client)

    def _thaw(self, client: SimulatedClient) -> None:
        client.since_s = None if client.since_s is None else self.now_s
        client.thaw()

    def leave(self, name: str, for_s: float) -> None:
        """Let a client lose its connection, and come back with what it holds."""
        client = self.clients[name]
        if for_s > REMEMBERED_S:
            # Its old clusters are gone, and it asks for clusters before routes.
            self.checks.forget(client)
        client.is_wanted = False
        client.disconnect()
        asyncio.get_running_loop().call_later(for_s, self._return, client)

    def _return(self, client: SimulatedClient) -> None:
        client.is_wanted = True
        self._connect(client)

    def restart_client(self, name: str) -> None:
        """Let a client begin anew, with nothing."""
        client = self.clients[name]
        client.disconnect()
        client.restart()
        self.checks.forget(client)
        asyncio.get_running_loop().call_later(RECONNECT_S, self._connect, client)

    def restart(self, has_state: bool) -> None:
        """End the server, and begin another one at once."""
        self.server.end()
        # What was served is served at once, and some NACKs are lost.
        self.renewals.append((self.now_s, None))
        self.checks.receive_end(has_state=has_state)
        if not has_state:
            # The new process knows nothing of what clients have: it serves the tree, and the order between types is theirs.
            self._kept, self.history = KeptState(), [self.targets]
            self.unordered_until_s = self.now_s + UNORDERED_S
        self._start()

    def restart_on(self, files: Mapping[str, Mapping[str, str]]) -> None:
        """Save some files of the tree while the server is away; the next one knows nothing of it."""
        self.server.end()
        self.save(files)
        self.restart(has_state=False)

    def roll_back(self, by: int) -> None:
        """Serve what an earlier tree had."""
        self.renewals.append((self.now_s, None))
        earlier = self.history[max(len(self.history) - 1 - by, 0)]
        self._operator.roll_back(earlier)
        for client in self.clients.values():
            if client.habits.comes_later and not client.is_wanted:
                asyncio.get_running_loop().call_later(RECONNECT_S, self._return, client)
        self.checks.receive_rollback(earlier)

    def resume(self) -> None:
        """Follow the tree again."""
        self.renewals.append((self.now_s, None))
        self._operator.resume(None)
        self.checks.receive_resumption()

    def retry(self) -> None:
        """Offer everything again."""
        self.renewals.append((self.now_s, None))
        self.server.publisher.retry(None)

    def approve(self) -> None:
        """Approve all removals."""
        for rollout in self.server.publisher.rollouts.values():
            composed = rollout.target.composed
            if composed is not None and composed.approval_id is not None:
                rollout.target.approve(composed.approval_id, rollout.base)
                self.server.publisher.recompose(rollout)

    def heal(self, name: str) -> None:
        """Let a client accept what it rejected."""
        self.clients[name].habits = replace(self.clients[name].habits, rejects="")

    def change_limit(self, limit: str) -> None:
        """Change the limit."""
        self.renewals.append((self.now_s, None))
        self.rules = replace(self.rules, nack_limit=NACK_LIMIT.read(limit))
        self.server.publisher.change_rules(self.rules)

    def see_others(self, after_s: float) -> None:
        """Have the two kinds of nodes exchange their views; the tree is loaded so after a while."""
        self._is_swapped = not self._is_swapped
        views = self._views()
        self.renewals.append((self.now_s, None))
        self.server.channels.change_rules(NodeRules(views, self.rules.canary))
        asyncio.get_running_loop().call_later(after_s, self._load_by, self._loading, views)

    def _load_by(self, loading: LoadedViews, views: Views) -> None:
        if loading is self._loading and self.server.is_up:
            loading.loaded_by = views
            self._load()


def _rules_of(scenario: Scenario) -> PublishRules:
    rules = scenario.rules
    return PublishRules(
        RolloutOptions(linger_s=rules["linger"], step_timeout_s=STEP_TIMEOUT_S),
        HoldingRules(max_removal=rules["max_removal"]),
        NACK_LIMIT.read(rules["nack_limit"]),
        canary=Canary(share=0.4) if rules["canary"] else None,
        bake_s=BAKE_S,
        canary_patience_s=inf,
    )


def _with_other_names(tree: Tree) -> Tree:
    """Return a tree in which each cluster has another name, and endpoints of that name."""

    def renamed(word: str) -> str:
        return word + OTHER if word.startswith(("CDS:", "EDS:")) else word

    return {
        url: {
            name + OTHER if url in {"CDS", "EDS"} else name: " ".join(map(renamed, content.split()))
            for name, content in rows.items()
        }
        for url, rows in tree.items()
    }


def _defined(snapshot: Snapshot) -> set[Key]:
    return {(url, name) for url, rows in snapshot.by_type.items() for name in rows}


def _demanded(snapshot: Snapshot) -> set[Key]:
    return {
        (one.type_url, one.name)
        for rows in snapshot.by_type.values()
        for user in rows.values()
        for one in user.references
    }


def _renewed(before: Snapshot, after: Snapshot) -> frozenset[Key]:
    """Return the resources that changed, and those that name them, directly or not."""
    changes = {url: rows.changes_since(before.resources(url)) for url, rows in after.by_type.items()}
    changed = {(url, name) for url, change in changes.items() for name in change.fresh | change.removed}
    users = [one for tree in (before, after) for rows in tree.by_type.values() for one in rows.values()]
    for _ in TYPES:
        changed |= {key_of(one) for one in users if not changed.isdisjoint(demands_of(one))}
    return frozenset(changed)
