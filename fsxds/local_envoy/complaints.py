"""What Envoy's log says against a resource, and where that resource was written (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fsxds.protocol.messages import without_message
from fsxds.resource_types import BY_REST_PATH, BY_SHORT_NAME
from fsxds.resources import Origin, Resource
from fsxds.values import TypeUrl

# Arguments that make Envoy log one line per message, `level logger message`, with escapes in the message.
LOG_ARGUMENTS = ("--log-format", "%l %n %v", "--log-format-escaped")

# `cds: cluster 'a' config rejected: why`: names the resource, so it goes before what is said of the whole update.
_OF_RESOURCE = re.compile(
    r"(?P<type>cds|lds): (?:cluster|listener) '(?P<name>.*?)' config rejected: (?P<reason>.*)", re.DOTALL
)
_OF_POLL = re.compile(r"REST config for /v3/discovery:(?P<path>[a-z_-]+) rejected: (?P<reason>.*)", re.DOTALL)
_OF_FILE = re.compile(r"Filesystem config update (?:rejected: |failure: in (?P<file>.*?), )(?P<reason>.*)", re.DOTALL)

_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_CONTROL = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of Envoy's log; `level` is empty for what it printed before logging was set up."""

    level: str
    logger: str
    message: str


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why Envoy refused an update.

    Attributes:
        reason: in Envoy's words, without the message that it refused.
        type_url: None where the log does not tell, as for files.
        resource_name: None for an update as a whole.
        is_failure: the update could not even be read, which Envoy counts as `update_failure`.
    """

    reason: str
    type_url: TypeUrl | None = None
    resource_name: str | None = None
    is_failure: bool = False


def read_log_line(line: str) -> LogLine:
    """Read a line that was written as `LOG_ARGUMENTS` say; any other line is all message."""
    level, _, rest = line.partition(" ")
    logger, _, message = rest.partition(" ")
    if level not in {"trace", "debug", "info", "warning", "error", "critical"}:
        return LogLine("", "", line)
    return LogLine(level, logger, _unescape(message).strip())


def _unescape(text: str) -> str:
    def character(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else _CONTROL.get(code, code)

    return _ESCAPE.sub(character, text.encode()).decode(errors="replace")


def read_complaint(message: str) -> Complaint | None:
    """Read the message of a log line, None if it is no complaint about an update."""
    if match := _OF_RESOURCE.match(message):
        return Complaint(without_message(match["reason"]), BY_SHORT_NAME[match["type"]].type_url, match["name"])
    if match := _OF_POLL.match(message):
        row = BY_REST_PATH.get(match["path"])
        return Complaint(without_message(match["reason"]), row.type_url if row else None)
    if match := _OF_FILE.match(message):
        return Complaint(without_message(match["reason"]), is_failure=match["file"] is not None)
    return None


def origin_of(reason: str, resources: Iterable[Resource]) -> Origin | None:
    """Return where the resource was written whose name stands in a reason: the longest such name; None for none."""
    named = [one for one in resources if one.name and re.search(rf"(?<![\w.-]){re.escape(one.name)}(?![\w-])", reason)]
    return max(named, key=lambda one: len(one.name)).origin if named else None
