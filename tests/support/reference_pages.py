"""The generated pages of `config/reference`: `python -m tests.support.reference_pages` writes them after a change."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from fsxds.observe.log_catalogue import CATALOGUE, FIELDS
from fsxds.settings.option import (
    API,
    CHECKS,
    NAMING,
    OUTPUT,
    READING,
    RELAYING,
    VIEWING,
    WATCHING,
    Option,
)
from fsxds.settings.options import BY_NAME, OPTIONS

REFERENCE = Path(__file__).parents[2] / "config" / "reference"

_TREE_GROUPS = {VIEWING, NAMING, RELAYING, WATCHING, READING, CHECKS, API, OUTPUT}
_OPTION_HEAD = """\
Every option has a key in the settings file. Most have a flag and an environment variable too; lists, mappings, and options that are chosen once have none.
An option with a yes under SIGHUP takes effect when you [reload the settings](README.md#settings).
"""
_SERVING_HEAD = f"""\
# Options: transports, security, rollouts, limits

{_OPTION_HEAD}[The other options](options-tree.md) are those of trees, upstreams, checks and output.
"""
_TREE_HEAD = f"""\
# Options: trees, upstreams, checks, output

{_OPTION_HEAD}[The other options](options-serving.md) are those of transports, security, rollouts and limits.
"""
_EVENTS_HEAD = """\
# Log events

Each log line is one event. With `--log-format json` a line is an object with `ts`, `level`, `event`, `message` and the [fields](log-fields.md) of its event.
With `--workers`, lines of every process but the first also have `worker`.
"""
_FIELDS_HEAD = """\
# Log fields

The fields of [log events](log-events.md), as `--log-format json` writes them.
"""


def reference_pages() -> dict[str, str]:
    """Return the text of each generated page by its file name."""
    serving = [row for row in OPTIONS if row.group not in _TREE_GROUPS]
    tree = [row for row in OPTIONS if row.group in _TREE_GROUPS]
    events = (
        f"| `{row.event}` | {', '.join(level.name.lower() for level in row.levels)} | {row.meaning} "
        f"| {', '.join(f'`{name}`' for name in row.fields)} |"
        for row in CATALOGUE
    )
    fields = (f"| `{name}` | {meaning} |" for name, meaning in FIELDS.items())
    return {
        "options-serving.md": _options_page(_SERVING_HEAD, serving),
        "options-tree.md": _options_page(_TREE_HEAD, tree),
        "log-events.md": _table(_EVENTS_HEAD, ("event", "level", "meaning", "fields"), events),
        "log-fields.md": _table(_FIELDS_HEAD, ("field", "meaning"), fields),
    }


def _options_page(head: str, options: list[Option]) -> str:
    columns = ("flag", "setting", "variable", "default", "commands", "SIGHUP", "meaning")
    groups = groupby(options, lambda row: row.group)
    return "\n".join((head, *(_table(f"## {group}\n", columns, map(_option_row, rows)) for group, rows in groups)))


def _table(head: str, columns: tuple[str, ...], rows: Iterable[str]) -> str:
    return "\n".join((head, f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|", *rows, ""))


def _option_row(row: Option) -> str:
    metavar = f" {row.form.metavar}" if row.form.metavar != "BOOLEAN" else ""
    flag = f"`{row.flag}{metavar}`".replace("|", "\\|") if row.has_flag else ""
    variable = f"`{row.variable}`" if row.has_flag else ""
    setting = f"`{row.name}`" if row.name in BY_NAME else ""
    default = f"`{row.default}`" if row.default else ""
    reloadable = "yes" if row.is_reloadable else ""
    return f"| {flag} | {setting} | {variable} | {default} | {', '.join(row.commands)} | {reloadable} | {row.help} |"


if __name__ == "__main__":
    for name, text in reference_pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
