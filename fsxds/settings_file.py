"""The settings file: its schema, and what one says, with every mistake in it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from fsxds.errors import UsageError
from fsxds.option_forms import SWITCH, TRUE, Schema
from fsxds.option_rows import Option


def schema_of_file(rows: Mapping[str, Option]) -> Schema:
    """Return the JSON Schema (draft 2020-12) of a settings file with these options, by their names."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The settings of fsxds",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {**_schema_of(row), "description": row.help, "default": _json_default(row)}
            for name, row in rows.items()
        },
    }


def _schema_of(row: Option) -> Schema:
    """Return the schema of one value; an option that may be unset may be null."""
    return {"anyOf": [row.form.schema, {"type": "null"}]} if row.default is None else row.form.schema


def _json_default(row: Option) -> object:
    return row.default in TRUE if row.form is SWITCH else row.default


def read_settings_file(path: Path, rows: Mapping[str, Option]) -> dict[str, object]:
    """Return the values of a settings file by field; UsageError tells all of its mistakes."""
    # Not needed by `--help`, and as slow to import as all of the rest of the settings.
    from jsonschema import Draft202012Validator

    written, places = _parse(path)
    faults: list[str] = []
    values: dict[str, object] = {}
    wrong = {
        str(error.path[0]) for error in Draft202012Validator(schema_of_file(rows)).iter_errors(written) if error.path
    }
    seen: set[str] = set()
    for key, place in places:
        row = rows.get(key)
        if row is None:
            near = get_close_matches(key, rows, 1)
            hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(rows)}"
            faults.append(f"{place}: {key}: there is no such setting; {hint}")
        elif key in seen:
            faults.append(f"{place}: {key}: is set twice; keep one of them")
        elif written.get(key) is not None or key in wrong:
            try:
                values[row.field] = _value_in_file(row, written.get(key), path, is_wrong=key in wrong)
            except ValueError:
                faults.append(f"{place}: {key}: {row.complaint(written.get(key))}")
            except UsageError as error:
                # It names the key itself.
                faults.append(f"{place}: {error}")
        seen.add(key)
    if faults:
        raise UsageError("\n".join(faults))
    return values


def _value_in_file(row: Option, written: object, path: Path, *, is_wrong: bool) -> object:
    """Return one value, its path seen from the file's own directory; ValueError if it is none."""
    if is_wrong:
        raise ValueError(written)
    value = row.form.read(written)
    return path.parent / value if isinstance(value, Path) else value


def _parse(path: Path) -> tuple[dict[str, object], list[tuple[str, str]]]:
    """Return what a settings file says, and each key with its place (`fsxds.yaml:3:1`), in order."""
    import yaml

    try:
        loader = yaml.SafeLoader(path.read_bytes())
        node = loader.get_single_node()
        written = {} if node is None else loader.construct_document(node)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; --settings names a YAML file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        raise UsageError(f"{path}:{place}: {getattr(error, 'problem', None) or 'is not YAML'}") from error
    if not isinstance(written, dict):
        raise UsageError(f"{path}:1:1: is not a mapping; write one option per line, such as settle: 50ms")
    marks = [(key.value, key.start_mark) for key, _ in node.value] if node else []
    return written, [(str(key), f"{path}:{mark.line + 1}:{mark.column + 1}") for key, mark in marks]
