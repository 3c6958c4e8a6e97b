"""Makes flags from the table of options, and groups them in help."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from itertools import chain, groupby
from pathlib import Path
from typing import Any, TypeAlias

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from fsxds.cli.completion import directories, values_of
from fsxds.model.errors import UsageError
from fsxds.settings.forms import SWITCH
from fsxds.settings.option import COMMON, LASTING, Option
from fsxds.settings.options import OPTIONS
from fsxds.settings.reading import Demands, read_settings

# Precedes the examples at the end of a command's help, which click must not wrap.
EXAMPLES = "\b\nExamples:\n"


def _require_rules(words: Mapping[str, str]) -> None:
    # The pages of all rules are loaded for this option only.
    from fsxds.lint.rules import read_levels

    read_levels(words)


DEMANDS: Demands = {"rules": _require_rules}
"""Checks of options beyond their form."""


def value_reader(row: Option) -> Callable[[str], object]:
    """Return a reader that raises the row's error."""

    def read(written: str) -> object:
        try:
            return row.form.read(written)
        except ValueError as error:
            raise click.BadParameter(row.error_text(written, error)) from error

    return read


def existing_directory(written: str) -> Path:
    """Return the path; UsageError without such a directory."""
    # `Path.is_dir` raises for a name that is too long, and for one in a directory of others.
    if os.path.isdir(written):  # noqa: PTH112
        return Path(written)
    fact = "is not a directory" if os.path.exists(written) else "there is no such directory"  # noqa: PTH110
    from fsxds.events.event import escape

    remedy = "give the directory that holds the resource files, or write one by `fsxds init DIR`"
    raise UsageError(f"{escape(written)}: {fact}; {remedy}")


class CommandOption(click.Option):
    """A flag without a setting."""

    def __init__(self, *declarations: Any, group: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.group = group


class TableOption(click.Option):
    """A flag from the table."""

    def __init__(self, row: Option) -> None:
        facts = f"[{f'default {row.default}; ' if row.default else ''}{row.variable}]"
        is_switch = row.form is SWITCH
        bare: dict[str, Any] = {"is_flag": False, "flag_value": row.form.bare} if row.form.bare else {}
        flag = f"{row.flag}/{row.flag.replace('--', '--no-', 1)}" if is_switch else row.flag
        super().__init__(
            [flag, row.name],
            type=None if is_switch else value_reader(row),
            metavar=None if is_switch else row.form.metavar,
            default=None,
            help=f"{row.help} {facts}",
            multiple=row.form.is_repeatable,
            **bare,
        )
        self.group = row.group
        self.row = row

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return a switch as one word: `--[no-]NAME`."""
        record = super().get_help_record(ctx)
        return (f"--[no-]{self.opts[0][2:]}", record[1]) if record and self.secondary_opts else record

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Return completions from the table."""
        return values_of(self.row, incomplete)


class Negation(TableOption):
    """A flag that sets a row to false."""

    def __init__(self, row: Option) -> None:
        click.Option.__init__(
            self, [row.form.negation, f"no_{row.name}"], is_flag=True, help=f"Same as {row.variable}=false."
        )
        self.group = row.group
        self.row = row


def _print_all_flags(context: click.Context, _parameter: click.Parameter, given: str | None) -> None:
    if given and not context.resilient_parsing:
        context.meta[_SHOWS_ALL] = True
        click.echo(context.get_help())
        context.exit()


_SHOWS_ALL = f"{__name__}.shows_all"
_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    flag_value="all",
    is_eager=True,
    expose_value=False,
    callback=_print_all_flags,
    help="Show every flag, by topic.",
)


class TableCommand(click.Command):
    """Groups flags: `--help` shows the common ones, `--help-all` each under its topic."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Add `--help-all`."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group."""
        options = [row for row in self.get_params(ctx) if isinstance(row, click.Option)]
        name, shows_all = str(self.name), bool(ctx.meta.get(_SHOWS_ALL))
        shown = [row for row in options if shows_all or not isinstance(row, TableOption) or row.row.is_common(name)]
        if len(shown) == len(options):
            shown.remove(_HELP_ALL)

        def heading(row: click.Option) -> str:
            if isinstance(row, TableOption) and not shows_all and name in COMMON:
                return "Common flags"
            return getattr(row, "group", "Help")

        for group, rows in groupby(shown, heading):
            with formatter.section(group):
                formatter.write_dl([record for row in rows if (record := row.get_help_record(ctx))])


