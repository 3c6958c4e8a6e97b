"""Random edits for as long as it takes, while clients of all transports follow; and what the server holds meanwhile.

Each edit changes some of the tree; some break a file, some mend it, some add or remove clusters. Now and then the edits rest until
every client has what the tree asks for, and the server counts what it holds. What it holds at rest is compared: at work it is
anybody's guess how much of its memory is the work's.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import signal
import statistics
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

import fsxds
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl
from tests.end_to_end.killing import StreamFollower
from tests.faults.clients import envoys_of
from tests.faults.site import BY_REST, files_of
from tests.support.envoy import Envoy
from tests.support.server import Server, write_file

PATIENCE_S = 120.0
MOST_GROWTH = 0.05
_VERSION = re.compile(rb'"version_info": ?"([^"]*)"')
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)")
_POLLED = (("clusters", "cds", ()), ("listeners", "lds", ()), ("routes", "rds", ("r",)), ("endpoints", "eds", ("api",)))
_ON_A_CONNECTION = 10
_MOST_EXTRAS = 20


@dataclass(frozen=True)
class Load:
    """What a server has to do.

    Attributes:
        polls: how many clients poll, each for one type.
        streams: how many clients have a stream of all types; half of them speak Delta.
        envoys: whether three real Envoys follow, one by polls, one by SotW and one by Delta.
        every_s: the time from one edit to the next.
    """

    polls: int = 500
    streams: int = 200
    envoys: bool = True
    every_s: float = 0.2


@dataclass
class Poll:
    """A client that polls for one type over one connection, with as little work as that can be done."""

    number: int
    version: bytes = b""
    answers: int = 0

    async def follow(self, path: Path) -> None:
        """Poll until cancelled, and connect again when the connection ends."""
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_unix_connection(str(path))
                try:
                    while True:
                        await self._poll(reader, writer)
                finally:
                    writer.close()
            await asyncio.sleep(0.1)

    async def _poll(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        word, _, names = _POLLED[self.number % len(_POLLED)]
        node = {"id": f"node-{self.number // len(_POLLED)}", "cluster": "soak"}
        request = {"node": node, "version_info": self.version.decode(), "resource_names": names}
        content = json.dumps(request).encode()
        head = (
            f"POST /v3/discovery:{word}?timeout=20s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        )
        writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(answer)
        body = await reader.readexactly(int(length[1])) if length else b""
        status = answer.split(b" ", 2)[1]
        if status == b"200":
            found = _VERSION.search(body)
            assert found is not None, body[:200]
            self.version = found[1]
            self.answers += 1
        elif status != b"304":
            await asyncio.sleep(0.1)

    def holds(self, target: Snapshot) -> bool:
        """Whether it ended on what a tree asks for."""
        _, short_name, _ = _POLLED[self.number % len(_POLLED)]
        # Those who name resources name all that there are.
        return self.version.decode() == target.resources(BY_SHORT_NAME[short_name].type_url).version


class EditedTree:
    """A tree that is edited at random; `edits` counts."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.edits = 0
        self._rng = rng
        self._extras: list[Path] = []
        self._broken: set[str] = set()
        self.edit_all()

    def edit_all(self) -> None:
        """Change everything, and mend what is broken."""
        self.edits += 1
        self._broken.clear()
        for name, text in files_of(self.edits, BY_REST).items():
            write_file(self.root / name, text)

    def edit(self) -> None:
        """Do one of: change a file, break it, add clusters, remove some, or change everything."""
        self.edits += 1
        way = self._rng.random()
        files = files_of(self.edits, BY_REST)
        name = self._rng.choice(sorted(files))
        if way < 0.6:
            write_file(self.root / name, files[name])
        elif way < 0.7:
            (self.root / name).write_text("resources: [")
            self._broken.add(name)
        elif way < 0.8 and len(self._extras) < _MOST_EXTRAS:
            extra = self.root / f"extra-{self.edits}-cds.yaml"
            write_file(
                extra, f"- {{name: extra-{self.edits}, connect_timeout: 1s, alt_stat_name: number-{self.edits}-}}\n"
            )
            self._extras.append(extra)
        elif way < 0.9 and self._extras:
            self._extras.pop(self._rng.randrange(len(self._extras))).unlink()
        else:
            self.edit_all()


