"""Declares the commands; more are in `serving_commands`.

A command imports its work's module when it runs, because `--help` and shell completion import this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from fsxds.cli.command import (
    ANY_PATH,
    EXAMPLES,
    Choice,
    CommandOption,
    TableCommand,
    format_option,
    node_metadata_option,
    optional_tree_argument,
    table_command,
    tree_argument,
    with_tls_flags,
    with_view_flags,
)
from fsxds.cli.completion import COMPLETION_VARIABLE, SCRIPTS, any_path, directories, message_types, rule_names
from fsxds.cli.serving_commands import export, history, mirror, rollback, rollout, sign, status
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.settings.options import Settings

if TYPE_CHECKING:
    from fsxds.cli.bootstrap import BootstrapFlags
    from fsxds.cli.check import CheckFlags
    from fsxds.cli.convert import ConvertFlags
    from fsxds.cli.import_bootstrap import ImportFlags
    from fsxds.cli.schema import SchemaFlags
    from fsxds.cli.watch import WatchFlags
    from fsxds.client.client_tls import ClientTls
    from fsxds.settings.reading import SettingsReader

# The formats of `fsxds convert`.
FORMAT_NAMES = ("yaml", "json", "textproto", "pb")

_TYPE_NAME = click.Choice([row.short_name for row in RESOURCE_TYPES])
_FORMAT_NAME = click.Choice(FORMAT_NAMES)
_imported = partial(click.option, cls=CommandOption, group="New bootstrap")
_written = partial(click.option, cls=CommandOption, group="Writing")
_checked = partial(click.option, cls=CommandOption, group="Files")
_compared = partial(click.option, cls=CommandOption, group="Comparing")
_converted = partial(click.option, cls=CommandOption, group="Converting")
_client = partial(click.option, cls=CommandOption, group="Client")
_envoy = partial(click.option, cls=CommandOption, group="Envoy")
_schema = partial(click.option, cls=CommandOption, group="Schema")


@click.command(
    "init",
    cls=TableCommand,
    epilog=f"{EXAMPLES}  fsxds init envoy-config\n  fsxds init envoy-config --empty",
)
@click.argument("directory", metavar="DIR", type=ANY_PATH, shell_complete=directories)
@_written("--empty", "is_empty", is_flag=True, help="Write files that have only comments.")
def init(directory: Path, *, is_empty: bool) -> None:
    """Write a small tree into DIR, ready to serve.

    It has two listeners and a cluster; with --empty, its files have only comments. A settings file is written beside
    DIR. Nothing is overwritten. Exit status: 0 written, 2 a file exists already.
    """
    from fsxds.cli.init import run_init

    run_init(directory, is_empty=is_empty)


@table_command(
    "dev",
    """\
  fsxds dev config/xds
  fsxds dev config/xds --transport delta
  fsxds dev config/xds --transport mirror --envoy ~/bin/envoy""",
)
@tree_argument
@_envoy("--node-id", metavar="ID", default="fsxds-dev", help="Node id of the Envoy, which views can match.")
@_envoy("--node-cluster", metavar="NAME", default="fsxds-dev", help="Node cluster of the Envoy.")
@node_metadata_option(group="Envoy")
def dev(directory: Path, settings: Settings, reader: SettingsReader, **node: Any) -> None:
    """Serve DIR and run a real Envoy on it.

    Envoy gets its resources by REST, or by a gRPC stream if the tree needs one; --transport chooses. The command
    prints the addresses for traffic, admin and xDS, the findings of `fsxds doctor`, and for each edit the changes and
    whether Envoy accepted them; if not, the reason with the file and line. Ctrl-C ends both.
    """
    from fsxds.envoy.envoy_bootstrap import Identity
    from fsxds.observe.log import open_log
    from fsxds.protocol.messages import metadata_of
    from fsxds.server.event_loop import run
    from fsxds.tools.dev import serve_to_local_envoy

    # A tree is signed after editing.
    settings = replace(settings, verify_with=None)
    identity = Identity(node["node_id"], node["node_cluster"], metadata=metadata_of(node["node_metadata"].items()))
    with open_log(settings.log_format, settings.log_level) as log:
        run(serve_to_local_envoy(directory, settings, log, reader, identity))


@table_command(
    "import",
    """\
  fsxds import envoy.yaml xds
  fsxds import envoy.yaml xds --transport rest --dry-run
  fsxds import envoy.yaml xds --transport files --mirror /run/envoy -o /etc/envoy/bootstrap.yaml
  envsubst < envoy.yaml.in | fsxds import - xds""",
)
@click.argument("file", metavar="FILE", shell_complete=any_path)
@click.argument("directory", metavar="DIR", type=ANY_PATH, shell_complete=directories)
@_imported(
    "--transport",
    type=click.Choice(("rest", "files", "ads", "delta")),
    default="delta",
    help="How Envoy gets resources: REST long poll, mirrored files, or one gRPC stream (ads, or delta for changes only).",
)
@_imported("--address", metavar="HOST:PORT", help="Address of fsxds, or unix:/path; a name is looked up by DNS.")
@_imported("--mirror", metavar="PATH", type=ANY_PATH, help="Directory of the mirrored files.")
@_imported("--node", metavar="ID", default="envoy", help="Node id, if the bootstrap has none.")
@_imported("--cluster", metavar="NAME", default="envoy", help="Node cluster, if the bootstrap has none.")
@_written(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the new bootstrap; default: bootstrap.yaml beside DIR.",
)
@_written("--force", is_flag=True, help="Replace existing files, which get hidden names in the same place.")
@_written("--upgrade", is_flag=True, help="Rewrite API v2 as v3, if only the spelling differs.")
@_written("--dry-run", is_flag=True, help="Print the files instead of writing them.")
@format_option(group="Writing")
def import_(file: str, directory: Path, settings: Settings, **flags: Unpack[ImportFlags]) -> None:
    """Turn an Envoy bootstrap into a tree of files.

    Reads FILE, or stdin for -, and writes each static listener, cluster and secret to a file in the new directory DIR,
    as its author wrote it. The rest of the bootstrap goes beside DIR and subscribes to these resources. Before
    anything is written, fsxds proves that all of it reads back the same; afterwards it checks the new tree. Exit
    status: 0 imported; 1 the bootstrap has errors and nothing is written, or the tree has errors; 2 wrong use, or a
    file is in the way.
    """
    from fsxds.cli.import_bootstrap import run_import

    run_import(file, directory, settings, flags)


@table_command(
    "check",
    """\
  fsxds check config/xds
  fsxds check config/xds --severity warning --rules unused-cluster=off
  fsxds check config/xds --no-envoy
  fsxds check config/xds --against 127.0.0.1:18002
  fsxds check --tree config/xds config/xds/routes.yaml config/xds/clusters.yaml
  fsxds check --tree config/xds --stdin-path config/xds/routes.yaml - < edited.yaml
  fsxds check config/xds --format sarif > fsxds.sarif""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, shell_complete=any_path)
