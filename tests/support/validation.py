"""What a schema takes and refuses: jsonschema-rs says so by day, and jsonschema as well with `--nightly`."""

from __future__ import annotations

import math
from typing import Any

import jsonschema_rs
from jsonschema import Draft202012Validator

Judge = Draft202012Validator | jsonschema_rs.Draft202012Validator


class Validator:
    """Judges documents by a schema.

    jsonschema-rs reads what JSON can say, so jsonschema judges all else: NaN, and the keys that only YAML has.

    Args:
        schema: what documents have to obey.
        compares: whether jsonschema judges every document, and has to agree.
    """

    def __init__(self, schema: dict[str, Any], *, compares: bool) -> None:
        self._fast, self._slow = jsonschema_rs.Draft202012Validator(schema), Draft202012Validator(schema)
        self._compares = compares

    def is_valid(self, value: Any) -> bool:
        """Tell whether the schema takes a document."""
        found = {bool(judge.is_valid(one)) for judge, one in self._judges(value)}
        assert len(found) == 1, f"jsonschema and jsonschema-rs disagree about {value}"
        return found.pop()

    def messages(self, value: Any) -> list[str]:
        """Return what is wrong with a document."""
        judge, one = self._judges(value)[0]
        found = [error.message for error in judge.iter_errors(one)]
        assert self.is_valid(value) == (not found)
        return found

    def _judges(self, value: Any) -> list[tuple[Judge, Any]]:
        try:
            json_value = _as_json(value)
        except ValueError:
            return [(self._slow, value)]
        both: list[tuple[Judge, Any]] = [(self._fast, json_value), (self._slow, value)]
        return both if self._compares else both[:1]


def _as_json(value: Any) -> Any:
    """Return an equal document of the types that jsonschema-rs knows, exactly; a float with its spelling is none of them.

    Raises:
        ValueError: it has what JSON cannot say.
    """
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key is no text")
        return {_as_json(key): _as_json(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_as_json(part) for part in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("JSON has no such number")
        return float(value)
    if isinstance(value, str):
        value.encode()
    return value
