"""Whatever happens, and in whatever order: a client that accepts ends up with what it should hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fsxds.model.resources import Snapshot
from fsxds.model.values import Version
from fsxds.protocol.messages import Node
from fsxds.protocol.poll import Decision, PollMemory, PollRequest, Send, Wait
from fsxds.protocol.polling_node import LEAST_PAUSE_S
from fsxds.protocol.subscription import Selection, Subscription, select
from fsxds.rollout.step import Standing
from tests.support.snapshots import snapshot, type_url
from tests.support.steps import step_between

NAMES = ("a", "b")
LONGEST_BACK_OFF_S = 60.0
MOST_TURNS = 12

Held = dict[str, bytes]


@dataclass(slots=True)
class Client:
    """A client as Envoy is one: a rejected answer may be applied in part, and its version stays what it was."""

    request: PollRequest
    version: Version | None = None
    held: Held = field(default_factory=dict)
    # A rejected or lost answer since the last that was accepted; then it is not known what the client holds.
    is_unsure: bool = False
    # What it then says it holds may be all that a restarted server knows of it.
    was_unsure_at_restart: bool = False
    is_waiting: bool = False
    until_s: float | None = None
    # The version that was not accepted, how often in a row, and when it was sent last.
    nacked: tuple[Version | None, int, float] = (None, 0, 0.0)
    ended_at_s: float = 0.0
    # The server knows of it, and its last poll was not broken off.
    is_known: bool = False

    def poll(self) -> PollRequest:
        """Return the poll that the client has open, or would send."""
        old = self.request
        return PollRequest(old.node, old.subscription, self.version, from_envoy=old.from_envoy)

    def start_again(self) -> None:
        """Forget everything, as a new process does."""
        self.version, self.held, self.is_waiting, self.is_known = None, {}, False, False
        self.is_unsure = self.was_unsure_at_restart = False
        self.nacked = (None, 0, 0.0)


def _clients() -> list[Client]:
    wanted = [
        ("envoy", Subscription.for_request(type_url("CDS"), ())),
        ("envoy", Subscription.for_request(type_url("EDS"), ["a"])),
        ("other", Subscription.for_request(type_url("EDS"), ["a", "b"])),
        ("other", Subscription.for_request(type_url("SDS"), ["b"])),
    ]
    return [Client(PollRequest(Node(node), wants, from_envoy=node == "envoy")) for node, wants in wanted]


# What becomes of an answer; one that is cut off did not arrive, and the server knows.
FATES = st.sampled_from(["accepted", "rejected", "lost", "cut off"])
CLIENT_NUMBERS = st.integers(0, 3)


class Polling(RuleBasedStateMachine):
    """A server, its files, and four clients of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.memory = PollMemory()
        self.clients = _clients()
        self.contents: dict[str, dict[str, str]] = {"CDS": {}, "EDS": {}, "SDS": {}}
        self.current = self.before = snapshot(self.contents)

    @rule(
        short_name=st.sampled_from(["CDS", "EDS", "SDS"]), name=st.sampled_from(NAMES), content=st.sampled_from("-12")
    )
    def edit(self, short_name: str, name: str, content: str) -> None:
        """Write a resource, or remove it."""
        self.before = self.current
        self.contents[short_name].pop(name, None)
        if content != "-":
            self.contents[short_name][name] = content
        self.current = snapshot(self.contents, generation=self.current.generation + 1)

    @rule(number=CLIENT_NUMBERS, fate=FATES)
    def poll(self, number: int, fate: str) -> None:
        """Let a client ask; when it is answered, the answer may be accepted, rejected or lost."""
        client = self.clients[number]
        if not client.is_waiting:
            decision, _ = self.memory.receive_request(client.poll(), self.current, self.now_s)
            self.receive(client, decision, fate)

    @rule(fates=st.lists(FATES, min_size=4, max_size=4))
    def look_again(self, fates: list[str]) -> None:
        """Look at all open polls again, as a newer snapshot makes the server do."""
        for client, fate in zip(self.clients, fates, strict=True):
            if client.is_waiting:
                self.receive(client, self.memory.receive_snapshot(client.poll(), self.current, self.now_s), fate)

    @rule(number=CLIENT_NUMBERS)
    def end_poll(self, number: int) -> None:
        """End a held poll with nothing new."""
        client = self.clients[number]
        if client.is_waiting:
            self.memory.receive_deadline(client.poll(), self.now_s)
            self.memory.receive_end(client.poll(), self.now_s, is_given_up=False)
            client.is_waiting, client.ended_at_s = False, self.now_s

    @rule(number=CLIENT_NUMBERS)
    def break_off(self, number: int) -> None:
        """Let a client give up a poll that is held."""
        client = self.clients[number]
        if client.is_waiting:
            self.memory.receive_end(client.poll(), self.now_s, is_given_up=True)
            client.is_waiting = client.is_known = False

    @rule(number=CLIENT_NUMBERS)
    def start_client_again(self, number: int) -> None:
        """Replace a client by a new process."""
        self.break_off(number)
        self.clients[number].start_again()

    @rule()
    def restart_server(self) -> None:
        """Replace the server by a new process on the same files; open polls break off."""
        self.memory = PollMemory()
        for client in self.clients:
            client.is_waiting = client.is_known = False
            client.was_unsure_at_restart = client.is_unsure
            client.nacked = (None, 0, 0.0)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    @precondition(lambda self: any(client.is_unsure for client in self.clients))
    @rule()
    def settle(self) -> None:
        """Let every client ask and accept until it holds what it should."""
        for client in self.clients:
            self.converge(client)

    @invariant()
    def waiting_polls_have_no_news(self) -> None:
        """A client that was sent the current answer and took it is not kept waiting for it."""
        for client in self.clients:
            wanted = select(self.current, client.request.subscription)
            if client.version == wanted.version and not client.is_unsure:
                assert _held(wanted) == client.held

    @invariant()
    def a_step_that_is_taken_is_held(self) -> None:
        """A step that counts as taken is what the client holds, of all that it still polls and that exists."""
        step = step_between(self.before, self.current)
        for client in self.clients:
            node, subscription = self.memory.node_of(client.request.node), client.request.subscription
            if node is None or node.standing(step) is not Standing.TAKEN or not client.is_known:
                continue
            if subscription.type_url in step.changed and subscription.selects_any(step.changed[subscription.type_url]):
                wanted = _held(select(self.current, subscription))
                is_gone = not subscription.wildcard and not wanted
                assert is_gone or client.was_unsure_at_restart or client.held == wanted or self.is_silent(client)

    def is_silent(self, client: Client) -> bool:
        """Whether nobody waits for a client: it has not polled for long, or not since it got that there is nothing for it."""
        is_without = client.held.keys() <= {"in part"} and not client.request.subscription.wildcard
        return not client.is_waiting and (is_without or self.now_s - client.ended_at_s > LEAST_PAUSE_S)

    def teardown(self) -> None:
        """End with the fact that counts."""
        for client in self.clients:
            self.converge(client)
        self.check_taken()

    def receive(self, client: Client, decision: Decision, fate: str) -> None:
        """Hand a decision to a client, and hold it against what a server may do."""
        started = client.version is None and self.now_s - client.ended_at_s >= 1.0 and not client.is_waiting
        client.is_waiting = isinstance(decision, Wait)
        if isinstance(decision, Wait):
            client.until_s = decision.until_s
            if client.version == select(self.current, client.request.subscription).version:
                client.is_known = True
            assert decision.until_s is None or self.now_s < decision.until_s <= self.now_s + LONGEST_BACK_OFF_S
            assert not started or not self.may_be_told(client), "a client that starts is answered at once"
            return
        assert isinstance(decision, Send)
        client.is_known = True
        offered = decision.selection
        assert _held(offered) == _held(select(self.current, client.request.subscription))
        assert client.is_unsure or offered.version != client.version, "what was accepted is not answered again"
        self.check_back_off(client, offered.version)
        client.ended_at_s = self.now_s
        if fate == "accepted":
            client.version, client.held, client.nacked = offered.version, _held(offered), (None, 0, 0.0)
            client.is_unsure = client.was_unsure_at_restart = False
        else:
            client.is_unsure, client.was_unsure_at_restart = True, False
            client.held = {"in part": b""} if fate == "rejected" else client.held
            before, times, _ = client.nacked
            client.nacked = (offered.version, times + 1 if before == offered.version else 1, self.now_s)
        if fate == "cut off":
            self.memory.receive_lost(client.poll())
            client.nacked = (None, 0, 0.0)
            client.is_known = False
        self.memory.receive_end(client.poll(), self.now_s, is_given_up=fate == "cut off")

    def check_back_off(self, client: Client, version: Version) -> None:
        """What a client did not accept is kept from it for 1, 2, 4 … and at most 60 seconds."""
        nacked, times, offered_at_s = client.nacked
        if client.version is not None and nacked == version:
            earliest_s = offered_at_s + min(2.0 ** (times - 1), LONGEST_BACK_OFF_S)
            assert self.now_s >= earliest_s, f"offered {times + 1} times, {self.now_s - offered_at_s} s after the last"

    def may_be_told(self, client: Client) -> bool:
        """Whether there is anything to say to a client: an answer without secrets is none."""
        subscription = client.request.subscription
        return subscription.type_url != type_url("SDS") or bool(select(self.current, subscription).resources)

    def converge(self, client: Client) -> None:
        """Let a client ask and accept until there is nothing left to wait for."""
        for _ in range(MOST_TURNS):
            request = client.poll()
            if client.is_waiting:
                self.receive(client, self.memory.receive_snapshot(request, self.current, self.now_s), "accepted")
            else:
                decision, _ = self.memory.receive_request(request, self.current, self.now_s)
                self.receive(client, decision, "accepted")
            if client.is_waiting and client.until_s is None:
                break
            self.now_s = max(self.now_s, client.until_s or 0.0) if client.is_waiting else self.now_s
        if self.may_be_told(client):
            assert self.holds_what_it_should(client)

    def check_taken(self) -> None:
        """Let all clients that hold everything count as having taken the last step."""
        step = step_between(self.before, self.current)
        for client in self.clients:
            node = self.memory.node_of(client.request.node)
            assert node is None or node.standing(step) is Standing.TAKEN

    def holds_what_it_should(self, client: Client) -> bool:
        """Compare with the files, not with what `select` says."""
        subscription = client.request.subscription
        short_name = next(name for name in self.contents if type_url(name) == subscription.type_url)
        wanted = {
            name: f"{name}={content}".encode()
            for name, content in self.contents[short_name].items()
            if subscription.wildcard or name in subscription.names
        }
        # A server that restarted after a rejection must believe the version that the client says.
        return client.was_unsure_at_restart or wanted == client.held


def _held(selection: Selection) -> Held:
    return {resource.name: resource.body for resource in selection.resources}


TestPolling = Polling.TestCase
TestPolling.settings = settings(stateful_step_count=40)


def test_snapshot_of_the_machine_has_every_type_declared() -> None:
    """The machine never meets what is withheld, so that there is always an answer for its clients."""
    current: Snapshot = Polling().current

    assert not current.withheld
    assert not current.undeclared & {type_url("CDS"), type_url("EDS"), type_url("SDS")}
