"""What the admin address answers those who plan a change: what is served, in outline, and by which rules changes are held."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Protocol

from aiohttp import web

from fsxds.rollout import HoldingRules
from fsxds.rollout.served_outline import ServedOutline
from fsxds.transports.admin.admin_api import API, AdminPath, AdminPaths, Words
from fsxds.transports.rest.poll_responses import JSON

OUTLINE = f"{API}/outline"


class Outlined(Protocol):
    """What knows what is served."""

    def outlines(self) -> tuple[HoldingRules, Sequence[ServedOutline]]:
        """Return what each view is served, and by which rules changes of it are held."""


def outline_paths(outlined: Outlined) -> AdminPaths:
    """Return what answers each path."""

    async def answer(_: web.Request, __: Words) -> object:
        rules, outlines = outlined.outlines()
        # Of a hundred thousand resources it takes a second.
        return web.Response(body=await asyncio.to_thread(_written, rules, outlines), headers=JSON)

    return {("GET", OUTLINE): AdminPath(answer)}


def _written(rules: HoldingRules, outlines: Sequence[ServedOutline]) -> bytes:
    content = {
        "references": "hold" if rules.keeps_references else "warn",
        "max_removal": rules.max_removal,
        "approved": sorted(rules.approved),
        "views": [one.plain() for one in outlines],
    }
    return json.dumps(content).encode() + b"\n"
