"""Written forms of values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

from fsxds.model.errors import UsageError
from fsxds.model.values import Severity

_TCP = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*):(?P<port>[0-9]{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """An empty host means all interfaces, port 0 any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return `127.0.0.1:18001` or `[::1]:18001`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a Unix socket."""

    path: Path

    def __str__(self) -> str:
        """Return `unix:/run/fsxds.sock`."""
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Read `127.0.0.1:18001`, `[::1]:18001`, `:18001` or `unix:/run/fsxds.sock`; UsageError for others."""
    if text.startswith("unix:") and len(text) > len("unix:"):
        return UnixAddress(Path(text.removeprefix("unix:")))
    match = _TCP.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise UsageError(f"{text!r} is no address; write 127.0.0.1:18001, [::1]:18001, :18001 or unix:/run/fsxds.sock")
    return TcpAddress(match["host"].strip("[]"), int(match["port"]))


Value = TypeVar("Value")
Off = TypeVar("Off")
Schema: TypeAlias = dict[str, object]

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "": 1}
DURATION_TEXT = "^([0-9]+(?:[.][0-9]+)?) ?(ms|s|m|h|)$"
SIZE_TEXT = "^([0-9]+(?:[.][0-9]+)?) ?([kKmMgG]i?[bB]|[bB]|)$"
TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
# Instead of an address: do not listen. Instead of a severity: the rule is off.
OFF = "off"


@dataclass(frozen=True, slots=True)
class OptionForm(Generic[Value]):
    """The written form of an option's values.

    Attributes:
        metavar: the placeholder in `--help`.
        demand: completes "... is not ...".
        read: converts, or raises ValueError.
        bare: the value of a flag without one; None if it needs one.
        negation: another flag that means false, or empty.
        in_file_only: no flag and no variable; `read` raises `structured.MistakesFound`.
        is_repeatable: spaces separate a variable's values; in the file it is a list, and `read` raises as above.
    """

    metavar: str
    demand: str
    read: Callable[[object], Value]
    schema: Schema
    choices: tuple[str, ...] = ()
    bare: str | None = None
    negation: str = ""
    in_file_only: bool = False
    is_repeatable: bool = False

    @property
    def is_structured(self) -> bool:
        """Whether `read` places mistakes."""
        return self.in_file_only or self.is_repeatable


def _number(written: object, text: str, units: Mapping[str, float]) -> float:
    if isinstance(written, int | float) and not isinstance(written, bool):
        # Not `float` alone, which raises OverflowError for integers above 1e308.
        value = float(str(written))
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
    # Checking more often than every 10 ms would keep a processor busy.
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


def or_off(read: Callable[[object], Value], off: Off) -> Callable[[object], Value | Off]:
    """Extend a form's `read` by the word `off`."""
    # YAML reads it as false.
    return lambda written: off if written is False or str(written).lower() == OFF else read(written)


def _read_address(written: object) -> Address:
    try:
        return parse_address(_read_text(written))
    except UsageError as error:
        raise ValueError(written) from error


def _read_path(written: object) -> Path:
    return Path(_read_text(written)).expanduser()


@dataclass(frozen=True, slots=True)
class SocketOwner:
    """A user and a group, by name or number; empty for the process's."""

    user: str
    group: str = ""


_OWNER_TEXT = "^[^:\\s]+(:[^:\\s]+)?$|^:[^:\\s]+$"


def _read_owner(written: object) -> SocketOwner:
    text = _read_text(written)
    if re.fullmatch(_OWNER_TEXT, text) is None:
        raise ValueError(written)
    user, _, group = text.partition(":")
    return SocketOwner(user, group)


_MODE_TEXT = "^0?[0-7]{3}$"


def _read_mode(written: object) -> int:
    # Depending on its version, YAML reads 0660 as octal or decimal; as text it is unambiguous.
    if not isinstance(written, str) or re.fullmatch(_MODE_TEXT, written) is None:
        raise ValueError(written)
    return int(written, 8)


def _read_names(written: object) -> tuple[str, ...]:
    names = written if isinstance(written, list) else _read_text(written).split(",")
    return tuple(_read_text(name.strip() if isinstance(name, str) else name) for name in names)


def _read_executable(written: object) -> Path | bool:
    word = str(written).lower()
    return word in TRUE if word in TRUE or word in FALSE else _read_path(written)


def _number_schema(text: str) -> Schema:
    return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": text}]}


def one_of(*choices: str) -> OptionForm[str]:
    """Create a form of words."""

    def read(written: object) -> str:
        if written in choices:
            return str(written)
        raise ValueError(written)

    return OptionForm("|".join(choices), f"one of {', '.join(choices)}", read, {"enum": list(choices)}, choices)


