"""A fleet under everything at once: `python -m tests.end_to_end.fleet_run --seconds 600 --clients 150`.

Three servers on three members of etcd, two of them with copies of the tree, behind nginx. An edit each second moves the route
to a new cluster and removes the old one. Every ten seconds a server, a member of etcd or the worker processes of nginx are
killed, and a file is broken for an edit. Three Envoys, by REST, SotW ADS and Delta ADS, carry requests; a fourth one rejects
what has a field that is deprecated; clients of REST and Delta follow. Counted are failed requests, steps back of clients, and
what they were sent again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.end_to_end.replicas import (
    NGINX,
    Client,
    Copy,
    Counts,
    PollingClient,
    Replica,
    StreamingClient,
    balancing,
    clusters_of,
    running,
    until,
    xds_cluster,
)
from tests.end_to_end.traffic.load import Load, backends, bound_sockets
from tests.support.envoy import Envoy
from tests.support.etcd import Etcd, running_etcd
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.settings_files import file_flags

KILL_EVERY_S = 10.0
# Of each Envoy, in requests a second.
RATE = 40.0
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"


@dataclass(frozen=True)
class Course:
    """How long it goes on, and for how many clients of REST, and as many of Delta.

    `is_sticky`: nginx has each client stay at its server as long as that lives; else each poll goes to the next server.
    `is_tcp`: nginx passes connections on without reading them.
    """

    seconds: float = 60.0
    clients: int = 10
    seed: int = 1
    is_sticky: bool = True
    is_tcp: bool = False


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        edits: how many there were.
        kills: how often each part was killed.
        requests: how many requests went through the Envoys.
        failures: those that failed, with their reasons.
        rest: the sums over the clients that poll.
        delta: the sums over those on streams.
        nacks: how often the fourth Envoy rejected an update.
    """

    edits: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    failures: list[str] = field(default_factory=list)
    rest: Counts = field(default_factory=Counts)
    delta: Counts = field(default_factory=Counts)
    nacks: int = 0


class RoutedCopy(Copy):
    """A copy of a tree in which each commit has a route to a cluster of its own.

    Attributes:
        port: of the backend.
    """

    port = 0

    def receive(self, commit: int) -> None:
        """Make a commit current; every tenth one has a broken file, every fifth one a deprecated field."""
        worktree = self.link.parent / ".worktrees" / str(commit)
        worktree.mkdir(parents=True)
        (worktree / "clusters.yaml").write_text(clusters_of(commit))
        endpoint = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": self.port}}}
        web: dict[str, Any] = {
            "name": f"web-{commit}",
            "type": "STATIC",
            "connect_timeout": "1s",
            "load_assignment": {
                "cluster_name": f"web-{commit}",
                "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}],
            },
        }
        if commit % 5 == 0:
            web["max_requests_per_connection"] = 1000
        (worktree / "web.clusters.yaml").write_text(json.dumps([web]))
        route = {"match": {"prefix": "/"}, "route": {"cluster": f"web-{commit}"}}
        hosts = [{"name": "all", "domains": ["*"], "routes": [route]}]
        (worktree / "routes.yaml").write_text(json.dumps([{"name": "web", "virtual_hosts": hosts}]))
        broken = "- name: [broken\n" if commit % 10 == 9 else "- {name: extra, type: STATIC, connect_timeout: 1s}\n"
        (worktree / "extra.clusters.yaml").write_text(broken)
        new = self.link.parent / ".new"
        new.symlink_to(worktree)
        new.replace(self.link)


class Member(Replica):
    """A server of the fleet, with a copy of the tree or without one."""

    def __init__(self, folder: Path, port: int, *options: str, has_tree: bool) -> None:
        super().__init__(folder, *options)
        copy = RoutedCopy(folder / "routed")
        copy.port = port
        self.copy = copy
        self._has_tree = has_tree

    def start(self) -> None:
        """Start it, and wait until it serves."""
        rest, streams = f"127.0.0.1:{self.rest}", f"127.0.0.1:{self.streams}"
        tree = self.copy.link if self._has_tree else None
        self._server = Server(tree, self._folder, *self._options, http=rest, grpc=streams).start()


def listener_at(port: int, source: dict[str, Any]) -> dict[str, Any]:
    """Return the static listener of an Envoy, whose routes come from a source."""
    manager = {
        "@type": _MANAGER,
        "stat_prefix": "web",
        "rds": {"route_config_name": "web", "config_source": {"resource_api_version": "V3", **source}},
        "http_filters": [{"name": "router", "typed_config": {"@type": _ROUTER}}],
        # The reason of a failed request is that of Envoy.
        "local_reply_config": {
            "body_format": {"text_format_source": {"inline_string": "%RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%"}}
        },
    }
    filters = [{"name": "http", "typed_config": manager}]
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {"name": "web", "address": address, "filter_chains": [{"filters": filters}]}


