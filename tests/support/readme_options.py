"""The options as `config/README.md` lists them: `python -m tests.support.readme_options` prints what to paste after a change."""

from __future__ import annotations

from itertools import groupby

from fsxds.settings.option import Option
from fsxds.settings.options import BY_NAME, OPTIONS


def options_section() -> str:
    """Return one Markdown table per group of options, in the order of `--help`."""
    return "\n\n".join(_table(group, list(rows)) for group, rows in groupby(OPTIONS, lambda row: row.group))


def _table(group: str, rows: list[Option]) -> str:
    head = "| flag | setting | variable | default | commands | SIGHUP | meaning |\n| --- | --- | --- | --- | --- | --- | --- |"
    return "\n".join((f"### {group}", "", head, *map(_line, rows)))


def _line(row: Option) -> str:
    metavar = f" {row.form.metavar}" if row.form.metavar != "BOOLEAN" else ""
    flag = f"`{row.flag}{metavar}`".replace("|", "\\|") if row.has_flag else ""
    variable = f"`{row.variable}`" if row.has_flag else ""
    setting = f"`{row.name}`" if row.name in BY_NAME else ""
    default = f"`{row.default}`" if row.default else ""
    reloadable = "yes" if row.is_reloadable else ""
    return f"| {flag} | {setting} | {variable} | {default} | {', '.join(row.commands)} | {reloadable} | {row.help} |"


if __name__ == "__main__":
    print(options_section())  # printing is its purpose
