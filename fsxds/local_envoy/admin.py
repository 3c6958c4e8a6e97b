"""What a running Envoy says on its admin page."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import aiohttp

from fsxds.local_envoy.scopes import STATISTICS_FILTER, Statistics

OK = 200

# What a name of a target of Envoy's init managers begins with, before the words that name the subscription.
_INIT_TARGET = re.compile(r"^(?:shared )?(?:target )?(?:\w+Subscription )?")


@dataclass(frozen=True, slots=True, order=True)
class Listening:
    """A listener, and the address that it is really bound to: `127.0.0.1:10000`, `[::1]:10000`, `unix:/run/web.sock`."""

    name: str
    address: str


class AdminPage:
    """Asks Envoy's admin page, anew at each call; None stands for an Envoy that does not answer.

    Args:
        session: to ask through.
        address: `host:port` of the admin page.
    """

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self.address = address
        self._url = f"http://{address}"

    async def statistics(self) -> Statistics | None:
        """Return the versions, verdicts and warming gauges of all subscriptions, as of one moment."""
        text = await self._get("/stats", filter=STATISTICS_FILTER)
        return None if text is None else parse_statistics(text)

    async def listeners(self) -> tuple[Listening, ...] | None:
        """Return where traffic can go, sorted by name."""
        text = await self._get("/listeners", format="json")
        return None if text is None else parse_listeners(text)

    async def is_live(self) -> bool:
        """Say whether the start is over: everything was asked for once, and workers run."""
        return await self._get("/ready") is not None

    async def unready(self) -> tuple[str, ...]:
        """Return what its start, or a listener or cluster that it got, waits for, in its own words, sorted."""
        targets = await self._get("/init_dump")
        warming = await self._get("/config_dump", resource="dynamic_warming_clusters")
        return (*parse_init_dump(targets or "{}"), *parse_warming_clusters(warming or "{}"))

    async def _get(self, path: str, **query: str) -> str | None:
        try:
            async with self._session.get(self._url + path, params=query) as response:
                return await response.text() if response.status == OK else None
        except (aiohttp.ClientError, TimeoutError):
            # It is ending, which those who hold the process notice, or busy, which passes.
            return None


def parse_statistics(text: str) -> Statistics:
    """Read the text form of `/stats`: `name: 12` is a counter or gauge, `name: "text"` a text readout."""
    statistics: dict[str, int | str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if value.startswith('"'):
            statistics[name] = value[1:-1]
        elif re.fullmatch(r"-?\d+", value):
            statistics[name] = int(value)
    return statistics


def parse_init_dump(text: str) -> tuple[str, ...]:
    """Read `/init_dump`: `shared target RdsRouteConfigSubscription RDS init web` becomes `RDS web`."""
    dumps = json.loads(text).get("unready_targets_dumps", [])
    targets = {str(name) for dump in dumps for name in dump.get("target_names", [])}
    return tuple(sorted(_INIT_TARGET.sub("", target).replace(" init ", " ") for target in targets))


def parse_warming_clusters(text: str) -> tuple[str, ...]:
    """Read `/config_dump?resource=dynamic_warming_clusters`: `cluster web`, as far as they have names."""
    names = (dict(one).get("cluster", {}).get("name") for one in json.loads(text).get("configs", []))
    return tuple(sorted(f"cluster {name}" for name in names if name))


def parse_listeners(text: str) -> tuple[Listening, ...]:
    """Read the JSON form of `/listeners`; a listener with several addresses has a row for each."""
    found: list[Listening] = []
    for status in json.loads(text).get("listener_statuses", []):
        addresses = [status["local_address"], *status.get("additional_local_addresses", [])]
        found += [Listening(status["name"], written) for address in addresses if (written := _written(address))]
    return tuple(sorted(found))


def _written(address: dict[str, dict[str, object]]) -> str | None:
    if pipe := address.get("pipe"):
        return f"unix:{pipe['path']}"
    if socket := address.get("socket_address"):
        host = str(socket["address"])
        return f"[{host}]:{socket['port_value']}" if ":" in host else f"{host}:{socket['port_value']}"
    # An internal listener: nobody outside can reach it.
    return None