def bootstraps(rest: str, streams: str) -> dict[str, tuple[int, dict[str, Any]]]:
    """Return the bootstrap of each Envoy, and the port of its listener."""
    found = {}
    polls = {"api_type": "REST", "transport_api_version": "V3", "cluster_names": ["xds"]}
    polls |= {"refresh_delay": "0.05s", "request_timeout": "5s"}
    for name in ("REST", "GRPC", "DELTA_GRPC", "rejecting"):
        port = free_port()
        source: dict[str, Any] = {"api_config_source": polls} if name == "REST" else {"ads": {}}
        dynamic: dict[str, Any] = {"cds_config": {"resource_api_version": "V3", **source}}
        if name != "REST":
            api = "DELTA_GRPC" if name == "rejecting" else name
            stream = {"api_type": api, "transport_api_version": "V3"}
            dynamic["ads_config"] = {**stream, "grpc_services": [{"envoy_grpc": {"cluster_name": "xds"}}]}
        cluster = xds_cluster(rest) if name == "REST" else xds_cluster(streams, is_http2=True)
        made = {
            "node": {"id": f"envoy-{name}", "cluster": "envoys"},
            "static_resources": {"clusters": [cluster], "listeners": [listener_at(port, source)]},
            "dynamic_resources": dynamic,
        }
        if name == "rejecting":
            flags = {"envoy.features.fail_on_any_deprecated_feature": True}
            made["layered_runtime"] = {"layers": [{"name": "strict", "static_layer": flags}]}
        found[name] = port, made
    return found


async def run(course: Course, folder: Path) -> Outcome:
    """Let it go on for so long, and wait until all have the last commit."""
    outcome = Outcome()
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(folder, 3))
        sockets = bound_sockets(1)
        port = sockets[0].getsockname()[1]
        options = "--fleet", etcd.url, *file_flags(lag_patience="60s")
        members = [Member(folder / f"server-{number}", port, *options, has_tree=number < 2) for number in range(3)]
        for member in members:
            member.copy.receive(0)
            stack.callback(member.stop)
            await asyncio.to_thread(member.start)
        balancer = balancing(folder, members, is_sticky=course.is_sticky, is_tcp=course.is_tcp)
        rest, streams = stack.enter_context(balancer)
        envoys = {
            name: (at, stack.enter_context(Envoy(made, wait="admin")))
            for name, (at, made) in bootstraps(rest, streams).items()
        }
        polling = [PollingClient(rest, f"rest-{number}", f"127.0.1.{number + 1}") for number in range(course.clients)]
        streaming = [StreamingClient(streams, f"delta-{number}", "") for number in range(course.clients)]
        clients: list[Client] = [*polling, *streaming]
        healthy = {name: at for name, (at, _) in envoys.items() if name != "rejecting"}
        loads = {name: Load(at, RATE) for name, at in healthy.items()}
        async with backends(sockets, 0.0), running(clients):
            await until(lambda: all(client.commit == 0 for client in clients))
            for _, envoy in envoys.values():
                await asyncio.to_thread(envoy.wait_live)
            async with asyncio.TaskGroup() as tasks:
                for load in loads.values():
                    tasks.create_task(load.run())
                await _harm(course, members, etcd, folder, outcome)
                await until(lambda: {client.commit for client in clients} == {outcome.edits})
                for load in loads.values():
                    load.stop()
            outcome.nacks = envoys["rejecting"][1].stat("cluster_manager.cds.update_rejected")
    for name, load in loads.items():
        outcome.requests += sum(load.record.requests.values())
        outcome.failures += [
            f"{name}: {one.reason}, {one.since_edit_s:.2f} s after an edit" for one in load.record.failures
        ]
    outcome.rest = sum((client.counts for client in polling), Counts())
    outcome.delta = sum((client.counts for client in streaming), Counts())
    return outcome


async def _harm(course: Course, members: list[Member], etcd: Etcd, folder: Path, outcome: Outcome) -> None:
    """Make an edit each second, and kill something every ten seconds."""
    dice = random.Random(course.seed)
    began_s = time.monotonic()
    kill_at_s = began_s + KILL_EVERY_S / 2
    async with asyncio.TaskGroup() as tasks:
        while time.monotonic() < began_s + course.seconds:
            outcome.edits += 1
            for member in members[:2]:
                tasks.create_task(_receive_later(member, outcome.edits, dice.uniform(0.0, 0.3)))
            if time.monotonic() > kill_at_s:
                kill_at_s += KILL_EVERY_S
                part = dice.choice(("server with a tree", "server without a tree", "etcd", "nginx"))
                outcome.kills[part] += 1
                tasks.create_task(_kill(part, dice.randrange(3), members, etcd, folder))
            await asyncio.sleep(1.0)


async def _receive_later(member: Member, commit: int, pause_s: float) -> None:
    await asyncio.sleep(pause_s)
    member.copy.receive(commit)


async def _kill(part: str, number: int, members: list[Member], etcd: Etcd, folder: Path) -> None:
    match part:
        case "nginx":
            os.kill(int((folder / "nginx.pid").read_text()), signal.SIGHUP)
        case "etcd":
            await asyncio.to_thread(etcd.signal, number, signal.SIGKILL)
            await asyncio.sleep(2.0)
            etcd.start(number)
        case _:
            member = members[2] if part == "server without a tree" else members[number % 2]
            await asyncio.to_thread(member.kill)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(member.start)


def main() -> None:
    """Run it, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.end_to_end.fleet_run")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alternate", action="store_true", help="nginx sends each poll to the next server")
    parser.add_argument("--tcp", action="store_true", help="nginx is a proxy of connections (libnginx-mod-stream)")
    given = parser.parse_args()
    assert NGINX is not None
    with tempfile.TemporaryDirectory() as folder:
        course = Course(given.seconds, given.clients, given.seed, not given.alternate, given.tcp)
        outcome = asyncio.run(run(course, Path(folder)))
    sys.stdout.write(
        f"{outcome.edits} edits, kills: {dict(outcome.kills)}\n"
        f"requests: {outcome.requests}, failed: {len(outcome.failures)} {outcome.failures[:10]}\n"
        f"REST:  {outcome.rest}\nDelta: {outcome.delta}\nNACKs: {outcome.nacks}\n"
    )


if __name__ == "__main__":
    main()
