"""The main job of fsxds, without some of its packages: a directory is served by REST, gRPC and mirrored files.

`python -m tests.support.main_job DIR NAME …` hides the packages of these names, takes their rows from the tables of the
application, and ends with status 0 if an edit reaches the three clients.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

PATIENCE_S = 60.0
CLUSTERS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
# The tables that name modules of capabilities.
TABLES = (
    *(("fsxds.server.app", "REST_PARTS"), ("fsxds.server.app", "SERVICES"), ("fsxds.server.app", "TRANSPORTS")),
    *(("fsxds.snapshots.loaded_views", "STAGES"), ("fsxds.snapshots.shape", "TYPE_RULES")),
)


class Hidden(MetaPathFinder):
    """Finds that some modules do not exist, with all that is within them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def hides(self, module: str) -> bool:
        """Whether a module is one of them, or within one."""
        return any(module == name or module.startswith(f"{name}.") for name in self._names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for what is hidden."""
        if self.hides(fullname):
            raise ModuleNotFoundError(f"{fullname} is deleted", name=fullname)
        return None


def hide(names: Sequence[str]) -> None:
    """Hide modules, and take away the rows of tables that name them."""
    hidden = Hidden(names)
    sys.meta_path.insert(0, hidden)
    for module, table in TABLES:
        rows = getattr(importlib.import_module(module), table)
        left = tuple(row for row in rows if not hidden.hides(row if isinstance(row, str) else row.module))
        setattr(importlib.import_module(module), table, left)


async def do_main_job(folder: Path) -> None:
    """Serve a tree, edit it, and see the edit arrive everywhere."""
    from fsxds.observe.log import Log, LogOutput
    from fsxds.server import serving
    from fsxds.settings.options import Settings
    from fsxds.settings.reading import SettingsReader
    from fsxds.snapshots.proposals import NoCheck

    tree, out, ready_file = folder / "tree", folder / "out", folder / "ready.json"
    tree.mkdir()
    write(tree, "before")
    free = "127.0.0.1:0"
    settings = replace(Settings(), http=free, grpc=free, admin=free, mirror=out, ready_file=ready_file, settle_s=0.005)
    log = Log(LogOutput(lambda line, _: line.text, log_line))
    reader = SettingsReader("serve", lambda: settings)
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.create_task(serving.serve(tree, settings, log, lambda _: NoCheck(), reader))
        while not ready_file.exists():
            if running.done():
                await running
                return
            await asyncio.sleep(0.01)
        ready = json.loads(ready_file.read_text())
        await asyncio.gather(by_rest(ready["http"], tree), by_grpc(ready["grpc"]), by_files(out))
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def log_line(text: str) -> None:
    """Log a line to stderr."""
    sys.stderr.write(f"{text}\n")


def write(tree: Path, name: str) -> None:
    """Write a version of the tree: the name of its one cluster."""
    new = tree / ".new"
    new.write_text(f"[{{name: {name}, type: STATIC, connect_timeout: 1s}}]")
    new.rename(tree / "cds.yaml")


async def by_rest(address: str, tree: Path) -> None:
    """Poll until the edit is there, which is made when the first answer came."""
    import aiohttp

    poll: dict[str, Any] = {"node": {"id": "rest"}}
    async with aiohttp.ClientSession(f"http://{address}") as session:
        for name in ("before", "after"):
            async with session.post("/v3/discovery:clusters", json=poll) as response:
                answer = await response.json()
            assert [one["name"] for one in answer["resources"]] == [name], answer
            poll["version_info"] = answer["version_info"]
            write(tree, "after")


async def by_grpc(address: str) -> None:
    """Follow a stream until the edit is there."""
    import grpc.aio
    from envoy.config.cluster.v3.cluster_pb2 import Cluster
    from envoy.service.discovery.v3 import discovery_pb2

    async with grpc.aio.insecure_channel(address) as channel:
        method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
        request, response = discovery_pb2.DiscoveryRequest, discovery_pb2.DiscoveryResponse
        call = channel.stream_stream(method, request.SerializeToString, response.FromString)()
        wanted = request(type_url=CLUSTERS)
        wanted.node.id = "grpc"
        names: list[str] = []
        while names != ["after"]:
            await call.write(wanted)
            answer = await call.read()
            names = [Cluster.FromString(one.value).name for one in answer.resources]
            wanted = request(type_url=CLUSTERS, version_info=answer.version_info, response_nonce=answer.nonce)
        call.cancel()


async def by_files(out: Path) -> None:
    """Wait until the edit is in the mirrored file."""
    while b"after" not in (out / "cds.pb").read_bytes():  # noqa: ASYNC110 - of a file, none tells
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    hide(sys.argv[2:])
    asyncio.run(do_main_job(Path(sys.argv[1])))
