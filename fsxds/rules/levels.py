"""How much breaches weigh where the settings change that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from fsxds.values import Fault, Problem, Severity

Finding = TypeVar("Finding", Fault, Problem)


@dataclass(frozen=True, slots=True)
class RuleLevels:
    """The weights that differ from the book's, by the name of the rule; None silences a rule."""

    changed: Mapping[str, Severity | None] = field(default_factory=lambda: MappingProxyType({}))

    def weigh(self, finding: Finding) -> Finding | None:
        """Return a fault or a problem with the weight that it has here, None where its rule is silenced."""
        if finding.rule not in self.changed:
            return finding
        severity = self.changed[finding.rule]
        return None if severity is None else replace(finding, severity=severity)

    def __reduce__(self) -> tuple[type[RuleLevels], tuple[dict[str, Severity | None]]]:
        """Pickle as a plain dict: the read-only view of one cannot be pickled."""
        return RuleLevels, (dict(self.changed),)
