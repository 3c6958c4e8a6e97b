"""A tree of relays, each a process of its own, and many clients of those at its ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import grpc.aio
from envoy.config.cluster.v3 import cluster_pb2
from envoy.service.discovery.v3 import discovery_pb2

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_address
from tests.support.resources import static_cluster
from tests.support.server import Server, write_file

METHOD = "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters"
# Between two attempts of a client that was cut off.
PAUSE_S = 0.2


class RelayTree:
    """A server with files, relays of it, and relays of these; each at an address that stays.

    Attributes:
        root: the server with files.
        middle: its relays.
        leaves: the relays of those, as many for each; each asks the next one in the middle where its own is away.
    """

    def __init__(self, folder: Path, width: int, *options: str) -> None:
        """Prepare them; nothing runs yet."""
        self._folder = folder
        self.addresses = [[free_address()], [], []]
        self.root = self._server("root", self.addresses[0][0], *options)
        self.middle = [self._relay(f"middle-{number}", 1, self.addresses[0], *options) for number in range(width)]
        self.leaves = []
        for number in range(width * width):
            own = number // width
            above = [self.addresses[1][own], self.addresses[1][(own + 1) % width]]
            self.leaves.append(self._relay(f"leaf-{number}", 2, above, *options))

    def _relay(self, name: str, level: int, above: Iterable[str], *options: str) -> Server:
        self.addresses[level].append(free_address())
        return self._server(name, self.addresses[level][-1], "--upstream", ",".join(above), *options)

    def _server(self, name: str, address: str, *options: str) -> Server:
        folder = self._folder / name
        folder.mkdir()
        tree = self._folder / "tree" if name == "root" else None
        return Server(tree, folder, "--log-format", "json", *options, grpc=address)

    @property
    def relays(self) -> list[Server]:
        """All of them, from the top."""
        return [*self.middle, *self.leaves]

    def write(self, count: int) -> None:
        """Write the files of so many clusters, all of the port 1."""
        for number in range(count):
            write_file(self._folder / "tree" / f"{number}.yaml", static_cluster(f"cluster-{number}", 1))

    def edit(self, port: int) -> None:
        """Change the port of the first cluster."""
        write_file(self._folder / "tree" / "0.yaml", static_cluster("cluster-0", port))

    def start(self) -> None:
        """Start all of them, from the top."""
        for server in (self.root, *self.relays):
            server.start(wait=False)
        for server in (self.root, *self.relays):
            server.wait(server.ready_file.exists, "what is above it")

    def stop(self) -> None:
        """End all that run."""
        for server in (*self.relays, self.root):
            if server.is_running:
                server.kill()


class TreeClient:
    """A client of a leaf by Delta, which goes to another one when it is cut off, and brings what it holds.

    Attributes:
        held: the port of each cluster, by name, and the version.
        responses: the names in each response.
        removed: all names that were ever removed.
    """

    def __init__(self, channels: list[grpc.aio.Channel], first: int) -> None:
        self.held: dict[str, tuple[int, str]] = {}
        self.responses: list[list[str]] = []
        self.removed: list[str] = []
        self._channels, self._at = channels, first

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            with suppress(grpc.aio.AioRpcError):
                await self._follow(self._channels[self._at])
            await asyncio.sleep(PAUSE_S)
            self._at = (self._at + 1) % len(self._channels)

    async def _follow(self, channel: grpc.aio.Channel) -> None:
        call = channel.stream_stream(METHOD)()
        request = discovery_pb2.DeltaDiscoveryRequest(resource_names_subscribe=["*"])
        request.node.id = "client"
        request.initial_resource_versions.update({name: version for name, (_, version) in self.held.items()})
        await call.write(request.SerializeToString())
        while (body := await call.read()) is not grpc.aio.EOF:
            response = discovery_pb2.DeltaDiscoveryResponse.FromString(body)
            for each in response.resources:
                self.held[each.name] = _port_of(each.resource.value), each.version
            self.responses.append([each.name for each in response.resources])
            self.removed += response.removed_resources
            answer = discovery_pb2.DeltaDiscoveryRequest(response_nonce=response.nonce)
            await call.write(answer.SerializeToString())


def _port_of(body: bytes) -> int:
    (locality,) = cluster_pb2.Cluster.FromString(body).load_assignment.endpoints
    port: int = locality.lb_endpoints[0].endpoint.address.socket_address.port_value
    return port


@asynccontextmanager
async def clients_of(addresses: list[str], each: int) -> AsyncIterator[list[TreeClient]]:
    """Run clients, so many of each address; those of one share a connection."""
    async with AsyncExitStack() as stack:
        # The channels of one process to one address share a connection; a dead one is tried again soon.
        options = [("grpc.max_reconnect_backoff_ms", 1000)]
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(one, options)) for one in addresses]
        clients = [TreeClient(channels, number) for number in range(len(addresses)) for _ in range(each)]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(client.run()) for client in clients]
            try:
                yield clients
            finally:
                for task in running:
                    task.cancel()


async def until(predicate: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not predicate():  # noqa: ASYNC110 - nothing says what processes have done
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise AssertionError(f"waited in vain for {what}") from error
