"""Declares the commands with arguments, flags and help; more are in `admin_commands` and `writing_commands`.

The work of a command is in a module of its name, or here if it is short. A command imports its modules when it runs,
because `--help` and shell completion import this module.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from fsxds.cli.admin_commands import history, rollback, rollout, status
from fsxds.cli.command import (
    EXAMPLES,
    Choice,
    CommandOption,
    NodeFlags,
    TableCommand,
    existing_directory,
    node_metadata_option,
    optional_tree_argument,
    table_command,
    tree_argument,
    with_tls_flags,
    with_view_flags,
)
from fsxds.cli.completion import COMPLETION_VARIABLE, SCRIPTS, any_path, directories, message_types, rule_names
from fsxds.cli.writing_commands import export, mirror, sign
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.settings.options import Settings

if TYPE_CHECKING:
    from fsxds.cli.bootstrap import BootstrapFlags
    from fsxds.cli.convert import ConvertFlags
    from fsxds.cli.import_bootstrap import ImportFlags
    from fsxds.cli.schema import SchemaFlags
    from fsxds.cli.watch import WatchFlags
    from fsxds.client.client_tls import ClientTls
    from fsxds.settings.reading import SettingsReader

# The formats of `fsxds convert`.
FORMAT_NAMES = ("yaml", "json", "textproto", "pb")

_PATH = click.Path(path_type=Path)
_TYPE_NAME = click.Choice([row.short_name for row in RESOURCE_TYPES])
_FORMAT_NAME = click.Choice(FORMAT_NAMES)


@click.command(
    "init",
    cls=TableCommand,
    epilog=f"{EXAMPLES}  fsxds init envoy-config\n  fsxds init envoy-config --empty",
)
@click.argument("directory", metavar="DIR", type=_PATH, shell_complete=directories)
@click.option(
    "--empty", "is_empty", cls=CommandOption, group="What is written", is_flag=True, help="Files without resources."
)
def init(directory: Path, *, is_empty: bool) -> None:
    """Write a tree to begin with into DIR.

    It has two listeners and a cluster, and works as it is; with --empty its files say in comments what belongs into
    them. A settings file is written beside it. Nothing is overwritten. Exit status: 0 written, 2 a file exists already.
    """
    from fsxds.cli.init import run_init

    run_init(directory, is_empty=is_empty)


_local = partial(click.option, cls=CommandOption, group="The Envoy")


@table_command(
    "dev",
    """\
  fsxds dev config/xds
  fsxds dev config/xds --transport delta
  fsxds dev config/xds --transport mirror --envoy ~/bin/envoy""",
)
@tree_argument
@_local("--node-id", metavar="ID", default="fsxds-dev", help="What Envoy calls itself, by which views know it.")
@_local("--node-cluster", metavar="NAME", default="fsxds-dev", help="The fleet that it belongs to.")
@node_metadata_option(group="The Envoy", help="A value in its metadata, such as tier=gold; may be given again.")
def dev(directory: Path, settings: Settings, reader: SettingsReader, **node: Unpack[NodeFlags]) -> None:
    """Serve DIR and start a real Envoy on it.

    Envoy gets everything by REST, or by a gRPC stream where the tree asks for one; --transport chooses. Prints where
    traffic, admin and xDS listen, what `fsxds doctor` finds, and at each edit what changed and whether Envoy accepted
    it; where it did not, the reason, and the file and line of the resource. Ctrl-C ends both.
    """
    from fsxds.envoy.envoy_bootstrap import Identity
    from fsxds.observe.log import open_log
    from fsxds.protocol.node_attributes import metadata_of
    from fsxds.server.event_loop import run
    from fsxds.tools.dev import serve_to_local_envoy

    # A tree is signed after editing.
    settings = replace(settings, verify_with=None)
    metadata = metadata_of((f"metadata.{key}", value) for key, value in node["node_metadata"].items())
    identity = Identity(node["node_id"], node["node_cluster"], metadata=metadata)
    with open_log(settings.log_format, settings.log_level) as log:
        run(serve_to_local_envoy(directory, settings, log, reader, identity))


_imported = partial(click.option, cls=CommandOption, group="The bootstrap that is left")
_written = partial(click.option, cls=CommandOption, group="What is written")


@table_command(
    "import",
    """\
  fsxds import envoy.yaml xds
  fsxds import envoy.yaml xds --transport rest --dry-run
  fsxds import envoy.yaml xds --transport files --mirror /run/envoy -o /etc/envoy/bootstrap.yaml
  envsubst < envoy.yaml.in | fsxds import - xds""",
)
@click.argument("file", metavar="FILE", shell_complete=any_path)
@click.argument("directory", metavar="DIR", type=_PATH, shell_complete=directories)
@_imported(
    "--transport",
    type=click.Choice(("rest", "files", "ads", "delta")),
    default="delta",
    help="How it asks fsxds: by REST long poll, from mirrored files, by one gRPC stream (ads), or by one of changes (delta).",
)
@_imported("--address", metavar="HOST:PORT", help="Where fsxds listens, or unix:/path; a name is looked up by DNS.")
@_imported("--mirror", metavar="PATH", type=_PATH, help="Where the mirrored files are.")
@_imported("--node", metavar="ID", default="envoy", help="The id of the Envoy, where the bootstrap has none.")
@_imported("--cluster", metavar="NAME", default="envoy", help="The fleet that it belongs to, where it names none.")
@_written(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the bootstrap that is left goes; by default bootstrap.yaml beside DIR.",
)
@_written("--force", is_flag=True, help="Replace what is there; it is moved to a hidden name beside its place.")
@_written("--upgrade", is_flag=True, help="Rewrite what API v2 wrote otherwise, where that is a matter of spelling.")
@_written("--dry-run", is_flag=True, help="Write nothing, and print what would be written.")
@_written(
    "--format",
    "output_format",
    type=click.Choice(("text", "json")),
    default="text",
    help="For people or for programs.",
)
def import_(file: str, directory: Path, settings: Settings, **flags: Unpack[ImportFlags]) -> None:
    """Make a tree of the bootstrap FILE, or of what comes by stdin, in the new directory DIR.

    Each static listener, cluster and secret becomes a file, as its author wrote it. What is left of the bootstrap goes
    beside DIR, and asks fsxds for them; what Envoy needs in its bootstrap stays there. It is proved before anything is
    written that all of it is read back the same. The new tree is then checked. Exit status: 0 imported, 1 the bootstrap
    has errors, and nothing is written, or the tree has, 2 wrong use, or something is in the way.
    """
    from fsxds.cli.import_bootstrap import run_import

    run_import(file, directory, settings, flags)


_checked = partial(click.option, cls=CommandOption, group="What is checked")


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
    help="The name of the file that comes by stdin; it tells its format and type.",
)
@_checked(
    "--against",
    metavar="ADMIN",
    help="Report also what the running fsxds with this --admin address would hold of the change.",
)
@with_view_flags
def check(
    paths: tuple[str, ...], stdin_path: str | None, against: str | None, settings: Settings, choice: Choice
) -> None:
    """Report every problem in PATH.

    PATH is a directory, which is checked as a tree of its own, a file, or - for stdin. Files are checked within the tree
    that --tree names, whole: of the files everything is reported, of the others errors. Without --tree, or outside of
    it, the files are a tree by themselves, and what they name and do not define is a note. --tree alone means the whole
    tree.

    Each problem comes with its file, line, column, rule, fact and remedy; the rules are those of serving, and
    `fsxds explain RULE` explains one. A real Envoy is asked too where there is one. With --against, what that server
    would hold of the change is an error: a large removal, with the id that approves it, what is removed and in use, and
    new names that nothing defines. Exit status: 0 clean (there may be problems of a lower severity than --severity),
    1 problems, or nothing in a directory is configuration, 2 wrong use, or no answer.
    """
    from fsxds.cli.check import run_check

    run_check(paths, stdin_path, settings, choice, against)


@table_command(
    "explain",
    """\
  fsxds explain
  fsxds explain unknown-field""",
)
@click.argument("rule", metavar="[RULE]", required=False, shell_complete=rule_names)
def explain(rule: str | None, settings: Settings) -> None:
    """Explain RULE, or list all rules.

    Every problem names the rule that it breaks. Exit status: 0, or 2 where there is no such rule.
    """
    from fsxds.cli.explain import run_explain

    run_explain(rule, settings)


_compared = partial(click.option, cls=CommandOption, group="Comparing")


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
    help="Compare two revisions of DIR, or one with what is there now.",
)
@with_view_flags
@with_tls_flags("A running fsxds")
def diff(
    sides: tuple[str, ...], revisions: str | None, settings: Settings, choice: Choice, tls: ClientTls | None
) -> None:
    """Show which resources and fields differ between A and B.

    A and B are directories, addresses of a running fsxds: http(s)://HOST:PORT, or unix:PATH; or snapshots of its history:
    @3, and @now for the newest, which are read from --state, or from where the server at --admin has it. With --git A..B there is
    one directory, by default the current one, and its revisions are compared; A...B begins where the two parted, and
    A alone is compared with the files that are there now. Secrets are hidden.
    Of trees, all views of the settings are compared, and each change is shown once, under the views that have it.
    What could not be read of either side is named, and of what may be in it nothing is reported as added or removed.
    Where B is a tree, what a server of A would hold of it follows: a large removal, with the id that approves it, what is
    removed and in use, and new names that nothing defines.
    Exit status: 0 no difference, 1 differences, 2 wrong use, 3 something could not be read.
    """
    from fsxds.cli.diff import run_diff

    run_diff(sides, revisions, settings, (choice, tls))


_converted = partial(click.option, cls=CommandOption, group="Converting")


@table_command(
    "convert",
    """\
  fsxds convert config/xds/clusters.yaml --to textproto
  fsxds convert dump.json --to yaml -o config/xds/clusters.yaml
  curl -s localhost:18001/v3/discovery:clusters --json '{}' | fsxds convert --from json --to yaml""",
)
@click.argument("file", metavar="[FILE]", default="-", shell_complete=any_path)
@_converted("--to", "target", type=_FORMAT_NAME, help="The format to write; by default that of the name after -o.")
@_converted("--from", "source", type=_FORMAT_NAME, help="The format of FILE; by default that of its name.")
@_converted(
    "--type", "type_name", type=_TYPE_NAME, help="The type of resources where neither they nor FILE's name say."
)
@_converted(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write this file instead of stdout."
)
def convert(file: str, settings: Settings, **flags: Unpack[ConvertFlags]) -> None:
    """Write FILE, or what comes by stdin, in another format.

    Nothing is lost but comments: what is written was read back and compared, and where the format cannot hold a value
    nothing is written. A list, or several documents, become one DiscoveryResponse where the format has no such thing.
    Exit status: 0 written, 1 problems, 2 wrong use.
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
    """Show what would be served of DIR.

    The table has names, versions, and the file and line of each resource. The formats json and yaml print the
    resources themselves, with secrets hidden.
    """
    from fsxds.cli.show import run_show

    run_show(directory, settings, choice)


