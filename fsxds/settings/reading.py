"""Reads settings, by precedence: flags, the environment, the settings file, the defaults.

The only reader of the environment. The file is kept as written, so that a mistake has a place.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fsxds.model.errors import UsageError
from fsxds.model.values import FieldPath, pointer_of
from fsxds.settings.access_rules import unknown_access_views
from fsxds.settings.forms import SWITCH, TRUE, Schema
from fsxds.settings.option import IN_FILE_ONLY, Option
from fsxds.settings.options import BY_NAME, OPTIONS, Settings
from fsxds.settings.structured import MistakesFound
from fsxds.settings.view_rules import no_such_view, unknown_views

GONE: Mapping[str, str] = MappingProxyType(
    {"on_nack": "a rejected resource is held back in any case; --nack-limit off replaces --on-nack continue"}
)
"""Earlier options: why they are gone, and their replacement."""


def why_gone(name: str) -> str | None:
    """Return the replacement of a removed flag and variable; None for others."""
    if name in IN_FILE_ONLY:
        return f"write `{name}: {BY_NAME[name].form.metavar}` into the file that --settings names"
    return GONE.get(name)


Demands = Mapping[str, Callable[[Any], object]]
"""Checks beyond a value's form; each raises UsageError with the option's name."""

NO_DEMANDS: Demands = MappingProxyType({})


def read_settings(
    flags: Mapping[str, object], environment: Mapping[str, str] = os.environ, demands: Demands = NO_DEMANDS
) -> Settings:
    """Merge the sources of settings.

    Args:
        flags: given ones.
        environment: an empty variable is not set. Unknown variables are ignored, because Kubernetes sets `FSXDS_PORT` and
            the like for a Service named fsxds; variables of `GONE` are not.
        demands: checks beyond the form.

    Raises:
        UsageError: with every mistake of the file, or the first of the environment.
    """
    for name in (*GONE, *IN_FILE_ONLY):
        variable = f"FSXDS_{name.upper()}"
        if environment.get(variable):
            raise UsageError(f"{variable} is gone: {why_gone(name)}")
    values: dict[str, Any] = {}
    path = flags.get("settings") or environment.get("FSXDS_SETTINGS")
    if path:
        values |= _read_file(Path(str(path)), demands)
    for row in OPTIONS:
        if not row.has_flag:
            continue
        if row.name in flags:
            values[row.field] = flags[row.name]
        elif text := environment.get(row.variable):
            values[row.field] = _read_variable(row, text)
        else:
            continue
        if row.name in demands:
            demands[row.name](values[row.field])
    values.setdefault("cache_dir", _user_dir(environment, "XDG_CACHE_HOME", ".cache"))
    if (fact := _fault_of_canary(values)) is not None:
        raise UsageError(f"canary: {fact}")
    return _with_variables(replace(Settings(), **values), environment)


def _with_variables(settings: Settings, environment: Mapping[str, str]) -> Settings:
    views, variables = settings.views, settings.variables
    return replace(
        settings,
        views=views and tuple(rule.found_in(environment) for rule in views),
        variables=variables and variables.found_in(environment),
    )


def _read_variable(row: Option, text: str) -> object:
    try:
        return row.form.read(text)
    except ValueError as error:
        raise UsageError(f"{row.variable}: {row.error_text(text, error)}") from error


def user_state_dir(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return a user's XDG state directory; None without a home."""
    return _user_dir(environment, "XDG_STATE_HOME", ".local/state")


def _user_dir(environment: Mapping[str, str], variable: str, default: str) -> Path | None:
    if directory := environment.get(variable):
        return Path(directory) / "fsxds"
    home = environment.get("HOME")
    return Path(home) / default / "fsxds" if home else None


