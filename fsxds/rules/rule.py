"""One rule of the book: its name, its weight, and what `fsxds explain` says of it."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.values import Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that a problem can break.

    Attributes:
        name: stable, in kebab-case; every problem carries it.
        severity: what a breach weighs by default.
        meaning: what the rule demands, one or two sentences.
        envoy: what Envoy does when it is broken.
        remedy: how to mend it.
        wrong: an example of a breach, as it stands in a file.
        right: the same example, mended.
        is_fixed: a breach leaves nothing that could be served, so that its weight cannot be changed.
        file: the name of the file that the examples are; empty where reading it alone cannot show the breach.
    """

    name: str
    severity: Severity
    meaning: str
    envoy: str
    remedy: str
    wrong: str
    right: str
    is_fixed: bool = False
    file: str = ""
