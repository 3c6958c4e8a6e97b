"""What a local Envoy is heard to do, worded for the log: its addresses, and its verdict on each snapshot."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from fsxds.api.secrets import mask_reason
from fsxds.operations.change_reports import count_of, some_of
from fsxds.operations.log_lines import Level, LogLine, shortened
from fsxds.operations.refusal_limit import RefusalLimit
from fsxds.resource_types import ResourceType
from fsxds.resources import Origin
from fsxds.values import PlainValue, TypeUrl

# Lines of Envoy's log in ten seconds; a server that is gone makes it log for each of its subscriptions.
MOST_WORDS = 20

_LEVELS_OF_ENVOY = {"": Level.WARNING, "warning": Level.WARNING, "error": Level.ERROR, "critical": Level.ERROR}
# The verdict on an update tells of these, with the place in the tree.
_TOLD_OTHERWISE = re.compile(r"\bconfig (?:for \S+ )?(?:rejected|update (?:rejected|failure))|config for \S+ rejected")
# What Envoy says first, and when it is asked to end: what it says from then on is about its end.
_BEGUN = "initializing epoch"
_STOPPED = "caught ENVOY_SIGTERM"
# What every Envoy of `fsxds dev` says of itself, whatever the tree.
_CHATTER = re.compile(
    r"no configured limit to the number of allowed active|Usage of the deprecated runtime key overload"
)


class ListenerAddress(Protocol):
    """A listener and the address that it is bound to."""

    @property
    def name(self) -> str:
        """The name of the listener."""

    @property
    def address(self) -> str:
        """Such as `127.0.0.1:10000`."""


class RefusedResource(Protocol):
    """One reason why Envoy refused something."""

    @property
    def resource_type(self) -> ResourceType:
        """The type of the update."""

    @property
    def resource_name(self) -> str | None:
        """None where Envoy does not tell."""

    @property
    def reason(self) -> str | None:
        """In Envoy's words; None where it does not tell."""

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where that was written."""


class WaitingSubscription(Protocol):
    """A subscription of Envoy that has not got its version yet."""

    @property
    def resource_type(self) -> ResourceType:
        """Its type."""

    @property
    def name(self) -> str | None:
        """The resource that it is for, None for all."""


class WaitingEnvoy(Protocol):
    """What is not in effect yet."""

    @property
    def scopes(self) -> Sequence[WaitingSubscription]:
        """The subscriptions that do not show their versions."""

    @property
    def warming(self) -> int:
        """How many clusters and listeners wait for what they need."""


class EnvoyLogLine(Protocol):
    """One line of Envoy's log."""

    @property
    def level(self) -> str:
        """Envoy's word for it, empty for what it printed before logging was set up."""

    @property
    def logger(self) -> str:
        """The part of Envoy that logged it."""

    @property
    def message(self) -> str:
        """What it says."""


