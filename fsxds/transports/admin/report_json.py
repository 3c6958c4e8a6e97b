"""The reports of the admin address as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from fsxds.model.errors import UsageError

Report = TypeVar("Report")


def report_of(form: type[Report], plain: object) -> Report:
    """Decode a report.

    Raises:
        UsageError: another version of fsxds wrote it.
    """
    try:
        return cast("Report", _read(form, plain))
    except (LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            "the server writes its reports otherwise than this fsxds reads them; use its version"
        ) from error


def _read(form: Any, plain: Any) -> object:
    if is_dataclass(form) and isinstance(form, type):
        hints = get_type_hints(form)
        return form(**{each.name: _read(hints[each.name], plain[each.name]) for each in fields(form)})
    parts = get_args(form)
    if get_origin(form) is tuple:
        return tuple(_read(parts[0], each) for each in plain)
    if get_origin(form) is Mapping:
        return {name: _read(parts[1], each) for name, each in plain.items()}
    if parts:
        return None if plain is None else _read(parts[0], plain)
    if not isinstance(plain, (int, float) if form is float else form):
        raise TypeError(form)
    return plain


def written(content: object) -> bytes:
    """Encode values as JSON objects of their fields."""
    return json.dumps(content, default=_plain).encode()


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    raise TypeError(f"{type(value).__name__} is not written")
