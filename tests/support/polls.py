"""A REST server in this process, and polls to it: a store to publish to, an observer that remembers, a client."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import aiohttp
from aiohttp import web

from fsxds.api.catalogue import Catalogue
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.model.resources import Origin, Resource, Rows, Snapshot, TypeChange, version_of_body
from fsxds.model.values import TypeUrl
from fsxds.runtime.access import AccessInUse
from fsxds.runtime.channels import SnapshotStore
from fsxds.settings.forms import Address, TcpAddress
from fsxds.settings.options import Settings
from fsxds.transports.client_status.status_service import ClientReports, client_status_paths
from fsxds.transports.exchange import Clients, Exchange
from fsxds.transports.http_get.get_handler import HttpGet
from fsxds.transports.http_get.get_responses import GetRules
from fsxds.transports.limits import DEFAULTS, Limiter
from fsxds.transports.rest.application import REST, RestContext, RestJson, make_application
from fsxds.transports.rest.http_server import ListenerOptions, listening
from tests.support.channels import OneChannel
from tests.support.errors import Recorder
from tests.support.patience import PATIENCE_S
from tests.support.this_envoy import this_envoy

REAL_REQUEST = Path(__file__).parents[1] / "data" / "rest-request-clusters.json"
ORIGIN = Origin(PurePosixPath("edge.yaml"), 1)
LOCALHOST = TcpAddress("127.0.0.1", 0)
NO_RULES = GetRules()


@functools.cache
def envoy_catalogue() -> Catalogue:
    """Return every type that the real Envoy knows."""
    return this_envoy()


def named(short_name: str, name: str, **fields: object) -> Resource:
    """Make a resource of a type, such as `named("cds", "a", alt_stat_name="x")`; other fields tell versions apart."""
    row = BY_SHORT_NAME[short_name]
    message = envoy_catalogue().message_class(row.message_type)(**{row.name_field or "name": name, **fields})
    body = message.SerializeToString(deterministic=True)
    return Resource(row.type_url, name, body, version_of_body(row.type_url, body), ORIGIN)


def snapshot_of(generation: int, *resources: Resource) -> Snapshot:
    """Make a snapshot; every type counts as declared, and as changed by `edge.yaml`."""
    by_type: dict[TypeUrl, dict[str, Resource]] = {row.type_url: {} for row in RESOURCE_TYPES}
    for resource in sorted(resources, key=lambda each: each.name):
        by_type[resource.type_url][resource.name] = resource
    change = TypeChange(generation, files=(ORIGIN.path,))
    rows = {type_url: Rows(type_url, resources) for type_url, resources in by_type.items()}
    return Snapshot(generation, rows, changes=dict.fromkeys(by_type, change))


@dataclass(frozen=True)
class Answer:
    """What a client got, and how long it took in seconds."""

    status: int
    headers: MutableMapping[str, str]
    body: bytes
    elapsed_s: float

    @property
    def content(self) -> dict[str, Any]:
        """The body as JSON."""
        content: dict[str, Any] = json.loads(self.body)
        return content


@dataclass(frozen=True)
class Server:
    """A running server and its client."""

    channels: OneChannel
    store: SnapshotStore
    recorder: Recorder
    clients: Clients
    application: web.Application
    address: Address
    client: aiohttp.ClientSession
    get: HttpGet

    @property
    def rest(self) -> RestJson:
        """What answers."""
        return self.application[REST]

    def publish(self, *resources: Resource) -> Snapshot:
        """Serve these from now on."""
        before = self.store.current
        snapshot = snapshot_of(1 if before is None else before.generation + 1, *resources)
        self.store.publish(snapshot)
        return snapshot

    async def ask(self, method: str, path: str, **request: Any) -> Answer:
        """Send any request."""
        began = asyncio.get_running_loop().time()
        async with self.client.request(method, path, **request) as response:
            body = await response.read()
        elapsed_s = asyncio.get_running_loop().time() - began
        return Answer(response.status, response.headers.copy(), body, elapsed_s)

    async def poll(self, service: str = "clusters", timeout_ms: int | None = None, **fields: object) -> Answer:
        """Send a poll with these fields; the node is `edge-1` unless they say otherwise."""
        headers = {} if timeout_ms is None else {"x-envoy-expected-rq-timeout-ms": str(timeout_ms)}
        fields = {"node": {"id": "edge-1"}, **fields}
        return await self.ask("POST", f"/v3/discovery:{service}", json=fields, headers=headers)

    async def until_held(self, count: int = 1) -> None:
        """Wait until so many polls are held."""
        await until(lambda: len(self.rest.exchange) == count)


async def until(predicate: Callable[[], bool]) -> None:
    """Wait until `predicate` holds."""
    async with asyncio.timeout(PATIENCE_S):
        # Nothing tells when a server has taken a poll in hand.
        while not predicate():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running(
    *,
    max_hold_s: float = 60.0,
    grace_s: float = 1.0,
    address: Address = LOCALHOST,
    settings: Settings = DEFAULTS,
    access: AccessInUse | None = None,
    rules: GetRules = NO_RULES,
) -> AsyncIterator[Server]:
    """Run a server with the limits of `settings`; the connections of its client are not compressed unless asked for."""
    channels, recorder = OneChannel(), Recorder()
    clients = Clients()
    limiter = Limiter(replace(settings, cors_origin=rules.cors_origins or settings.cors_origin, max_hold_s=max_hold_s))
    options = ListenerOptions(max_connections=lambda: limiter.settings.max_connections, observer=recorder)
    exchange = Exchange(channels, limiter, access)
    posts = client_status_paths(ClientReports(clients, envoy_catalogue()), access)
    rest = RestJson(RestContext(exchange, envoy_catalogue(), recorder, clients, address, posts=posts))
    application = make_application(rest)
    get = HttpGet(exchange, envoy_catalogue(), recorder, lambda: rules)
    get.join(application)
    async with listening(application, address, grace_s=grace_s, options=options) as bound:
        is_tcp = isinstance(bound, TcpAddress)
        connector = aiohttp.TCPConnector(limit=0) if is_tcp else aiohttp.UnixConnector(str(bound)[len("unix:") :])
        base = f"http://{bound}" if is_tcp else "http://fsxds"
        headers = {"accept-encoding": "identity"}
        async with aiohttp.ClientSession(base, connector=connector, headers=headers) as client:
            yield Server(channels, channels.store, recorder, clients, application, bound, client, get)
