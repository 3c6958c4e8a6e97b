"""Whatever happens on a Delta stream, and in whatever order: a client that accepts ends up with what it should hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import DeltaRequest, DeltaResponse, Node
from fsxds.protocol.subscription import SharedMemory
from fsxds.protocol.ttl import TtlMode
from fsxds.rollout.pending import BACK_OFF
from fsxds.rollout.step import Standing
from tests.support.snapshots import type_url
from tests.support.steps import step_between
from tests.support.written_files import WrittenFiles, body_of

NAMES = ("a", "b", "c")
# By name, what may be written of a virtual host: its domains.
HOSTS = {"r/1": ("@r/x.com", "@r/x.com,r/y.com"), "r/2": ("@r/*.com",), "r/3": ("@r/*", "@r/y.com")}
ASKED_HOSTS = ("r/x.com", "r/y.com", "r/z.org", "r/3")
MOST_TURNS = 60


@dataclass(slots=True)
class Nacked:
    """Content that the server knows to be rejected, None for a removal; `together` are the names in that response."""

    body: bytes | None
    at_s: float
    in_a_row: int
    together: frozenset[str]

    @property
    def retry_at_s(self) -> float:
        """When it is sent again."""
        return self.at_s + BACK_OFF.pause_s(self.in_a_row)


@dataclass(slots=True)
class Known:
    """What a client knows of one type.

    `held` is what it has in use: after a rejection, some of what it rejected. `accepted` is what it says of it when it
    connects again. `doubtful` are names of which it rejected something, `hidden` those of them of which it claimed something
    else than it holds when it connected again. `nacked` is what the server knows to be rejected, `edited` the names that
    were written since it got edits last; `vague` are names that may be sent at any time. `has_given_up`: what it had
    by a host that it gave up is its own to drop.
    """

    names: set[str] = field(default_factory=set)
    is_wild: bool = False
    was_asked: bool = False
    held: dict[str, bytes] = field(default_factory=dict)
    accepted: dict[str, Version] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    nacked: dict[str, Nacked] = field(default_factory=dict)
    edited: set[str] = field(default_factory=set)
    vague: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    has_given_up: bool = False


class DeltaStreams(RuleBasedStateMachine):
    """A server, its files, and one client on an aggregated stream; messages are under way for as long as they like."""

    types: ClassVar[tuple[str, ...]] = ("CDS", "EDS", "VHDS")
    is_aggregated: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.files = WrittenFiles()
        for short_name in self.types:
            self.files.say("files", short_name, [])
        self.memory = SharedMemory()
        self.current = self.before = self.files.snapshot()
        self.is_published = True
        self.known = {short_name: Known() for short_name in self.types}
        self.to_server: deque[DeltaRequest] = deque()
        self.to_client: deque[DeltaResponse] = deque()
        self.warming: set[str] = set()
        self.open_stream()

    def open_stream(self) -> None:
        """Begin a stream; what was under way on the one before is lost."""
        self.stream = DeltaStream(self.memory, TtlMode.ENVOY, is_aggregated=self.is_aggregated)
        self.to_server.clear()
        self.to_client.clear()
        self.warming.clear()
        self.in_flight: dict[Nonce, DeltaResponse] = {}

    @initialize()
    def begin(self) -> None:
        """Begin with something to serve."""
        for short_name in self.types:
            name, content = ("r/1", "1@r/x.com") if short_name == "VHDS" else ("a", "1>a")
            self.files.say("files", short_name, [f"{name}={content}"])
        self.current = self.files.snapshot()

    @rule(number=st.integers(0, 2), index=st.integers(0, 2), content=st.sampled_from("-123"))
    def edit(self, number: int, index: int, content: str) -> None:
        """Write a resource, or remove it; the stream gets it when it looks."""
        if self.is_published:
            self.before, self.is_published = self.current, False
        short_name = self.types[number % len(self.types)]
        written = dict(self.files.contents[short_name])
        if short_name == "VHDS":
            name = list(HOSTS)[index]
            value = f"{content}{HOSTS[name][int(content) % len(HOSTS[name]) if content != '-' else 0]}"
        else:
            name, value = NAMES[index], f"{content}>{NAMES[index]}"
        written.pop(name, None)
        if content != "-":
            written[name] = value
        self.files.say("files", short_name, [f"{key}={value}" for key, value in sorted(written.items())])
        self.current = self.files.snapshot()
        known = self.known[short_name]
        known.edited.add(name)
        # Which virtual host serves a host depends on all of them.
        known.nacked = {
            each: nacked
            for each, nacked in known.nacked.items()
            if name not in nacked.together and short_name != "VHDS"
        }

    @rule()
    def publish(self) -> None:
        """Give the stream what is current."""
        self.take_responses(self.stream.receive_snapshot(self.current, self.now_s))
        self.note_heard()

    def note_heard(self) -> None:
        """Note that the stream knows all that was written."""
        self.is_published = True
        for known in self.known.values():
            known.edited.clear()

    @invariant()
    def a_step_that_is_taken_is_held(self) -> None:
        """Where the server knows all that its client said, a step that counts as taken is what the client holds."""
        step = step_between(self.before, self.current)
        if self.to_server or self.stream.standing(step) is not Standing.TAKEN:
            return
        for short_name in self.types:
            known, files = self.known[short_name], self.files.contents[short_name]
            change = step.changed.get(type_url(short_name))
            if change is None or short_name == "VHDS":
                continue
            for name in (change.fresh | change.removed) - known.hidden:
                if known.was_asked and self.is_wanted(short_name, name):
                    written = f"{name}={body_of(files[name])}".encode() if name in files else None
                    assert known.held.get(name) == written, "it holds something else"

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        """Let time pass; the server looks at its stream when it asked for it."""
        self.now_s += seconds
        at_s = self.stream.timer_at_s
        if at_s is not None and at_s <= self.now_s:
            self.take_responses(self.stream.receive_timer(self.now_s))

    @rule(number=st.integers(0, 2), index=st.integers(0, 4), is_more=st.booleans())
    def want(self, number: int, index: int, *, is_more: bool) -> None:
        """Subscribe to a name or give one up; `*` is one of them, and the first request may have none."""
        short_name = self.types[number % len(self.types)]
        known = self.known[short_name]
        choices = ("*", *(ASKED_HOSTS if short_name == "VHDS" else NAMES), "")
        name = choices[index % len(choices)]
        if not known.was_asked:
            self.ask_first(short_name, name)
        elif name and is_more:
            self.subscribe(short_name, name)
        elif name:
            self.give_up(short_name, name)

    def ask_first(self, short_name: str, name: str) -> None:
        """Send the first request of a type on a stream."""
        known = self.known[short_name]
        known.was_asked = True
        if name in {"", "*"}:
            known.is_wild = True
        else:
            known.names.add(name)
        self.send(short_name, subscribe=(name,) if name else (), initial_resource_versions=dict(known.accepted))

    def subscribe(self, short_name: str, name: str) -> None:
        """Subscribe to a name, perhaps again."""
        known = self.known[short_name]
        known.is_wild = known.is_wild or name == "*"
        if name != "*":
            known.names.add(name)
        known.answered.discard(name)
        self.send(short_name, subscribe=(name,))

    def give_up(self, short_name: str, name: str) -> None:
        """Give a name up, perhaps one that was never asked for; what nothing selects any more is dropped."""
        known = self.known[short_name]
        if name == "*":
            known.is_wild = False
        known.has_given_up = known.has_given_up or name in known.names
        known.names.discard(name)
        if short_name != "VHDS" and not known.is_wild:
            for gone in known.held.keys() - known.names:
                known.held.pop(gone)
                known.accepted.pop(gone, None)
        self.send(short_name, unsubscribe=(name,))

    def send(self, short_name: str, **fields: object) -> None:
        """Put a request on its way."""
        self.to_server.append(DeltaRequest(type_url(short_name), node=Node("n1", agent="envoy"), **fields))  # type: ignore[arg-type]

    @precondition(lambda self: self.to_server)
    @rule()
    def reach_server(self) -> None:
        """Let the server get the next request."""
        request = self.to_server.popleft()
        reaction = self.stream.receive_request(request, self.current, self.now_s)
        self.check_brought(request, reaction.responses)
        known = self.known[BY_TYPE_URL[request.type_url].short_name.upper()]
        if request.subscribe or request.unsubscribe:
            named = {*request.subscribe, *request.unsubscribe}
            known.vague |= known.nacked.keys() if "*" in named else named
        if request.nonce in self.in_flight:
            self.judge(known, self.in_flight.pop(request.nonce), is_rejected=request.error_detail is not None)
        self.note_heard()
        self.take_responses(reaction.responses)
        self.check_waiting()

    def judge(self, known: Known, response: DeltaResponse, *, is_rejected: bool) -> None:
        """Remember what the server knows of a response."""
        offered = _offered(response)
        together = frozenset(offered)
        # What is sent again has its ACK still to come.
        under_way = self.under_way(response.type_url)
        for name, body in offered.items():
            if not is_rejected:
                known.nacked.pop(name, None)
                known.vague.discard(name)
            elif known.edited if "VHDS" in self.types else known.edited & together:
                known.vague.add(name)
            elif name not in under_way:
                before = known.nacked.get(name)
                in_a_row = before.in_a_row + 1 if before and before.body == body else 1
                known.nacked[name] = Nacked(body, self.now_s, in_a_row, together)

    def under_way(self, url: TypeUrl) -> set[str]:
        """Return the names of a type that are on their way to the client, as its server knows."""
        return {name for sent in self.in_flight.values() if sent.type_url == url for name in _offered(sent)}

    def check_waiting(self) -> None:
        """What was rejected waits for its own back-off at most, whatever else was rejected."""
        if self.is_aggregated or "VHDS" in self.types:
            return
        for short_name, known in self.known.items():
            for name, nacked in known.nacked.items():
                if name not in known.vague | self.under_way(type_url(short_name)) and self.is_wanted(short_name, name):
                    at_s = self.stream.timer_at_s
                    assert at_s is not None, name
                    assert at_s <= nacked.retry_at_s, name

    def take_responses(self, responses: Iterable[DeltaResponse]) -> None:
        """Put responses on their way, and hold them against what a server may do."""
        for response in responses:
            known = self.known[BY_TYPE_URL[response.type_url].short_name.upper()]
            self.check_back_off(known, response)
            self.in_flight[response.nonce] = response
            self.to_client.append(response)

    @precondition(lambda self: self.to_client)
    @rule(is_taken=st.booleans(), applied=st.integers(0, 7))
    def reach_client(self, applied: int, *, is_taken: bool) -> None:
        """Let the client get the next response, and accept or reject it; then it may have applied some of it."""
        response = self.to_client.popleft()
        short_name = BY_TYPE_URL[response.type_url].short_name.upper()
        names = [resource.name for resource in response.resources]
        everything = [*names, *response.removed, *response.unpopulated]
        assert len(everything) == len(set(everything)), "no name stands twice in a response"
        if is_taken:
            self.accept(short_name, response)
            self.send(short_name, nonce=response.nonce)
        else:
            self.reject(short_name, response, applied)
            self.send(short_name, nonce=response.nonce, error_detail="no")

    def accept(self, short_name: str, response: DeltaResponse) -> None:
        """Apply a response."""
        known = self.known[short_name]
        for resource in response.resources:
            if short_name == "CDS" and known.held.get(resource.name) != resource.body:
                self.warming.add(resource.name)
            if self.is_wanted(short_name, resource.name):
                known.held[resource.name] = resource.body
                known.accepted[resource.name] = resource.version
        for name in response.removed:
            known.held.pop(name, None)
            known.accepted.pop(name, None)
        known.answered |= {*response.unpopulated, *(alias for others in response.aliases.values() for alias in others)}
        known.answered |= {*response.removed, *(resource.name for resource in response.resources)}
        for name in (*(resource.name for resource in response.resources), *response.removed):
            known.doubtful.discard(name)
            known.hidden.discard(name)
            if short_name == "EDS":
                self.warming.discard(name)

    def is_wanted(self, short_name: str, name: str) -> bool:
        """Whether a client keeps what it is sent: nothing that it gave up meanwhile."""
        known = self.known[short_name]
        return short_name == "VHDS" or known.is_wild or name in known.names

    def reject(self, short_name: str, response: DeltaResponse, applied: int) -> None:
        """Reject a response, but apply those parts of it whose bit is set."""
        known = self.known[short_name]
        for index, resource in enumerate(response.resources):
            known.doubtful.add(resource.name)
            if applied >> index & 1 and self.is_wanted(short_name, resource.name):
                known.held[resource.name] = resource.body
        for index, name in enumerate(response.removed):
            known.doubtful.add(name)
            if applied >> index & 1:
                known.held.pop(name, None)

    def check_back_off(self, known: Known, response: DeltaResponse) -> None:
        """What was rejected is not sent again at once, unless something changed or was asked for."""
        if self.is_aggregated and response.type_url != type_url("CDS"):
            # What follows its cluster may bring with it what was rejected of another name.
            return
        under_way = self.under_way(response.type_url)
        for name, body in _offered(response).items():
            nacked = known.nacked.get(name)
            if nacked and nacked.body == body and name not in known.vague | under_way:
                assert self.now_s >= nacked.retry_at_s, f"{name} again"

    def check_brought(self, request: DeltaRequest, responses: tuple[DeltaResponse, ...]) -> None:
        """What a client brings from another stream is not sent again, but for endpoints that their clusters need."""
        for response in responses:
            if request.initial_resource_versions and response.type_url == request.type_url and not self.is_aggregated:
                again = [
                    each.name
                    for each in response.resources
                    if request.initial_resource_versions.get(each.name) == each.version
                ]
                assert not again

    @rule(is_server_new=st.booleans())
    def connect_again(self, *, is_server_new: bool) -> None:
        """Break the stream, perhaps because the server starts again; the client says all names and versions that it has."""
        self.memory = SharedMemory() if is_server_new else self.memory
        self.open_stream()
        for short_name in self.types:
            known = self.known[short_name]
            known.nacked.clear()
            known.vague.clear()
            known.hidden |= known.doubtful
            known.answered |= known.names
            if known.was_asked:
                # It is not known what a NACK left behind: only a change makes it known again.
                self.send(
                    short_name,
                    subscribe=(*known.names, *(("*",) if known.is_wild else ())),
                    initial_resource_versions=dict(known.accepted),
                )

    def teardown(self) -> None:
        """End with the fact that counts."""
        self.converge()
        for short_name in self.types:
            if self.known[short_name].was_asked:
                self.check_held(short_name)

    def converge(self) -> None:
        """Let everything arrive and be accepted, until nothing more is sent."""
        self.publish()
        for _ in range(MOST_TURNS):
            while self.to_server or self.to_client:
                if self.to_server:
                    self.reach_server()
                else:
                    self.reach_client(0, is_taken=True)
            at_s = self.stream.timer_at_s
            if at_s is None:
                assert self.stream.standing(step_between(self.before, self.current)) is Standing.TAKEN
                return
            self.now_s = max(self.now_s, at_s)
            self.take_responses(self.stream.receive_timer(self.now_s))
        raise AssertionError("the server never falls silent")

    def check_held(self, short_name: str) -> None:
        """Compare with the files."""
        known = self.known[short_name]
        files = self.files.contents[short_name]
        bodies = {name: f"{name}={body_of(content)}".encode() for name, content in files.items()}
        if short_name == "VHDS":
            wanted = self.hosts_wanted(known)
            assert known.names <= known.answered, "a request for a host hangs"
            stale = set() if known.has_given_up else known.held.keys() - bodies.keys()
            held = {name: body for name, body in known.held.items() if name in wanted | stale}
        else:
            wanted = {name for name in bodies if known.is_wild or name in known.names}
            held = known.held
        expected = {name: bodies[name] for name in wanted}
        sure = {name: body for name, body in held.items() if name not in known.hidden}
        assert sure == {name: body for name, body in expected.items() if name not in known.hidden}
        if short_name == "EDS" and self.is_aggregated:
            assert not self.warming & known.names, "a cluster waits for its endpoints"

    def hosts_wanted(self, known: Known) -> set[str]:
        """Return the virtual hosts that serve what was asked for, and those that have its name."""
        files = self.files.contents["VHDS"]
        served = {_serving(name, files) for name in known.names} - {None}
        wanted = {name for name in served if name} | (known.names & files.keys())
        # The third serves everything: with it come all others. The second serves what the first serves, and worse.
        if "r/3" in wanted and files["r/3"].endswith("@r/*"):
            wanted |= files.keys()
        if "r/2" in wanted:
            wanted |= {name for name, content in files.items() if ".com" in content}
        return wanted


def _offered(response: DeltaResponse) -> dict[str, bytes | None]:
    return {resource.name: resource.body for resource in response.resources} | dict.fromkeys(response.removed)


def _serving(requested: str, files: dict[str, str]) -> str | None:
    """Return the virtual host that serves a host, found the slow way."""
    best: tuple[int, int, str] | None = None
    host = requested.removeprefix("r/")
    for name, content in files.items():
        for alias in content.partition("@")[2].split(","):
            rank = _rank(host, alias.removeprefix("r/"))
            if rank is not None and (best is None or rank > best[:2]):
                best = (*rank, name)
    return best[2] if best else None


def _rank(host: str, domain: str) -> tuple[int, int] | None:
    if domain == host:
        return 3, 0
    if domain == "*":
        return 0, 0
    if domain.startswith("*") and host.endswith(domain[1:]):
        return 2, len(domain)
    if domain.endswith("*") and host.startswith(domain[:-1]):
        return 1, len(domain)
    return None


class DeltaStreamOfClusters(DeltaStreams):
    """The same with one type on its stream."""

    types = ("CDS",)
    is_aggregated = False


class DeltaStreamOfVirtualHosts(DeltaStreams):
    """The same with virtual hosts alone."""

    types = ("VHDS",)
    is_aggregated = False


_SETTINGS = settings(stateful_step_count=40)

TestDeltaStreams = DeltaStreams.TestCase
TestDeltaStreams.settings = _SETTINGS
TestDeltaStreamOfClusters = DeltaStreamOfClusters.TestCase
TestDeltaStreamOfClusters.settings = _SETTINGS
TestDeltaStreamOfVirtualHosts = DeltaStreamOfVirtualHosts.TestCase
TestDeltaStreamOfVirtualHosts.settings = _SETTINGS
