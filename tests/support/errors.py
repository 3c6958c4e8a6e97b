"""An observer of errors of fsxds itself, and of how components fare."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsxds.supervisor import BackOff, Supervisor

# A component starts again at once.
AT_ONCE = BackOff(first_s=0.001, longest_s=0.01, well_after_s=0.1)


@dataclass
class ErrorsHeard:
    """Remembers."""

    errors: list[tuple[str, BaseException]] = field(default_factory=list)
    degraded: list[tuple[str, str, float]] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)

    def internal_error(self, where: str, error: BaseException) -> None:
        """Remember."""
        self.errors.append((where, error))

    def component_degraded(self, component: str, reason: str, retry_s: float) -> None:
        """Remember."""
        self.degraded.append((component, reason, retry_s))

    def component_recovered(self, component: str) -> None:
        """Remember."""
        self.recovered.append(component)


def make_supervisor() -> Supervisor:
    """Make a supervisor that nobody listens to."""
    return Supervisor(ErrorsHeard(), AT_ONCE)
