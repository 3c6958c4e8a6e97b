"""Whatever happens, and in whatever order: nobody loses what it uses, and every rollout ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fsxds.model.resources import Resource, Rows, Snapshot
from fsxds.model.values import TypeUrl
from fsxds.rollout.machine import Rollout, RolloutOptions
from fsxds.rollout.step import Client, Standing, Step, StepTimedOut
from tests.support.rollouts import Tree, tree_of, tree_snapshot
from tests.support.snapshots import type_url

LINGER_S, TIMEOUT_S = 60.0, 5.0
MOST_TURNS = 100
TYPES = tuple(type_url(name) for name in ("CDS", "EDS", "RDS", "LDS"))
CDS, EDS, RDS, LDS = TYPES


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Return a tree in which everything that is named is there."""
    content, cluster = st.sampled_from("12"), st.sampled_from("abc")
    route = st.one_of(st.none(), st.builds("{} CDS:{}".format, content, cluster))
    routes = {name: found for name in "qr" if (found := draw(route)) is not None}
    named = [f"RDS:{name}" for name in routes] + [f"CDS:{name}" for name in "abc"]
    listener = st.one_of(st.none(), st.builds("{} {}".format, content, st.sampled_from(named)))
    listeners = {name: found for name in "lm" if (found := draw(listener)) is not None}
    used = {word[4:] for text in (*routes.values(), *listeners.values()) for word in text.split() if word[:4] == "CDS:"}
    clusters = {name: draw(content) for name in sorted(used | draw(st.sets(cluster)))}
    with_endpoints = draw(st.sets(st.sampled_from("abc"))) & clusters.keys()
    clusters |= {name: f"{clusters[name]} EDS:{name}" for name in with_endpoints}
    return {
        "LDS": listeners,
        "RDS": routes,
        "CDS": clusters,
        "EDS": {name: draw(content) for name in sorted(with_endpoints)},
    }


@dataclass(eq=False, slots=True)
class TakingClient:
    """A client that takes each type by itself, and whose listeners drain.

    `is_sure` as long as it keeps up: nothing is promised to one that let a step time out.
    """

    held: dict[TypeUrl, Rows]
    drains: list[tuple[Resource, float]] = field(default_factory=list)
    is_sure: bool = True

    def standing(self, step: Step) -> Standing:
        """Compare what it has with a step."""
        for url in step.changed:
            rows = step.snapshot.resources(url)
            if self.held[url] is not rows:
                return Standing.PENDING
        return Standing.TAKEN

    def take(self, url: TypeUrl, rows: Rows, now_s: float) -> None:
        """Hold what is served of a type; connections of listeners that change begin to drain."""
        if url == LDS and self.is_sure:
            change = rows.changes_since(self.held[LDS])
            old = (self.held[LDS][name] for name in self.held[LDS].among(change.fresh | change.removed))
            self.drains += [(listener, now_s + LINGER_S) for listener in old]
        self.held[url] = rows

    def drop_promises(self) -> None:
        """Count as one that does not keep up."""
        self.is_sure, self.drains = False, []

    def named(self, short_name: str, users: TypeUrl) -> Iterator[str]:
        """Yield the names of a type that its resources of another type name."""
        for user in self.held[users].values():
            yield from names_in(user, short_name)


def names_in(user: Resource, short_name: str) -> list[str]:
    """Return the names of a type that a resource names."""
    return [one.name for one in user.references if one.type_url == type_url(short_name)]


