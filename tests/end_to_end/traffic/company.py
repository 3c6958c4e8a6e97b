"""Changes while others are connected, or decide: clients that reject, come once, poll one type or die, and operators.

Each is a function that makes the n-th change. What is edited has to reach the Envoy within one `--step-timeout`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Self

from envoy.config.route.v3 import route_pb2

from fsxds.settings.rollout_forms import is_in_share
from tests.end_to_end.traffic.convergence import missing
from tests.end_to_end.traffic.kinds import (
    FRONT,
    TYPE,
    Tree,
    World,
    eds_in_two_files,
    listener_filters,
    static_in_one_file,
    static_in_two_files,
)
from tests.end_to_end.traffic.running import MIRROR, PATIENCE_S, TRANSPORTS, Run, write_tree
from tests.support.envoy import Envoy
from tests.support.follower import Follower
from tests.support.fsxds_process import run_fsxds
from tests.support.ports import free_port
from tests.support.server import write_file
from tests.support.settings_files import file_flags

CLUSTERS, ROUTES = f"{TYPE}.config.cluster.v3.Cluster", f"{TYPE}.config.route.v3.RouteConfiguration"
LISTENERS = f"{TYPE}.config.listener.v3.Listener"
GENERATED = 150
CANARIES = 0.5
CANARY = next(node for node in map("canary-{}".format, count()) if is_in_share(node, CANARIES))
BAKE_S = 1.0
# Less than anybody is waited for in vain below.
STEP_TIMEOUT_S = 2.0
SETTINGS = "views.json"
REJECTED_LISTENERS = "listener_manager.lds.update_rejected"


class Neighbour(Follower):
    """Another client of the server that gets clusters, listeners and routes.

    Attributes:
        rejects: it rejects each response with a resource of this name, whatever else is in it.
        rejected: the names that it rejected, one for each response.
        hangs: it answers nothing, as a process that is stopped.
        missed: the clusters that its routes named while it had none of that name.
    """

    def __init__(self, run: Run, node: str) -> None:
        super().__init__(str(run.server.ready["grpc"]), node={"id": node, "cluster": "edge"})
        self.rejects = ""
        self.rejected: list[str] = []
        self.hangs = False
        self.missed: set[str] = set()
        self._unanswered: list[Any] = []
        self._clusters: set[str] = set()
        self._used = ""

    def __enter__(self) -> Self:
        super().__enter__().ask(CLUSTERS, "*").ask(LISTENERS, "*").ask(ROUTES, FRONT)
        self.until(lambda: bool(self._used), "the routes")
        return self

    def wake(self) -> None:
        """Go on, and answer what came meanwhile."""
        with self._changed:
            self.hangs = False
            for response in self._unanswered:
                self._take(response)

    def until_has(self, *names: str) -> None:
        """Wait until it holds these, among others."""
        self.until(lambda: set(names) <= set(self.held), f"{names}")

    def is_offered(self, name: str) -> bool:
        """Whether a resource came while it hung."""
        return any(one.name == name for response in self._unanswered for one in response.resources)

    def _take(self, response: Any) -> None:
        if self.hangs:
            self._unanswered.append(response)
            return
        names = {one.name for one in response.resources}
        if self.rejects in names:
            self.rejected.append(self.rejects)
            words = f"Error adding/updating cluster(s) {self.rejects}: not here"
            nack = self._request(type_url=response.type_url, response_nonce=response.nonce)
            nack.error_detail.message = words
            self._requests.put(nack)
            return
        super()._take(response)
        if response.type_url == CLUSTERS:
            self._clusters |= names
            self._clusters -= set(response.removed_resources)
        for one in response.resources if response.type_url == ROUTES else ():
            found = route_pb2.RouteConfiguration.FromString(one.resource.value)
            self._used = found.virtual_hosts[0].routes[0].route.cluster
        if self._used and self._used not in self._clusters:
            self.missed.add(self._used)


@contextmanager
def neighbours(run: Run, *nodes: str) -> Iterator[list[Neighbour]]:
    """Connect other clients; at the end, note which of them had routes to a cluster that they lacked."""
    with ExitStack() as stack:
        connected = [stack.enter_context(Neighbour(run, node)) for node in nodes]
        yield connected
        run.late += [f"{node} lacks {one.missed}" for node, one in zip(nodes, connected, strict=True) if one.missed]


@contextmanager
def polling(run: Run, poll: Callable[[int], None]) -> Iterator[None]:
    """Poll in a thread, again and again; the block begins after the third poll."""
    is_over, has_begun = threading.Event(), threading.Event()

    def poll_on() -> None:
        for number in count():
            if is_over.is_set():
                return
            try:
                poll(number)
            except OSError as error:
                run.late.append(f"a poll failed: {error}")
                return
            if number == 2:
                has_begun.set()

    thread = threading.Thread(target=poll_on, daemon=True)
    thread.start()
    assert has_begun.wait(PATIENCE_S), run.server.log_file.read_text()[-2000:]
    yield
    is_over.set()
    # A poll that is held goes on without it.
    thread.join(1.0)


def poll_clusters(run: Run, node: str, version: str, hold: str) -> str:
    """Poll clusters as a node; return the version of the answer, or the same if there is nothing new."""
    body = json.dumps({"node": {"id": node, "cluster": "edge"}, "version_info": version}).encode()
    url = f"http://127.0.0.1:{run.server.port}/v3/discovery:clusters?timeout={hold}"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return str(json.loads(answer.read())["version_info"])
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 304:
                raise
    return version


def rejected_cluster(run: Run, name: str, n: int) -> None:
    """One of four clients rejects the new cluster; it and all others get the next edit, which is of another file."""
    with neighbours(run, "good-1", "good-2", "bad") as (*good, bad):
        bad.rejects = f"c{n}"
        tree = static_in_two_files(run.world, n)
        run.write(tree, f"{name}, change {n}")
        bad.until(lambda: bool(bad.rejected), "a NACK")
        run.write({**tree, "more.yaml": (run.world.static(f"more-{n}", n),)}, f"{name}, after change {n}")
        bad.until_has(f"more-{n}")
        for one in good:
            one.until_has(f"c{n}", f"more-{n}")
        assert f"c{n}" not in bad.held
        run.write(tree, f"{name}, last of change {n}")


def rejected_listener(run: Run, name: str, n: int) -> None:
    """A second Envoy rejects the listener, whose port is taken on its host."""
    folder = run.tree.parent / "second"
    # An Envoy reads files on one host with the server; others have streams.
    transport = TRANSPORTS["delta" if run.transport.startswith(MIRROR) else run.transport]
    bootstrap = transport.bootstrap(run.server, folder) | {"node": {"id": f"second-{n}", "cluster": "edge"}}
    with (
        neighbours(run, "good-1", "good-2"),
        Envoy(bootstrap, admin_port=free_port(), workdir=folder, wait="admin") as envoy,
    ):
        rejections = envoy.wait_stat(REJECTED_LISTENERS, 1)
        for number in (2 * n, 2 * n + 1):
            run.write(without_reuse_port(listener_filters(run.world, number)), f"{name}, change {number}")
            rejections = envoy.wait_stat(REJECTED_LISTENERS, rejections + 1)


def without_reuse_port(tree: Tree) -> Tree:
    """Return a tree whose listener leaves its port to one Envoy alone."""
    (listener,) = tree["lds.yaml"]
    return {**tree, "lds.yaml": (listener | {"enable_reuse_port": False},)}


def dashboard(run: Run, name: str, n: int) -> None:
    """Somebody polls clusters alone, with a node id, while clusters with endpoints and routes are edited."""
    version = ""

    def poll(_: int) -> None:
        nonlocal version
        version = poll_clusters(run, "dashboard", version, hold="0" if not version else "500ms")

    with polling(run, poll):
        run.write(eds_in_two_files(run.world, n), f"{name}, change {n}")


def crash_loop(run: Run, name: str, n: int) -> None:
    """Clients with other node ids come all the time, poll once, and never return."""
    nodes = count(1000 * n)

    def poll(_: int) -> None:
        poll_clusters(run, f"new-{next(nodes)}", "", hold="0")
        time.sleep(0.02)

    with polling(run, poll):
        run.write(eds_in_two_files(run.world, n), f"{name}, change {n}")


def mass_rename(world: World, n: int) -> Tree:
    """As many generated clusters as there were, with other names, and other routes."""
    generated = tuple(world.static(f"g{n}-{number}", number) for number in range(GENERATED))
    return {**static_in_two_files(world, n), "generated.yaml": generated}


def renamed_at_once(run: Run, name: str, n: int) -> None:
    """All generated clusters get other names, and in the same save requests move to another cluster."""
    run.write(mass_rename(run.world, n), f"{name}, change {n}")


def rolled_back(run: Run, name: str, n: int) -> None:
    """A change is rolled back, and another team edits another file: the rollback stays until it is resumed."""
    before, after = (static_in_two_files(run.world, number) for number in (2 * n, 2 * n + 1))
    run.write(before, f"{name}, before change {n}")
    # The history has the time of what was published, and others may be as near.
    time.sleep(1.0)
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    time.sleep(1.0)
    run.write(after, f"{name}, change {n}")
    order(run, "rollback", "--all-views", at)
    run.until_taken(before, f"{name}, the rollback of change {n}")
    more = (run.world.static(f"more-{n}", n),)
    write_file(run.tree / "more.yaml", json.dumps({"resources": list(more)}))
    run.until_taken({"more.yaml": more}, f"{name}, the other file of change {n}")
    run.late += [f"{name}: {one} is not as it was rolled back to" for one in missing(run.envoy, before)]
    order(run, "rollout", "resume")
    run.until_taken(after, f"{name}, change {n} again")


def other_layer(run: Run, name: str, n: int) -> None:
    """All nodes get another layer by SIGHUP, which nobody had before."""
    tree = static_in_two_files(run.world, n)
    for path, resources in tree.items():
        write_file(run.tree / f"layer-{n}" / path, json.dumps({"resources": list(resources)}))
    write_views(run.tree.parent, n)
    os.kill(run.server.pid, signal.SIGHUP)
    run.until_taken(tree, f"{name}, change {n}")


def write_views(folder: Path, n: int) -> None:
    """Write the settings by which all nodes have the n-th layer."""
    write_file(folder / SETTINGS, json.dumps({"views": [{"name": "all", "layers": [f"layer-{n}"]}]}))


def dead_canary(run: Run, name: str, n: int) -> None:
    """The only canary takes a change and dies: nobody else gets it before it is promoted."""
    tree = static_in_two_files(run.world, n)
    with neighbours(run, CANARY) as (canary,):
        write_tree(run.tree, tree)
        canary.until_has(f"c{n}")
    _pass_nobody(run, tree, f"{name}, change {n}")
    order(run, "rollout", "promote")
    run.until_taken(tree, f"{name}, change {n}")


def hanging_canary(run: Run, name: str, n: int) -> None:
    """The only canary hangs when a change comes: nobody else gets it before the canary goes on, and has taken it."""
    tree = static_in_two_files(run.world, n)
    with neighbours(run, CANARY) as (canary,):
        canary.hangs = True
        write_tree(run.tree, tree)
        canary.until(lambda: canary.is_offered(f"c{n}"), "the change")
        _pass_nobody(run, tree, f"{name}, change {n}")
        canary.wake()
        run.until_taken(tree, f"{name}, change {n}")


def _pass_nobody(run: Run, tree: Tree, label: str) -> None:
    """Wait for longer than a bake and a step may take; note if Envoy, which is no canary, has any of the change then."""
    time.sleep(2 * (BAKE_S + STEP_TIMEOUT_S))
    if len(missing(run.envoy, tree)) < 2:
        run.late.append(f"{label}: passed the canary")


def freed_port(run: Run, name: str, n: int) -> None:
    """Envoy rejects a new listener, whose port another process has, and gets it when that process ends.

    The cluster and the routes of the same save come at once.
    """
    with neighbours(run, "good-1", "good-2") as good, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        before = run.envoy.stat(REJECTED_LISTENERS)
        tree = static_in_two_files(run.world, n)
        beside = run.world.listener() | {"name": f"beside-{n}", "enable_reuse_port": False}
        beside["address"] = {"socket_address": {"address": "127.0.0.1", "port_value": other.getsockname()[1]}}
        write_tree(run.tree, {**tree, "beside.lds.yaml": (beside,)})
        run.until_taken(tree, f"{name}, change {n}")
        run.envoy.wait_stat(REJECTED_LISTENERS, before + 1)
        for one in good:
            one.until_has(f"beside-{n}")
        assert missing(run.envoy, {"": (beside,)})
        other.close()
        if run.transport == MIRROR:
            # Where nobody asks Envoy, nobody knows what it rejects; it reads a file again when that changes.
            write_tree(run.tree, {**tree, "lds.yaml": (run.world.listener(filters=n),), "beside.lds.yaml": (beside,)})
        run.until_taken({"": (beside,)}, f"{name}, the listener of change {n}")


def order(run: Run, *arguments: str) -> None:
    """Decide about rollouts, as an operator does."""
    done = run_fsxds([*arguments, "--admin", run.server.admin])
    assert done.returncode == 0, done


@dataclass(frozen=True, slots=True)
class Company:
    """A kind of change in company.

    Attributes:
        change: makes the n-th change: of a run, with the name of the kind.
        tree: what the tree is before the first.
        options: of the server, from the folder of the run; what files they need is written.
    """

    change: Callable[[Run, str, int], None]
    tree: Callable[[World, int], Tree] = static_in_one_file
    options: Callable[[Path], Sequence[str]] = lambda _: ()


def _first_view(folder: Path) -> Sequence[str]:
    write_views(folder, 0)
    return "--settings", str(folder / SETTINGS)


def _in_first_layer(world: World, n: int) -> Tree:
    return {f"layer-0/{path}": resources for path, resources in static_in_two_files(world, n).items()}


def _canary(_: Path) -> Sequence[str]:
    timeout = f"{STEP_TIMEOUT_S:g}s"
    return "--canary", f"nodes={CANARIES:.0%}", *file_flags(bake=f"{BAKE_S:g}s"), "--step-timeout", timeout


COMPANY: Mapping[str, Company] = {
    "one of four clients rejects a cluster": Company(rejected_cluster),
    "a second Envoy rejects the listener": Company(
        rejected_listener, lambda world, n: without_reuse_port(listener_filters(world, n))
    ),
    "a dashboard polls clusters alone": Company(dashboard),
    "new nodes poll once": Company(crash_loop),
    "150 renamed clusters and a hotfix": Company(
        renamed_at_once, mass_rename, options=lambda _: ("--max-removal", "50%")
    ),
    "a rollback, then another file": Company(rolled_back, options=lambda folder: ("--state", str(folder / "state"))),
    "another layer by SIGHUP": Company(other_layer, _in_first_layer, _first_view),
    "the canary dies": Company(dead_canary, options=_canary),
    "the canary hangs": Company(hanging_canary, options=_canary),
    "the port of a rejected listener becomes free": Company(freed_port),
}
