"""An fsxds, an Envoy that follows it by one of the transports, and requests through that Envoy."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.end_to_end.test_rest_envoy import bootstrap as rest_bootstrap
from tests.end_to_end.test_rest_envoy import rest_source
from tests.end_to_end.traffic.convergence import missing
from tests.end_to_end.traffic.kinds import KINDS, Plain, Tree, World, texts
from tests.end_to_end.traffic.load import Load, bound_sockets, in_thread
from tests.support.envoy import Envoy
from tests.support.grpc_envoy import DELTA_ADS, SOTW_ADS
from tests.support.ports import free_port
from tests.support.server import Server, write_file

BACKENDS = 4
# Between the two saves of a change that is saved in two.
APART_S = 0.03
# A change that Envoy has not taken by then is reported, and the next one follows.
PATIENCE_S = 20.0
# Requests go on for so long before the next change.
PAUSE_S = 0.2
MIRROR = "mirror"


@dataclass(frozen=True, slots=True)
class Transport:
    """How the Envoy gets its resources.

    Attributes:
        source: the config source in the resources of the tree.
        bootstrap: makes the Envoy's bootstrap from the server and the folder of the run.
        options: more options of the server, in that folder.
    """

    source: Plain
    bootstrap: Callable[[Server, Path], Plain]
    options: Callable[[Path], Sequence[str]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of the Envoy: requests a second, of which some are slow, and the number of its workers."""

    rate: float = 240.0
    slow_s: float = 0.0
    workers: int = 1


DEMAND = Demand()


def _mirror_bootstrap(_: Server, folder: Path) -> Plain:
    def source(name: str) -> Plain:
        return {"resource_api_version": "V3", "path_config_source": {"path": f"{folder}/{MIRROR}/{name}.pb"}}

    return {"dynamic_resources": {"cds_config": source("cds"), "lds_config": source("lds")}}


def _mirror_options(folder: Path) -> Sequence[str]:
    return "--mirror", str(folder / MIRROR), "--mirror-config-sources"


TRANSPORTS: Mapping[str, Transport] = {
    "rest": Transport(rest_source(), lambda server, _: rest_bootstrap(server.port)),
    "mirror": Transport({"resource_api_version": "V3", "ads": {}}, _mirror_bootstrap, _mirror_options),
    "ads": Transport(SOTW_ADS.config_source(), lambda server, _: SOTW_ADS.bootstrap(server.ready["grpc"])),
    "delta": Transport(DELTA_ADS.config_source(), lambda server, _: DELTA_ADS.bootstrap(server.ready["grpc"])),
}
# The server knows the admin page of the Envoy that reads its files.
MIRROR_WITH_ADMIN = "mirror with admin"
ADMIN_FILE = "admin"


def _known_mirror_options(folder: Path) -> Sequence[str]:
    (folder / ADMIN_FILE).write_text(str(free_port()))
    rule = {"directory": MIRROR, "config_sources": True, "admin": f"127.0.0.1:{(folder / ADMIN_FILE).read_text()}"}
    settings = folder / "fsxds.json"
    settings.write_text(json.dumps({"mirrors": [rule]}))
    return "--settings", str(settings)


def _known_mirror_bootstrap(server: Server, folder: Path) -> Plain:
    port = int((folder / ADMIN_FILE).read_text())
    admin = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}
    return {**_mirror_bootstrap(server, folder), "admin": admin}


_ALL_TRANSPORTS = {
    **TRANSPORTS,
    MIRROR_WITH_ADMIN: Transport(TRANSPORTS["mirror"].source, _known_mirror_bootstrap, _known_mirror_options),
}


class Run:
    """A tree that is served to an Envoy under load.

    Attributes:
        server: the fsxds.
        envoy: the Envoy.
        load: the requests.
        world: what the resources of the tree have in common.
        tree: the folder of the tree.
        late: the changes that Envoy had not taken in time, each with what it lacked.
    """

    def __init__(self, tree: Path, world: World, load: Load, server: Server, envoy: Envoy) -> None:
        self.tree = tree
        self.world = world
        self.load = load
        self.server = server
        self.envoy = envoy
        self.late: list[str] = []

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
        if kind.first:
            write_tree(self.tree, tree, only=kind.first)
            time.sleep(APART_S)
        if every_s is None:
            self.write(tree, f"{name}, change {number}")
        else:
            write_tree(self.tree, tree)
        time.sleep(PAUSE_S if every_s is None else every_s)

    def write(self, tree: Tree, label: str) -> None:
        """Make files what a tree says, and wait until Envoy has taken it."""
        write_tree(self.tree, tree)
        ends_at_s = time.monotonic() + PATIENCE_S
        while lacking := missing(self.envoy, tree):
            if time.monotonic() > ends_at_s:
                self.late.append(f"{label}: {', '.join(lacking)}")
                return
            time.sleep(0.05)

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
    chosen = files if only is None else {only: files[only]} if only in files else {}
    for path, text in chosen.items():
        if not (folder / path).exists() or (folder / path).read_text() != text:
            write_file(folder / path, text)
    for file in set(folder.iterdir()) if only is None else ():
        if file.name not in files:
            file.unlink()


@contextmanager
def running(folder: Path, name: str, drain_s: int, options: Sequence[str], demand: Demand = DEMAND) -> Iterator[Run]:
    """Run all of it in a folder, with requests from the start; `options` are more options of the server."""
    transport = _ALL_TRANSPORTS[name]
    sockets = bound_sockets(BACKENDS)
    ports = tuple(one.getsockname()[1] for one in sockets)
    world = World(free_port(), ports, transport.source, str(folder / "access.log"))
    tree = folder / "tree"
    tree.mkdir()
    write_tree(tree, KINDS["static clusters, one file"].tree(world, 0))
    load, go = Load(world.port, demand.rate, demand.slow_s), threading.Event()
    # The same after a restart.
    http, grpc = (f"127.0.0.1:{free_port()}" for _ in range(2))
    chosen = *transport.options(folder), *options
    with in_thread(sockets, load, go), Server(tree, folder, *chosen, http=http, grpc=grpc) as server:
        bootstrap: dict[str, Any] = transport.bootstrap(server, folder)
        extra = ["--file-flush-interval-msec", "100"]
        workdir, workers = folder / "envoy", demand.workers
        with Envoy(bootstrap, workdir=workdir, drain_s=drain_s, workers=workers, extra_args=extra) as envoy:
            envoy.wait(lambda: "front" in envoy.listener_names(dynamic_only=True), what="the listener")
            go.set()
            run = Run(tree, world, load, server, envoy)
            run.rest(1.0)
            yield run
            load.stop()
            load.wait()
            # Until the access log is on the disk.
            time.sleep(0.3)
