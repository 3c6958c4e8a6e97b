"""How the values of options are written: durations, sizes, switches, addresses, paths and words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

Value = TypeVar("Value")
Schema: TypeAlias = dict[str, object]

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "": 1}
DURATION_TEXT = "^([0-9]+(?:[.][0-9]+)?) ?(ms|s|m|h|)$"
SIZE_TEXT = "^([0-9]+(?:[.][0-9]+)?) ?([kKmMgG]i?[bB]|[bB]|)$"
TRUE = ("true", "yes", "on", "1")
# In place of an address: nobody listens.
OFF = "off"
FALSE = ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Form(Generic[Value]):
    """How the values of an option are written.

    Attributes:
        metavar: stands for the value in `--help`.
        demand: completes the sentence "… is not …".
        read: turns what was written into the value, or raises ValueError.
        schema: the JSON Schema of what may be written in the settings file.
        choices: all values, where they can be listed.
        bare: what stands for the value where a flag is given without one; None where it needs one.
        negation: another flag, which stands for the value false; empty for none.
    """

    metavar: str
    demand: str
    read: Callable[[object], Value]
    schema: Schema
    choices: tuple[str, ...] = ()
    bare: str | None = None
    negation: str = ""


def _number(written: object, text: str, units: Mapping[str, float]) -> float:
    """Read a number with or without a unit."""
    if isinstance(written, int | float) and not isinstance(written, bool):
        value = float(written)
    elif isinstance(written, str) and (match := re.search(text, written.strip())):
        value = float(match[1]) * units[match[2].lower()]
    else:
        raise ValueError(written)
    if not math.isfinite(value) or value < 0:
        raise ValueError(written)
    return value


def _read_duration(written: object) -> float:
    return _number(written, DURATION_TEXT, SECONDS)


def _read_interval(written: object) -> float:
    # Looking more often than every 10 ms would keep a processor busy with nothing.
    if (value := _read_duration(written)) < 0.01:
        raise ValueError(written)
    return value


def _read_size(written: object) -> int:
    return int(_number(written, SIZE_TEXT, BYTES))


def _read_switch(written: object) -> bool:
    word = str(written).lower()
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise ValueError(written)


def _read_text(written: object) -> str:
    if isinstance(written, str) and written and "\0" not in written:
        return written
    raise ValueError(written)


def _read_address_or_off(written: object) -> str:
    # YAML reads `off` as false.
    return OFF if written is False or str(written).lower() == OFF else _read_text(written)


def _read_path(written: object) -> Path:
    return Path(_read_text(written)).expanduser()


def _read_names(written: object) -> tuple[str, ...]:
    names = written if isinstance(written, list) else _read_text(written).split(",")
    return tuple(_read_text(name.strip() if isinstance(name, str) else name) for name in names)


def _read_executable(written: object) -> Path | bool:
    word = str(written).lower()
    return word in TRUE if word in TRUE or word in FALSE else _read_path(written)


def _number_schema(text: str) -> Schema:
    return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": text}]}


def one_of(*choices: str) -> Form[str]:
    """Make the form of an option that takes one of a few words."""

    def read(written: object) -> str:
        if written in choices:
            return str(written)
        raise ValueError(written)

    return Form("|".join(choices), f"one of {', '.join(choices)}", read, {"enum": list(choices)}, choices)


_DURATION = "a duration (write 50ms, 2s, 1m or a number of seconds"
DURATION = Form("DURATION", f"{_DURATION})", _read_duration, _number_schema(DURATION_TEXT))
INTERVAL = Form("DURATION", f"{_DURATION}, 10ms at least)", _read_interval, _number_schema(DURATION_TEXT))
SIZE = Form("SIZE", "a size (write 64MiB, 500kB or a number of bytes)", _read_size, _number_schema(SIZE_TEXT))
SWITCH = Form("BOOLEAN", "true or false", _read_switch, {"type": "boolean"})
ADDRESS_OR_OFF = Form(
    "ADDRESS",
    "an address or off (write 127.0.0.1:18000, [::1]:18000, :18000, unix:/run/fsxds.sock or off)",
    _read_address_or_off,
    {"anyOf": [{"type": "string", "minLength": 1}, {"const": False}]},
)
PATH = Form("PATH", "a path", _read_path, {"type": "string", "minLength": 1})
NAMES = Form(
    "NAMES",
    "a list of names (write a,b)",
    _read_names,
    {"anyOf": [{"type": "array", "items": {"type": "string", "minLength": 1}}, {"type": "string", "minLength": 1}]},
)
GLOBS = Form(
    "GLOBS",
    "a list of patterns (write README*,charts/**)",
    _read_names,
    {"anyOf": [{"type": "array", "items": {"type": "string", "minLength": 1}}, {"type": "string", "minLength": 1}]},
)
EXECUTABLE = Form(
    "[PATH]",
    "a path, true or false",
    _read_executable,
    {"anyOf": [{"type": "boolean"}, {"type": "string", "minLength": 1}]},
    bare="true",
    negation="--no-envoy",
)
