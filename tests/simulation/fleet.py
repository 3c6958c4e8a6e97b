"""Simulated clients: Envoys with streams or polls, as `fsxds/ENVOY.md` has them, and clients that are none."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.messages import DeltaRequest, DeltaResponse, Node, SotwRequest, SotwResponse
from fsxds.protocol.poll import PollRequest
from fsxds.protocol.subscription import Subscription
from tests.simulation.server import Server, SimulatedStream

CDS, EDS, LDS, RDS = (BY_SHORT_NAME[name].type_url for name in ("cds", "eds", "lds", "rds"))
TYPES = (CDS, EDS, LDS, RDS)
# Nodes whose names end like this are of another cluster of nodes than the others.
INNER = ("0", "3", "6", "9")
NOUNS = {CDS: "cluster", LDS: "listener", EDS: "endpoint", RDS: "route"}

# A stream or poll that ended is opened again after so long.
RECONNECT_S = 0.5
REFRESH_S = 0.1
INITIAL_FETCH_S = 15.0
# A poll for something that is not there is repeated after so long.
UNAVAILABLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Habits:
    """How a client behaves.

    Attributes:
        wire: `delta`, `sotw` or `rest`.
        latency_s: the time that each message takes, or the pause between its polls.
        rejects: the word in a resource that has this client reject it; empty for none.
        is_named: its NACKs name what they are about.
        is_envoy: it asks for listeners, routes and endpoints, too, and answers as an Envoy.
        answers: False never ACKs.
        comes_once: it polls once for each type, and never again.
        comes_later: it comes when something was rolled back, and not before.
    """

    wire: str = "delta"
    latency_s: float = 0.001
    rejects: str = ""
    is_named: bool = True
    is_envoy: bool = True
    answers: bool = True
    comes_once: bool = False
    comes_later: bool = False


@dataclass(slots=True)
class Delivery:
    """A version of a resource that was sent to a client, when, and whether it rejected it.

    `is_blamed`: it may be meant by the NACK. `is_news`: something else in the response was new, too. `is_first`: it was polled without a version.
    """

    at_s: float
    version: Version
    is_rejected: bool
    is_blamed: bool
    is_news: bool
    is_first: bool = False


class SimulatedClient:
    """One client, over all its connections.

    Attributes:
        node: as it describes itself.
        habits: how it behaves; they may change.
        held: what it holds, by type and name.
        since_s: since when it has been connected without a break; None while it is not.
        deliveries: what it was sent, by type and name.
        active: the clusters that have endpoints; one that changes goes on with those that it had until it has others.
    """

    def __init__(self, name: str, habits: Habits, on_applied: Callable[[SimulatedClient], object]) -> None:
        cluster = "inner" if name.endswith(INNER) else "edge"
        self.node = Node(name, cluster, agent="envoy" if habits.is_envoy else "dashboard")
        self.habits = habits
        self.held: dict[TypeUrl, dict[str, Resource]] = {url: {} for url in TYPES}
        self.since_s: float | None = None
        # When the connection that it has, or had last, began.
        self.connected_at_s = 0.0
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.deliveries: defaultdict[tuple[TypeUrl, str], list[Delivery]] = defaultdict(list)
        self.active: set[str] = set()
        # When it held something else last.
        self.changed_at_s = 0.0
        # What the last response of each type had.
        self._sent: dict[TypeUrl, frozenset[tuple[str, Version]]] = {}
        # The versions of full states that it accepted on streams: each stream begins with them.
        self.stream_versions: dict[TypeUrl, Version] = {}
        # What it has of each subscription that it polls.
        self.versions: dict[Subscription, Version] = {}
        self._on_applied = on_applied
        self._connection: StreamConnection | PollConnection | None = None
        self.is_wanted = not habits.comes_later
        self.left_at_s = 0.0

    @property
    def name(self) -> str:
        """The node id."""
        return self.node.id

    @property
    def is_frozen(self) -> bool:
        """Whether it does nothing."""
        return not self._thawed.is_set()

    def freeze(self) -> None:
        """Do nothing from now on."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Go on where it froze."""
        self._thawed.set()
        if self._connection is not None:
            self._connection.thaw()

    async def until_thawed(self) -> None:
        """Wait while it is frozen."""
        await self._thawed.wait()

    def connect(self, server: Server) -> None:
        """Open a connection, as a client that has what it holds."""
        self.disconnect()
        made = PollConnection if self.habits.wire == "rest" else StreamConnection
        self._connection = made(self, server)
        self.since_s = self.connected_at_s = asyncio.get_running_loop().time()

    def disconnect(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self.since_s = None, None
        self.left_at_s = asyncio.get_running_loop().time()

    def restart(self) -> None:
        """Forget all that it held."""
        self.held, self.active, self.versions = {url: {} for url in TYPES}, set(), {}
        self.stream_versions = {}

    def rejects(self, resource: Resource) -> bool:
        """Whether it rejects a resource."""
        return bool(self.habits.rejects) and self.habits.rejects.encode() in resource.body

    def note_sent(self, resources: Sequence[Resource], *, is_first: bool = False) -> list[Resource]:
        """Note what was sent; return what is rejected of it."""
        rejected = [one for one in resources if self.rejects(one)]
        now_s = asyncio.get_running_loop().time()
        whole = frozenset((one.name, one.version) for one in resources)
        is_told = self.habits.is_named and self.habits.wire != "rest"

        def is_blamed(one: Resource) -> bool:
            return one in rejected or (bool(rejected) and not is_told)

        for one in resources:
            before = self._sent.get(one.type_url, whole)
            news = {name for name, _ in before ^ whole} - {one.name}
            self.deliveries[one.type_url, one.name].append(
                Delivery(now_s, one.version, one in rejected, is_blamed(one), is_news=bool(news), is_first=is_first)
            )
        self._sent |= {one.type_url: whole for one in resources[:1]}
        return rejected

    def applied(self) -> None:
        """Note that it holds something else: clusters may be warm now."""
        clusters, endpoints = self.held[CDS], self.held[EDS]
        warm = {name for name, one in clusters.items() if all(each in endpoints for each in names_in(one, EDS))}
        self.active, self.changed_at_s = warm | (self.active & clusters.keys()), asyncio.get_running_loop().time()
        self._on_applied(self)

    def words(self, rejected: list[Resource]) -> str:
        """Return what it says of a NACK."""
        if not self.habits.is_named:
            return "Proto constraint validation failed"
        listed = ", ".join(f"{one.name}: it has {self.habits.rejects}" for one in rejected)
        return f"Error adding/updating {NOUNS[rejected[0].type_url]}(s) {listed}"

    def wanted(self, type_url: TypeUrl) -> frozenset[str]:
        """Return the names that it subscribes to, of types that are not asked for as a whole."""
        if not self.habits.is_envoy:
            return frozenset()
        users = {EDS: CDS, RDS: LDS}[type_url]
        return frozenset(name for user in self.held[users].values() for name in names_in(user, type_url))

    def drop_unneeded(self) -> None:
        """Let go of the endpoints of clusters, and the routes of listeners, that are gone, as an Envoy does."""
        for needed in (EDS, RDS) if self.habits.is_envoy else ():
            wanted = self.wanted(needed)
            self.held[needed] = {name: one for name, one in self.held[needed].items() if name in wanted}

    def broken_references(self) -> Iterator[tuple[str, str]]:
        """Yield the names that requests would need and that it lacks, each with who names it."""
        for listener in self.held[LDS].values():
            routes = [self.held[RDS].get(name) for name in names_in(listener, RDS)]
            for user in (listener, *(route for route in routes if route is not None)):
                for name in names_in(user, CDS):
                    cluster = self.held[CDS].get(name)
                    if cluster is None:
                        yield f"cluster {name}", user.name
                    elif name not in self.active:
                        yield f"endpoints of cluster {name}", user.name


def names_in(user: Resource, type_url: TypeUrl) -> list[str]:
    """Return the names of a type that a resource has."""
    return [one.name for one in user.references if one.type_url == type_url]


class StreamConnection:
    """One aggregated stream of a client, SotW or Delta."""

    def __init__(self, client: SimulatedClient, server: Server) -> None:
        self._client, self._server = client, server
        self._is_delta = client.habits.wire == "delta"
        self._stream = SimulatedStream(server, client.node, self._deliver, is_delta=self._is_delta)
        self._stream.on_closed = self._lose
        self._inbox: deque[Any] = deque()
        self._outbox: deque[Callable[[], object]] = deque()
        # What it would have sent while it was frozen, in order.
        self._when_thawed: list[Callable[[], object]] = []
        self._versions = client.stream_versions
        self._nonces: dict[TypeUrl, Nonce] = {}
        self._subscribed: dict[TypeUrl, frozenset[str]] = {}
        self._is_closed = False
        self._asks_when_thawed = False
        self._task = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        await self._client.until_thawed()
        await self._stream.open(self._made(CDS, first=True))
        if self._is_closed:
            return
        self._request(CDS, first=True)
        if self._client.habits.is_envoy:
            for type_url in (EDS, LDS, RDS):
                if self._client.held[type_url] or (type_url in {EDS, RDS} and self._client.wanted(type_url)):
                    self._request(type_url, first=True)
            asyncio.get_running_loop().call_later(INITIAL_FETCH_S, self._ask_for_listeners)

    def _ask_for_listeners(self) -> None:
        """Ask for listeners once: an Envoy does when its clusters have endpoints, or it has waited for these."""
        if self._client.is_frozen:
            self._asks_when_thawed = True
        elif LDS not in self._subscribed:
            self._request(LDS, first=True)

    def close(self) -> None:
        """End the stream from the client's side."""
        self._is_closed = True
        self._stream.on_closed = lambda: None
        self._stream.close()

    def _lose(self) -> None:
        self._is_closed = True
        self._client.since_s = None

    def _deliver(self, response: Any) -> None:
        self._inbox.append(response)
        self._later(self._process)

    def _later(self, act: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(self._client.habits.latency_s, act)

    def _post(self, send: Callable[[], object]) -> None:
        """Send later, in order: timers of one time may come in any."""
        self._outbox.append(send)
        self._later(self._send_next)

    def _send_next(self) -> None:
        self._outbox.popleft()()

    def _process(self) -> None:
        if not self._is_closed and not self._client.is_frozen and self._inbox:
            while self._inbox:
                self._take(self._inbox.popleft())

    def thaw(self) -> None:
        """Go on where it froze."""
        waiting, self._when_thawed = self._when_thawed, []
        for act in waiting:
            act()
        self._process()
        if self._asks_when_thawed:
            self._asks_when_thawed = False
            self._ask_for_listeners()

    def _take(self, response: SotwResponse | DeltaResponse) -> None:
        client, url = self._client, response.type_url
        rejected = client.note_sent(tuple(response.resources))
        before = dict(client.held[url])
        self._apply(response, rejected)
        client.drop_unneeded()
        if not client.habits.answers:
            return
        self._nonces[url] = response.nonce
        words = client.words(rejected) if rejected else None
        if words is None:
            self._versions[url] = response.version
        # The answer is sent in the order of processing, and takes as long as the response took.
        self._post(lambda: self._send(url, response.nonce, words))
        if client.habits.is_envoy:
            self._follow(url, before)
        client.applied()

    def _apply(self, response: SotwResponse | DeltaResponse, rejected: Collection[Resource]) -> None:
        """Hold what was sent, except for what is rejected; nothing of it where it could not be decoded."""
        held, url = self._client.held[response.type_url], response.type_url
        if rejected and not self._client.habits.is_named:
            return
        if isinstance(response, DeltaResponse):
            gone: Collection[str] = response.removed
        else:
            gone = held.keys() - {one.name for one in response.resources} if url in {CDS, LDS} else ()
        for name in gone:
            held.pop(name, None)
        held |= {one.name: one for one in response.resources if one not in rejected}

    def _follow(self, url: TypeUrl, before: Mapping[str, Resource]) -> None:
        """Ask for what is needed now, and before was not."""
        held = self._client.held[url]
        if url == CDS:
            changed = {name for name, one in held.items() if before.get(name) is not one}
            self._subscribe(EDS, {each for name in changed for each in names_in(held[name], EDS)})
        elif url == LDS:
            self._subscribe(RDS, frozenset())
        if LDS not in self._subscribed and self._client.wanted(EDS) <= self._client.held[EDS].keys():
            self._later(self._ask_for_listeners)

    def _subscribe(self, url: TypeUrl, again: Collection[str]) -> None:
        """Subscribe to what is wanted now; SotW asks again for the endpoints of changed clusters."""
        wanted = self._client.wanted(url)
        is_again = not self._is_delta and bool(again)
        if wanted != self._subscribed.get(url, frozenset()) or is_again:
            # One that is not answered yet is answered by a request of its own.
            nonce = self._nonces.get(url)
            self._post(lambda: self._request(url, first=url not in self._subscribed, nonce=nonce))

    def _request(self, url: TypeUrl, *, first: bool = False, nonce: Nonce | None = None) -> None:
        if self._client.is_frozen:
            self._when_thawed.append(lambda: self._request(url, first=first, nonce=nonce))
            return
        if self._is_closed:
            return
        request = self._made(url, first=first, nonce=nonce)
        self._subscribed[url] = frozenset() if url in {CDS, LDS} else self._client.wanted(url)
        if self._is_delta or self._subscribed[url] or url in {CDS, LDS} or not first:
            self._stream.receive(request)

    def _made(self, url: TypeUrl, *, first: bool, nonce: Nonce | None = None) -> SotwRequest | DeltaRequest:
        """Return a request for all of a type, or for what the client wants of it now."""
        wanted = frozenset[str]() if url in {CDS, LDS} else self._client.wanted(url)
        before, node = self._subscribed.get(url, frozenset()), self._client.node if first else None
        if not self._is_delta:
            return SotwRequest(url, tuple(sorted(wanted)), self._versions.get(url), nonce, node=node)
        held = {name: one.version for name, one in self._client.held[url].items()} if first else {}
        names = ("*",) if first and held and url in {CDS, LDS} else tuple(sorted(wanted - before))
        return DeltaRequest(url, names, tuple(sorted(before - wanted)), initial_resource_versions=held, node=node)

    def _send(self, url: TypeUrl, nonce: Nonce, words: str | None) -> None:
        if self._client.is_frozen:
            self._when_thawed.append(lambda: self._send(url, nonce, words))
            return
        if self._is_closed:
            return
        if self._is_delta:
            self._stream.receive(DeltaRequest(url, nonce=nonce, error_detail=words))
        else:
            names = tuple(sorted(self._subscribed.get(url, ())))
            self._stream.receive(SotwRequest(url, names, self._versions.get(url), nonce, error_detail=words))


class PollConnection:
    """The polls of a client: one task for each subscription."""

    def __init__(self, client: SimulatedClient, server: Server) -> None:
        self._client, self._server = client, server
        self._tasks: dict[Subscription, asyncio.Task[None]] = {}
        self._random = random.Random(client.name)
        self._is_closed = False
        self._ask(Subscription(CDS))
        if client.habits.is_envoy:
            self._follow()
            if client.held[LDS]:
                self._ask(Subscription(LDS))
            asyncio.get_running_loop().call_later(INITIAL_FETCH_S, self._ask_for_listeners)

    def _ask_for_listeners(self) -> None:
        if self._client.is_frozen:
            asyncio.get_running_loop().call_later(1.0, self._ask_for_listeners)
        elif not self._is_closed:
            self._ask(Subscription(LDS))

    def close(self) -> None:
        """Give all polls up."""
        self._is_closed = True
        for task in self._tasks.values():
            task.cancel()

    def thaw(self) -> None:
        """Do nothing: polls go on by themselves."""

    def _ask(self, subscription: Subscription) -> None:
        if subscription not in self._tasks:
            self._tasks[subscription] = asyncio.get_running_loop().create_task(self._poll(subscription))

    def _follow(self) -> None:
        """Poll for the endpoints of the clusters, and the routes of the listeners, that it has; and for no others."""
        wanted = {
            Subscription(url, frozenset((name,)), wildcard=False)
            for url in (EDS, RDS)
            for name in self._client.wanted(url)
        }
        for subscription in [one for one in self._tasks if one.names and one not in wanted]:
            self._drop(subscription)
        self._client.drop_unneeded()
        for subscription in sorted(wanted - self._tasks.keys(), key=str):
            self._ask(subscription)

    async def _poll(self, subscription: Subscription) -> None:
        client = self._client
        with suppress(asyncio.CancelledError):
            while self._server.is_up:
                await client.until_thawed()
                request = PollRequest(
                    client.node, subscription, client.versions.get(subscription), from_envoy=client.habits.is_envoy
                )
                selection, is_there = await self._server.answer(request)
                if selection is not None and self._take(subscription, tuple(selection.resources)):
                    client.versions[subscription] = selection.version
                if client.habits.comes_once:
                    return
                pause_s = max(client.habits.latency_s, REFRESH_S) * (1 + self._random.random())
                await asyncio.sleep(pause_s if is_there else UNAVAILABLE_S)

    def _take(self, subscription: Subscription, resources: tuple[Resource, ...]) -> bool:
        client, url = self._client, subscription.type_url
        rejected = client.note_sent(resources, is_first=subscription not in client.versions)
        held = client.held[url]
        if rejected and not client.habits.is_named:
            return False
        before = dict(held)
        good = {one.name: one for one in resources if one not in rejected}
        if subscription.wildcard:
            sent = {one.name for one in resources}
            for name in [name for name in held if name not in sent]:
                del held[name]
        held |= good
        if client.habits.is_envoy and url in {CDS, LDS}:
            for name, one in held.items():
                if before.get(name) is not one:
                    # What it names is asked for anew.
                    for each in names_in(one, EDS):
                        self._drop(Subscription(EDS, frozenset((each,)), wildcard=False))
            self._follow()
        if client.habits.is_envoy and client.wanted(EDS) <= client.held[EDS].keys():
            self._ask_for_listeners()
        client.applied()
        return not rejected

    def _drop(self, subscription: Subscription) -> None:
        if (task := self._tasks.pop(subscription, None)) is not None:
            task.cancel()
            self._client.versions.pop(subscription, None)
