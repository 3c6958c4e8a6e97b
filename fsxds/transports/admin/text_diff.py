"""What changed between two snapshots, resource by resource, as lines of text in which secrets are masked. Blocking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice

import yaml

from fsxds.api.catalogue import Catalogue
from fsxds.api.secrets import Masker
from fsxds.errors import ApiError
from fsxds.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.resources import Resource, Snapshot

# So much is read by nobody. Comparing a resource of so many lines with itself takes some 50 ms.
MOST_RESOURCES = 100
MOST_LINES = 400
LONGEST_TEXT = 4000
LONGEST_BODY_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class ResourceDiff:
    """What became of a resource.

    Attributes:
        type: the short name of its type.
        name: its name.
        action: `added`, `removed` or `changed`.
        place: where it is written, or was.
        lines: those of a unified diff, without its head, of which each begins with `+`, `-`, `@` or a space.
        omitted: why no lines, or not all of them, are there; empty where they are.
    """

    type: str
    name: str
    action: str
    place: str
    lines: tuple[str, ...]
    omitted: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """What changed between two snapshots: the first resources of it, and how many there are."""

    resources: tuple[ResourceDiff, ...]
    total: int


def diff_of(before: Snapshot, after: Snapshot, catalogue: Catalogue) -> SnapshotDiff:
    """Return what changed from one snapshot to another, in push order and by name."""
    masker = Masker(catalogue)
    changes = list(_changes(before, after))
    return SnapshotDiff(
        tuple(_diff(row, old, new, masker) for row, old, new in islice(changes, MOST_RESOURCES)), len(changes)
    )


def _changes(before: Snapshot, after: Snapshot) -> Iterator[tuple[ResourceType, Resource | None, Resource | None]]:
    for row in RESOURCE_TYPES:
        was, now = before.resources(row.type_url), after.resources(row.type_url)
        change = now.changes_since(was)
        # Rows that are compared with none say all names alone.
        for name in sorted(change.fresh | change.renewed | change.removed | (was.keys() - now.keys())):
            yield row, was.get(name), now.get(name)


def _diff(row: ResourceType, before: Resource | None, after: Resource | None, masker: Masker) -> ResourceDiff:
    shown = after or before
    if shown is None:
        raise RuntimeError("what changed was there before, or is there now")
    action = "added" if before is None else "removed" if after is None else "changed"
    lines, omitted = _lines(before, after, masker)
    return ResourceDiff(row.short_name, shown.name, action, str(shown.origin), lines, omitted)


def _lines(before: Resource | None, after: Resource | None, masker: Masker) -> tuple[tuple[str, ...], str]:
    if any(one is not None and len(one.body) > LONGEST_BODY_BYTES for one in (before, after)):
        return (), "it is too large to be compared here; fsxds diff compares it"
    try:
        old, new = (_text(one, masker) for one in (before, after))
    except ApiError:
        return (), "it is of a message that this fsxds does not know"
    # The head names files, of which there are none.
    found = [line[:LONGEST_TEXT] for line in islice(unified_diff(old, new, lineterm=""), 2, MOST_LINES + 3)]
    if not found:
        return (), "only what is hidden, its aliases or its time to live differ"
    return tuple(found[:MOST_LINES]), "" if len(found) <= MOST_LINES else "more lines follow; fsxds diff shows all"


def _text(resource: Resource | None, masker: Masker) -> list[str]:
    if resource is None:
        return []
    shown = masker.shown(resource.type_url, resource.body)
    text: str = yaml.dump(shown, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=LONGEST_TEXT)
    return text.splitlines()