def settings_schema() -> Schema:
    """Return the file's JSON Schema (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The settings of fsxds",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {
                **({"anyOf": [row.form.schema, {"type": "null"}]} if row.default is None else row.form.schema),
                "description": row.help,
                "default": row.default in TRUE if row.form is SWITCH else row.default,
            }
            for name, row in BY_NAME.items()
        },
    }


def _read_file(path: Path, demands: Demands) -> dict[str, object]:
    """With all mistakes, including those of `demands`."""
    # Not needed by `--help`, and as slow to import as all other settings modules together.
    from jsonschema import Draft202012Validator

    file = SettingsFile.read(path)
    faults = [*file.duplicates()]
    values: dict[str, Any] = {}
    # Lists and mappings are read part by part, with better messages than those of a schema.
    flat = {
        key: value for key, value in file.written.items() if key not in BY_NAME or not BY_NAME[key].form.is_structured
    }
    wrong = {str(error.path[0]) for error in Draft202012Validator(settings_schema()).iter_errors(flat) if error.path}
    for key, written in file.written.items():
        row = BY_NAME.get(key)
        if row is None:
            faults.append(file.placed((key,), _no_such_setting(key)))
        elif written is None and key == "access":
            # If it were ignored, every client might ask for everything.
            faults.append(file.fault((key,), "is empty; add a rule, or leave it out"))
        elif written is not None or key in wrong:
            try:
                values[row.field] = _value_in_file(row, written, path, is_wrong=key in wrong)
                if key in demands:
                    demands[key](values[row.field])
            except MistakesFound as error:
                faults += [file.fault((key, *mistake.path), mistake.fact) for mistake in error.mistakes]
            except ValueError:
                faults.append(file.fault((key,), row.error_text(written)))
            except UsageError as error:
                # Its text has the key already.
                faults.append(file.placed((key,), str(error)))
    faults += _faults_of_views(file, values)
    if faults:
        raise file.error_of(faults)
    return values


def _no_such_setting(key: str) -> str:
    if key in GONE:
        return f"{key} is gone: {GONE[key]}"
    near = get_close_matches(key, BY_NAME, 1)
    hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(BY_NAME)}"
    return f"{key}: there is no such setting; {hint}"


def _faults_of_views(file: SettingsFile, values: Mapping[str, Any]) -> Iterator[PlacedMistake]:
    names = [rule.name for rule in values.get("views") or ()]
    for at, fact in unknown_views(values.get("mirrors") or (), names):
        yield file.fault(("mirrors", *at), fact)
    for at, fact in unknown_access_views(values.get("access") or (), names):
        yield file.fault(("access", *at), fact)
    if (fault := _fault_of_canary(values)) is not None:
        yield file.fault(("canary",), fault)


def _fault_of_canary(values: Mapping[str, Any]) -> str | None:
    canary, names = values.get("canary"), [rule.name for rule in values.get("views") or ()]
    if canary is None or canary.view is None or canary.view in names:
        return None
    return no_such_view(canary.view, names)


def _value_in_file(row: Option, written: object, path: Path, *, is_wrong: bool) -> object:
    """Paths are relative to the file; ValueError for an invalid value."""
    if is_wrong:
        raise ValueError(written)
    value = row.form.read(written)
    if row.name in {"mirrors", "upstream"}:
        return tuple(rule.seen_from(path.parent) for rule in value)
    return path.parent / value if isinstance(value, Path) else value


def service_environment() -> dict[str, str]:
    """Remove and return the service manager's variables, hidden from children."""
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
    return {name: os.environ.pop(name) for name in names if name in os.environ}


