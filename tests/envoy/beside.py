"""An Envoy beside a store, fed by files that the test writes for each snapshot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fsxds.envoy.admin import Listening
from fsxds.envoy.envoy_bootstrap import BootstrapRequest, Section, mirror_bootstrap
from fsxds.envoy.follow import EndedEnvoy, EnvoyPlan, run_envoy
from fsxds.envoy.snapshot_status import EnvoyNack, InProgress, StatisticsAcks
from fsxds.model.resource_types import BY_TYPE_URL, ResourceType
from fsxds.model.resources import Snapshot
from fsxds.protocol.subscription import Subscription, select
from fsxds.runtime.channels import SnapshotStore
from tests.envoy.snapshots import snapshot_of
from tests.support.envoy import find_envoy
from tests.support.patience import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Started:
    """`envoy_started`."""

    admin: str
    listeners: dict[str, str]


@dataclass(frozen=True, slots=True)
class Listens:
    """`envoy_listens`."""

    listeners: dict[str, str]


@dataclass(frozen=True, slots=True)
class TookTypes:
    """`envoy_acked`."""

    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """`envoy_pending`."""

    prefixes: tuple[str, ...]
    warming: int
    unready: tuple[str, ...] = ()


Event = Started | Listens | TookTypes | Waits | EnvoyNack | EndedEnvoy


class Recorder:
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def envoy_started(self, admin: str, listeners: tuple[Listening, ...]) -> None:
        """Envoy runs."""
        self._events.put_nowait(Started(admin, {one.name: one.address for one in listeners}))

    def envoy_acked(self, types: tuple[ResourceType, ...], elapsed_s: float) -> None:
        """A snapshot is in effect."""
        self._events.put_nowait(TookTypes(tuple(one.short_name for one in types)))

    def envoy_nacked(self, nack: EnvoyNack, elapsed_s: float) -> None:
        """A part of it is not."""
        self._events.put_nowait(nack)

    def envoy_pending(self, waiting: InProgress, unready: tuple[str, ...], elapsed_s: float) -> None:
        """It takes long."""
        self._events.put_nowait(Waits(tuple(scope.prefix for scope in waiting.scopes), waiting.warming, unready))

    def envoy_listens(self, listeners: tuple[Listening, ...]) -> None:
        """Other addresses."""
        self._events.put_nowait(Listens({one.name: one.address for one in listeners}))

    def envoy_ended(self, ended: EndedEnvoy) -> None:
        """Envoy is gone."""
        self._events.put_nowait(ended)

    async def next(self) -> Event:
        """Return the next thing that it was told."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._events.get()

    async def started(self) -> Started:
        """Return the next thing, which is that Envoy started."""
        event = await self.next()
        assert isinstance(event, Started), event
        return event


class Beside:
    """A store and the Envoy beside it."""

    def __init__(self, folder: Path) -> None:
        self.store = SnapshotStore()
        self.heard = Recorder()
        self.bootstraps: list[Section] = []
        self._folder = folder
        self._generation = 0

    def publish(self, content: Mapping[str, Mapping[str, object]], files: Mapping[str, str] | None = None) -> None:
        """Publish a snapshot of plain resources, and write the files that Envoy reads."""
        self._generation += 1
        texts = {
            short_name: {name: json.dumps(value) for name, value in resources.items()}
            for short_name, resources in content.items()
        }
        snapshot = snapshot_of(texts, generation=self._generation, files=files)
        self.store.publish(snapshot)
        for type_url in sorted(snapshot.by_type, key=lambda url: BY_TYPE_URL[url].full_state_in_sotw):
            self._write(snapshot, BY_TYPE_URL[type_url])

    def _write(self, snapshot: Snapshot, row: ResourceType) -> None:
        if row.type_url in snapshot.undeclared:
            return
        if row.full_state_in_sotw:
            self._write_file(snapshot, Subscription(row.type_url), self.path_of(row.short_name, None))
            return
        for name in snapshot.resources(row.type_url):
            subscription = Subscription.for_request(row.type_url, [name])
            self._write_file(snapshot, subscription, self.path_of(row.short_name, name))

    def _write_file(self, snapshot: Snapshot, subscription: Subscription, path: Path) -> None:
        selection = select(snapshot, subscription)
        resources = [{"@type": subscription.type_url, **json.loads(one.body)} for one in selection.resources]
        path.parent.mkdir(exist_ok=True)
        temporary = self._folder / "new"
        temporary.write_text(json.dumps({"version_info": selection.version, "resources": resources}))
        temporary.replace(path)

    def path_of(self, short_name: str, name: str | None) -> Path:
        """Return the file of a type, or of one resource."""
        return self._folder / (f"{short_name}.json" if name is None else f"{short_name}/{name}.json")

    def bootstrap_for(self, wanted: BootstrapRequest) -> Section:
        """Make a bootstrap, and keep it for tests to look at."""
        self.bootstraps.append(mirror_bootstrap(self.path_of, wanted))
        return self.bootstraps[-1]


@asynccontextmanager
async def envoy_beside(folder: Path) -> AsyncIterator[Beside]:
    """Run an Envoy beside a new store for as long as the block lasts."""
    beside = Beside(folder)
    plan = plan_of(Path(find_envoy()), beside.bootstrap_for)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run_envoy(beside.store, plan, beside.heard))
        yield beside
        running.cancel()


def plan_of(executable: Path, bootstrap_for: Callable[[BootstrapRequest], Section]) -> EnvoyPlan:
    """Return the plan of an Envoy that gets all of a snapshot, and whose statistics show what is in effect."""

    async def wanted_by(snapshot: Snapshot) -> BootstrapRequest:
        return BootstrapRequest.by(snapshot)

    return EnvoyPlan(executable, bootstrap_for, lambda _: None, lambda _: StatisticsAcks(), wanted_by)


def cluster(name: str, address: str = "127.0.0.1") -> dict[str, object]:
    """Return a STATIC cluster with one endpoint."""
    endpoint = {"address": {"socket_address": {"address": address, "port_value": 9}}}
    assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]}
    return {"name": name, "type": "STATIC", "connect_timeout": "1s", "load_assignment": assignment}


def eds_cluster(name: str, path: Path) -> dict[str, object]:
    """Return a cluster that gets its endpoints from a file."""
    source = {"resource_api_version": "V3", "path_config_source": {"path": str(path)}}
    return {"name": name, "type": "EDS", "connect_timeout": "1s", "eds_cluster_config": {"eds_config": source}}


def endpoints(name: str, *ports: int) -> dict[str, object]:
    """Return the endpoints of a cluster."""
    members = [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}} for port in ports
    ]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": members}]}


def listener(name: str, to_cluster: str, address: str = "127.0.0.1") -> dict[str, object]:
    """Return a TCP listener on a port that the kernel chooses."""
    proxy = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": name,
        "cluster": to_cluster,
    }
    return {
        "name": name,
        "address": {"socket_address": {"address": address, "port_value": 0}},
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.tcp_proxy", "typed_config": proxy}]}],
    }