@_checked(
    "--stdin-path",
    metavar="NAME",
    shell_complete=any_path,
    help="File name for stdin, which decides the format and type.",
)
@_checked(
    "--against",
    metavar="ADMIN",
    help="Report also the changes that the fsxds with this admin address would hold.",
)
@_checked("--all", "lists_all", is_flag=True, help="Print each note, not just the first ten of a kind.")
@with_view_flags
def check(paths: tuple[str, ...], settings: Settings, choice: Choice, **flags: Unpack[CheckFlags]) -> None:
    """Report every mistake in a tree or in files.

    PATH is a directory, which is a tree, a file, or - for stdin. With --tree, files are checked as part of that tree:
    every problem of these files is reported, and the errors of the others. Without --tree, or outside of it, files are
    checked by themselves, and undefined references are notes. --tree without PATH checks the whole tree.

    Each problem has a file, line, column, rule, fact and remedy. The server uses the same rules, and `fsxds explain
    RULE` explains them. A real Envoy validates the tree too if there is one. With --against, the changes that this
    server would hold are errors: large removals, with the id that approves them, removals of resources in use, and
    references to undefined names. Exit status: 0 clean (problems below --severity are allowed), 1 problems, or a
    directory without configuration, 2 wrong use, or no answer.
    """
    from fsxds.cli.check import run_check

    run_check(paths, settings, choice, flags)


@table_command(
    "explain",
    """\
  fsxds explain
  fsxds explain unknown-field""",
)
@click.argument("rule", metavar="[RULE]", required=False, shell_complete=rule_names)
def explain(rule: str | None, settings: Settings) -> None:
    """Explain a rule, or list all rules.

    Every problem names its rule. Exit status: 0, or 2 if there is no such rule.
    """
    from fsxds.cli.explain import run_explain

    run_explain(rule, settings)


