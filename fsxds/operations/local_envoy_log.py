"""What a local Envoy is heard to do, worded for the log: its addresses, and its verdict on each snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fsxds.operations.change_reports import some_of
from fsxds.operations.log_lines import Level, LogLine, shortened
from fsxds.operations.secrets import mask_text
from fsxds.resource_types import ResourceType
from fsxds.values import Origin, PlainValue


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


class EndedProcess(Protocol):
    """An Envoy that is gone."""

    @property
    def status(self) -> int:
        """Its exit status; negative: the signal that ended it."""

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of its log."""


class LocalEnvoyLog:
    """Listens to `local_envoy` under the names of its `EnvoyObserver`, and writes lines."""

    def __init__(self, write: Callable[[LogLine], None]) -> None:
        self._write = write

    def envoy_started(self, admin: str, listeners: Sequence[ListenerAddress]) -> None:
        """Tell where Envoy's admin page is, and where it listens for traffic."""
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
        places = [str(origin) for origin in refusal.origins]
        name = f' "{refusal.resource_name}"' if refusal.resource_name else ""
        reason = shortened(refusal.reason or "its log does not say why")
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

    def envoy_waits(self, scopes: Sequence[WaitingSubscription], warming: int, elapsed_s: float) -> None:
        """Tell what is not in effect after a long time."""
        names = [f"{scope.resource_type.noun}{f' of {scope.name}' if scope.name else ''}" for scope in scopes]
        missing = f"; it has no news of {some_of(names)}" if names else ""
        warm = f"; {warming} clusters or listeners wait for what they need" if warming else ""
        text = f"Envoy has not taken it after {elapsed_s:.0f} s{missing}{warm}"
        details: dict[str, PlainValue] = {"waits_for": [*names], "warming": warming, "took_ms": _ms(elapsed_s)}
        self._write(LogLine(Level.WARNING, "envoy_waits", text, details))

    def envoy_ended(self, ended: EndedProcess) -> None:
        """Tell that Envoy is gone, with the last it said."""
        how = f"was ended by signal {-ended.status}" if ended.status < 0 else f"ended with status {ended.status}"
        self._write(LogLine(Level.ERROR, "envoy_ended", f"Envoy {how}", {"status": ended.status}))
        # A key may go over several lines, so they are looked at as one text.
        for message in mask_text("\n".join(ended.tail)).splitlines():
            self._write(LogLine(Level.ERROR, "envoy_said", f"  {shortened(message)}"))


def _addresses(listeners: Sequence[ListenerAddress]) -> PlainValue:
    return {listener.name: listener.address for listener in listeners}


def _ms(elapsed_s: float) -> int:
    return round(elapsed_s * 1000)
