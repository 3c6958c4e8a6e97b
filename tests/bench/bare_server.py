"""Bare servers: the baselines for what fsxds adds.

Arguments: a file to write the port to, and either a file with the body of all answers, or a directory of YAML files to follow.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import yaml
from aiohttp import web
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

# As long as fsxds waits for more to come.
SETTLE_S = 0.05
LARGEST_REQUEST_BYTES = 1 << 20


class Follower(FileSystemEventHandler):
    """What one writes by hand: parse the files that changed, when nothing more has changed for a while.

    Args:
        directory: holds DiscoveryResponses in YAML.
    """

    def __init__(self, directory: Path) -> None:
        self.changed = asyncio.Event()
        self._paths: set[Path] = set()
        self._parts = {path: self._part(path) for path in sorted(directory.rglob("*.yaml"))}
        self._loop = asyncio.get_running_loop()
        observer = Observer()
        observer.daemon = True
        observer.schedule(self, str(directory), recursive=True)
        observer.start()

    @property
    def body(self) -> bytes:
        """A DiscoveryResponse in JSON with what all files hold."""
        return b'{"version_info": "1", "resources": [' + b", ".join(self._parts.values()) + b"]}"

    def on_moved(self, event: FileSystemEvent) -> None:
        """Note a file that was replaced; called by watchdog's thread."""
        self._paths.add(Path(str(event.dest_path)))
        self._loop.call_soon_threadsafe(self.changed.set)

    async def settle(self) -> None:
        """Wait for a change, and for its end; then take it in."""
        await self.changed.wait()
        while self.changed.is_set():
            self.changed.clear()
            await asyncio.sleep(SETTLE_S)
        while self._paths:
            path = self._paths.pop()
            self._parts[path] = self._part(path)

    @staticmethod
    def _part(path: Path) -> bytes:
        resources = yaml.load(path.read_bytes(), yaml.CSafeLoader)["resources"]
        return ", ".join(map(json.dumps, resources)).encode()


async def serve(ready: Path, tree: Path | None, body: bytes) -> None:
    """Hold every `POST /poll` until `POST /wake`, or until the directory changes; answer `POST /unchanged` with 304."""
    follower = None if tree is None else Follower(tree)
    woken = asyncio.Event()

    async def poll(request: web.Request) -> web.Response:
        await request.json()
        if follower is None:
            await woken.wait()
            return web.Response(body=body, content_type="application/json")
        await follower.settle()
        return web.Response(body=follower.body, content_type="application/json")

    async def unchanged(request: web.Request) -> web.Response:
        await request.json()
        return web.Response(status=304)

    async def wake(_: web.Request) -> web.Response:
        woken.set()
        return web.Response()

    application = web.Application(client_max_size=LARGEST_REQUEST_BYTES)
    application.router.add_post("/poll", poll)
    application.router.add_post("/unchanged", unchanged)
    application.router.add_post("/wake", wake)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=8192).start()
    await asyncio.to_thread(announce, ready, runner.addresses[0][1])
    await asyncio.Event().wait()


def announce(ready: Path, port: int) -> None:
    """Write the port, in one step."""
    temporary = ready.with_suffix(".new")
    temporary.write_text(str(port))
    temporary.replace(ready)


if __name__ == "__main__":
    content = Path(sys.argv[2])
    is_tree = content.is_dir()
    asyncio.run(serve(Path(sys.argv[1]), content if is_tree else None, b"" if is_tree else content.read_bytes()))