class Rollouts(RuleBasedStateMachine):
    """A tree, its rollout, and some clients."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.options = RolloutOptions(linger_s=LINGER_S, step_timeout_s=TIMEOUT_S)
        self.rollout = Rollout(self.options)
        self.tree = tree_snapshot({})
        self.targets = [self.tree]
        self.clients: list[TakingClient] = []
        self.published: Snapshot | None = None
        self.announced: Step | None = None
        self.rollout.receive_target(self.tree, self.now_s)
        self.publish()
        self.join()
        self.join()

    # What the world does.

    @rule(tree=trees())
    def edit(self, tree: Tree) -> None:
        """Change the tree."""
        self.tree = tree_snapshot(tree, self.tree)
        self.targets.append(self.tree)
        self.rollout.receive_target(self.tree, self.now_s)
        self.publish()

    @rule()
    def load_again(self) -> None:
        """Load a tree of equal content."""
        self.tree = tree_snapshot(tree_of(self.tree))
        self.rollout.receive_target(self.tree, self.now_s)
        self.publish()

    @rule(number=st.integers(0, 3), url=st.sampled_from(TYPES))
    def take(self, number: int, url: TypeUrl) -> None:
        """Let a client take what is served of a type."""
        if number < len(self.clients):
            self.take_type(self.clients[number], url)

    @rule(number=st.integers(0, 3), urls=st.permutations(TYPES))
    def take_all(self, number: int, urls: list[TypeUrl]) -> None:
        """Let a client take everything that is served, in any order."""
        if number < len(self.clients):
            for url in urls:
                self.take_type(self.clients[number], url)
                self.nobody_loses_what_it_uses()

    @rule()
    def all_take_all(self) -> None:
        """Let all clients take everything that is served."""
        for client in tuple(self.clients):
            for url in TYPES:
                self.take_type(client, url)

    @rule(number=st.integers(0, 3))
    def leave(self, number: int) -> None:
        """Let a client go."""
        if number < len(self.clients):
            self.rollout.receive_taken(self.clients.pop(number), self.now_s)
            self.publish()

    @precondition(lambda self: len(self.clients) < 4)
    @rule()
    def join(self) -> None:
        """Let a new client come; it takes what is served."""
        assert self.published is not None
        self.clients.append(TakingClient({url: self.published.resources(url) for url in TYPES}))

    @rule(seconds=st.sampled_from([0.5, 4.0, 6.0, 30.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        """Let time pass, in steps as small as the rollout asks for."""
        until_s = self.now_s + seconds
        for _ in range(MOST_TURNS):
            at_s = self.rollout.timer_at_s
            if at_s is None or at_s > until_s:
                break
            self.now_s = max(self.now_s, at_s)
            self.rollout.receive_timer(self.now_s)
            self.publish()
        else:
            raise AssertionError("a timer that is never over")
        self.now_s = until_s

    @rule(is_loaded=st.booleans())
    def restart(self, *, is_loaded: bool) -> None:
        """End the process, and begin where it was; its clients keep what they have."""
        assert self.rollout.state is not None
        # Clocks of processes begin anywhere.
        state, self.now_s = self.rollout.state, self.now_s + 1000
        for client in self.clients:
            client.drains = [(listener, end_s + 1000) for listener, end_s in client.drains]
            if self.published is None or any(client.held[url] is not self.published.resources(url) for url in TYPES):
                client.drop_promises()
        self.rollout, self.announced = Rollout(self.options, state), None
        self.publish()
        if is_loaded:
            self.load_again()

    @rule(number=st.integers(0, 5))
    def go_back(self, number: int) -> None:
        """Ask for an earlier tree."""
        self.tree = self.targets[-1 - number % len(self.targets)]
        self.rollout.receive_target(self.tree, self.now_s)
        self.publish()

    @rule()
    def report_drained(self) -> None:
        """Look which listeners of no client drain any more."""
        draining = {listener.name for client in self.clients for listener, _ in client.drains}
        is_certain = all(client.is_sure for client in self.clients)
        if is_certain:
            self.rollout.receive_drained({"l", "m"} - draining, self.now_s)
            self.publish()

    # What is promised.

    @invariant()
    def nobody_loses_what_it_uses(self) -> None:
        """Whoever keeps up has what its listeners, routes and clusters name; drained connections use nothing."""
        for client in self.clients:
            client.drains = [(listener, end_s) for listener, end_s in client.drains if end_s > self.now_s]
            if not client.is_sure or self.published is None:
                continue
            clusters = client.held[CDS]
            assert {*client.named("CDS", LDS), *client.named("CDS", RDS)} <= clusters.keys()
            drained = [name for listener, _ in client.drains for name in names_in(listener, "CDS")]
            in_use = {*client.named("CDS", LDS), *client.named("CDS", RDS), *drained}
            needed = {name for cluster in in_use & clusters.keys() for name in names_in(clusters[cluster], "EDS")}
            # A new cluster warms until its endpoints come, but they have to be there.
            assert needed <= {*client.held[EDS], *self.published.resources(EDS)}
            for listener, _ in client.drains:
                assert set(names_in(listener, "CDS")) <= clusters.keys(), "a draining listener lost its cluster"
                assert set(names_in(listener, "RDS")) <= client.held[RDS].keys(), "a draining listener lost its routes"

    def teardown(self) -> None:
        """End with the facts that count."""
        self.load_again()
        for _ in range(MOST_TURNS):
            self.all_take_all()
            self.nobody_loses_what_it_uses()
            if self.rollout.timer_at_s is None:
                break
            self.pass_time(LINGER_S / 4)
        assert (None, {}) == (self.rollout.step, dict(self.rollout.lingering))
        assert self.rollout.served is not None
        assert tree_of(self.tree) == tree_of(self.rollout.served)
        assert self.rollout.has_reached(self.tree)

    # How a publisher does it.

    def publish(self) -> None:
        """Publish what is to be served, and say who has not taken it yet, until there is something to wait for."""
        for _ in range(MOST_TURNS):
            self.note_late()
            self.published, step = self.rollout.served, self.rollout.step
            if step is self.announced or step is None:
                return
            self.announced = step
            pending: set[Client] = {one for one in self.clients if one.standing(step) is Standing.PENDING}
            self.rollout.receive_waiting(pending, self.now_s)
        raise AssertionError("steps that never end")

    def note_late(self) -> None:
        """Note who cannot rely on anything any more."""
        for event in self.rollout.take_events():
            for client in self.clients:
                if isinstance(event, StepTimedOut) and client in event.clients:
                    client.drop_promises()

    def take_type(self, client: TakingClient, url: TypeUrl) -> None:
        """Let a client take a type, and the rollout know when it has all."""
        if self.published is None:
            return
        client.take(url, self.published.resources(url), self.now_s)
        step = self.rollout.step
        if step is not None and client.standing(step) is Standing.TAKEN:
            self.rollout.receive_taken(client, self.now_s)
            self.publish()
        if all(client.held[each] is self.published.resources(each) for each in TYPES):
            client.is_sure = True
            if self.rollout.step is None:
                self.rollout.receive_taken(client, self.now_s)
                self.publish()


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(stateful_step_count=40)
