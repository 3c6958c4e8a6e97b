"""A running Envoy's admin page, and the expected versions.

Statistics name subscriptions by prefixes (`cluster.web`, `http.x.rds.y`, ENVOY.md E58).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import aiohttp

from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, ResourceType
from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.subscription import Subscription, version_of

Statistics = Mapping[str, int | str]
"""Counters and gauges as numbers, text readouts as text, by name."""

VERSION_TEXT = ".version_text"
WARMING = ("cluster_manager.warming_clusters", "listener_manager.total_listeners_warming")

# One filter for all questions, so that one answer, of one moment, covers everything.
STATISTICS_FILTER = (
    r"\.version_text$|\.update_(success|rejected|failure)$|^(" + "|".join(re.escape(gauge) for gauge in WARMING) + ")$"
)

# The stat scopes of the subscriptions, ENVOY.md E58; the first match decides.
_SCOPES = tuple(
    (re.compile(pattern), BY_SHORT_NAME[short_name])
    for pattern, short_name in (
        (r"cluster_manager\.cds", "cds"),
        (r"listener_manager\.lds", "lds"),
        (r"http\..*\.scoped_rds\..*", "srds"),
        (r"http\..*?\.rds\.(?P<name>.*)", "rds"),
        (r"sds\.(?P<name>.*)", "sds"),
        (r"runtime", "rtds"),
        (r"extension_config_discovery\.[a-z_]+\.(?P<name>.*)", "ecds"),
        (r"cluster\.(?P<name>.*)", "eds"),
    )
)


@dataclass(frozen=True, slots=True)
class Scope:
    """One subscription, with its statistics' prefix."""

    prefix: str
    resource_type: ResourceType
    name: str | None = None


def scope_of(prefix: str) -> Scope | None:
    """Read a prefix; None if it is no subscription's."""
    for pattern, resource_type in _SCOPES:
        if match := pattern.fullmatch(prefix):
            return Scope(prefix, resource_type, match.groupdict().get("name"))
    return None


def scopes_in(statistics: Statistics) -> tuple[Scope, ...]:
    """Return all subscriptions of Envoy."""
    prefixes = (name.removesuffix(VERSION_TEXT) for name in statistics if name.endswith(VERSION_TEXT))
    return tuple(scope for prefix in prefixes if (scope := scope_of(prefix)))


@dataclass(frozen=True, slots=True)
class Expected:
    """The versions that Envoy should show for a snapshot.

    Attributes:
        bundles: of the types requested as a whole.
        named: of other types, by name as in statistics. A name once served stays, with the version of its absence if that
            can be reported, else with its last one.
        unsure: types that may rightly show another version, since their removals are not reported.
        doubted: prefixes that rejected their last update. A part may be in effect all the same (ENVOY.md E59), so the
            right version counts only after one more update.
    """

    bundles: Mapping[TypeUrl, Version]
    named: Mapping[TypeUrl, Mapping[str, Version]]
    unsure: frozenset[TypeUrl]
    doubted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot, before: Expected | None = None, doubted: frozenset[str] = frozenset()) -> Expected:
        """Compute versions; `before` has names that are gone."""
        bundles: dict[TypeUrl, Version] = {}
        named: dict[TypeUrl, Mapping[str, Version]] = {}
        for type_url, row in BY_TYPE_URL.items():
            if row.full_state_in_sotw:
                bundles[type_url] = version_of(snapshot, Subscription(type_url))
            else:
                known = before.named.get(type_url, {}) if before else {}
                versions = {
                    name.replace("://", "_").replace(":/", "_").replace(":", "_"): version_of(
                        snapshot, Subscription.for_request(row.type_url, [name])
                    )
                    for name in snapshot.resources(row.type_url)
                }
                for name in known.keys() - versions.keys():
                    absence = version_of(snapshot, Subscription.for_request(row.type_url, [name]))
                    versions[name] = absence if row.may_be_empty else known[name]
                named[type_url] = MappingProxyType(versions)
        unsure = snapshot.withheld | snapshot.incomplete | snapshot.undeclared
        return cls(MappingProxyType(bundles), MappingProxyType(named), unsure, doubted)

    def is_settled(self, scope: Scope, version_text: str) -> bool:
        """Whether a subscription shows the expected version, as far as statistics tell.

        Runtime layers share a scope, and an EDS cluster may request another name. But a version covers its name, so any present
        version of the type is right.
        """
        type_url = scope.resource_type.type_url
        if scope.resource_type.full_state_in_sotw:
            return self.bundles[type_url] == version_text
        versions = self.named[type_url]
        # A name that never existed gets no answer if absence cannot be reported.
        is_unanswered = not scope.resource_type.may_be_empty and scope.name not in (None, *versions)
        return is_unanswered or not versions or version_text in versions.values()