class SettingsReader:
    """Reads settings at the start and at each SIGHUP, which no longer ends the process.

    `count` is of answered SIGHUPs.
    """

    def __init__(self, command: str, read: Callable[[], Settings]) -> None:
        self.command = command
        self.read = read
        self.count = 0
        self._is_wanted = self._is_answering = False
        self._wake: Callable[[], object] = lambda: None
        # Not the event loop's handler, which would be missing before its start and after its end.
        signal.signal(signal.SIGHUP, self._receive)

    def change(self, change: Callable[[Settings], Settings]) -> None:
        """Apply a change at every reading."""
        read = self.read
        self.read = lambda: change(read())

    async def wanted(self) -> None:
        """Wait for a SIGHUP; several count as one, answered at the next call."""
        import asyncio  # Not needed by `--help`.

        if self._is_answering:
            self._is_answering, self.count = False, self.count + 1
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # The loop is closed: the process ends.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(woken.set)

        self._wake = wake
        while not self._is_wanted:
            woken.clear()
            await woken.wait()
        self._is_wanted, self._is_answering = False, True

    def _receive(self, *_: object) -> None:
        self._is_wanted = True
        self._wake()


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """The effect of new settings.

    Attributes:
        changed: applied options.
        needs_restart: not yet applied.
    """

    settings: Settings
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]

    @classmethod
    def between(cls, before: Settings, after: Settings, command: str) -> SettingsChange:
        """Return a command's change."""
        different = [
            row
            for row in OPTIONS
            if command in row.commands and getattr(before, row.field) != getattr(after, row.field)
        ]
        fixed = {row.name for row in different if not row.is_reloadable}
        if _servers_of(before) != _servers_of(after):
            # The set of upstreams is fixed, whichever setting defines it.
            fixed.add("authorities")
        applied = {row.field: getattr(after, row.field) for row in different if row.name not in fixed}
        return cls(
            replace(before, **applied),
            tuple(row.name for row in different if row.name not in fixed),
            tuple(row.name for row in different if row.name in fixed),
        )


def _servers_of(settings: Settings) -> dict[str, tuple[str, ...]]:
    return {name: each.upstream for name, each in (settings.authorities or {}).items() if each.upstream}


@dataclass(frozen=True, slots=True, order=True)
class PlacedMistake:
    """A mistake; lines and columns count from 1."""

    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A settings file; `node` is its YAML node, None if empty."""

    path: Path
    written: dict[str, object]
    node: Any

    @classmethod
    def read(cls, path: Path) -> SettingsFile:
        """Read a file; UsageError if unreadable, or no YAML mapping."""
        # Most commands have no settings file.
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
        except (ValueError, LookupError, AttributeError) as error:
            # Without its text, which may have the value. The others are of values with a tag that they do not fit.
            raise UsageError(f"{path}:1:1: has a number or a date that does not exist; write it in quotes") from error
        except RecursionError as error:
            raise UsageError(f"{path}:1:1: is nested too deeply; write the settings without that") from error
        if not isinstance(written, dict):
            raise UsageError(f"{path}:1:1: is not a mapping; write one option per line, such as settle: 50ms")
        return cls(path, {str(key): value for key, value in written.items()}, node)

    def fault(self, field_path: FieldPath, fact: str) -> PlacedMistake:
        """Return a mistake with the value's pointer."""
        return self.placed(field_path, f"{pointer_of(field_path)}: {fact}")

    def placed(self, field_path: FieldPath, message: str) -> PlacedMistake:
        """Return a mistake at a key, or its nearest parent with a place."""
        node, mark = self.node, self.node.start_mark
        for step in field_path:
            if isinstance(step, int):
                node = node.value[step]
                mark = node.start_mark
                continue
            found = [pair for pair in _pairs(node) if pair[0].value == step]
            if not found:
                break
            mark, node = found[0][0].start_mark, found[0][1]
        return PlacedMistake(mark.line + 1, mark.column + 1, message)

    def duplicates(self) -> Iterator[PlacedMistake]:
        """Yield duplicate keys; YAML would take the last."""
        waiting: list[tuple[FieldPath, Any]] = [((), self.node)] if self.node else []
        # An alias may lead back to an enclosing node.
        seen: set[int] = set()
        while waiting:
            path, node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            keys: set[object] = set()
            for key, value in _pairs(node):
                name = str(key.value)
                if name in keys:
                    mark = key.start_mark
                    fact = f"{pointer_of((*path, name))}: is set twice; keep one of them"
                    yield PlacedMistake(mark.line + 1, mark.column + 1, fact)
                keys.add(name)
                waiting.append(((*path, name), value))
            if node.id == "sequence":
                waiting += [((*path, index), value) for index, value in enumerate(node.value)]

    def error_of(self, faults: list[PlacedMistake]) -> UsageError:
        """Return all mistakes, one per line."""
        return UsageError(
            "\n".join(f"{self.path}:{each.line}:{each.column}: {each.message}" for each in sorted(faults))
        )


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    return node.value if node.id == "mapping" else []
