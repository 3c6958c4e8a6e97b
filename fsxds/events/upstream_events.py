"""Events of upstreams: xDS servers that are sources.

Servers' texts are unmodified; the log shortens and masks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fsxds.events.event import (
    LONGEST_NAME,
    MOST_NAMES,
    MOST_RESOURCES,
    Details,
    Event,
    Level,
    LogMessage,
    Measure,
    count_of,
    duration,
    noun_of,
    quoted,
    resources_of,
    shortened,
    single_row,
    some_of,
    type_name,
    written_keys,
)
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key
from fsxds.model.values import PlainValue, TypeUrl


@dataclass(frozen=True, slots=True)
class UpstreamEvent(Event):
    """An event of one upstream."""

    reporter = "fsxds.observe.upstream_lines.UpstreamReports"

    upstream: str

    def _with(self, server: str, preposition: str = "with") -> str:
        return "" if server == self.upstream else f" {preposition} {server}"


class _OfType:
    __slots__ = ()

    type_url: TypeUrl

    @property
    def type(self) -> str:
        return type_name(self.type_url)

    @property
    def known_type(self) -> str:
        """For metrics, as a server may invent types."""
        return self.type if self.type_url in BY_TYPE_URL else "other"


@dataclass(frozen=True, slots=True)
class UpstreamConnected(UpstreamEvent):
    """A server is used over `wire` (`Delta ADS`) from now on."""

    rows = single_row("upstream_connected", "info", "An upstream answers.", "upstream server wire")
    measures = (Measure("upstream_connects_total", labels=("upstream",)),)

    server: str
    wire: str

    def _message(self) -> str:
        return f"upstream {self.upstream}: connected{self._with(self.server)} by {self.wire}"


@dataclass(frozen=True, slots=True)
class UpstreamLost(UpstreamEvent):
    """A connection or attempt failed, the next follows after `retry_s`; held `resources` stay."""

    rows = single_row(
        "upstream_lost",
        "warning",
        "The connection to an upstream ended, or cannot be opened; its resources stay.",
        "upstream server reason retry_s count repeats",
    )
    measures = (Measure("upstream_losses_total", labels=("upstream",)),)

    server: str
    reason: str
    retry_s: float
    resources: int = 0

    def _message(self) -> LogMessage:
        kept = f"its {count_of(self.resources, 'resource')} stay" if self.resources else "no resource is known yet"
        reason = quoted(self.reason)
        text = f"upstream {self.upstream}: no connection{self._with(self.server)}: {reason}; {kept}; fsxds tries again"
        return LogMessage(text, {"reason": reason, "count": self.resources})


@dataclass(frozen=True, slots=True)
class UpstreamFailedOver(UpstreamEvent):
    """Another server is used, instead of `before`, for a `reason`, empty if it is earlier in the list."""

    rows = single_row(
        "upstream_failed_over",
        "info warning",
        "fsxds switched to another server of an upstream.",
        "upstream server before reason",
    )
    measures = (Measure("upstream_failovers_total", labels=("upstream",)),)

    before: str
    server: str
    reason: str = ""

    def _message(self) -> LogMessage:
        reason = quoted(self.reason)
        if not self.reason:
            return LogMessage(f"upstream {self.upstream}: {self.server} answers again, and replaces {self.before}")
        text = f"upstream {self.upstream}: {self.server} replaces {self.before}: {reason}"
        return LogMessage(text, {"reason": reason}, Level.WARNING)


@dataclass(frozen=True, slots=True)
class UpstreamChanged(UpstreamEvent, _OfType):
    """A response changed resources; `version` is the server's."""

    rows = single_row(
        "upstream_changed",
        "debug",
        "A response of an upstream changed resources.",
        "upstream server type version changes",
    )
    is_frequent = True
    measures = (Measure("upstream_responses_total", labels=("upstream", "type")),)

    server: str
    type_url: TypeUrl
    version: str
    changed: int
    removed: int

    def _message(self) -> LogMessage:
        counts = f"{self.changed} changed, {self.removed} removed"
        changes: PlainValue = {self.type: {"changed": self.changed, "removed": self.removed}}
        text = f"upstream {self.upstream}: {noun_of(self.type_url)} {self.version[:12]}: {counts}"
        return LogMessage(text, {"changes": changes})


@dataclass(frozen=True, slots=True)
class UpstreamExpired(UpstreamEvent):
    """Resources were removed at the end of their TTL."""

    rows = single_row(
        "upstream_expired",
        "warning",
        "Resources of an upstream expired, because it did not renew their time to live.",
        "upstream count resources repeats",
    )
    measures = (Measure("upstream_expired_total", "keys", ("upstream",)),)

    keys: tuple[Key, ...]

    def _message(self) -> LogMessage:
        text = (
            f"upstream {self.upstream}: {resources_of(self.keys)} expired, because it did not renew their time to live"
        )
        return LogMessage(text, {"count": len(self.keys), "resources": [*written_keys(self.keys)[:MOST_RESOURCES]]})