@dataclass
class Soak:
    """What came of a soak.

    Attributes:
        edits: how many edits.
        answers: how many polls and responses brought something new.
        rests: what the server held, each time that everything rested.
        types: the objects of each type then, of those that Python's collector knows.
    """

    edits: int = 0
    answers: int = 0
    rests: list[dict[str, int]] = field(default_factory=list)
    types: list[dict[str, int]] = field(default_factory=list)

    def medians(self, part: slice) -> dict[str, float]:
        """Return the median of each count in a part of the rests."""
        rests = self.rests[part]
        return {name: statistics.median(rest[name] for rest in rests) for name in rests[0]}

    def growth(self, warm_up: int, last: int) -> dict[str, float]:
        """Return by what share each count grew: from the `last` rests at the end of the warm-up to the `last` of all."""
        before, after = self.medians(slice(max(warm_up - last, 0), warm_up)), self.medians(slice(-last, None))
        return {name: after[name] / before[name] - 1 for name in before}

    def leaks(self, warm_up: int, last: int) -> list[str]:
        """Return what grew since the warm-up: memory by more than 5 %, or any descriptor, thread or task that never goes."""
        before, after = self.rests[max(warm_up - last, 0) : warm_up], self.rests[-last:]
        # A pool of threads grows by one whenever all of them are busy, until it has its size.
        spare = {"threads": (os.cpu_count() or 1) + 4}
        # A connection may end and another one begin while they are counted; what leaked is there each time.
        found = [
            name
            for name in ("descriptors", "threads", "tasks")
            if min(rest[name] for rest in after) > max(rest[name] for rest in before) + spare.get(name, 0)
        ]
        return ["trimmed"] * (self.growth(warm_up, last)["trimmed"] > MOST_GROWTH) + found

    def grown_types(self, warm_up: int, most: int = 5) -> dict[str, int]:
        """Return the types of which there are most more objects than at the end of the warm-up."""
        more = Counter(self.types[-1])
        more.subtract(self.types[warm_up - 1])
        return dict(more.most_common(most))


