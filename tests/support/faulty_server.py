"""All of `fsxds serve` in this process, with faults where a test wants them, and clients that never give up."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import aiohttp
import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.lint.linter import linter_of
from fsxds.observe.log import Log, LogOutput
from fsxds.server import app, serving
from fsxds.server.readiness import ReadyFile
from fsxds.settings.options import Settings
from fsxds.settings.reading import SettingsReader
from tests.support.errors import AT_ONCE
from tests.support.grpc_clients import DiscoveryClient, method_path
from tests.support.ports import free_address
from tests.support.server import write_file

CDS_URL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
PAUSE_S = 0.05


class Boom(Exception):  # noqa: N818, what it is
    """An error that nobody expects."""


class Faults:
    """Functions that raise: each the next time that it is called after `arm`, or any at random."""

    def __init__(self, seed: int = 0, share: float = 0.0) -> None:
        self.raised: dict[str, int] = {}
        self.share = share
        self._armed: set[str] = set()
        self._random = random.Random(seed)

    def arm(self, name: str) -> None:
        """Let a function raise at its next call."""
        self._armed.add(name)

    @contextmanager
    def plant(self, name: str, target: str, only: Callable[..., bool] = lambda *_: True) -> Iterator[None]:
        """Let a function raise as long as the context lasts; `only` looks at its arguments."""
        owner, _, attribute = target.rpartition(".")
        original = getattr(resolve_name(owner), attribute)

        def faulty(*arguments: Any, **options: Any) -> Any:
            if only(*arguments) and (name in self._armed or self._random.random() < self.share):
                self._armed.discard(name)
                self.raised[name] = self.raised.get(name, 0) + 1
                raise Boom(name)
            return original(*arguments, **options)

        with patch(target, faulty):
            yield


@dataclass
class FaultyServer:
    """A server that runs in this process."""

    tree: Path
    out: Path
    ready_file: Path
    application: app.Application
    log: Log
    lines: list[str] = field(default_factory=list)

    @property
    def ready(self) -> dict[str, Any]:
        """The content of the ready file."""
        content: dict[str, Any] = json.loads(self.ready_file.read_text())
        return content

    def edit(self, version: int) -> None:
        """Write a version of the tree: the name of its one cluster."""
        write_file(self.tree / "cds.yaml", f"[{{name: v{version}, type: STATIC, connect_timeout: 1s}}]")


@asynccontextmanager
async def serving_with_faults(folder: Path, *patches: Any) -> AsyncIterator[FaultyServer]:
    """Run all that `fsxds serve` has, on free addresses; what fails starts again at once."""
    tree, out, ready_file = folder / "tree", folder / "out", folder / "ready.json"
    settings = replace(
        Settings(), http=free_address(), admin=free_address(), grpc=f"unix:{folder / 's'}", mirror=out, ready_file=ready_file,
        settle_s=0.005, rescan_s=0.5, mirror_pause_s=0.0, mirror_durable=False, ads_config_sources=True, max_hold_s=5.0,
    )  # fmt: skip
    lines: list[str] = []
    log = Log(LogOutput(lambda line, _: line.text, lines.append))
    reader = SettingsReader("serve", lambda: settings)
    write_file(tree / "cds.yaml", "[{name: v0, type: STATIC, connect_timeout: 1s}]")
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        application = app.Application(tree, settings, log, linter_of)
        application.supervisor._back_off = AT_ONCE
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(serving.run(application, reader, ReadyFile(ready_file)))
            await until(lambda: ready_file.exists() or running.done())
            yield FaultyServer(tree, out, ready_file, application, log, lines)
            assert not running.done(), "the process would have ended"
            running.cancel()


async def until(predicate: Callable[[], bool], patience_s: float = 20.0) -> None:
    """Wait until a fact holds."""
    async with asyncio.timeout(patience_s):
        while not predicate():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Follower:
    """A client that follows the one cluster's name, and tries again after every error."""

    def __init__(self) -> None:
        self.name = ""
        self.errors = 0

    async def poll(self, server: FaultyServer) -> None:
        """Follow over REST."""
        version: str | None = None
        async with aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError):
                    url = f"http://{server.ready['http']}/v3/discovery:clusters?timeout=2s"
                    body = {"node": {"id": f"rest-{id(self)}"}, **({"version_info": version} if version else {})}
                    async with session.post(url, json=body) as response:
                        if response.status == 200:
                            content = await response.json()
                            version, self.name = content["version_info"], content["resources"][0]["name"]
                            continue
                        if response.status == 304:
                            continue
                self.errors += 1
                await asyncio.sleep(PAUSE_S)

    async def stream(self, server: FaultyServer, word: str) -> None:
        """Follow over a stream, SotW (`Stream`) or Delta (`Delta`)."""
        while True:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                async with grpc.aio.insecure_channel(server.ready["grpc"]) as channel:
                    await self._converse(DiscoveryClient(channel, method_path("CDS", word)))
            self.errors += 1
            await asyncio.sleep(PAUSE_S)

    async def _converse(self, stream: DiscoveryClient) -> None:
        await stream.ask(node=f"grpc-{id(self)}")
        while (response := await stream.call.read()) is not grpc.aio.EOF:
            if isinstance(response, discovery_pb2.DeltaDiscoveryResponse):
                names = [row.name for row in response.resources]
            else:
                names = [cluster_name(row.value) for row in response.resources]
            self.name = names[-1] if names else self.name
            await stream.take(response)


def cluster_name(content: bytes) -> str:
    """Return the name of a serialized cluster."""
    from envoy.config.cluster.v3 import cluster_pb2

    return str(cluster_pb2.Cluster.FromString(content).name)


@asynccontextmanager
async def following(server: FaultyServer, of_each: int = 1) -> AsyncIterator[list[Follower]]:
    """Run so many clients of each transport."""
    followers = []
    async with asyncio.TaskGroup() as tasks:
        running = []
        for _ in range(of_each):
            rest, sotw, delta = Follower(), Follower(), Follower()
            followers += [rest, sotw, delta]
            running += [
                tasks.create_task(rest.poll(server)),
                tasks.create_task(sotw.stream(server, "Stream")),
                tasks.create_task(delta.stream(server, "Delta")),
            ]
        yield followers
        for task in running:
            task.cancel()
