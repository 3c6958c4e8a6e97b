"""What can be wrong with a file that Envoy subscribes to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from fsxds.doctor.chart import Chart
from fsxds.doctor.files import FileFacts
from fsxds.values import Fault, FieldPath, Severity

# Text format under any of these names is read as JSON (ENVOY.md B1).
_TEXT_FORMAT = (".textproto", ".txtpb", ".pbtxt", ".prototxt")
_READ_AS_YAML = (".yaml", ".yml")
# No serialized DiscoveryResponse begins like this; as binary it would be an empty one.
_TEXT_HEADS = (b"{", b"#", b"---", b"resources", b"version_info", b"versionInfo", b"type_url", b"typeUrl", b'"')


def path_faults(path: str, watched: str | None, field_path: FieldPath, chart: Chart) -> Iterator[Fault]:
    """Check a path that Envoy subscribes to.

    Args:
        path: of the file.
        watched: the `watched_directory`, None where there is none.
        field_path: where the path is written, or what holds it.
        chart: tells of files.
    """
    facts = chart.look_at(path)
    if not facts.exists:
        yield _missing_file(path, field_path)
    yield from _check_suffix(path, facts, field_path)
    if watched is not None and not chart.look_at(watched).exists:
        yield _missing_file(watched, (*field_path, "watched_directory"))
    elif facts.swapped_in is not None and _normal(facts.swapped_in) != (None if watched is None else _normal(watched)):
        fact = "a ConfigMap or Secret volume" if facts.is_config_map else "a directory that a link is swapped in"
        yield Fault(
            "unwatched-directory",
            f"{path} is in {fact}: Envoy does not notice its changes unless it watches {facts.swapped_in}",
            f"add watched_directory: {{path: {facts.swapped_in}}} beside the path",
            (*field_path, "watched_directory") if watched is not None else field_path,
            severity=Severity.WARNING,
        )


def _missing_file(path: str, field_path: FieldPath) -> Fault:
    return Fault(
        "missing-file",
        f"{path} does not exist here; Envoy refuses what names a missing file, and with a bootstrap it does not start",
        "write it before Envoy starts (`fsxds mirror DIR OUT` writes them all), or correct the path",
        field_path,
    )


def _check_suffix(path: str, facts: FileFacts, field_path: FieldPath) -> Iterator[Fault]:
    name = path.lower()
    begin = facts.head.lstrip()
    if name.endswith(_TEXT_FORMAT):
        yield _misread(path, "JSON: text format is read under the suffix .pb_text alone", field_path)
    elif name.endswith(".pb"):
        if begin.startswith(_TEXT_HEADS):
            yield _misread(path, "binary, and text is then an empty response: everything is deleted", field_path)
    elif not name.endswith((*_READ_AS_YAML, ".pb_text")) and begin and not begin.startswith(b"{"):
        yield _misread(path, "JSON, which it is not", field_path)


def _misread(path: str, how: str, field_path: FieldPath) -> Fault:
    return Fault(
        "misread-file",
        f"Envoy goes by the suffix, and reads {PurePosixPath(path).name} as {how}",
        "rename it to .yaml, .json, .pb or .pb_text, whichever it is",
        field_path,
    )


def _normal(path: str) -> str:
    return str(PurePosixPath(path))
