"""Rows of the table of options."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import Field, dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar

from fsxds.settings.forms import OptionForm
from fsxds.settings.structured import MistakesFound

Value = TypeVar("Value")

ALL = ("serve", "check", "mirror", "show", "dev", "diff", "doctor", "lsp", "export", "sign")
SETTINGS_READERS = (*ALL, "convert", "bootstrap", "import")
API_USERS = (*SETTINGS_READERS, "schema", "watch")
LASTING = ("serve", "dev")
ADMIN_USERS = ("status", "rollout", "history", "rollback")
WRITING = ("serve", "mirror", "dev")
HOLDING = ("serve", "mirror", "show", "dev")

VIEWING, READING, WATCHING, CHECKS = "Views", "Reading the tree", "Watching for changes", "Checks"
NAMING = "Names and collections"
RELAYING = "Upstreams"
FLEETS = "Fleets"
REST, GRPC, ADMIN = "REST", "gRPC", "Admin"
SECURITY = "Security"
ROLLOUT = "Rollouts"
LIMITS = "Limits"
MIRROR, API, OUTPUT = "Mirrored files", "Envoy's API", "Output"

COMMON: Mapping[str, AbstractSet[str]] = {
    "serve": {
        *("http", "grpc", "ads_config_sources", "admin", "state", "mirror", "mirror_config_sources"),
        *("upstream", "fleet", "tls_cert", "tls_key", "client_ca", "log_level", "settings"),
    },
    "dev": {"dev_transport", "envoy", "http", "grpc", "admin", "rules", "bootstrap", "log_level", "settings"},
    "check": {"rules", "bootstrap", "with_envoy", "check_tree", "check_severity", "check_format", "settings"},
    "diff": {"state", "admin", "bootstrap", "diff_format", "settings"},
    "show": {"show_type", "show_format", "settings"},
    "import": {"rules", "with_envoy", "settings"},
    "mirror": {"mirror_format", "mirror_config_sources", "settings"},
    "export": {"verify_with", "settings"},
    "sign": {"settings"},
    "bootstrap": {"linger", "settings"},
    "doctor": {
        *("bootstrap", "linger", "ads_config_sources", "mirror_config_sources"),
        *("check_severity", "check_format", "settings"),
    },
    "watch": set(),
    "lsp": {"rules", "bootstrap", "settings"},
}
"""The options that `--help` shows; `--help-all` shows the others too. Other commands show all."""

IN_FILE_ONLY = frozenset(
    {
        *("max_hold", "cors_origin", "allowed_hosts", "ttl", "socket_mode", "socket_owner"),
        *(
            "max_connections",
            "max_held_polls",
            "max_streams",
            "max_streams_per_peer",
            "max_requests_per_peer",
            "max_body",
        ),
        *("max_all_bodies", "max_message", "max_names", "max_all_names", "max_nodes", "max_views", "max_files"),
        *(
            "max_resources",
            "max_file_size",
            "parse_apart_above",
            "parse_time",
            "settle_cap",
            "writer_patience",
            "rescan",
        ),
        *("poll", "canary_quorum", "canary_patience", "mirror_layout", "mirror_pause", "mirror_durable"),
        *(
            "authority",
            "redirects",
            "upstream_verdict",
            "upstream_patience",
            "upstream_cert",
            "upstream_key",
            "upstream_token",
            "upstream_max_response",
            "upstream_max_names",
        ),
        *("lag_patience", "fleet_user", "bake", "reuse_port", "follow_outside", "exclude", "accept", "versions"),
    }
)
"""Options that are chosen once for all processes: they have no flag and no variable, as lists and mappings have none."""


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table.

    Attributes:
        field: of `Settings`; includes the unit.
        default: as written, None for "not set".
        group: its heading in `--help`.
        commands: have it as a flag.
    """

    field: str
    form: OptionForm[Any]
    default: str | None
    group: str
    commands: tuple[str, ...]
    help: str
    is_reloadable: bool = False

    @classmethod
    def of(cls, row: Field[Any]) -> Option:
        """Return a field's row."""
        return cls(row.name, *row.metadata["row"])

    @property
    def name(self) -> str:
        """The key in the settings file."""
        return self.field.removesuffix("_s").removesuffix("_bytes")

    @property
    def flag(self) -> str:
        """The flag, without the first command's name: `--format` for `check_format`."""
        name = self.name.removeprefix(f"{self.commands[0]}_")
        return "--" + name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Such as `FSXDS_SETTLE`."""
        return f"FSXDS_{self.name.upper()}"

    def is_common(self, command: str) -> bool:
        """Whether this command's `--help` shows it."""
        return command not in COMMON or self.name in COMMON[command]

    @property
    def has_flag(self) -> bool:
        """Whether it has a flag and a variable; lists, mappings and `IN_FILE_ONLY` do not."""
        return not self.form.in_file_only and self.name not in IN_FILE_ONLY

    def error_text(self, written: object, error: ValueError | None = None) -> str:
        """Return why `written` is no value, with an example, or `error`'s text."""
        if isinstance(error, MistakesFound):
            # The written value may contain a password.
            return str(error)
        near = get_close_matches(str(written), self.form.choices, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"{written!r} is not {self.form.demand}{hint}"


def option(form: OptionForm[Value], default: str, group: str, commands: tuple[str, ...], help_: str) -> Value:
    """Create a row; `default` is as written."""
    value: Value = field(default=form.read(default), metadata={"row": (form, default, group, commands, help_)})
    return value


def optional(form: OptionForm[Value], group: str, commands: tuple[str, ...], help_: str) -> Value | None:
    """Create a row without a default."""
    value: Value | None = field(default=None, metadata={"row": (form, None, group, commands, help_)})
    return value


def reloadable(form: OptionForm[Value], default: str, group: str, commands: tuple[str, ...], help_: str) -> Value:
    """Create a row as `option` does; SIGHUP applies a new value."""
    value: Value = field(default=form.read(default), metadata={"row": (form, default, group, commands, help_, True)})
    return value


def reloadable_optional(form: OptionForm[Value], group: str, commands: tuple[str, ...], help_: str) -> Value | None:
    """Create a row as `optional` does; SIGHUP applies a new value."""
    value: Value | None = field(default=None, metadata={"row": (form, None, group, commands, help_, True)})
    return value