class EndedProcess(Protocol):
    """An Envoy that is gone."""

    @property
    def status(self) -> int:
        """Its exit status; negative: the signal that ended it."""

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of its log."""


class LocalEnvoyLog:
    """Listens to `local_envoy` under the names of its `EnvoyObserver`, and writes lines.

    Args:
        write: takes the lines.
        rejected: is told each type of which Envoy refused something.
        now_s: a clock that only counts seconds.
    """

    def __init__(
        self,
        write: Callable[[LogLine], None],
        rejected: Callable[[TypeUrl], None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._rejected = rejected
        self._now_s = now_s
        self._words = RefusalLimit(MOST_WORDS)
        self._has_reported = False
        self._has_spoken = False
        self._is_stopping = False

    @property
    def has_reported(self) -> bool:
        """Whether an Envoy has started, or ended before it did."""
        return self._has_reported

    def envoy_started(self, admin: str, listeners: Sequence[ListenerAddress]) -> None:
        """Tell where Envoy's admin page is, and where it listens for traffic."""
        self._has_reported = True
        details: dict[str, PlainValue] = {"admin": admin, "listeners": _addresses(listeners)}
        self._write(LogLine(Level.INFO, "envoy_started", f"Envoy runs; admin: http://{admin}", details))
        self.envoy_listens(listeners)

    def envoy_listens(self, listeners: Sequence[ListenerAddress]) -> None:
        """Tell where traffic goes."""
        text = ", ".join(f"{listener.name} on {listener.address}" for listener in listeners) or "no listener yet"
        self._write(LogLine(Level.INFO, "envoy_listens", f"traffic: {text}", {"listeners": _addresses(listeners)}))

    def envoy_took(self, types: tuple[ResourceType, ...], elapsed_s: float) -> None:
        """Tell that the current snapshot is in effect."""
        names = [row.noun for row in types]
        text = f"Envoy took {', '.join(names) or 'it: nothing new'} after {_ms(elapsed_s)} ms"
        details: dict[str, PlainValue] = {"types": [row.short_name for row in types], "took_ms": _ms(elapsed_s)}
        self._write(LogLine(Level.INFO, "envoy_took", text, details))

    def envoy_refused(self, refusal: RefusedResource, elapsed_s: float) -> None:
        """Tell what Envoy refused, why, and where that was written."""
        self._rejected(refusal.resource_type.type_url)
        places = [str(origin) for origin in refusal.origins]
        name = f' "{refusal.resource_name}"' if refusal.resource_name else ""
        reason = shortened(mask_reason(refusal.reason or "its log does not say why"))
        where = f"{some_of(places)}: " if places else ""
        noun = refusal.resource_type.noun
        text = f"{where}Envoy refused {noun}{name} after {_ms(elapsed_s)} ms: {reason}"
        details: dict[str, PlainValue] = {
            "type": refusal.resource_type.short_name,
            "name": refusal.resource_name,
            "reason": reason,
            "places": [*places],
            "took_ms": _ms(elapsed_s),
        }
        self._write(LogLine(Level.ERROR, "envoy_refused", text, details))

    def envoy_waits(self, waiting: WaitingEnvoy, unready: Sequence[str], elapsed_s: float) -> None:
        """Tell what is not in effect after a long time, and what Envoy says it waits for."""
        names = [f"{scope.resource_type.noun}{f' of {scope.name}' if scope.name else ''}" for scope in waiting.scopes]
        missing = f"; not there yet: {some_of(names)}" if names else ""
        warm = (
            f"; warming: {count_of(waiting.warming, 'cluster or listener', 'clusters or listeners')}"
            if waiting.warming
            else ""
        )
        words = f"; it waits for {some_of([shortened(word) for word in unready])}" if unready else ""
        text = f"Envoy has not taken all of it after {elapsed_s:.0f} s{missing}{warm}{words}"
        details: dict[str, PlainValue] = {
            "waits_for": [*names, *unready],
            "warming": waiting.warming,
            "took_ms": _ms(elapsed_s),
        }
        self._write(LogLine(Level.WARNING, "envoy_waits", text, details))

    def envoy_logged(self, line: EnvoyLogLine) -> None:
        """Pass on what Envoy itself logs as a warning or an error, unless its verdict tells the same, with the place."""
        if line.message == _STOPPED or line.message.startswith(_BEGUN):
            self._is_stopping = line.message == _STOPPED
        level = None if self._is_stopping else _LEVELS_OF_ENVOY.get(line.level)
        if level is None or _TOLD_OTHERWISE.search(line.message) or _CHATTER.search(line.message):
            return
        untold = self._words.admit(line.logger, line.message, self._now_s())
        if untold is None:
            return
        self._has_spoken = True
        before = f" ({count_of(untold, 'line')} before it left out)" if untold else ""
        text = f"Envoy says: {shortened(mask_reason(line.message))}{before}"
        self._write(LogLine(level, "envoy_said", text, {"logger": line.logger}))

    def envoy_ended(self, ended: EndedProcess) -> None:
        """Tell that Envoy is gone, with the last it said where its own words were not passed on."""
        self._has_reported = True
        how = f"was ended by signal {-ended.status}" if ended.status < 0 else f"ended with status {ended.status}"
        # A key may go over several lines, so they are looked at as one text.
        tail = "" if self._has_spoken else mask_reason("\n".join(ended.tail))
        for message in tail.splitlines():
            self._write(LogLine(Level.ERROR, "envoy_said", f"Envoy said: {shortened(message)}"))
        self._has_spoken = False
        text = f"Envoy {how}; the next edit that is served starts another"
        self._write(LogLine(Level.ERROR, "envoy_ended", text, {"status": ended.status}))


def _addresses(listeners: Sequence[ListenerAddress]) -> PlainValue:
    return {listener.name: listener.address for listener in listeners}


def _ms(elapsed_s: float) -> int:
    return round(elapsed_s * 1000)