class Soaked:
    """A server with all that follows it."""

    def __init__(self, folder: Path, load: Load, seed: int) -> None:
        self.load = load
        self._folder = folder
        self._counts = folder / "counts.json"
        rng = random.Random(seed)
        self.tree = EditedTree(folder / "tree", rng)
        places = (
            "--mirror",
            str(folder / "out"),
            "--state",
            str(folder / "state"),
            "--cache-dir",
            str(folder / "cache"),
        )
        times = ("--settle", "10ms", "--linger", "0s", "--step-timeout", "2s", "--log-level", "warning")
        sockets: dict[str, Any] = {"http": f"unix:{folder / 'h'}", "grpc": f"unix:{folder / 'g'}"}
        module = ("tests.soak.counted", str(self._counts))
        self.server = Server(
            self.tree.root,
            folder,
            *places,
            *times,
            "--ads-config-sources",
            "--max-removal",
            "off",
            module=module,
            **sockets,
        )
        self.polls = [Poll(number) for number in range(load.polls)]
        self.streams = [
            StreamFollower(number % 2 == 1, random.Random(rng.random()), node=f"stream-{number}")
            for number in range(load.streams)
        ]
        self.envoys = envoys_of(folder) if load.envoys else ()

    async def run(
        self,
        times: int,
        edits: int,
        within_s: float = math.inf,
        report: Callable[[dict[str, int]], object] = lambda _: None,
    ) -> Soak:
        """Make so many edits, or as many as there is time for, rest, and count; so many times.

        Raises:
            AssertionError: a client does not come to what the tree asks for, or the server ends.
        """
        soak = Soak()
        await asyncio.to_thread(self.server.start)
        try:
            async with asyncio.TaskGroup() as tasks, AsyncExitStack() as stack:
                for envoy in self.envoys:
                    await asyncio.to_thread(envoy.start)
                    stack.callback(envoy.stop)
                running = [tasks.create_task(poll.follow(self._folder / "h")) for poll in self.polls]
                for number in range(0, len(self.streams), _ON_A_CONNECTION):
                    options = (("grpc.use_local_subchannel_pool", 1),)
                    channel = grpc.aio.insecure_channel(f"unix:{self._folder / 'g'}", options=options)
                    await stack.enter_async_context(channel)
                    some = self.streams[number : number + _ON_A_CONNECTION]
                    running += [tasks.create_task(_follow(stream, channel)) for stream in some]
                for _ in range(times):
                    await self._edit(edits, within_s)
                    await self._rest()
                    counts = await self._count()
                    soak.types.append(counts.pop("types"))
                    soak.rests.append(counts)
                    report(counts)
                for task in running:
                    task.cancel()
        finally:
            await asyncio.to_thread(self.server.kill)
        assert self.server.log_events("internal_error") == []
        soak.edits = self.tree.edits
        soak.answers = sum(poll.answers for poll in self.polls) + sum(stream.responses for stream in self.streams)
        return soak

    async def _edit(self, edits: int, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        for number in range(1, edits + 1):
            self.tree.edit()
            await asyncio.sleep(max(started_s + number * self.load.every_s - loop.time(), 0.0))
            if loop.time() - started_s > within_s:
                return

    async def _rest(self) -> None:
        """Mend the tree, and wait until every client has what it asks for."""
        self.tree.edit_all()
        target = (await asyncio.to_thread(fsxds.load, self.tree.root)).snapshot
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PATIENCE_S
        while behind := await self._behind(target):
            assert self.server.is_running, self.server.log_file.read_text()[-5000:]
            assert loop.time() < deadline_s, f"behind: {len(behind)}, such as {behind[:5]}"
            await asyncio.sleep(0.1)

    async def _behind(self, target: Snapshot) -> list[str]:
        """Return who does not have what the tree asks for."""
        behind = [f"poll {poll.number}" for poll in self.polls if not poll.holds(target)]
        behind += [stream.node for stream in self.streams if not self._streamed(stream, target)]
        if not behind:
            for number, envoy in enumerate(self.envoys):
                if not await asyncio.to_thread(self._has, envoy, target):
                    behind.append(f"Envoy {number}")
        return behind

    def _streamed(self, stream: StreamFollower, target: Snapshot) -> bool:
        """Whether a stream has the last edit and no other resources; their config sources are others on streams."""
        mark = f"number-{self.tree.edits}-".encode()
        return all(
            held.keys() == set(target.resources(TypeUrl(type_url)))
            and all(mark in body for name, body in held.items() if not name.startswith("extra-"))
            for type_url, held in stream.held.items()
        )

    def _has(self, envoy: Envoy, target: Snapshot) -> bool:
        """Whether an Envoy has the last edit and no other clusters."""
        with suppress(OSError):
            dump = envoy.get("/config_dump")[1]
            names = set(target.resources(BY_SHORT_NAME["cds"].type_url))
            extras = {name for name in names if name.startswith("extra-")}
            has_edit = dump.count(f"number-{self.tree.edits}-") >= 4
            return has_edit and set(re.findall(r'"name": "(extra-\d+)"', dump)) == extras
        return False

    async def _count(self) -> dict[str, Any]:
        """Have the server count what it holds."""
        self._counts.unlink(missing_ok=True)
        os.kill(self.server.pid, signal.SIGUSR2)
        await asyncio.to_thread(self.server.wait, self._counts.exists, "what the server counts")
        counts: dict[str, Any] = json.loads(self._counts.read_text())
        # An Envoy that polls opens another connection, with its task, whenever all that it has are busy, up to one for each type.
        for envoy in self.envoys:
            stats = (await asyncio.to_thread(envoy.get, "/stats?filter=upstream_cx_active"))[1]
            connections = sum(int(line.rpartition(" ")[2]) for line in stats.splitlines())
            counts["descriptors"] -= connections
            counts["tasks"] -= connections
        return counts


async def _follow(stream: StreamFollower, channel: grpc.aio.Channel) -> Any:
    while True:
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await stream.follow_on(channel)
        await asyncio.sleep(0.1)
