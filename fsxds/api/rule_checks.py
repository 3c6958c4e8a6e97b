"""One demand of a rule on one value: what breaks it, and how that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from fsxds.api.quotes import quoted

Shown: TypeAlias = "Callable[[Any, bool], str]"
"""Says at the end of a message what the value is; the flag tells that it is a secret."""

# What `quoted` calls a value that it does not show.
_UNSHOWN = frozenset({"text", "a number", "true or false"})


def show_value(value: Any, secret: bool) -> str:  # noqa: FBT001  # the shape of Shown
    """Quote the value itself, if it is short and no secret."""
    text = quoted(value, secret=secret)
    return "" if text in _UNSHOWN else f", is {text}"


def show_nothing(_value: Any, _secret: bool) -> str:  # noqa: FBT001  # the shape of Shown
    """Leave the value unsaid: the demand says enough."""
    return ""


def show_size(size_of: Callable[[Any], int]) -> Shown:
    """Tell how long the value is, which of a secret would tell too much."""

    def show(value: Any, secret: bool) -> str:  # noqa: FBT001  # the shape of Shown
        return "" if secret else f", has {size_of(value)}"

    return show


@dataclass(frozen=True, slots=True)
class Check:
    """One demand.

    Attributes:
        is_broken: tells, of a value, whether it breaks the demand.
        rule: the name of the rule in the book.
        demand: `must be at least 1`.
        remedy: what to do about it.
        shown: what is told of the value.
        is_presence: only what is empty breaks it.
    """

    is_broken: Callable[[Any], object]
    rule: str
    demand: str
    remedy: str
    shown: Shown = show_value
    is_presence: bool = False

    def message(self, value: Any, *, secret: bool) -> str:
        """Return what to tell of a value that breaks the demand."""
        return self.demand + self.shown(value, secret)

    def over(self, read: Callable[[Any], Any]) -> Check:
        """Return the same demand on what can be read from a value."""
        is_broken, shown = self.is_broken, self.shown
        return replace(
            self,
            is_broken=lambda value: is_broken(read(value)),
            shown=lambda value, secret: shown(read(value), secret),
        )

    def unless_empty(self) -> Check:
        """Return the same demand on values that are not empty, false or zero."""
        is_broken = self.is_broken
        return replace(self, is_broken=lambda value: value and is_broken(value))


def membership_checks(
    rules: Mapping[str, Any], spelled: Callable[[Any], str], read: Callable[[Any], Any] | None = None
) -> list[Check]:
    """Return the demands of `const`, `in` and `not_in`; `read` makes the rules' values comparable.

    As Envoy has it, `not_in` counts only where there is no `in`.
    """
    checks = []
    if "const" in rules:
        constant = rules["const"] if read is None else read(rules["const"])
        text = spelled(rules["const"])
        checks.append(Check(lambda value: value != constant, "not-allowed", f"must be {text}", f"write {text}"))
    allowed, refused = rules.get("in"), rules.get("not_in")
    if allowed:
        known = frozenset(allowed if read is None else map(read, allowed))
        listed = ", ".join(map(spelled, allowed))
        text = f"must be one of {listed}" if len(known) > 1 else f"must be {listed}"
        checks.append(Check(lambda value: value not in known, "not-allowed", text, f"write {one_of(allowed, spelled)}"))
    elif refused:
        banned = frozenset(refused if read is None else map(read, refused))
        text = f"must not be {one_of(refused, spelled)}"
        checks.append(Check(lambda value: value in banned, "not-allowed", text, "choose another value", show_nothing))
    return checks


def one_of(values: Iterable[Any], spelled: Callable[[Any], str]) -> str:
    """List values as a choice: `1`, `1 or 2`, `1, 2 or 3`."""
    *others, last = map(spelled, values)
    return f"{', '.join(others)} or {last}" if others else last
