"""`fsxds show DIR`: shows resources."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import yaml

from fsxds.api.secrets import Masker
from fsxds.cli.command import Choice
from fsxds.cli.running import print_table, spinner
from fsxds.cli.subjects import load_chosen, warn_if_empty
from fsxds.events.event import count_of, escape, type_name
from fsxds.model.resources import Resource
from fsxds.model.values import PlainValue
from fsxds.server import loading_rules
from fsxds.settings.options import Settings
from fsxds.snapshots.load import Loaded

SHORT_DIGITS = 12


class ServedResource(NamedTuple):
    """A resource; `version_info` is its author's, or None."""

    type_name: str
    resource: Resource
    version_info: str | None
    place: str


def run_show(directory: Path, settings: Settings, choice: Choice) -> None:
    """Print a tree's resources."""
    with spinner(f"loading {directory}"):
        catalogue = loading_rules.find_catalogue(settings)
        loaded = load_chosen(directory, settings, catalogue, choice)
    rows = [row for row in _rows_of(loaded, directory) if settings.show_type in (None, row.type_name)]
    if settings.show_format == "table":
        _print_resources(rows)
    else:
        listing = _as_plain(rows, loaded, Masker(catalogue))
        print(dumped(listing, settings.show_format))
    warn_if_empty(directory, loaded)
    if loaded.problems:
        print(
            f"{count_of(len(loaded.problems), 'problem')}: fsxds check {escape(str(directory))} lists them",
            file=sys.stderr,
        )


def _rows_of(loaded: Loaded, directory: Path) -> Iterator[ServedResource]:
    good = (record.good for record in loaded.records.values() if record.good)
    authored = {
        (resource.type_url, resource.name): document.version_info
        for parsed in good
        for document in parsed.documents
        for resource in document.resources
    }
    for type_url, resources in loaded.snapshot.by_type.items():
        for name, resource in resources.items():
            place = f"{PurePosixPath(directory) / resource.origin.path}:{resource.origin.line}"
            yield ServedResource(type_name(type_url), resource, authored.get((type_url, name)), place)


def _print_resources(rows: list[ServedResource]) -> None:
    columns: list[tuple[str, Callable[[ServedResource], str]]] = [
        ("TYPE", lambda row: row.type_name),
        ("NAME", lambda row: row.resource.name),
        ("VERSION", lambda row: row.resource.version[:SHORT_DIGITS]),
        ("FROM", lambda row: row.place),
        ("VERSION_INFO", lambda row: row.version_info or ""),
    ]
    # Few trees have these.
    if any(row.resource.ttl_s is not None for row in rows):
        columns.append(("TTL", lambda row: "" if row.resource.ttl_s is None else f"{row.resource.ttl_s:g}s"))
    if any(row.resource.aliases for row in rows):
        columns.append(("ALIASES", lambda row: " ".join(row.resource.aliases)))
    if any(row.resource.redirect for row in rows):
        columns.append(("REDIRECTS TO", lambda row: row.resource.redirect))
    print_table([heading for heading, _ in columns], ([cell(row) for _, cell in columns] for row in rows))


def _as_plain(rows: list[ServedResource], loaded: Loaded, masker: Masker) -> dict[str, PlainValue]:
    listing: dict[str, PlainValue] = {}
    for type_url, version in loaded.snapshot.versions.items():
        name = type_name(type_url)
        members: list[PlainValue] = [_plain_row(row, masker) for row in rows if row.type_name == name]
        if members:
            listing[name] = {"version": version, "resources": members}
    return listing


def _plain_row(row: ServedResource, masker: Masker) -> PlainValue:
    resource = row.resource
    return {
        "name": resource.name,
        "version": resource.version,
        "version_info": row.version_info,
        "from": row.place,
        **({"aliases": [*resource.aliases]} if resource.aliases else {}),
        **({"ttl_s": resource.ttl_s} if resource.ttl_s is not None else {}),
        **({"redirect": resource.redirect} if resource.redirect else {}),
        "resource": masker.shown(resource.type_url, resource.body),
    }


def dumped(listing: dict[str, PlainValue], output_format: str) -> str:
    """Return JSON or YAML."""
    if output_format == "json":
        return json.dumps(listing, indent=2)
    return yaml.safe_dump(listing, sort_keys=False).rstrip("\n")