def table_command(name: str, examples: str) -> Callable[[Callable[..., None]], TableCommand]:
    """Make a command, with its flags of the table, from a function of `settings`.

    A lasting command's function also has a `reader`. `examples` end the help verbatim.
    """
    rows = [row for row in OPTIONS if name in row.commands and row.has_flag]

    def decorate(function: Callable[..., None]) -> TableCommand:
        @functools.wraps(function)
        def call(**given: Any) -> None:
            negated = {row.name: False for row in rows if row.form.negation and given.pop(f"no_{row.name}")}
            values = {row.name: given.pop(row.name) for row in rows}
            values |= {row.name: (*chain(*values[row.name]),) or None for row in rows if row.form.is_repeatable}
            # None is a value that may be given: `off`.
            flags = {
                name: value
                for name, value in values.items()
                if value is not None
                or click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE
            } | negated
            read = functools.partial(read_settings, flags, demands=DEMANDS)
            if name in LASTING:
                from fsxds.settings.reading import SettingsReader

                # First, so that SIGHUP during the start does not end the process.
                given["reader"] = SettingsReader(name, read)
            function(settings=read(), **given)

        command = click.command(name, cls=TableCommand, epilog=f"{EXAMPLES}{examples}")(call)
        for row in rows:
            command.params += (TableOption(row), *([Negation(row)] if row.form.negation else []))
        return command

    return decorate


tree_argument = click.argument("directory", metavar="DIR", type=existing_directory, shell_complete=directories)
optional_tree_argument = click.argument(
    "directory", metavar="[DIR]", required=False, type=existing_directory, shell_complete=directories
)
ANY_PATH = click.Path(path_type=Path)


def with_tls_flags(group: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add `--ca`, `--cert` and `--key`; the function gets `tls`, None without them."""
    flag = functools.partial(click.option, cls=CommandOption, group=group, metavar="FILE", type=ANY_PATH)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def call(ca: Path | None, cert: Path | None, key: Path | None, **given: Any) -> None:
            # It imports gRPC, which `--help` does not need.
            from fsxds.client.client_tls import ClientTls

            function(tls=ClientTls.of(ca, cert, key), **given)

        call = flag("--key", help="Private key of --cert.")(call)
        call = flag("--cert", help="Client certificate, for a server with --client-ca.")(call)
        return flag("--ca", help="Connect over TLS and trust the CAs in this file.")(call)

    return decorate


Choice: TypeAlias = tuple[tuple[str, str], ...]
"""The node's attributes from flags, and the view's name under `view`; empty without flags."""


_viewed = functools.partial(click.option, cls=CommandOption, group="View")


def _read_metadata(_context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """A dot in a key addresses a nested object."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals and value):
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE; write tier=gold, or labels.app=shop")
        found[f"metadata.{key}"] = value
    return found


# The function gets attributes of the node, such as {"metadata.tier": "gold"}.
node_metadata_option = functools.partial(
    click.option,
    "--node-metadata",
    cls=CommandOption,
    metavar="KEY=VALUE",
    multiple=True,
    callback=_read_metadata,
    help="Value in the node's metadata, such as tier=gold; repeatable.",
)
format_option = functools.partial(
    click.option,
    "--format",
    "output_format",
    cls=CommandOption,
    type=click.Choice(("text", "json")),
    default="text",
    help="For people or for programs.",
)


def with_view_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Add flags that choose a view; the function gets `choice`."""

    @functools.wraps(function)
    def call(view: str | None, **given: Any) -> None:
        texts = {"view": view, "id": given.pop("node_id"), "cluster": given.pop("node_cluster")}
        texts |= zip(
            ("locality.region", "locality.zone", "locality.sub_zone"), given.pop("node_locality"), strict=False
        )
        texts |= given.pop("node_metadata")
        choice = tuple((attribute, text) for attribute, text in texts.items() if text is not None)
        function(choice=choice, **given)

    for option in (
        node_metadata_option(group="View"),
        _viewed(
            "--node-locality",
            metavar="REGION/ZONE",
            default="",
            callback=lambda _context, _parameter, text: [part or None for part in text.split("/")],
            help="Region of that node, or region, zone and sub-zone.",
        ),
        _viewed("--node-cluster", metavar="NAME", help="Cluster of that node."),
        _viewed("--node-id", metavar="ID", help="Use the view that matches a node with this id."),
        _viewed("--view", metavar="NAME", help="Use this view of the settings."),
    ):
        call = option(call)
    return call
