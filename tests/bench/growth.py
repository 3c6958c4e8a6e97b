"""(m): what one edit costs `fsxds serve` in processor time, among few resources and among many.

Each row compares the same edit in two trees; nothing else differs. The clients are real ones, of each protocol.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.bench import processes
from tests.bench.clients import Connection, post
from tests.bench.data import lean_clusters, replace_file
from tests.bench.figures import Figure
from tests.bench.stream_clients import Channels, Stream
from tests.support.settings_files import file_flags

FEW = 1000
MANY, MOST = 10_000, 100_000
IN_SMALL_FILE = 50  # so that 100 000 clusters are 2000 files
NAMED = 100
CHANGED_NAMES = 1000
ROUNDS = 11
TARGET = 2.0
REST_PATH = "/v3/discovery:clusters"
# One file of 100 000 clusters has 25 MB; a server reads it however long that takes.
OPTIONS = (*file_flags(max_file_size="1GiB"), "--log-level", "error")


class Client(Protocol):
    """Somebody who is sent each edit."""

    async def next(self) -> None:
        """Wait until the edit is there, and accept it."""


@dataclass(slots=True)
class StreamClient:
    """A client of a gRPC stream."""

    stream: Stream

    async def next(self) -> None:
        """Wait for a response, and send the ACK."""
        await self.stream.take()


@dataclass(slots=True)
class RestClient:
    """A client that polls; each poll is held until something changes."""

    connection: Connection
    names: tuple[str, ...]
    version: str = ""

    def ask(self) -> None:
        """Send the next poll."""
        body = {"node": {"id": "bench"}, "version_info": self.version, "resource_names": list(self.names)}
        self.connection.send(post(REST_PATH, json.dumps(body).encode(), "x-envoy-expected-rq-timeout-ms: 120000"))

    async def next(self) -> None:
        """Wait for the answer of the poll, and send another."""
        answer = await asyncio.to_thread(self.connection.read_answer)
        self.version = json.loads(answer.body)["version_info"]
        self.ask()


@asynccontextmanager
async def client(protocol: str, server: processes.Server, names: tuple[str, ...]) -> AsyncIterator[Client]:
    """Connect a client of one of `delta`, `sotw`, `rest`, which asks for these names, or for all where there is none."""
    if protocol == "rest":
        polls = RestClient(Connection(server.port), names)
        polls.ask()
        await polls.next()
        yield polls
        return
    async with Channels(server.grpc_port, 1) as channels:
        stream = channels.open(0, is_delta=protocol == "delta", names=names)
        await stream.subscribe("bench")
        yield StreamClient(stream)


@dataclass(frozen=True, slots=True)
class Tree:
    """A directory of clusters.

    Attributes:
        folder: where it is.
        edited: the file in which cluster 0 is.
        in_edited: how many clusters are in that file.
    """

    folder: Path
    edited: Path
    in_edited: int

    @classmethod
    def write(cls, folder: Path, count: int, in_file: int) -> Tree:
        """Write so many clusters, and so many in each file."""
        for first in range(0, count, in_file):
            Path(folder, f"part-{first:06d}.yaml").write_text(lean_clusters(first, min(in_file, count - first)))
        return cls(folder, folder / "part-000000.yaml", min(in_file, count))

    def edit(self, port: int) -> None:
        """Give cluster 0 another port."""
        replace_file(self.edited, lean_clusters(0, self.in_edited, port))

    def add_or_remove(self, number: int) -> None:
        """Add a file of a thousand clusters, or remove it again: the edits with odd numbers remove."""
        extra = self.folder / "extra.yaml"
        if number % 2:
            extra.unlink()
        else:
            replace_file(extra, lean_clusters(1_000_000, CHANGED_NAMES))


def edits(count: int, in_file: int | None, protocol: str = "delta", named: int = 0) -> float:
    """Return the median CPU seconds of edits of one cluster among `count`; `in_file` None means all in one file."""
    names = tuple(f"svc-{number}" for number in range(named))
    return _measured(
        count, in_file or count, partial(_cost, lambda tree, number: tree.edit(9000 + number), protocol, names)
    )


def changed_names(count: int) -> float:
    """Return the median CPU seconds of adding or removing a thousand clusters beside `count`."""
    return _measured(count, IN_SMALL_FILE, partial(_cost, Tree.add_or_remove, "delta", ()))


def _measured(count: int, in_file: int, cost: Callable[[processes.Server, Tree], float]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree.write(Path(folder), count, in_file)
        with processes.fsxds(tree.folder, *OPTIONS) as server:
            return cost(server, tree)


def _cost(
    edit: Callable[[Tree, int], None], protocol: str, names: tuple[str, ...], server: processes.Server, tree: Tree
) -> float:
    async def run() -> float:
        costs = []
        async with AsyncExitStack() as stack:
            waiting = await stack.enter_async_context(client(protocol, server, names))
            for number in range(ROUNDS):
                before = await asyncio.to_thread(server.resting_cpu_s)
                await asyncio.to_thread(edit, tree, number)
                await waiting.next()
                costs.append(await asyncio.to_thread(server.resting_cpu_s) - before)
        # The first has what only a first one costs.
        return statistics.median(costs[1:])

    return asyncio.run(run())


def _compared(name: str, cost: Callable[[int], float], many: int) -> Figure:
    few_s, many_s = cost(FEW), cost(many)
    return Figure(
        f"(m) {name}: among {many} / among {FEW}",
        many_s / few_s,
        TARGET,
        "",
        f"{many_s * 1e3:.1f} ms against {few_s * 1e3:.1f} ms CPU",
    )


def rows_for(many: int) -> dict[str, Callable[[], Iterator[Figure]]]:
    """Return the rows by name for a number of resources; each compares with the same among a thousand."""
    costs: dict[str, tuple[str, Callable[[int], float]]] = {
        "edit-small": (f"edit in a file of {IN_SMALL_FILE}, Delta client of all", lambda count: edits(count, IN_SMALL_FILE)),
        "edit-large": ("edit in the one file of all, Delta client of all", lambda count: edits(count, None)),
        "edit-delta-named": (f"edit, Delta client of {NAMED} names", lambda count: edits(count, IN_SMALL_FILE, "delta", NAMED)),
        "edit-sotw-named": (f"edit, SotW client of {NAMED} names", lambda count: edits(count, IN_SMALL_FILE, "sotw", NAMED)),
        "edit-rest-named": (f"edit, REST client of {NAMED} names", lambda count: edits(count, IN_SMALL_FILE, "rest", NAMED)),
        "names": (f"add or remove {CHANGED_NAMES} names, Delta client of all", changed_names),
    }  # fmt: skip

    def measure(text: str, cost: Callable[[int], float]) -> Iterator[Figure]:
        yield _compared(text, cost, many)

    suffix = "" if many == MANY else f"-{many // 1000}k"
    return {f"{name}{suffix}": partial(measure, text, cost) for name, (text, cost) in costs.items()}
