"""Reads Envoy's log: rejected updates, and failures of validation (pure).

`LOG_ARGUMENTS` make Envoy write one line per message. A validating Envoy rarely names the faulty resource; its debug
log shows accepted ones, and the current one (`_Progress`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fsxds.envoy.static_bootstrap import Member, Rendering
from fsxds.model.resource_types import BY_REST_PATH, BY_SHORT_NAME
from fsxds.model.resources import Origin, Resource
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import without_message

# Arguments for one line per message, `level logger message`, with escapes in the message.
LOG_ARGUMENTS = ("--log-format", "%l %n %v", "--log-format-escaped")

# `cds: cluster 'a' config rejected: why`: names the resource, so it precedes reasons for the whole update.
_OF_RESOURCE = re.compile(
    r"(?P<type>cds|lds): (?:cluster|listener) '(?P<name>.*?)' config rejected: (?P<reason>.*)", re.DOTALL
)
_OF_POLL = re.compile(r"REST config for /v3/discovery:(?P<path>[a-z_-]+) rejected: (?P<reason>.*)", re.DOTALL)
_OF_FILE = re.compile(r"Filesystem config update (?:rejected: |failure: in (?P<file>.*?), )(?P<reason>.*)", re.DOTALL)

_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_CONTROL = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


@dataclass(frozen=True, slots=True)
class EnvoyLogLine:
    """One log line; `level` is empty before logging was set up."""

    level: str
    logger: str
    message: str


@dataclass(frozen=True, slots=True)
class LoggedRejection:
    """Why Envoy rejected an update.

    Attributes:
        reason: in Envoy's words, without the rejected message.
        type_url: None if unknown, as for files.
        resource_name: None for a whole update.
        is_failure: the update was unreadable, which Envoy counts as `update_failure`.
    """

    reason: str
    type_url: TypeUrl | None = None
    resource_name: str | None = None
    is_failure: bool = False


def read_log_line(line: str) -> EnvoyLogLine:
    """Read a line of `LOG_ARGUMENTS`; others are all message."""
    level, _, rest = line.partition(" ")
    logger, _, message = rest.partition(" ")
    if level not in {"trace", "debug", "info", "warning", "error", "critical"}:
        return EnvoyLogLine("", "", line)

    def character(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else _CONTROL.get(code, code)

    return EnvoyLogLine(level, logger, _ESCAPE.sub(character, message.encode()).decode(errors="replace").strip())


def read_rejection(message: str) -> LoggedRejection | None:
    """Read a message's rejection, or None."""
    if match := _OF_RESOURCE.match(message):
        return LoggedRejection(without_message(match["reason"]), BY_SHORT_NAME[match["type"]].type_url, match["name"])
    if match := _OF_POLL.match(message):
        row = BY_REST_PATH.get(match["path"])
        return LoggedRejection(without_message(match["reason"]), row.type_url if row else None)
    if match := _OF_FILE.match(message):
        return LoggedRejection(without_message(match["reason"]), is_failure=match["file"] is not None)
    return None


def origin_of(reason: str, resources: Iterable[Resource]) -> Origin | None:
    """Return the longest named resource's origin, or None."""
    # Compiling an expression per resource would take longest.
    mentioned = (one for one in resources if one.name and one.name in reason)
    named = [one for one in mentioned if re.search(rf"(?<![\w.-]){re.escape(one.name)}(?![\w-])", reason)]
    return max(named, key=lambda one: len(one.name)).origin if named else None


_REASON = re.compile(r"error initializing configuration '.*?': (?P<reason>.*)", re.DOTALL)
_PLACE = re.compile(r"StaticResourcesValidationError\.(?P<list>Clusters|Listeners|Secrets)\[(?P<index>\d+)\]")
_LOADING = re.compile(r"loading (\d+) (static secret|cluster|listener)\(s\)")
# Clusters are all created before any is added, and the created ones are destroyed in the end.
_CLUSTER_DONE = re.compile(r"init manager Cluster (?P<name>.*) destroyed$", re.DOTALL)
_CLUSTER_BEGUN = re.compile(r"init manager Cluster (?P<name>.*) initializing$", re.DOTALL)
_LISTENER_DONE = re.compile(r"add (?:active|warming) listener: name=(?P<name>.*), original_hash=", re.DOTALL)
_LISTENER_BEGUN = re.compile(r"^listener #(?P<index>\d+):")
_SECRET_BEGUN = re.compile(r"^static secret #(?P<index>\d+):")


