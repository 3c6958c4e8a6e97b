"""What an Envoy has beyond its message types: extensions by category, format commands, curves and ciphers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Extensions = Mapping[str, Mapping[str, tuple[str, ...]]]
"""The message types of each extension, by its category and its name."""


@dataclass(frozen=True, slots=True)
class Command:
    """How a command of format strings may be written: `%NAME(parameters):length%`."""

    needs_parameters: bool
    takes_parameters: bool
    takes_length: bool


@dataclass(frozen=True)
class Features:
    """What one build of Envoy has, as it said itself.

    Attributes:
        version: such as `1.40.0`.
        extensions: what it announces to its servers.
        commands: the commands of its format strings, by name.
        curves: the group that each name of a curve stands for.
        ciphers: the names of single ciphers.
        terminal: whether a filter of a type ends its chain, for those types where that is known.
        digest: SHA-256 of the executable, in hex.
        foreign: message types that are not its own, and of which it therefore says nothing.
        is_exact: these are the features of the Envoy in use; if not, another one may have more extensions.
    """

    version: str
    extensions: Extensions
    commands: Mapping[str, Command]
    curves: Mapping[str, str]
    ciphers: frozenset[str]
    terminal: Mapping[str, bool]
    digest: str
    foreign: frozenset[str] = field(default=frozenset())
    is_exact: bool = True

    @cached_property
    def by_category(self) -> Mapping[str, frozenset[str]]:
        """The message types of each category."""
        return {
            category: frozenset(one for types in named.values() for one in types)
            for category, named in self.extensions.items()
        }

    @cached_property
    def known(self) -> frozenset[str]:
        """The message types of all categories."""
        return frozenset().union(*self.by_category.values())

    def types(self, category: str) -> frozenset[str]:
        """Return the message types of a category; none for one that does not exist."""
        return self.by_category.get(category, frozenset())

    def names(self, category: str) -> frozenset[str]:
        """Return the names of the extensions of a category."""
        return frozenset(self.extensions.get(category, {}))

    @cached_property
    def minor_version(self) -> str:
        """The version without its last part: `1.40`."""
        return ".".join(self.version.split(".")[:2])


_FORMS = ("needs_parameters", "takes_parameters", "takes_length")


def to_json(features: Features) -> str:
    """Write features as a file of one line per category, command, curve and filter."""
    commands = {
        name: " ".join(form for form in _FORMS if getattr(command, form))
        for name, command in sorted(features.commands.items())
    }
    extensions = {
        category: {name: list(types) for name, types in sorted(named.items())}
        for category, named in sorted(features.extensions.items())
    }
    plain = {
        "version": features.version,
        "digest": features.digest,
        "extensions": extensions,
        "commands": commands,
        "curves": dict(sorted(features.curves.items())),
        "ciphers": sorted(features.ciphers),
        "terminal": dict(sorted(features.terminal.items())),
    }
    return json.dumps(plain, indent=1) + "\n"


def from_json(text: str | bytes) -> Features:
    """Read what `to_json` wrote."""
    plain: Any = json.loads(text)
    return Features(
        plain["version"],
        {
            category: {name: tuple(types) for name, types in named.items()}
            for category, named in plain["extensions"].items()
        },
        {name: Command(*(form in forms.split() for form in _FORMS)) for name, forms in plain["commands"].items()},
        plain["curves"],
        frozenset(plain["ciphers"]),
        plain["terminal"],
        plain["digest"],
    )