_DURATION = "a duration (write 50ms, 2s, 1m or a number of seconds"
DURATION = OptionForm("DURATION", f"{_DURATION})", _read_duration, _number_schema(DURATION_TEXT))
INTERVAL = OptionForm("DURATION", f"{_DURATION}, 10ms at least)", _read_interval, _number_schema(DURATION_TEXT))
SIZE = OptionForm("SIZE", "a size (write 64MiB, 500kB or a number of bytes)", _read_size, _number_schema(SIZE_TEXT))
SWITCH = OptionForm("BOOLEAN", "true or false", _read_switch, {"type": "boolean"})
# A separate word, because `--no-NAME` would be less clear than `--NAME off`.
ON_OR_OFF = OptionForm("on|off", "on or off", _read_switch, {"enum": ["on", "off", True, False]}, ("on", "off"))
ADDRESS_OR_OFF = OptionForm(
    "ADDRESS",
    "an address or off (write 127.0.0.1:18000, [::1]:18000, :18000, unix:/run/fsxds.sock or off)",
    or_off(_read_text, OFF),
    {"anyOf": [{"type": "string", "minLength": 1}, {"const": False}]},
)
SOCKET_MODE = OptionForm(
    "MODE", 'three octal digits in quotes (write "660")', _read_mode, {"type": "string", "pattern": _MODE_TEXT}
)
SOCKET_OWNER = OptionForm(
    "USER[:GROUP]",
    "a user, a group or both (write envoy, envoy:envoy or :envoy; numbers in quotes)",
    _read_owner,
    {"type": "string", "pattern": _OWNER_TEXT},
)
ADDRESS = OptionForm(
    "ADDRESS",
    "an address (write 127.0.0.1:9901, [::1]:9901, :9901 or unix:/run/envoy.sock)",
    _read_address,
    {"type": "string", "minLength": 1},
)
MIRROR_FORMAT = one_of("pb", "json", "yaml", "pb_text")
MIRROR_LAYOUT = one_of("envoy", "resources")
PATH = OptionForm("PATH", "a path", _read_path, {"type": "string", "minLength": 1})
_TEXT: Schema = {"type": "string", "minLength": 1}
_LIST: Schema = {"anyOf": [{"type": "array", "items": _TEXT}, _TEXT]}
NAMES = OptionForm("NAMES", "a list of names (write a,b)", _read_names, _LIST)
GLOBS = OptionForm("GLOBS", "a list of patterns (write README*,charts/**)", _read_names, _LIST)
EXECUTABLE = OptionForm(
    "[PATH]",
    "a path, true or false",
    _read_executable,
    {"anyOf": [{"type": "boolean"}, _TEXT]},
    bare="true",
    negation="--no-envoy",
)


# The levels of a rule: a severity, or off.
LEVELS = (*(severity.value for severity in Severity), OFF)


def _read_levels(written: object) -> Mapping[str, str]:
    words = _pairs(written)
    for name, word in words.items():
        if word not in LEVELS:
            raise UsageError(f"rules: {name}: {word!r} is not one of {', '.join(LEVELS)}")
    return MappingProxyType({name: str(word) for name, word in words.items()})


def _pairs(written: object) -> dict[str, object]:
    if isinstance(written, dict):
        # YAML reads an unquoted `off` as false.
        return {str(name): OFF if word is False else word for name, word in written.items()}
    pairs: dict[str, object] = {}
    for part in str(written).split(","):
        name, equals, word = part.partition("=")
        if not equals:
            raise ValueError(written)
        pairs[name.strip()] = word.strip()
    return pairs


RULE_LEVELS = OptionForm(
    "RULE=LEVEL,…",
    "a list of rules and levels (write unused-cluster=off,no-cluster=note)",
    _read_levels,
    {"anyOf": [_TEXT, {"type": "object", "additionalProperties": {"enum": [*LEVELS, False]}}]},
)


ANY_ORIGIN = ANY_HOST = "*"
# As browsers write it: in lower case, without a path, and without the port of the scheme.
_ORIGIN = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?", re.ASCII)
_SCHEMA_TEXT = {"type": "string", "pattern": rf"^(\*|{_ORIGIN.pattern})$"}


def _read_origins(written: object) -> tuple[str, ...]:
    origins = _read_names(written)
    if not origins or not all(origin == ANY_ORIGIN or _ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError(written)
    return origins


def _read_hosts(written: object) -> tuple[str, ...]:
    hosts = tuple(map(str.lower, _read_names(written)))
    if not hosts or not all(host == ANY_HOST or _HOST.fullmatch(host) for host in hosts):
        raise ValueError(written)
    return hosts


ORIGINS = OptionForm(
    "ORIGINS",
    "a list of origins or * (write https://ui.example.com,http://localhost:3000)",
    _read_origins,
    {"anyOf": [{"type": "array", "items": _SCHEMA_TEXT, "minItems": 1}, _TEXT]},
)
HOSTS = OptionForm(
    "HOSTS",
    "a list of host names without ports, or * (write xds.example.com,xds)",
    _read_hosts,
    {"anyOf": [{"type": "array", "items": _TEXT, "minItems": 1}, _TEXT]},
)


SCHEME = "etcd://"
DEFAULT_PREFIX = "fsxds"


@dataclass(frozen=True, slots=True)
class FleetRule:
    """The store of a fleet.

    Attributes:
        targets: `HOST:PORT` of etcd members; or `unix:/path` for one machine.
        prefix: of all keys, without outer slashes.
    """

    targets: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX

    @property
    def is_private(self) -> bool:
        """Whether only this user can read the data."""
        return all(target.startswith("unix:") for target in self.targets)


def _read_fleet(written: object) -> FleetRule:
    """Read `etcd://HOST:PORT[,HOST:PORT...][/PREFIX]`."""
    if not isinstance(written, str) or not written.startswith(SCHEME):
        raise ValueError(written)
    servers, _, prefix = written.removeprefix(SCHEME).partition("/")
    targets = tuple(filter(None, servers.split(",")))
    for target in targets:
        address = parse_address(target)
        if not isinstance(address, TcpAddress) or not address.host or not address.port or "@" in target:
            raise ValueError(written)
    if not targets:
        raise ValueError(written)
    return FleetRule(targets, prefix.strip("/") or DEFAULT_PREFIX)


FLEET = OptionForm(
    "ETCD",
    "the members of an etcd, such as etcd://a:2379,b:2379/fsxds",
    _read_fleet,
    {"type": "string", "pattern": "^etcd://"},
)