@dataclass(frozen=True, slots=True)
class ValidationFailure:
    """Why Envoy rejected a bootstrap.

    Attributes:
        suspect: the resource probably being read, or None.
    """

    reason: str
    suspect: Member | None = None
    proven: frozenset[Member] = frozenset()


def read_failure(lines: Iterable[EnvoyLogLine], rendering: Rendering) -> ValidationFailure:
    """Read the reason from a log at level debug."""
    progress = _Progress(rendering)
    reason = ""
    for line in lines:
        if match := _REASON.match(line.message):
            reason = match["reason"]
            progress.fail()
        elif line.logger in {"config", "init"}:
            progress.read(line.message)
        elif line.level == "critical" and not reason:
            reason = line.message
    place = _PLACE.search(reason)
    suspect = progress.member_at(place["list"], int(place["index"])) if place else progress.suspect()
    return ValidationFailure(without_message(reason), suspect, frozenset(progress.proven - {suspect}))


class _Progress:
    """Secrets come first, then all clusters but EDS', then those, then listeners."""

    def __init__(self, rendering: Rendering) -> None:
        self._rendering = rendering
        self._stage = ""
        self._done: set[str] = set()
        self._index = 0
        self._has_failed = False
        self._half_made: str | None = None
        self.proven: set[Member] = set()

    def read(self, message: str) -> None:
        if match := _LOADING.match(message):
            self._stage = match[2]
        elif match := _CLUSTER_DONE.match(message):
            name = match["name"]
            if self._has_failed:
                self._finish(name, self._rendering.clusters.get(name))
            elif self._stage == "cluster":
                self._half_made = name
        elif match := _CLUSTER_BEGUN.match(message):
            self._half_made = match["name"]
        elif match := _LISTENER_DONE.match(message):
            self._finish(match["name"], self._rendering.listeners.get(match["name"]))
        elif match := _LISTENER_BEGUN.match(message) or _SECRET_BEGUN.match(message):
            self._index = int(match["index"])

    def fail(self) -> None:
        """Note the end; clusters destroyed from now on were complete."""
        self._has_failed = True

    def _finish(self, name: str, member: Member | None) -> None:
        self._done.add(name)
        if member is not None:
            self.proven.add(member)

    def suspect(self) -> Member | None:
        if self._stage == "static secret":
            return self.member_at("Secrets", self._index)
        if self._stage == "listener":
            return self.member_at("Listeners", self._index)
        if self._stage == "cluster":
            if self._half_made is not None:
                return self._rendering.clusters.get(self._half_made)
            in_order = sorted(self._rendering.clusters, key=lambda name: name in self._rendering.eds)
            return next((self._rendering.clusters[name] for name in in_order if name not in self._done), None)
        # The runtime comes before all that.
        return next(iter(self._rendering.layers), None)

    def member_at(self, list_name: str, index: int) -> Member | None:
        rendering = self._rendering
        clusters, listeners = rendering.clusters.values(), rendering.listeners.values()
        members = list({"Secrets": rendering.secrets, "Clusters": clusters, "Listeners": listeners}[list_name])
        return members[index] if index < len(members) else None


def counts_differ(lines: Iterable[EnvoyLogLine], rendering: Rendering) -> bool:
    """Whether Envoy read only a part, as of an invalid binary bootstrap (ENVOY.md E63)."""
    wanted = {
        "static secret": len(rendering.secrets),
        "cluster": len(rendering.clusters),
        "listener": len(rendering.listeners),
    }
    counted = {match[2]: int(match[1]) for line in lines if (match := _LOADING.match(line.message))}
    # Without such a line, assume that all was read.
    return any(count != wanted[name] for name, count in counted.items())
