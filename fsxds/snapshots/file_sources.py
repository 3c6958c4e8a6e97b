"""Resources that Envoy reads from a file by itself, where that file is one of the tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Resource
from fsxds.rules.mentions import ANY, IN_FILE
from fsxds.snapshots.file_names import FileNames
from fsxds.snapshots.findings import Finding
from fsxds.values import FieldPath, Severity, TypeUrl

RULE = "wrong-file-source"


def source_findings(files: Iterable[FileNames]) -> Mapping[PurePosixPath, tuple[Finding, ...]]:
    """Find the files that are named as the source of one resource, and hold another, or several. Source: ENVOY.md B3."""
    files = tuple(files)
    if not any(names.in_files for names in files):
        return {}
    by_path = {names.parsed.path.parts: names for names in files}
    found = {names.parsed.path: tuple(_findings(names, by_path)) for names in files if names.in_files}
    return {path: findings for path, findings in found.items() if findings}


def _findings(names: FileNames, by_path: Mapping[tuple[str, ...], FileNames]) -> Iterator[Finding]:
    for resource, reference in names.in_files:
        path, _, name = reference.name.partition("\n")
        type_url = TypeUrl(reference.type_url.removeprefix(IN_FILE))
        source, depth = _file_at(PurePosixPath(path), by_path)
        if source is None or name == ANY or type_url not in source.declared or not source.parsed.is_good:
            continue
        # A file of the same name alone may be another one.
        severity = Severity.ERROR if depth > 1 else Severity.WARNING
        fault = _fault(source, type_url, name)
        if fault is not None:
            yield _finding(resource, reference.field_path, fault, severity)


def _file_at(path: PurePosixPath, by_path: Mapping[tuple[str, ...], FileNames]) -> tuple[FileNames | None, int]:
    """Return the file whose path within the tree is the longest end of a path, and how many parts agree."""
    parts = path.parts
    for start in range(len(parts)):
        source = by_path.get(parts[start:])
        if source is not None:
            return source, len(parts) - start
    return None, 0


def _fault(source: FileNames, type_url: TypeUrl, name: str) -> tuple[str, str] | None:
    present = source.parsed.resources
    noun = BY_TYPE_URL[type_url].noun
    if len(present) > 1:
        message = (
            f"{source.parsed.path} holds {len(present)} resources; Envoy takes one from a file that {noun} come from"
        )
        return message, f'give "{name}" a file of its own'
    if present and present[0].name != name:
        message = f'{source.parsed.path} holds "{present[0].name}"; Envoy expects "{name}" there'
        return message, "name the file that holds it"
    return None


def _finding(resource: Resource, field_path: FieldPath, fault: tuple[str, str], severity: Severity) -> Finding:
    return Finding(resource, field_path, RULE, *fault, severity)
