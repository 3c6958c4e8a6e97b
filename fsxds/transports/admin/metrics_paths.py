"""What the admin address answers to Prometheus."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from fsxds.transports.admin.admin_api import AdminPath, AdminPaths, Words


def metrics_paths(registry: CollectorRegistry) -> AdminPaths:
    """Return what answers `/metrics`: as text or OpenMetrics, compressed or not, as the request accepts it."""
    scrape = make_aiohttp_handler(registry)

    async def answer(request: web.Request, _: Words) -> object:
        return await scrape(request)

    return {("GET", "/metrics"): AdminPath(answer)}
