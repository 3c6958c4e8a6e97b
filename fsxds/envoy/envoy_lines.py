"""Log lines about a local Envoy: addresses, ACKs, NACKs and own log.

Envoy quotes configuration, which may hold keys, so all words are masked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from fsxds.api.secrets import mask_reason
from fsxds.envoy.admin import Listening
from fsxds.envoy.envoy_log import EnvoyLogLine
from fsxds.envoy.follow import EndedEnvoy
from fsxds.envoy.snapshot_status import EnvoyNack, InProgress
from fsxds.events.event import Level, LogLine, count_of, omitted, shortened, some_of
from fsxds.model.resource_types import ResourceType
from fsxds.model.values import PlainValue, TypeUrl
from fsxds.observe.internal_errors import RepeatLimit

# The number of Envoy's log lines to pass on in ten seconds: when a server is gone, Envoy logs it per subscription.
MOST_LINES = 20

_LEVELS_OF_ENVOY = {"": Level.WARNING, "warning": Level.WARNING, "error": Level.ERROR, "critical": Level.ERROR}
# `envoy_nacked` reports these, with the place in the tree.
_REPORTED_AS_NACK = re.compile(
    r"\bconfig (?:for \S+ )?(?:rejected|update (?:rejected|failure))|config for \S+ rejected"
)
# Envoy's first line, and its line on SIGTERM, after which it logs only about its end.
_STARTED = "initializing epoch"
_STOPPED = "caught ENVOY_SIGTERM"
# Lines that every Envoy of `fsxds dev` logs, whatever the tree.
_ALWAYS = re.compile(
    r"no configured limit to the number of allowed active|Usage of the deprecated runtime key overload"
)


class LocalEnvoyLog:
    """An `EnvoyObserver` that writes log lines.

    `nacked` receives each NACKed type; `now_s` is a monotonic clock. `has_reported`: an Envoy has started or ended.
    """

    def __init__(
        self,
        write: Callable[[LogLine], None],
        nacked: Callable[[TypeUrl], None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._nacked = nacked
        self._now_s = now_s
        self._limit = RepeatLimit(MOST_LINES)
        self.has_reported = False
        self._has_logged = False
        self._is_stopping = False

    def envoy_started(self, admin: str, listeners: Sequence[Listening]) -> None:
        """Report the admin page and listeners."""
        self.has_reported = True
        details: dict[str, PlainValue] = {"admin": admin, "listeners": _addresses(listeners)}
        self._write(LogLine(Level.INFO, "envoy_started", f"Envoy runs; admin: http://{admin}", details))
        self.envoy_listens(listeners)

    def envoy_listens(self, listeners: Sequence[Listening]) -> None:
        """Report the addresses for traffic."""
        text = ", ".join(f"{listener.name} on {listener.address}" for listener in listeners) or "no listener yet"
        self._write(LogLine(Level.INFO, "envoy_listens", f"traffic: {text}", {"listeners": _addresses(listeners)}))

    def envoy_acked(self, types: tuple[ResourceType, ...], elapsed_s: float) -> None:
        """Report a snapshot in effect."""
        names = [row.noun for row in types]
        text = f"Envoy ACKed {', '.join(names) or 'the unchanged snapshot'} after {_ms(elapsed_s)} ms"
        details: dict[str, PlainValue] = {"types": [row.short_name for row in types], "took_ms": _ms(elapsed_s)}
        self._write(LogLine(Level.INFO, "envoy_acked", text, details))

    def envoy_nacked(self, nack: EnvoyNack, elapsed_s: float) -> None:
        """Report a NACK, its reason, and its place."""
        self._nacked(nack.resource_type.type_url)
        places = [str(origin) for origin in nack.origins]
        name = f' "{nack.resource_name}"' if nack.resource_name else ""
        reason = shortened(mask_reason(nack.reason or "its log does not say why"))
        where = f"{some_of(places)}: " if places else ""
        noun = nack.resource_type.noun
        text = f"{where}Envoy NACKed {noun}{name} after {_ms(elapsed_s)} ms: {reason}"
        details: dict[str, PlainValue] = {
            "type": nack.resource_type.short_name,
            "name": nack.resource_name,
            "reason": reason,
            "places": [*places],
            "took_ms": _ms(elapsed_s),
        }
        self._write(LogLine(Level.ERROR, "envoy_nacked", text, details))

    def envoy_pending(self, waiting: InProgress, unready: Sequence[str], elapsed_s: float) -> None:
        """Report missing parts, and awaited targets."""
        names = [f"{scope.resource_type.noun}{f' of {scope.name}' if scope.name else ''}" for scope in waiting.scopes]
        missing = f"; not there yet: {some_of(names)}" if names else ""
        warm = (
            f"; warming: {count_of(waiting.warming, 'cluster or listener', 'clusters or listeners')}"
            if waiting.warming
            else ""
        )
        targets = f"; it waits for {some_of([shortened(target) for target in unready])}" if unready else ""
        text = f"Envoy has not ACKed all of it after {elapsed_s:.0f} s{missing}{warm}{targets}"
        details: dict[str, PlainValue] = {
            "waits_for": [*names, *unready],
            "warming": waiting.warming,
            "took_ms": _ms(elapsed_s),
        }
        self._write(LogLine(Level.WARNING, "envoy_pending", text, details))

    def envoy_logged(self, line: EnvoyLogLine) -> None:
        """Pass on warnings and errors that `envoy_nacked` does not report."""
        if line.message == _STOPPED or line.message.startswith(_STARTED):
            self._is_stopping = line.message == _STOPPED
        level = None if self._is_stopping else _LEVELS_OF_ENVOY.get(line.level)
        if level is None or _REPORTED_AS_NACK.search(line.message) or _ALWAYS.search(line.message):
            return
        repeats = self._limit.admit((line.logger, line.message), self._now_s())
        if repeats is None:
            return
        self._has_logged = True
        text = f"Envoy logged: {shortened(mask_reason(line.message))}{omitted(repeats, 'line')}"
        self._write(LogLine(level, "envoy_logged", text, {"logger": line.logger}))

    def envoy_ended(self, ended: EndedEnvoy) -> None:
        """Report the end, with the log's if not passed on."""
        self.has_reported = True
        how = f"was ended by signal {-ended.status}" if ended.status < 0 else f"ended with status {ended.status}"
        # A key may span several lines, so they are masked as one text.
        tail = "" if self._has_logged else mask_reason("\n".join(ended.tail))
        for message in tail.splitlines():
            self._write(LogLine(Level.ERROR, "envoy_logged", f"Envoy logged: {shortened(message)}"))
        self._has_logged = False
        text = f"Envoy {how}; the next edit that is served starts another"
        self._write(LogLine(Level.ERROR, "envoy_ended", text, {"status": ended.status}))


def _addresses(listeners: Sequence[Listening]) -> PlainValue:
    return {listener.name: listener.address for listener in listeners}


def _ms(elapsed_s: float) -> int:
    return round(elapsed_s * 1000)
