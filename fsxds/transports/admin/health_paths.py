"""What the admin address answers to probes: whether the process lives, and whether clients are served."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from fsxds.transports.admin.admin_api import AdminPath, AdminPaths, Words


def health_paths(unready: Callable[[], str]) -> AdminPaths:
    """Return what answers `/healthz` and `/readyz`; `unready` returns why clients are not served, empty where they are."""

    async def live(_: web.Request, __: Words) -> object:
        # Who gets this knows that the event loop runs.
        return web.Response(text="ok\n")

    async def ready(_: web.Request, __: Words) -> object:
        reason = unready()
        return web.Response(status=503, text=f"not ready: {reason}\n") if reason else web.Response(text="ready\n")

    return {("GET", "/healthz"): AdminPath(live, is_open=True), ("GET", "/readyz"): AdminPath(ready, is_open=True)}