@table_command(
    "serve",
    """\
  fsxds serve config/xds
  fsxds serve config/xds --http 0.0.0.0:18001 --mirror /run/envoy
  FSXDS_SETTLE=200ms fsxds serve config/xds --settings fsxds.yaml
  fsxds serve --upstream 10.0.0.1:18000 --state /var/lib/fsxds""",
)
@optional_tree_argument
def serve(directory: Path | None, settings: Settings, reader: SettingsReader) -> None:
    """Serve DIR, what other xDS servers have, or both to Envoys, and every change of it.

    REST polls are answered, and updates sent on gRPC streams, as soon as something that the client asked for changes.
    With --upstream, the resources of another xDS server are served too, of which what was good stays while it is away.
    With --mirror, the same resources are written as files as well. A file with a mistake is held back: its last good
    content stays. SIGTERM ends it, and SIGHUP makes it read its settings again.
    """
    from fsxds.lint.linter import linter_of
    from fsxds.observe.log import open_log
    from fsxds.server import serving
    from fsxds.server.event_loop import run

    with open_log(settings.log_format, settings.log_level) as log:
        run(serving.serve(directory, settings, log, linter_of, reader))


_client = partial(click.option, cls=CommandOption, group="The client")


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
    help="What to ask for; with --ads it may be given several times.",
)
@_client("--names", metavar="A,B", help="Ask for these alone; by default for everything.")
@_client("--delta", is_flag=True, help="Receive changes alone, not the state of the world.")
@_client("--ads", is_flag=True, help="Use the stream of all types, not that of the one type.")
@_client("--rest", is_flag=True, help="Poll over REST; an http:// or https:// address means the same.")
@_client("--node", "--node-id", metavar="ID", help="The id of the node; by default a new one.")
@_client("--cluster", "--node-cluster", metavar="NAME", default="watch", help="The fleet that the node belongs to.")
@node_metadata_option(group="The client", help="A value in its metadata, such as tier=gold; may be given again.")
@_client(
    "--agent",
    metavar="NAME",
    default="fsxds watch",
    help="The user agent to announce; `envoy` gets what Envoy gets.",
)
@_client("--ttl", is_flag=True, help="Announce that times to live are understood, and show heartbeats.")
@_client("--count", metavar="N", type=click.IntRange(min=1), help="End after N updates.")
@_client(
    "--format",
    "output_format",
    type=click.Choice(("text", "json")),
    default="text",
    help="Text to read, or one JSON object per update.",
)
@with_tls_flags("The client")
@_client("--token", metavar="FILE", type=_PATH, help="Send the first bearer token in this file.")
def watch(address: str, settings: Settings, tls: ClientTls | None, **flags: Unpack[WatchFlags]) -> None:
    """Be a client of the xDS server at ADDRESS, and print what it sends.

    ADDRESS is HOST:PORT or unix:PATH. The first response is listed, every later one shown as what it changed, and each
    is accepted. Secrets are hidden. When the connection is lost, it is opened again. Ctrl-C ends it.
    """
    from fsxds.cli.watch import run_watch

    run_watch(address, settings, flags, tls)


