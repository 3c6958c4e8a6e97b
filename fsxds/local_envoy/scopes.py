"""Which subscription a statistic of Envoy speaks of, and which versions it should show (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fsxds.protocol.subscription import Subscription, version_of
from fsxds.resource_types import BY_SHORT_NAME, BY_TYPE_URL, ResourceType
from fsxds.resources import Snapshot
from fsxds.values import TypeUrl, Version

Statistics = Mapping[str, int | str]
"""Counters and gauges as numbers, text readouts as text, by name."""

VERSION_TEXT = ".version_text"
WARMING = ("cluster_manager.warming_clusters", "listener_manager.total_listeners_warming")

# One filter for all that is asked, so that one answer, which is of one moment, says everything.
STATISTICS_FILTER = (
    r"\.version_text$|\.update_(success|rejected|failure)$|^(" + "|".join(re.escape(gauge) for gauge in WARMING) + ")$"
)

# The stat scopes of the subscriptions, ENVOY.md A1; the first that fits decides.
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
    """One subscription of Envoy: the prefix of its statistics, its type, and the resource's name where one shows."""

    prefix: str
    resource_type: ResourceType
    name: str | None = None


def scope_of(prefix: str) -> Scope | None:
    """Read the prefix of a statistic, None where it is not a subscription's."""
    for pattern, resource_type in _SCOPES:
        if match := pattern.fullmatch(prefix):
            return Scope(prefix, resource_type, match.groupdict().get("name"))
    return None


def scopes_in(statistics: Statistics) -> tuple[Scope, ...]:
    """Return every subscription that Envoy has."""
    prefixes = (name.removesuffix(VERSION_TEXT) for name in statistics if name.endswith(VERSION_TEXT))
    return tuple(scope for prefix in prefixes if (scope := scope_of(prefix)))


@dataclass(frozen=True, slots=True)
class Expected:
    """The versions that Envoy should show for one snapshot.

    Attributes:
        bundles: of the types that are asked for as a whole.
        named: of the others, by name as statistics write it. A name that was served once stays, with the version of
            its absence where absence can be told, and else with its last one, which is what Envoy keeps.
        unsure: types of which Envoy may rightly show another version: removals are not told, so it keeps what it has.
        doubted: prefixes of the subscriptions that refused their last update. A part of it may be in effect all the same
            (ENVOY.md A4), so the right version counts only after one more update.
    """

    bundles: Mapping[TypeUrl, Version]
    named: Mapping[TypeUrl, Mapping[str, Version]]
    unsure: frozenset[TypeUrl]
    doubted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot, before: Expected | None = None, doubted: frozenset[str] = frozenset()) -> Expected:
        """Compute them; `before` are those of the snapshot before, for the names that are gone."""
        bundles: dict[TypeUrl, Version] = {}
        named: dict[TypeUrl, Mapping[str, Version]] = {}
        for type_url, row in BY_TYPE_URL.items():
            if row.full_state_in_sotw:
                bundles[type_url] = version_of(snapshot, Subscription(type_url))
            else:
                known = before.named.get(type_url, {}) if before else {}
                named[type_url] = MappingProxyType(_named_versions(snapshot, row, known))
        unsure = snapshot.withheld | snapshot.incomplete | snapshot.undeclared
        return cls(MappingProxyType(bundles), MappingProxyType(named), unsure, doubted)

    def is_settled(self, scope: Scope, version_text: str) -> bool:
        """Say whether a subscription shows what it should, as far as its statistics can tell.

        The name that was asked for does not always show: all runtime layers share a scope, and an EDS cluster may ask
        for another name than its own. But a version covers its name, so any of the present versions of the type is
        the right one of its name.
        """
        type_url = scope.resource_type.type_url
        if scope.resource_type.full_state_in_sotw:
            return self.bundles[type_url] == version_text
        versions = self.named[type_url]
        # A name that never was is not answered where absence cannot be told.
        is_unanswered = not scope.resource_type.may_be_empty and scope.name not in (None, *versions)
        return is_unanswered or not versions or version_text in versions.values()


def _named_versions(snapshot: Snapshot, row: ResourceType, known: Mapping[str, Version]) -> dict[str, Version]:
    versions = {
        _in_statistics(name): version_of(snapshot, Subscription.for_request(row.type_url, [name]))
        for name in snapshot.resources(row.type_url)
    }
    for name in known.keys() - versions.keys():
        absence = version_of(snapshot, Subscription.for_request(row.type_url, [name]))
        versions[name] = absence if row.may_be_empty else known[name]
    return versions


def _in_statistics(name: str) -> str:
    """Write a name as Envoy does in the names of statistics."""
    return name.replace("://", "_").replace(":/", "_").replace(":", "_")
