"""An fsxds, an Envoy that follows it by one of the transports, and requests through that Envoy."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.end_to_end.test_rest_envoy import bootstrap as rest_bootstrap
from tests.end_to_end.test_rest_envoy import rest_source
from tests.end_to_end.traffic.convergence import missing
from tests.end_to_end.traffic.kinds import KINDS, Plain, Tree, World, static_in_one_file, texts
from tests.end_to_end.traffic.load import Load, bound_sockets, in_thread
from tests.support.envoy import Envoy
from tests.support.grpc_envoy import DELTA_ADS, SOTW_ADS
from tests.support.ports import free_address, free_port
from tests.support.server import Server, write_file

BACKENDS = 4
# A change that Envoy has not taken by then is reported, and the next one follows.
PATIENCE_S = 20.0
# A relay lets up to 30 s pass before it asks a server again that dies again and again.
RESTART_PATIENCE_S = 60.0
# Requests go on for so long before the next change.
PAUSE_S = 0.2
MIRROR = "mirror"


@dataclass(frozen=True, slots=True)
class Transport:
    """How the Envoy gets its resources.

    Attributes:
        source: the config source in the resources of the tree.
        bootstrap: makes the Envoy's bootstrap from the server and the folder of the run.
        options: more options of the server, from that folder and the port of the Envoy's admin page.
    """

    source: Plain
    bootstrap: Callable[[Server, Path], Plain]
    options: Callable[[Path, int], Sequence[str]] = lambda *_: ()


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of the Envoy: requests a second, of which some are slow, and the number of its workers."""

    rate: float = 240.0
    slow_s: float = 0.0
    workers: int = 1


DEMAND = Demand()


@dataclass(frozen=True, slots=True)
class Above:
    """The servers between the tree and the Envoy.

    Attributes:
        relays: so many relays are in a row between them.
        servers: so many servers have the tree, and one of them runs. With each change that one is killed, and the next one
            starts on the changed tree. 0 for one that goes on, and sees each change.
    """

    relays: int = 0
    servers: int = 0


NOTHING_ABOVE = Above()


def _mirror_bootstrap(_: Server, folder: Path) -> Plain:
    def source(name: str) -> Plain:
        return {"resource_api_version": "V3", "path_config_source": {"path": f"{folder}/{MIRROR}/{name}.pb"}}

    return {"dynamic_resources": {"cds_config": source("cds"), "lds_config": source("lds")}}


def _mirror_options(folder: Path, _: int) -> Sequence[str]:
    return "--mirror", str(folder / MIRROR), "--mirror-config-sources"


TRANSPORTS: Mapping[str, Transport] = {
    "rest": Transport(rest_source(), lambda server, _: rest_bootstrap(server.port)),
    "mirror": Transport({"resource_api_version": "V3", "ads": {}}, _mirror_bootstrap, _mirror_options),
    "ads": Transport(SOTW_ADS.config_source(), lambda server, _: SOTW_ADS.bootstrap(server.ready["grpc"])),
    "delta": Transport(DELTA_ADS.config_source(), lambda server, _: DELTA_ADS.bootstrap(server.ready["grpc"])),
}
# The server knows the admin page of the Envoy that reads its files.
MIRROR_WITH_ADMIN = "mirror with admin"


def _known_mirror_options(folder: Path, admin_port: int) -> Sequence[str]:
    rule = {"directory": MIRROR, "config_sources": True, "admin": f"127.0.0.1:{admin_port}"}
    settings = folder / "fsxds.json"
    settings.write_text(json.dumps({"mirrors": [rule]}))
    return "--settings", str(settings)


_ALL_TRANSPORTS = {
    **TRANSPORTS,
    MIRROR_WITH_ADMIN: Transport(TRANSPORTS["mirror"].source, _mirror_bootstrap, _known_mirror_options),
}


