"""The book of rules: every name that a problem can carry; adding a rule means adding a row to its chapter."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fsxds.rules import (
    book_bootstrap,
    book_envoy,
    book_fields,
    book_files,
    book_references,
    book_shapes,
    book_streams,
    book_values,
)
from fsxds.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class Chapter:
    """The rules of one subject, in the order in which they are listed."""

    title: str
    rules: tuple[Rule, ...]


CHAPTERS: tuple[Chapter, ...] = (
    Chapter("Files and their text", book_files.RULES),
    Chapter("Resources: shape, types, names, fields", book_shapes.RULES),
    Chapter("Constraints of fields", book_fields.RULES),
    Chapter("Values that Envoy looks at when it creates something", book_values.RULES),
    Chapter("References between resources", book_references.RULES),
    Chapter("Virtual hosts on demand, endpoint collections, times to live", book_streams.RULES),
    # The examples of this chapter are parts of bootstraps, not files of a tree.
    Chapter("Bootstraps and config sources", tuple(replace(rule, file="") for rule in book_bootstrap.RULES)),
    Chapter("What a real Envoy says", book_envoy.RULES),
)

RULES: tuple[Rule, ...] = tuple(rule for chapter in CHAPTERS for rule in chapter.rules)

BY_NAME = {rule.name: rule for rule in RULES}