_envoy = partial(click.option, cls=CommandOption, group="The Envoy")


@table_command(
    "bootstrap",
    """\
  fsxds bootstrap config/xds > envoy.yaml
  fsxds bootstrap --transport files --mirror /run/envoy --node edge-1 --cluster edge
  fsxds bootstrap --transport delta --address xds.example.com:18000 --format json
  fsxds bootstrap --address xds.example.com:18001 --ca /etc/fsxds/ca.crt""",
)
@click.argument("directory", metavar="[DIR]", required=False, type=existing_directory, shell_complete=directories)
@_envoy(
    "--transport",
    type=click.Choice(("rest", "files", "ads", "delta")),
    default="rest",
    help="By REST long poll, from mirrored files, by one gRPC stream (ads), or by one that sends changes alone (delta).",
)
@_envoy("--address", metavar="HOST:PORT", help="Where fsxds listens, or unix:/path; a name is looked up by DNS.")
@_envoy(
    "--ca", metavar="FILE", type=_PATH, help="Speak TLS: who signs the certificate of fsxds; a path of the Envoy's."
)
@_envoy(
    "--cert", metavar="FILE", type=_PATH, help="The certificate that the Envoy shows, for a fsxds with --client-ca."
)
@_envoy("--key", metavar="FILE", type=_PATH, help="The key to that certificate.")
@_envoy("--mirror", metavar="PATH", type=_PATH, help="Where the mirrored files are.")
@_envoy("--node", "--node-id", metavar="ID", default="envoy", help="The id of the Envoy; each has its own.")
@_envoy("--cluster", "--node-cluster", metavar="NAME", default="envoy", help="The fleet that it belongs to.")
@node_metadata_option(group="The Envoy", help="A value in its metadata, such as tier=gold; may be given again.")
@_envoy("--view", metavar="NAME", help="The view that it sees, instead of that of such a node.")
@_envoy(
    "--collection",
    "collections",
    metavar="NAME",
    multiple=True,
    help="Ask for this in place of all: a list of listeners (files), or a glob (ads, delta); may be given again.",
)
@_envoy(
    "--admin-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=9901,
    help="The port of its admin page.",
)
@_envoy(
    "--format", "output_format", type=click.Choice(("yaml", "json")), default="yaml", help="Only yaml has comments."
)
def bootstrap(directory: Path | None, settings: Settings, **flags: Unpack[BootstrapFlags]) -> None:
    """Print a bootstrap for an Envoy that gets everything from fsxds.

    Its values were tried with real Envoys; the comments give the reasons. With DIR, it subscribes to the types and
    runtime layers that are there; without, to clusters and listeners.
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
    help="The admin page of an Envoy that runs, whose drain time is compared with --linger; may be given again.",
)
def doctor(directory: Path, settings: Settings, envoys: tuple[str, ...]) -> None:
    """Report what will go wrong when an Envoy starts on DIR.

    Reads the bootstrap that --bootstrap names, and the tree: time limits, pauses, paths, circuit breakers and streams
    that do not go together, or that Envoy rejects. Without a bootstrap, only the config sources of the tree are
    examined. Mistakes within the tree are reported by `fsxds check`; of a broken file, which cannot be examined, the
    first is reported here too. Of Envoys that run, whose admin pages --envoy-admin and the setting mirrors name, the drain
    time is compared with --linger. Exit status: 0 healthy (there may be problems of a lower severity than --severity),
    1 problems, 2 wrong use.
    """
    from fsxds.cli.doctor import run_doctor

    run_doctor(directory, settings, envoys)


_schema = partial(click.option, cls=CommandOption, group="What the schema is of")


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
    help="The files hold resources of this type; may be given again. By default they hold any.",
)
@_schema(
    "--any",
    "packed",
    multiple=True,
    metavar="MESSAGE",
    shell_complete=message_types,
    help="Only this message type, and others given so, may stand under an @type, such as Router; makes a small schema.",
)
@_schema(
    "--spelling",
    type=click.Choice(("snake", "camel", "both")),
    default="snake",
    help="connect_timeout, connectTimeout, or either; both is about twice as long, and takes all that Envoy reads.",
)
@_schema("--settings", "of_settings", is_flag=True, help="The settings file of fsxds, instead.")
def schema(settings: Settings, *, of_settings: bool, **flags: Unpack[SchemaFlags]) -> None:
    """Print the JSON Schema of resource files.

    It is made of the API of the Envoy in use: fields, enums, ranges, required fields, which extension may stand where, and
    the rules in words. Editors with yaml-language-server use it by a first line
    `# yaml-language-server: $schema=xds.schema.json`.
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
    """Print the script that makes a shell complete the words of fsxds.

    Tab then completes commands, flags and their values, types, rules, directories and files. bash must be 4.4 or later,
    and zsh must have run `autoload -U compinit; compinit`. Without eval, which runs fsxds whenever a shell starts, write
    the script where your shell looks for such: bash: ~/.local/share/bash-completion/completions/fsxds; zsh: _fsxds in a
    directory of $fpath.
    """
    print(SCRIPTS[shell](context.find_root().command, {}, "fsxds", COMPLETION_VARIABLE).source(), end="")


@table_command(
    "lsp",
    """\
  fsxds lsp
  fsxds lsp config/xds
  fsxds lsp config/xds --settings config/fsxds.yaml""",
)
@click.argument("directory", metavar="[DIR]", required=False, type=existing_directory)
def lsp(directory: Path | None, settings: Settings) -> None:
    """Be the language server of editors, for the tree DIR.

    An editor starts it, and talks to it by stdin and stdout. It reports problems while you type, by the rules of
    `fsxds check`, completes fields, values, types and names, explains them, and finds and renames resources. Without DIR,
    the tree is the folder that the editor opens. It needs the extra `editor`.
    """
    from fsxds.cli.lsp import run_lsp

    run_lsp(directory, settings)


# In the order in which a user needs them.
COMMANDS: tuple[click.Command, ...] = (
    *(init, import_, dev, check, explain, diff, convert, show),
    *(serve, status, rollout, history, rollback),
    *(mirror, export, sign, watch, bootstrap, doctor, schema, lsp, completion),
)