@table_command(
    "diff",
    """\
  fsxds diff config/xds other/xds
  fsxds diff http://127.0.0.1:18001 config/xds
  fsxds diff --git main..HEAD config/xds --format markdown
  fsxds diff @3 @now""",
)
@click.argument("sides", metavar="[A] [B]", nargs=-1, shell_complete=directories)
@_compared(
    "--git",
    "revisions",
    metavar="A..B",
    help="Compare two revisions of DIR, or one with the files as they are now.",
)
@with_view_flags
@with_tls_flags("Running fsxds")
def diff(
    sides: tuple[str, ...], revisions: str | None, settings: Settings, choice: Choice, tls: ClientTls | None
) -> None:
    """Show how two trees, revisions or servers differ.

    A and B are directories, running servers (http://HOST:PORT, https://HOST:PORT or unix:PATH), or snapshots of a
    history: @3, or @now for the newest, read from --state or from the server at --admin. --git A..B compares two
    revisions of one directory, by default the current one; A...B begins at their merge base; A alone compares with the
    files as they are now.

    All views of trees are compared, and each change is shown once, with its views. Secrets are hidden. Unreadable
    files are named, and resources that they may define are not reported as added or removed. If B is a tree, the
    changes that a server of A would hold follow: large removals, with the id that approves them, removals of resources
    in use, and references to undefined names. Exit status: 0 no difference, 1 differences, 2 wrong use, 3 a side could
    not be read completely.
    """
    from fsxds.cli.diff import run_diff

    run_diff(sides, revisions, settings, (choice, tls))


@table_command(
    "convert",
    """\
  fsxds convert config/xds/clusters.yaml --to textproto
  fsxds convert dump.json --to yaml -o config/xds/clusters.yaml
  curl -s localhost:18001/v3/discovery:clusters --json '{}' | fsxds convert --from json --to yaml""",
)
@click.argument("file", metavar="[FILE]", default="-", shell_complete=any_path)
@_converted("--to", "target", type=_FORMAT_NAME, help="Output format; default: by the name after -o.")
@_converted("--from", "source", type=_FORMAT_NAME, help="Input format; default: by the name of FILE.")
@_converted(
    "--type", "type_name", type=_TYPE_NAME, help="Type of the resources, if neither they nor the name of FILE say."
)
@_converted(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout."
)
def convert(file: str, settings: Settings, **flags: Unpack[ConvertFlags]) -> None:
    """Convert a file between YAML, JSON, textproto and binary.

    Reads FILE, or stdin. Only comments are lost: the output is read back and compared, and nothing is written if the
    format cannot hold a value. A list, or several documents, become one DiscoveryResponse if the format has no such
    thing. Exit status: 0 written, 1 problems, 2 wrong use.
    """
    from fsxds.cli.convert import run_convert

    run_convert(file, settings, flags)


@table_command(
    "show",
    """\
  fsxds show config/xds
  fsxds show config/xds --type cds --format yaml""",
)
@tree_argument
@with_view_flags
def show(directory: Path, settings: Settings, choice: Choice) -> None:
    """Show the resources that a tree serves.

    The table has names, versions, and the file and line of each resource. The formats json and yaml print whole
    resources, with secrets hidden.
    """
    from fsxds.cli.show import run_show

    run_show(directory, settings, choice)


@table_command(
    "serve",
    """\
  # A directory, for Envoys on this machine
  fsxds serve config/xds
  # Mirrored files for a local Envoy
  fsxds serve config/xds --mirror /run/envoy --mirror-config-sources
  # A relay of another xDS server
  fsxds serve --upstream 10.0.0.1:18000 --state /var/lib/fsxds
  # One of a fleet of servers
  fsxds serve config/xds --fleet etcd://etcd-1:2379,etcd-2:2379,etcd-3:2379""",
)
@optional_tree_argument
def serve(directory: Path | None, settings: Settings, reader: SettingsReader) -> None:
    """Serve a directory of files to Envoys.

    Clients get a change at once, by REST long poll or gRPC streams; with --mirror, it is written as files too. With
    --upstream, the resources of another xDS server are served too, and stay while that server is away. A file with a
    mistake is held back: its last good content stays. SIGHUP rereads the settings, SIGTERM ends the server.
    """
    from fsxds.lint.linter import linter_of
    from fsxds.observe.log import open_log
    from fsxds.server import serving
    from fsxds.server.event_loop import run

    with open_log(settings.log_format, settings.log_level) as log:
        run(serving.serve(directory, settings, log, linter_of, reader))


