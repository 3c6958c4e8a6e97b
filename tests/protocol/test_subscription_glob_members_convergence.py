"""Whatever happens to the members of collections, and in whatever order: a client that accepts ends up with those that exist.

The clients do what Envoy does: on a new stream they do not say which members they hold, and keep what they are not told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fsxds.model.resource_names import SCHEME, glob_of
from fsxds.model.values import Nonce, Version
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import DeltaRequest, DeltaResponse, Node, SotwRequest, SotwResponse
from fsxds.protocol.poll import PollMemory, PollRequest, Send, Wait
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import SharedMemory, Subscription
from fsxds.protocol.ttl import TtlMode
from tests.support.snapshots import type_url
from tests.support.written_files import WrittenFiles

NAMES = ("own", *(f"xdstp://x/t/{place}" for place in ("d/a", "d/b", "d/c", "e/a", "d/deep/a")))
WANTED = (*NAMES[:2], "xdstp://x/t/d/*", "xdstp://x/t/e/*")
LEDS, CDS = type_url("LEDS"), type_url("CDS")
MOST_TURNS = 60


def selects(wanted: Iterable[str], name: str) -> bool:
    """Whether a name is one of those that are wanted, or a member of a glob among them."""
    return name in wanted or (name.startswith(SCHEME) and glob_of(name) in wanted)


class Members(RuleBasedStateMachine):
    """Files of members, and a client of them."""

    short_name = "LEDS"

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.files = WrittenFiles()
        self.files.say("files", self.short_name, [f"{name}=1" for name in NAMES])
        self.current = self.files.snapshot()
        self.memory = SharedMemory()
        self.wanted: set[str] = set()
        self.held: dict[str, bytes] = {}

    @rule(name=st.sampled_from(NAMES), content=st.sampled_from("--12"))
    def edit(self, name: str, content: str) -> None:
        """Write a member, or remove it."""
        written = dict(self.files.contents[self.short_name])
        written.pop(name, None)
        if content != "-":
            written[name] = content
        self.files.say("files", self.short_name, [f"{key}={value}" for key, value in sorted(written.items())])
        self.current = self.files.snapshot()

    @property
    def expected(self) -> dict[str, bytes]:
        """What the client should hold."""
        written = self.files.contents[self.short_name].items()
        return {name: f"{name}={content}".encode() for name, content in written if selects(self.wanted, name)}


class MembersByDelta(Members):
    """A client that is told what comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: dict[str, Version] = {}
        self.open_stream()

    @initialize()
    def begin(self) -> None:
        """Begin with a collection."""
        self.subscribe("xdstp://x/t/d/*")

    def open_stream(self) -> None:
        """Begin a stream; what was under way is lost."""
        self.stream = DeltaStream(self.memory, TtlMode.ENVOY, is_aggregated=True)
        self.to_server: deque[DeltaRequest] = deque()
        self.to_client: deque[DeltaResponse] = deque()
        self.has_asked = False

    def send(self, **fields: object) -> None:
        """Put a request on its way."""
        self.to_server.append(DeltaRequest(LEDS, node=Node("n1", agent="envoy"), **fields))  # type: ignore[arg-type]

    @rule(name=st.sampled_from(WANTED))
    def subscribe(self, name: str) -> None:
        """Subscribe to a name or a glob, perhaps again."""
        self.wanted.add(name)
        held = {each: version for each, version in self.accepted.items() if each in self.wanted}
        self.send(subscribe=(name,), initial_resource_versions={} if self.has_asked else held)
        self.has_asked = True

    @precondition(lambda self: len(self.wanted) > 1)
    @rule(name=st.sampled_from(WANTED))
    def give_up(self, name: str) -> None:
        """Give a name or a glob up; what nothing selects any more is dropped."""
        self.wanted.discard(name)
        for gone in [each for each in self.held if not selects(self.wanted, each)]:
            self.held.pop(gone)
            self.accepted.pop(gone, None)
        self.send(unsubscribe=(name,))

    @rule()
    def publish(self) -> None:
        """Give the stream what is current."""
        self.to_client += self.stream.receive_snapshot(self.current, self.now_s)

    @precondition(lambda self: self.to_server)
    @rule()
    def reach_server(self) -> None:
        """Let the server get the next request."""
        reaction = self.stream.receive_request(self.to_server.popleft(), self.current, self.now_s)
        self.to_client += reaction.responses

    @precondition(lambda self: self.to_client)
    @rule(is_taken=st.booleans(), applied=st.integers(0, 7))
    def reach_client(self, applied: int, *, is_taken: bool) -> None:
        """Let the client get the next response, and accept or reject it; then it may have applied some of it."""
        response = self.to_client.popleft()
        names = [*(each.name for each in response.resources), *response.removed]
        assert len(names) == len(set(names))
        for index, resource in enumerate(response.resources):
            if selects(self.wanted, resource.name) and (is_taken or applied >> index & 1):
                self.held[resource.name] = resource.body
                if is_taken:
                    self.accepted[resource.name] = resource.version
        for index, name in enumerate(response.removed):
            if is_taken or applied >> index & 1:
                self.held.pop(name, None)
                self.accepted.pop(name, None)
        self.send(nonce=response.nonce, error_detail=None if is_taken else "no")

    @rule(is_server_new=st.booleans())
    def connect_again(self, *, is_server_new: bool) -> None:
        """Break the stream, perhaps because the server starts again with its state on disk."""
        if is_server_new:
            self.memory = SharedMemory()
            self.files.start_again(keeps_state=True)
        for name in self.held.keys() - self.accepted.keys() & self.wanted:
            # What is left of a NACK of a single name is not known before it changes.
            self.held.pop(name)
        self.accepted = {name: version for name, version in self.accepted.items() if name in self.held}
        self.open_stream()
        if self.wanted:
            held = {each: version for each, version in self.accepted.items() if each in self.wanted}
            self.send(subscribe=tuple(sorted(self.wanted)), initial_resource_versions=held)
            self.has_asked = True

    @rule(seconds=st.sampled_from([0.3, 1.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds
        self.to_client += self.stream.receive_timer(self.now_s)

    @rule(name=st.sampled_from(NAMES), content=st.sampled_from("--12"), is_server_new=st.booleans())
    def edit_while_away(self, name: str, content: str, *, is_server_new: bool) -> None:
        """Write a member while the client, which has everything, is not connected."""
        self.converge()
        self.edit(name, content)
        self.connect_again(is_server_new=is_server_new)

    @rule()
    def converge(self) -> None:
        """Let everything arrive and be accepted."""
        self.publish()
        for _ in range(MOST_TURNS):
            while self.to_server or self.to_client:
                if self.to_server:
                    self.reach_server()
                else:
                    self.reach_client(0, is_taken=True)
            if self.stream.timer_at_s is None:
                break
            self.now_s = max(self.now_s, self.stream.timer_at_s)
            self.to_client += self.stream.receive_timer(self.now_s)
        assert self.held == self.expected

    def teardown(self) -> None:
        """End with the fact that counts."""
        self.converge()


class MembersBySotw(Members):
    """A client of clusters that is sent all of them each time, and takes no empty list."""

    short_name = "CDS"

    def __init__(self) -> None:
        super().__init__()
        self.version: Version | None = None
        self.open_stream()

    @initialize()
    def begin(self) -> None:
        """Begin with a collection."""
        self.subscribe(frozenset({"own", "xdstp://x/t/d/*"}))

    def open_stream(self) -> None:
        """Begin a stream; what was under way is lost."""
        self.stream = SotwStream(self.memory, TtlMode.ENVOY, is_aggregated=True)
        self.to_server: deque[SotwRequest] = deque()
        self.to_client: deque[SotwResponse] = deque()
        self.nonce: Nonce | None = None

    def send(self, error_detail: str | None = None) -> None:
        """Put a request on its way."""
        node = Node("n1", agent="envoy")
        request = SotwRequest(CDS, tuple(sorted(self.wanted)), self.version, self.nonce, error_detail, node)
        self.to_server.append(request)

    @rule(wanted=st.frozensets(st.sampled_from(WANTED), min_size=1))
    def subscribe(self, wanted: frozenset[str]) -> None:
        """Subscribe to other names; what nothing selects any more is dropped."""
        self.wanted = set(wanted)
        self.held = {name: body for name, body in self.held.items() if selects(wanted, name)}
        self.send()

    @rule()
    def publish(self) -> None:
        """Give the stream what is current."""
        self.to_client += self.stream.receive_snapshot(self.current, self.now_s)

    @precondition(lambda self: self.to_server)
    @rule()
    def reach_server(self) -> None:
        """Let the server get the next request."""
        self.to_client += self.stream.receive_request(self.to_server.popleft(), self.current, self.now_s).responses

    @precondition(lambda self: self.to_client)
    @rule(is_taken=st.booleans())
    def reach_client(self, *, is_taken: bool) -> None:
        """Let the client get the next response, and accept or reject it."""
        response = self.to_client.popleft()
        self.nonce = response.nonce
        if is_taken:
            self.version = response.version
            taken = {each.name: each.body for each in response.resources if selects(self.wanted, each.name)}
            self.held = taken or self.held
        self.send(None if is_taken else "no")

    @rule(is_server_new=st.booleans())
    def connect_again(self, *, is_server_new: bool) -> None:
        """Break the stream, perhaps because the server starts again."""
        self.memory = SharedMemory() if is_server_new else self.memory
        self.open_stream()
        if self.wanted:
            self.send()

    @rule(name=st.sampled_from(NAMES), content=st.sampled_from("--12"))
    def edit_at_rest(self, name: str, content: str) -> None:
        """Write a member when the client has everything."""
        self.converge()
        self.edit(name, content)
        self.converge()

    @rule()
    def converge(self) -> None:
        """Let everything arrive and be accepted."""
        self.publish()
        for _ in range(MOST_TURNS):
            while self.to_server or self.to_client:
                if self.to_server:
                    self.reach_server()
                else:
                    self.reach_client(is_taken=True)
            if self.stream.timer_at_s is None:
                break
            self.now_s = max(self.now_s, self.stream.timer_at_s)
            self.to_client += self.stream.receive_timer(self.now_s)
        assert self.held == self.expected or not self.expected

    def teardown(self) -> None:
        """End with the fact that counts."""
        self.converge()


class MembersByPolls(Members):
    """A client that polls with its last version."""

    short_name = "CDS"

    def __init__(self) -> None:
        super().__init__()
        self.polls = PollMemory()
        self.wanted = {"own", "xdstp://x/t/d/*"}
        self.version: Version | None = None

    @rule()
    def poll(self) -> None:
        """Poll, and take what is sent; a poll that is held has nothing to be sent."""
        request = PollRequest(Node("n1"), Subscription.for_request(CDS, self.wanted), self.version)
        decision, _ = self.polls.receive_request(request, self.current, self.now_s)
        assert isinstance(decision, Wait | Send)
        if isinstance(decision, Send):
            assert decision.selection.version != self.version
            self.version = decision.selection.version
            self.held = {each.name: each.body for each in decision.selection.resources}
        self.polls.receive_end(request, self.now_s, is_given_up=False)
        assert self.held == self.expected

    @rule()
    def restart_server(self) -> None:
        """Replace the server by one that remembers nothing."""
        self.polls = PollMemory()


_SETTINGS = settings(stateful_step_count=30)

TestMembersByDelta = MembersByDelta.TestCase
TestMembersByDelta.settings = _SETTINGS
TestMembersBySotw = MembersBySotw.TestCase
TestMembersBySotw.settings = _SETTINGS
TestMembersByPolls = MembersByPolls.TestCase
TestMembersByPolls.settings = _SETTINGS
