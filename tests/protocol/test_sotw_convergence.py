"""Whatever happens, and in whatever order: a client of a stream ends up with what it should hold."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import Reference, Rows, Snapshot
from fsxds.model.values import Nonce, Severity, TypeUrl
from fsxds.protocol.messages import SotwRequest, SotwResponse
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import SharedMemory, Subscription, select
from fsxds.protocol.ttl import TtlMode
from fsxds.rollout.pending import BACK_OFF
from fsxds.rollout.step import Standing
from tests.support.snapshots import snapshot, type_url
from tests.support.sotw_client import TypeClient
from tests.support.steps import step_between

NAMES = ("a", "b")
SHORT_NAMES = ("CDS", "EDS", "LDS", "SDS")
MOST_TURNS = 200

TYPES = st.sampled_from(SHORT_NAMES)
NAME_SETS = st.frozensets(st.sampled_from(NAMES))
FATES = st.sampled_from(["accepted", "accepted", "rejected"])


@dataclass(slots=True)
class Wire:
    """A stream, and what is under way on it."""

    stream: SotwStream
    to_server: list[SotwRequest] = field(default_factory=list)
    to_client: list[SotwResponse] = field(default_factory=list)
    asked: set[TypeUrl] = field(default_factory=set)
    bodies: dict[Nonce, dict[str, bytes]] = field(default_factory=dict)
    published: Snapshot | None = None
    sent: dict[TypeUrl, Nonce] = field(default_factory=dict)
    names: dict[TypeUrl, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Nack:
    """Content that a client rejected, as its server knows it."""

    bodies: dict[str, bytes]
    at_s: float
    in_a_row: int


class Streaming(RuleBasedStateMachine):
    """A server, its files, and a client of it with four types on one stream."""

    is_aggregated = True

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.memory = SharedMemory()
        self.contents: dict[str, dict[str, str]] = {name: {"a": "1"} for name in SHORT_NAMES}
        self.generation = 0
        self.is_published = True
        self.current = self.before = self.read_files()
        # By type, what was rejected: full states as a whole (by no name), anything else by its name.
        self.nacks: dict[TypeUrl, dict[str, Nack]] = {}
        wants = {"CDS": None, "LDS": None, "EDS": frozenset(NAMES), "SDS": frozenset("a")}
        self.clients = {name: TypeClient(name, wants[name]) for name in SHORT_NAMES}
        self.wires: dict[str, Wire] = {}
        self.connect()
        for short_name in SHORT_NAMES:
            self.ask(short_name)

    @rule(short_name=TYPES, name=st.sampled_from(NAMES), content=st.sampled_from("-12"))
    def edit(self, short_name: str, name: str, content: str) -> None:
        """Write a resource, or remove it; the streams have not got it yet."""
        if self.is_published:
            self.before, self.is_published = self.current, False
        self.contents[short_name].pop(name, None)
        if content != "-":
            self.contents[short_name][name] = content
        self.current = self.read_files()

    @invariant()
    def a_step_that_is_taken_is_held(self) -> None:
        """Where the server knows all that its client said, a step that counts as taken is what the client holds."""
        step = step_between(self.before, self.current)
        for wire in self.distinct_wires():
            if not wire.to_server and wire.stream.standing(step) is Standing.TAKEN:
                for short_name in SHORT_NAMES:
                    if self.wires[short_name] is wire and type_url(short_name) in step.changed:
                        self.check_taken(wire, self.clients[short_name])

    def check_taken(self, wire: Wire, client: TypeClient) -> None:
        """Compare what a client holds of what was changed."""
        change = step_between(self.before, self.current).changed[type_url(client.short_name)]
        subscription = wire.stream.subscription_of(type_url(client.short_name))
        unsure = client.tainted | client.given_up | (client.nacked if client.is_full else set())
        for name in (change.fresh | (change.removed if client.is_full else frozenset())) - unsure:
            if (client.wants is None or name in client.wants) and (subscription.wildcard or name in subscription.names):
                content = self.contents[client.short_name].get(name)
                assert client.held.get(name) == (content and f"{name}={content}".encode()), "it holds something else"

    @rule()
    def publish(self) -> None:
        """Give the streams the files, whether anything changed or not."""
        for wire in self.distinct_wires():
            self.look(wire)
            self.send(wire, wire.stream.receive_snapshot(self.current, self.now_s))
        self.is_published = True

    @rule(short_name=TYPES)
    def ask(self, short_name: str) -> None:
        """Let the client begin with a type."""
        client = self.clients[short_name]
        if not client.has_asked and client.wants != frozenset():
            self.request(client)

    @rule(short_name=TYPES, names=NAME_SETS)
    def ask_for_others(self, short_name: str, names: frozenset[str]) -> None:
        """Let the client ask for other names, also for a type of which it had everything."""
        client = self.clients[short_name]
        client.want(names)
        if client.has_asked:
            self.request(client)

    @rule()
    def deliver_request(self) -> None:
        """Let the oldest request of each stream arrive."""
        for wire in self.distinct_wires():
            if wire.to_server:
                self.arrive(wire, wire.to_server.pop(0))

    @rule(fate=FATES)
    def deliver_response(self, fate: str) -> None:
        """Let the oldest response of each stream arrive."""
        for wire in self.distinct_wires():
            if wire.to_client:
                self.receive(wire.to_client.pop(0), fate)

    @rule(fate=FATES)
    def deliver_all(self, fate: str) -> None:
        """Let everything arrive in turn that is under way now."""
        for _ in range(2 * len(SHORT_NAMES)):
            self.deliver_request()
            self.deliver_response(fate)

    @rule(short_name=st.sampled_from(["CDS", "EDS"]), content=st.sampled_from("12"))
    def edit_at_rest(self, short_name: str, content: str) -> None:
        """Write what clusters and their endpoints share the name of, and let the client have it."""
        self.edit(short_name, "a", content)
        self.publish()
        self.deliver_all("accepted")

    @rule(old=st.sampled_from(NAMES), content=st.sampled_from("12"))
    def move(self, old: str, content: str) -> None:
        """Replace a cluster by the other one, and let the listener follow, all at once."""
        (new,) = set(NAMES) - {old}
        self.edit("CDS", old, "-")
        self.edit("CDS", new, content)
        self.edit("LDS", "a", content)
        self.publish()

    @rule(content=st.sampled_from("12"))
    def reconnect(self, content: str) -> None:
        """Break all streams; what was under way is lost, and a cluster may have changed meanwhile."""
        self.edit("CDS", "a", content)
        self.connect()

    @rule()
    def restart_server(self) -> None:
        """Replace the server by a new process on the same files."""
        self.memory = SharedMemory()
        self.connect()

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        """Let time pass, in steps as small as the streams ask for."""
        self.advance(self.now_s + seconds)

    @precondition(lambda self: any(client.nacked for client in self.clients.values()))
    @rule()
    def settle(self) -> None:
        """Let everything arrive and be accepted, until nothing is under way and nothing is left to wait for."""
        for short_name in SHORT_NAMES:
            self.ask(short_name)
        self.publish()
        for _ in range(MOST_TURNS):
            wires = self.distinct_wires()
            if any(wire.to_server or wire.to_client for wire in wires):
                self.deliver_request()
                self.deliver_response("accepted")
                continue
            times = [at_s for wire in wires if (at_s := wire.stream.timer_at_s) is not None]
            if not times:
                break
            self.advance(max(min(times), self.now_s))
        else:
            raise AssertionError("the server and a client that accepts never come to rest")
        self.check_rest()

    def teardown(self) -> None:
        """End with the facts that count."""
        self.settle()

    def check_rest(self) -> None:
        """Compare what the client holds with the files."""
        for short_name, client in self.clients.items():
            wanted = {
                name: f"{name}={content}".encode()
                for name, content in self.contents[short_name].items()
                if client.wants is None or name in client.wants
            }
            held = client.held if client.is_full else {name: client.held.get(name) for name in wanted}
            unsure = client.tainted
            assert {n: b for n, b in wanted.items() if n not in unsure} == {
                n: b for n, b in held.items() if n not in unsure
            }, short_name
            assert not client.awaited & wanted.keys() - unsure, "a cluster waits for endpoints that are there"
        step = step_between(self.before, self.current)
        assert all(wire.stream.standing(step) is Standing.TAKEN for wire in self.distinct_wires())
        self.publish()
        assert not any(wire.to_client for wire in self.distinct_wires()), "nothing changed, and something was sent"

    def connect(self) -> None:
        """Open new streams, and ask on them for what was asked for before."""
        asked = [client for client in self.clients.values() if client.has_asked]
        shared = Wire(self.open())
        self.wires = {name: shared if self.is_aggregated else Wire(self.open()) for name in SHORT_NAMES}
        self.nacks = {}
        for client in self.clients.values():
            client.start_stream()
        for client in asked:
            if client.wants != frozenset():
                self.request(client)

    def open(self) -> SotwStream:
        """Open a stream."""
        return SotwStream(self.memory, TtlMode.ENVOY, is_aggregated=self.is_aggregated)

    def distinct_wires(self) -> list[Wire]:
        """Return each stream once."""
        return list({id(wire): wire for wire in self.wires.values()}.values())

    def request(self, client: TypeClient, error_detail: str | None = None) -> None:
        """Send what the client has to say."""
        self.wires[client.short_name].to_server.append(client.request(error_detail))

    def arrive(self, wire: Wire, request: SotwRequest) -> None:
        """Let the server take a request."""
        url = request.type_url
        is_first = url not in wire.asked
        wire.asked.add(url)
        selection = select(self.current, Subscription.for_request(url, request.names))
        changed = self.look(wire)
        self.is_published = True
        reaction = wire.stream.receive_request(request, self.current, self.now_s)
        answered = {response.type_url for response in reaction.responses}
        is_stale = request.nonce is not None and request.nonce != wire.sent.get(url, request.nonce)
        assert not (is_stale and url in answered), "a stale request is answered"
        if is_first and request.version_info == selection.version:
            # Behind clusters that are sent on this stream their endpoints are, too.
            is_due = url == type_url("EDS") and type_url("CDS") in {*wire.sent, *answered}
            assert is_due or url not in answered, "it is sent what it holds"
        if is_first:
            self.nacks.pop(url, None)
        if reaction.acknowledgement is not None and request.nonce is not None:
            is_certain = request.nonce == wire.sent[url] and url not in changed
            is_rejected = is_certain and not reaction.acknowledgement.accepted
            self.judge(url, wire.bodies[request.nonce], is_rejected=is_rejected)
        # What a request asks for is no offer of what was rejected before.
        if not is_stale and wire.names.get(url) != request.names:
            wire.names[url] = request.names
            self.nacks.pop(url, None)
        self.send(wire, reaction.responses)

    def judge(self, url: TypeUrl, bodies: dict[str, bytes], *, is_rejected: bool) -> None:
        """Remember what the server knows of a response: that it was rejected, or not."""
        is_full = BY_TYPE_URL[url].full_state_in_sotw
        units = {"": bodies} if is_full else {name: {name: body} for name, body in bodies.items()}
        known = self.nacks.setdefault(url, {})
        for key, unit in units.items():
            before = known.pop(key, None)
            if is_rejected:
                in_a_row = before.in_a_row + 1 if before and before.bodies == unit else 1
                known[key] = Nack(unit, self.now_s, in_a_row)

    def look(self, wire: Wire) -> set[TypeUrl]:
        """Let a stream see the current files; return the types with other content, which may be sent at once."""
        before, wire.published = wire.published, self.current
        changed = {
            url for url in self.current.by_type if before and before.resources(url) != self.current.resources(url)
        }
        for short_name in SHORT_NAMES:
            if self.wires[short_name] is wire and type_url(short_name) in changed:
                self.nacks.pop(type_url(short_name), None)
        return changed

    def send(self, wire: Wire, responses: tuple[SotwResponse, ...]) -> None:
        """Put responses on their way, and hold them against what a server may do."""
        self.check_order(responses)
        for response in responses:
            row = BY_TYPE_URL[response.type_url]
            assert response.resources or row.full_state_in_sotw, "an empty list of what cannot be removed"
            names = [resource.name for resource in response.resources]
            assert names == sorted(set(names))
            self.check_back_off(response)
            wire.sent[response.type_url] = response.nonce
            wire.bodies[response.nonce] = {resource.name: resource.body for resource in response.resources}
            wire.to_client.append(response)

    def check_order(self, responses: tuple[SotwResponse, ...]) -> None:
        """Each type is sent once, what is used before what uses it."""
        order = [row.type_url for row in RESOURCE_TYPES]
        places = [order.index(response.type_url) for response in responses]
        assert places == sorted(set(places))

    def check_back_off(self, response: SotwResponse) -> None:
        """What a client rejected is kept from it for 1, 2, 4 … and at most 60 seconds."""
        offered = {resource.name: resource.body for resource in response.resources}
        is_full = BY_TYPE_URL[response.type_url].full_state_in_sotw
        for nack in self.nacks.get(response.type_url, {}).values():
            if offered == nack.bodies if is_full else nack.bodies.items() <= offered.items():
                assert self.now_s >= nack.at_s + BACK_OFF.pause_s(nack.in_a_row), "sent again too soon"
                # Until its ACK or NACK comes it may not be sent once more.
                nack.at_s = float("inf")

    def receive(self, response: SotwResponse, fate: str) -> None:
        """Let the client take a response, and answer it."""
        client = self.clients[BY_TYPE_URL[response.type_url].short_name.upper()]
        changed = client.accept(response) if fate == "accepted" else client.reject(response)
        if client.short_name == "CDS" and self.is_aggregated:
            endpoints = self.clients["EDS"]
            endpoints.awaited |= changed & (endpoints.wants or frozenset())
            # A cluster that was removed waits for nothing any more.
            endpoints.awaited &= client.held.keys()
        self.request(client, None if fate == "accepted" else "bad")

    def advance(self, until_s: float) -> None:
        """Let the clock go on, and the streams do what they planned at its time."""
        while True:
            due = [(at_s, wire) for wire in self.distinct_wires() if (at_s := wire.stream.timer_at_s) is not None]
            at_s, wire = min(due, key=lambda plan: plan[0], default=(until_s + 1, None))
            if wire is None or at_s > until_s:
                break
            self.now_s = max(self.now_s, at_s)
            responses = wire.stream.receive_timer(self.now_s)
            self.send(wire, responses)
            assert responses or wire.stream.timer_at_s != at_s, "a stream that wakes has something to do"
        self.now_s = max(self.now_s, until_s)

    def read_files(self) -> Snapshot:
        """Make a snapshot in which each cluster refers to the endpoints of its name."""
        self.generation += 1
        made = snapshot(self.contents, generation=self.generation)
        clusters = {
            name: replace(row, references=(Reference(type_url("EDS"), name, (), Severity.ERROR),))
            for name, row in made.resources(type_url("CDS")).items()
        }
        return replace(made, by_type={**made.by_type, type_url("CDS"): Rows(type_url("CDS"), clusters)})


class StreamingApart(Streaming):
    """The same with a stream for each type."""

    is_aggregated = False

    @rule(short_name=st.sampled_from(["EDS", "SDS"]))
    def forget(self, short_name: str) -> None:
        """Let the client forget what it accepted, and ask for it again, as an Envoy does that changed a cluster."""
        client, wire = self.clients[short_name], self.wires[short_name]
        if client.nonce and not (wire.to_server or wire.to_client or client.nacked or client.tainted):
            client.given_up |= set(client.held)
            client.held = {}
            self.request(client)


TestStreaming = Streaming.TestCase
TestStreaming.settings = settings(stateful_step_count=40)
TestStreamingApart = StreamingApart.TestCase
TestStreamingApart.settings = settings(stateful_step_count=40)