@table_command(
    "watch",
    """\
  fsxds watch 127.0.0.1:18000 --type cds
  fsxds watch 127.0.0.1:18000 --type eds --names backend,web --delta
  fsxds watch 127.0.0.1:18000 --ads --type cds --type eds --format json
  fsxds watch http://127.0.0.1:18001 --type cds --count 1
  fsxds watch xds.example.com:18000 --type cds --ca ca.crt --cert me.crt --key me.key""",
)
@click.argument("address", metavar="ADDRESS")
@_client(
    "--type",
    "types",
    type=_TYPE_NAME,
    multiple=True,
    required=True,
    help="Resource type; repeatable with --ads.",
)
@_client("--names", metavar="A,B", help="Subscribe to these names; default: everything.")
@_client("--delta", is_flag=True, help="Use Delta xDS, which sends only changes.")
@_client("--ads", is_flag=True, help="Use one aggregated stream (ADS), not one per type.")
@_client("--rest", is_flag=True, help="Poll over REST, as for an http:// or https:// address.")
@_client("--node", "--node-id", metavar="ID", help="Node id; default: a new one.")
@_client("--cluster", "--node-cluster", metavar="NAME", default="watch", help="Node cluster.")
@node_metadata_option(group="Client")
@_client(
    "--agent",
    metavar="NAME",
    default="fsxds watch",
    help="User agent to announce; `envoy` gets the same responses as Envoy.",
)
@_client("--ttl", is_flag=True, help="Announce support for TTLs, and show heartbeats.")
@_client("--count", metavar="N", type=click.IntRange(min=1), help="End after N updates.")
@format_option(group="Client", help="Text to read, or one JSON object per update.")
@with_tls_flags("Client")
@_client("--token", metavar="FILE", type=ANY_PATH, help="Send the first bearer token in this file.")
def watch(address: str, settings: Settings, tls: ClientTls | None, **flags: Unpack[WatchFlags]) -> None:
    """Print everything that an xDS server sends.

    Connects as a client to ADDRESS, which is HOST:PORT or unix:PATH, lists the first response, shows later ones as
    changes, and ACKs each. Secrets are hidden. It reconnects if the connection is lost. Ctrl-C ends it.
    """
    from fsxds.cli.watch import run_watch

    run_watch(address, settings, flags, tls)


@table_command(
    "bootstrap",
    """\
  fsxds bootstrap config/xds > envoy.yaml
  fsxds bootstrap --transport files --mirror /run/envoy --node edge-1 --cluster edge
  fsxds bootstrap --transport delta --address xds.example.com:18000 --format json
  fsxds bootstrap --address xds.example.com:18001 --ca /etc/fsxds/ca.crt""",
)
@optional_tree_argument
@_envoy(
    "--transport",
    type=click.Choice(("rest", "files", "ads", "delta")),
    default="rest",
    help="How Envoy gets resources: REST long poll, mirrored files, or one gRPC stream (ads, or delta for changes only).",
)
@_envoy("--address", metavar="HOST:PORT", help="Address of fsxds, or unix:/path; a name is looked up by DNS.")
@_envoy(
    "--ca",
    metavar="FILE",
    type=ANY_PATH,
    help="Connect over TLS and trust the CAs in this file on the Envoy's machine.",
)
@_envoy("--cert", metavar="FILE", type=ANY_PATH, help="Client certificate of the Envoy, for a fsxds with --client-ca.")
@_envoy("--key", metavar="FILE", type=ANY_PATH, help="Private key of --cert.")
@_envoy("--mirror", metavar="PATH", type=ANY_PATH, help="Directory of the mirrored files.")
@_envoy("--node", "--node-id", metavar="ID", default="envoy", help="Node id; each Envoy needs its own.")
@_envoy("--cluster", "--node-cluster", metavar="NAME", default="envoy", help="Node cluster of the Envoy.")
@node_metadata_option(group="Envoy")
@_envoy("--view", metavar="NAME", help="Use this view, not the one that matches the node.")
@_envoy(
    "--collection",
    "collections",
    metavar="NAME",
    multiple=True,
    help="Subscribe to this instead of everything: a list of listeners (files), or a glob (ads, delta); repeatable.",
)
@_envoy(
    "--admin-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=9901,
    help="Port of Envoy's admin page.",
)
@_envoy(
    "--format", "output_format", type=click.Choice(("yaml", "json")), default="yaml", help="Only yaml has comments."
)
def bootstrap(directory: Path | None, settings: Settings, **flags: Unpack[BootstrapFlags]) -> None:
    """Print a bootstrap for an Envoy that uses fsxds.

    Its values were tested with real Envoys; the comments give the reasons. With DIR, it subscribes to the types and
    runtime layers of the tree; without, to clusters and listeners.
    """
    from fsxds.cli.bootstrap import run_bootstrap

    run_bootstrap(directory, settings, flags)


