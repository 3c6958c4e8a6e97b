"""A bare aiohttp server that holds polls: the baseline for what fsxds adds. Arguments: ready file, body file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web


async def serve(ready: Path, body: bytes) -> None:
    """Hold every `POST /poll` until `POST /wake`."""
    woken = asyncio.Event()

    async def poll(request: web.Request) -> web.Response:
        await request.json()
        await woken.wait()
        return web.Response(body=body, content_type="application/json")

    async def wake(_: web.Request) -> web.Response:
        woken.set()
        return web.Response()

    application = web.Application()
    application.router.add_post("/poll", poll)
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
    asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2]).read_bytes()))