class Run:
    """A tree that is served to an Envoy under load.

    Attributes:
        server: the fsxds that the Envoy follows.
        envoy: the Envoy.
        load: the requests.
        world: what the resources of the tree have in common.
        tree: the folder of the tree.
        transport: its name.
        late: the changes that Envoy had not taken in time, each with what it lacked.
        took_s: how long Envoy took for each change, by what was under way.
        restarted: the servers that have the tree, the one that runs first, where each change is made by a restart.
        apart_s: the seconds between saves of one change, in place of those of its kind.
    """

    def __init__(self, tree: Path, world: World, load: Load, server: Server, envoy: Envoy) -> None:
        self.tree = tree
        self.world = world
        self.load = load
        self.server = server
        self.envoy = envoy
        self.transport = ""
        self.late: list[str] = []
        self.took_s: dict[str, list[float]] = {}
        self.restarted: tuple[Server, ...] = ()
        self.apart_s: float | None = None

    def change(self, name: str, number: int, label: str | None = None, *, every_s: float | None = None) -> None:
        """Make the `number`-th change of a kind, and wait until Envoy has taken it.

        Args:
            name: of the kind.
            number: of the change.
            label: stands for another in the record.
            every_s: do not wait for Envoy, but for so long.
        """
        kind = KINDS[name]
        tree = kind.tree(self.world, number)
        self.load.record.begin(label or name)
        if self.restarted:
            self.restarted[0].kill()
        for path in kind.files_first(number):
            write_tree(self.tree, tree, only=path)
            time.sleep(kind.apart_s if self.apart_s is None else self.apart_s)
        if every_s is None:
            self.write(tree, f"{name}, change {number}")
        else:
            write_tree(self.tree, tree)
        time.sleep(PAUSE_S if every_s is None else every_s)

    def write(self, tree: Tree, label: str) -> None:
        """Make files what a tree says, and wait until Envoy has taken it."""
        write_tree(self.tree, tree)
        if self.restarted:
            self.restarted = *self.restarted[1:], self.restarted[0]
            self.restarted[0].start()
        self.until_taken(tree, label)

    def until_taken(self, tree: Tree, label: str) -> None:
        """Wait until Envoy has taken a tree that was saved just now, and note how long that took."""
        began_s = time.monotonic()
        ends_at_s = began_s + (RESTART_PATIENCE_S if self.restarted else PATIENCE_S)
        while lacking := missing(self.envoy, tree):
            if time.monotonic() > ends_at_s:
                self.late.append(f"{label}: {', '.join(lacking)}")
                return
            time.sleep(0.05)
        self.took_s.setdefault(self.load.record.change, []).append(time.monotonic() - began_s)

    def rest(self, seconds: float) -> None:
        """Change nothing for a while."""
        self.load.record.begin("quiet")
        time.sleep(seconds)

    def kill_server(self) -> None:
        """End the server as by a crash, and start it again."""
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.wait_for_end()
        self.server.start()

    def end_connections(self) -> None:
        """Have the clients end their kept-alive connections, and make new ones."""
        self.load.connections += 1

    def failures(self) -> list[str]:
        """Return what failed, each with what Envoy's access log says of it, and which changes were late."""
        flags = self.flags()
        told = [
            f"{one.change}: {one.reason}, {'kept' if one.is_reused else 'new'} connection, "
            f"{one.since_edit_s:.3f} s after the edit began: {flags.get(one.request, 'not in the access log')}"
            for one in self.load.record.failures
        ]
        return told + [f"not taken in time: {late}" for late in self.late]

    def flags(self) -> dict[int, str]:
        """Return what Envoy's access log says of each request that failed, by its number."""
        path = Path(self.world.access_log)
        lines = path.read_text().splitlines() if path.exists() else []
        split = (line.split(" ", 1) for line in lines)
        return {int(number): told for number, told in split if number.isdigit()}


def write_tree(folder: Path, tree: Tree, only: str | None = None) -> None:
    """Make files what the tree says, one after the other; `only` makes one file so, and leaves the others."""
    files = texts(tree)
    for path, text in files.items():
        if only in (None, path) and not ((folder / path).exists() and (folder / path).read_text() == text):
            write_file(folder / path, text)
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        path = str(file.relative_to(folder))
        if only in (None, path) and path not in files:
            file.unlink()


@contextmanager
def running(
    folder: Path,
    name: str,
    drain_s: int,
    options: Sequence[str],
    demand: Demand = DEMAND,
    *,
    above: Above = NOTHING_ABOVE,
    first: Callable[[World, int], Tree] = static_in_one_file,
) -> Iterator[Run]:
    """Run all of it in a folder, with requests from the start.

    Args:
        folder: is made its own.
        name: of the transport.
        drain_s: Envoy's drain time.
        options: more options of each server.
        demand: what is asked of the Envoy.
        above: the servers between the tree and the Envoy.
        first: makes the tree at the start.
    """
    transport = _ALL_TRANSPORTS[name]
    sockets = bound_sockets(BACKENDS)
    ports = tuple(one.getsockname()[1] for one in sockets)
    world = World(free_port(), ports, transport.source, str(folder / "access.log"))
    tree = folder / "tree"
    tree.mkdir()
    write_tree(tree, first(world, 0))
    load, go = Load(world.port, demand.rate, demand.slow_s), threading.Event()
    admin_port = free_port()
    own = transport.options(folder, admin_port)
    with in_thread(sockets, load, go), ExitStack() as stack:
        having_tree, relays = _servers(tree, folder, options, own, above)
        for one in (having_tree[0], *relays):
            stack.enter_context(one)
        for one in having_tree[1:]:
            stack.callback(_end, one)
        server = (*having_tree, *relays)[-1]
        bootstrap: dict[str, Any] = transport.bootstrap(server, folder)
        extra = ["--file-flush-interval-msec", "100"]
        with Envoy(
            bootstrap,
            admin_port=admin_port,
            workdir=folder / "envoy",
            drain_s=drain_s,
            workers=demand.workers,
            extra_args=extra,
        ) as envoy:
            envoy.wait(lambda: "front" in envoy.listener_names(dynamic_only=True), what="the listener")
            go.set()
            run = Run(tree, world, load, server, envoy)
            run.transport = name
            run.restarted = tuple(having_tree) if above.servers else ()
            run.rest(1.0)
            yield run
            load.stop()
            load.wait()
            # Until the access log is on the disk.
            time.sleep(0.3)


def _end(server: Server) -> None:
    if server.is_running:
        server.stop()


def _servers(
    tree: Path, folder: Path, options: Sequence[str], own: Sequence[str], above: Above
) -> tuple[list[Server], list[Server]]:
    """Return the servers that have the tree, and the relays below them; the last of all has also the options of the transport."""
    levels: list[list[Server]] = []
    addresses: list[str] = []
    for level in range(above.relays + 1):
        upstream = ("--upstream", ",".join(addresses)) if level else ()
        is_last, count = level == above.relays, 1 if level else max(above.servers, 1)
        # The same after a restart.
        http, addresses = free_address(), [free_address() for _ in range(count)]
        made = []
        for number, grpc in enumerate(addresses):
            workdir = folder if is_last else folder / f"level-{level}-{number}"
            workdir.mkdir(exist_ok=True)
            chosen = *upstream, *options, *(own if is_last else ())
            made.append(Server(None if level else tree, workdir, *chosen, http=http, grpc=grpc))
        levels.append(made)
    return levels[0], [server for made in levels[1:] for server in made]