@table_command(
    "doctor",
    """\
  fsxds doctor config/xds --bootstrap config/envoy-rest.yaml
  fsxds doctor config/xds --bootstrap config/envoy-mirror.yaml --mirror-config-sources
  fsxds doctor config/xds --bootstrap envoy.yaml --severity warning --format github""",
)
@tree_argument
@_envoy(
    "--envoy-admin",
    "envoys",
    metavar="HOST:PORT",
    multiple=True,
    help="Admin address of a running Envoy, to compare its drain time with --linger; repeatable.",
)
def doctor(directory: Path, settings: Settings, envoys: tuple[str, ...]) -> None:
    """Find faults in an Envoy bootstrap for this tree.

    Reads the file of --bootstrap and the tree, and reports time limits, pauses, paths, circuit breakers and streams
    that do not fit together, or that Envoy rejects. Without a bootstrap, only the config sources of the tree are
    examined. `fsxds check` reports the mistakes within the tree; only the first one of a broken file is reported here
    too. The drain time of running Envoys, from --envoy-admin and the setting mirrors, is compared with --linger. Exit
    status: 0 healthy (problems below --severity are allowed), 1 problems, 2 wrong use.
    """
    from fsxds.cli.doctor import run_doctor

    run_doctor(directory, settings, envoys)


@table_command(
    "schema",
    """\
  fsxds schema > xds.schema.json
  fsxds schema --type lds --spelling camel > listeners.schema.json
  fsxds schema --type cds --any UpstreamTlsContext --any HttpProtocolOptions > clusters.schema.json
  fsxds schema --settings > fsxds.schema.json""",
)
@_schema(
    "--type",
    "short_names",
    multiple=True,
    metavar="TYPE",
    type=_TYPE_NAME,
    help="Type of the resources in the files; repeatable; default: all types.",
)
@_schema(
    "--any",
    "packed",
    multiple=True,
    metavar="MESSAGE",
    shell_complete=message_types,
    help="Allow only this message type after @type, such as Router; repeatable; makes the schema small.",
)
@_schema(
    "--spelling",
    type=click.Choice(("snake", "camel", "both")),
    default="snake",
    help="connect_timeout, connectTimeout, or either; both is about twice as long, and allows all that Envoy reads.",
)
@_schema("--settings", "of_settings", is_flag=True, help="Print the schema of the settings file instead.")
def schema(settings: Settings, *, of_settings: bool, **flags: Unpack[SchemaFlags]) -> None:
    """Print a JSON Schema of resource files, for editors.

    It is made from the API of the Envoy in use: fields, enums, ranges, required fields, the extensions that each place
    allows, and the rules in words. Editors with yaml-language-server use it by a first line `# yaml-language-server:
    $schema=xds.schema.json`.
    """
    from fsxds.cli.schema import run_schema, run_settings_schema

    if of_settings:
        run_settings_schema(flags)
    else:
        run_schema(settings, flags)


@click.command(
    "completion",
    cls=TableCommand,
    epilog=f"""{EXAMPLES}  eval "$(fsxds completion bash)"    in ~/.bashrc
  eval "$(fsxds completion zsh)"     in ~/.zshrc, after compinit
  fsxds completion fish > ~/.config/fish/completions/fsxds.fish""",
)
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(tuple(SCRIPTS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script for Tab completion in a shell.

    Tab then completes commands, flags and their values, types, rules, directories and files. bash must be 4.4 or
    later, and zsh must have run `autoload -U compinit; compinit`. eval runs fsxds whenever a shell starts; to avoid
    this, write the script to ~/.local/share/bash-completion/completions/fsxds for bash, or to _fsxds in a directory of
    $fpath for zsh.
    """
    print(SCRIPTS[shell](context.find_root().command, {}, "fsxds", COMPLETION_VARIABLE).source(), end="")


@table_command(
    "lsp",
    """\
  fsxds lsp
  fsxds lsp config/xds
  fsxds lsp config/xds --settings config/fsxds.yaml""",
)
@optional_tree_argument
def lsp(directory: Path | None, settings: Settings) -> None:
    """Run the language server for editors.

    An editor starts it, and talks to it by stdin and stdout. It reports problems while you type, by the rules of
    `fsxds check`; completes and explains fields, values, types and names; and finds and renames resources. Without
    DIR, the tree is the folder that the editor opens. It needs the extra `editor`.
    """
    from fsxds.cli.lsp import run_lsp

    run_lsp(directory, settings)


TASKS: Mapping[str, tuple[click.Command, ...]] = {
    "start": (init, import_, dev),
    "edit": (check, explain, show, diff, convert, schema, lsp),
    "serve": (serve, mirror, export, sign),
    "operate": (status, rollout, history, rollback),
    "connect": (bootstrap, doctor, watch),
    "shell": (completion,),
}
"""The commands by task, in the order of `fsxds --help`."""

COMMANDS = tuple(chain.from_iterable(TASKS.values()))