@dataclass(frozen=True, slots=True)
class UpstreamUnanswered(UpstreamEvent):
    """A new connection's change is published without answers about these types."""

    rows = single_row(
        "upstream_unanswered",
        "info",
        "A change from a new connection to an upstream is published although some types have no response yet.",
        "upstream types",
    )

    types: tuple[TypeUrl, ...]

    def _message(self) -> LogMessage:
        types = [type_name(type_url) for type_url in self.types]
        text = f"upstream {self.upstream}: a change is published without a response for {', '.join(types)}"
        return LogMessage(text, {"types": [*types]})


@dataclass(frozen=True, slots=True)
class UpstreamRejected(UpstreamEvent, _OfType):
    """fsxds NACKed a response, but uses its valid resources.

    `version` is the server's; `faults` are bounded texts for rejected resources.
    """

    rows = single_row(
        "upstream_rejected",
        "warning",
        "fsxds NACKed resources in a response of an upstream.",
        "upstream server type version faults count repeats",
    )
    measures = (Measure("upstream_rejections_total", labels=("upstream", "known_type"), fixed=("relay",)),)

    server: str
    type_url: TypeUrl
    version: str
    faults: tuple[str, ...]

    def _message(self) -> LogMessage:
        faults = [quoted(fault) for fault in self.faults[:MOST_NAMES]]
        more = f" and {len(self.faults) - MOST_NAMES} more" if len(self.faults) > MOST_NAMES else ""
        text = (
            f"upstream {self.upstream}: NACKed {noun_of(self.type_url)} {self.version[:12]}"
            f"{self._with(self.server, 'of')}: {'; '.join(faults)}{more}; its valid resources are served, "
            "with the last good version of the others"
        )
        return LogMessage(text, {"faults": [*faults], "count": len(self.faults)})


@dataclass(frozen=True, slots=True)
class UpstreamNacked(UpstreamEvent, _OfType):
    """Too many nodes reject an upstream's versions, now held back from all.

    `reason` is a node's; `was_sent`: a connected server got a NACK.
    """

    rows = single_row(
        "upstream_nacked",
        "warning",
        "Too many nodes reject versions of an upstream's resources: the upstream gets a late NACK.",
        "upstream type reason was_sent repeats",
    )
    measures = (Measure("upstream_rejections_total", labels=("upstream", "type"), fixed=("nodes",)),)

    type_url: TypeUrl
    reason: str
    names: frozenset[str]
    was_sent: bool

    def _message(self) -> LogMessage:
        reason = quoted(self.reason)
        names = f" {some_of(sorted(name[:LONGEST_NAME] for name in self.names))}" if self.names else ""
        fact = f"{noun_of(self.type_url)}{names}: held back from all nodes; {reason}"
        outcome = "it was NACKed" if self.was_sent else "it is not connected, and got no NACK"
        return LogMessage(f"upstream {self.upstream}: {fact}; {outcome}", {"reason": reason})


@dataclass(frozen=True, slots=True)
class UpstreamLooped(UpstreamEvent):
    """A server has this process as an upstream, by `relays`: it would return our resources."""

    rows = single_row(
        "upstream_looped",
        "error",
        "An upstream gets its resources from this process, so fsxds does not use it.",
        "upstream server relays repeats",
    )
    measures = (Measure("upstream_loops_total", labels=("upstream",)),)

    server: str
    relays: tuple[str, ...]

    def _message(self) -> str:
        path = f" ({' → '.join(shortened(relay) for relay in self.relays)})" if self.relays else ""
        return (
            f"upstream {self.upstream}: a loop: {self.server} gets its resources from here{path}, so fsxds ignores "
            "it; resources received before stay; remove one of the --upstream options on the way"
        )


@dataclass(frozen=True, slots=True)
class UpstreamShadowed(UpstreamEvent):
    """Earlier sources win over `count` of the upstream's resources, as in `examples`."""

    rows = single_row(
        "upstream_shadowed",
        "info",
        "Earlier sources define resources that an upstream has too, and take precedence.",
        "upstream count resources",
    )
    measures = (Measure("upstream_shadowed_resources", "count", ("upstream",)),)

    count: int
    examples: tuple[tuple[Key, str], ...] = ()

    def _message(self) -> LogMessage:
        details: Details = {"resources": [*written_keys(key for key, _ in self.examples)]}
        if not self.count:
            text = f"upstream {self.upstream}: earlier sources replace none of its resources any more"
            return LogMessage(text, details)
        examples = [f"{written_keys((key,))[0]} (of {winner})" for key, winner in self.examples]
        more = f": {some_of(examples)}" if examples else ""
        resources = count_of(self.count, "resource")
        return LogMessage(f"upstream {self.upstream}: earlier sources replace {resources} of it{more}", details)


@dataclass(frozen=True, slots=True)
class UpstreamsRestored(Event):
    """An earlier process's upstream resources were restored, the oldest `age_s` ago, 0 for none."""

    rows = single_row(
        "upstreams_restored",
        "info",
        "Resources that the previous process had from upstreams are served again.",
        "directory upstreams count age_s",
    )

    directory: Path
    resources: Mapping[str, int]
    age_s: float

    def _message(self) -> LogMessage:
        count, names = sum(self.resources.values()), sorted(self.resources)
        age = f", up to {duration(self.age_s)} old" if count else ""
        text = f"state: {count_of(count, 'resource')} of {some_of(names) or 'no upstream'} served again{age}"
        return LogMessage(text, {"upstreams": [*names], "count": count, "age_s": round(self.age_s)})
