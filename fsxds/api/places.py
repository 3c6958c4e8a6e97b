"""Where the careful path stands in a value, and the faults it found so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from fsxds.api.dialect import Read, WrongValueError
from fsxds.api.fields import DEEPEST_MESSAGE
from fsxds.api.quotes import quoted
from fsxds.values import Fault, FieldPath, PlainValue, Severity


class _Dropped(Enum):
    """Stands for a value that has a fault and is left out."""

    DROPPED = "dropped"


DROPPED: Final = _Dropped.DROPPED
WELL_ADVISED: Final = 100
Normal: TypeAlias = "PlainValue | _Dropped"
"""A value in the one form of proto3 JSON that the fast path takes, or none because of a fault."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The faults of one resource, in the order in which they were met; `unknown_fields` weighs unknown names."""

    unknown_fields: Severity
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    """A place within a value, and the findings to add to.

    Attributes:
        findings: the faults found so far, shared by all places of a resource.
        path: keys and indexes that lead there, as the author spelled them.
        depth: how many messages stand around it.
        secret: what stands here must not be quoted.
    """

    findings: Findings
    path: FieldPath = ()
    depth: int = 0
    secret: bool = False

    def at(self, step: str | int, *, secret: bool = False) -> Place:
        """Return the place one step further, in the same message."""
        return Place(self.findings, (*self.path, step), self.depth, self.secret or secret)

    def within(self, levels: int = 1) -> Place:
        """Return this place, seen from that many more messages inside."""
        return Place(self.findings, self.path, self.depth + levels, self.secret)

    def is_worth_advice(self) -> bool:
        """Tell whether anybody will read so far: what a wrong name probably means takes long to find out."""
        return len(self.findings.faults) < WELL_ADVISED

    def add(self, rule: str, message: str, remedy: str) -> None:
        """Note an error."""
        self.findings.faults.append(Fault(rule, message, remedy, self.path))

    def warn(self, rule: str, message: str, remedy: str) -> None:
        """Note what Envoy takes, and its author hardly means."""
        self.findings.faults.append(Fault(rule, message, remedy, self.path, severity=Severity.WARNING))

    def add_unknown(self, rule: str, message: str, remedy: str) -> None:
        """Note a name that the API does not know; what it names is left out."""
        severity = self.findings.unknown_fields
        fact = message if severity is Severity.ERROR else f"{message}; it is left out"
        self.findings.faults.append(Fault(rule, fact, remedy, self.path, severity=severity))

    def add_wrong(self, value: PlainValue, expected: str, remedy: str) -> None:
        """Note a value that is not what its field asks for."""
        self.add("wrong-value", f"expected {expected}, found {quoted(value, secret=self.secret)}", remedy)

    def attempt(self, read: Read, value: PlainValue) -> object:
        """Return what a reader makes of a value; DROPPED, with a fault, where it raises."""
        try:
            return read(value)
        except WrongValueError as error:
            if error.is_unknown_name:
                name = f'"{value}"' if error.is_near and not self.secret else quoted(value, secret=self.secret)
                fact = f"{'this' if name == 'text' else name} is not {error.expected}"
                self.add_unknown("unknown-enum-value", fact, error.remedy)
            else:
                self.add_wrong(value, error.expected, error.remedy)
            return DROPPED

    def is_too_deep(self) -> bool:
        """Tell whether a message stands deeper here than protobuf reads, and note it if so."""
        if self.depth <= DEEPEST_MESSAGE:
            return False
        fact = f"nested too deeply: no more than {DEEPEST_MESSAGE} messages may stand within one another"
        self.add("too-deep", fact, "flatten it; Envoy does not read it either")
        return True