OK = 200

# The beginning of an init manager's target, before the words that name the subscription.
_INIT_TARGET = re.compile(r"^(?:shared )?(?:target )?(?:\w+Subscription )?")


@dataclass(frozen=True, slots=True, order=True)
class Listening:
    """A bound address: `127.0.0.1:10000`, `[::1]:10000`, `unix:/run/web.sock`."""

    name: str
    address: str


class AdminPage:
    """Reads the admin page at `host:port`; None means no answer."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self.address = address
        self._url = f"http://{address}"

    async def statistics(self) -> Statistics | None:
        """Return versions, verdicts and warming gauges of one moment."""
        text = await self._get("/stats", filter=STATISTICS_FILTER)
        return None if text is None else parse_statistics(text)

    async def listeners(self) -> tuple[Listening, ...] | None:
        """Return the sorted addresses for traffic."""
        text = await self._get("/listeners", format="json")
        return None if text is None else parse_listeners(text)

    async def is_live(self) -> bool:
        """Return whether the start is over."""
        return await self._get("/ready") is not None

    async def unready(self) -> tuple[str, ...]:
        """Return the sorted targets that Envoy awaits."""
        targets = await self._get("/init_dump")
        warming = await self._get("/config_dump", resource="dynamic_warming_clusters")
        return (*parse_init_dump(targets or "{}"), *parse_warming_clusters(warming or "{}"))

    async def drain_time_s(self) -> float | None:
        """Return `--drain-time-s`."""
        text = await self._get("/server_info")
        return None if text is None else parse_drain_time(text)

    async def _get(self, path: str, **query: str) -> str | None:
        try:
            async with self._session.get(self._url + path, params=query) as response:
                return await response.text() if response.status == OK else None
        except (aiohttp.ClientError, TimeoutError):
            # It is ending, which the owner of the process detects, or busy for a moment.
            return None


def parse_statistics(text: str) -> Statistics:
    """Read `/stats`: `name: 12` is a counter or gauge, `name: "text"` a text readout."""
    statistics: dict[str, int | str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if value.startswith('"'):
            statistics[name] = value[1:-1]
        elif re.fullmatch(r"-?\d+", value):
            statistics[name] = int(value)
    return statistics


def parse_drain_time(text: str) -> float | None:
    """Read `--drain-time-s` in `/server_info`, or None."""
    try:
        return float(str(json.loads(text)["command_line_options"]["drain_time"]).removesuffix("s"))
    except (ValueError, LookupError, TypeError):
        return None


def parse_init_dump(text: str) -> tuple[str, ...]:
    """Read `/init_dump`: `shared target RdsRouteConfigSubscription RDS init web` becomes `RDS web`."""
    dumps = json.loads(text).get("unready_targets_dumps", [])
    targets = {str(name) for dump in dumps for name in dump.get("target_names", [])}
    return tuple(sorted(_INIT_TARGET.sub("", target).replace(" init ", " ") for target in targets))


def parse_warming_clusters(text: str) -> tuple[str, ...]:
    """Read `/config_dump?resource=dynamic_warming_clusters`: `cluster web`."""
    names = (dict(one).get("cluster", {}).get("name") for one in json.loads(text).get("configs", []))
    return tuple(sorted(f"cluster {name}" for name in names if name))


def parse_listeners(text: str) -> tuple[Listening, ...]:
    """Read `/listeners`; a listener has a row per address."""
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
    # An internal listener cannot be reached from outside.
    return None
