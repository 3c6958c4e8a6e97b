"""`fsxds status`: shows clients and problems."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict
from urllib.parse import quote

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from fsxds.cli.rollout import CHANNEL_HEADINGS, channel_rows, is_held, remarks_on
from fsxds.cli.running import console_of_stdout, table_of
from fsxds.events.event import count_of, duration, escape
from fsxds.model.errors import FsxdsError, UsageError
from fsxds.settings.options import Settings
from fsxds.tools.admin_client import NotDoneError, ask, settings_at
from fsxds.transports.admin.admin_api import report_of
from fsxds.transports.admin.admin_reports import (
    ClientDetail,
    ClientList,
    ClientReport,
    FileList,
    FleetServerReport,
    ListedNames,
    NodeReport,
    ProblemReport,
    ServerReport,
    TypeReport,
    UpstreamReport,
)

# A resource is held, rejected, stale or degraded; or the node is not connected.
NOT_GOOD = 1

REFRESH_S = 1.0
MOST_CLIENTS = 100
MOST_FILES = 20

_ADDRESS = re.compile(r"(unix:|https?://).+|[^/\s]*:[0-9]{1,5}", re.ASCII)
_AGE = re.compile(r'"(\w+_s)": [0-9.e+-]+')


class StatusFlags(TypedDict):
    """The flags."""

    node: str | None
    view: str | None
    search: str | None
    watch: bool
    output_format: str


@dataclass(frozen=True, slots=True)
class Shown:
    """The last response."""

    plain: object
    drawn: Group
    is_good: bool


# Queries the server. Raises UsageError without an answer, NotDoneError without such a node.
Look = Callable[[], Shown]


def run_status(target: str | None, settings: Settings, flags: StatusFlags) -> None:
    """Show a server or node; exit with 1 if a part is not good."""
    node = flags["node"]
    if target is not None and _ADDRESS.fullmatch(target):
        settings = settings_at(target, settings)
    elif target is not None and node is not None:
        raise click.UsageError("two nodes are named; give one of them")
    else:
        node = node if target is None else target
    if node is not None and (flags["view"] or flags["search"]):
        raise click.UsageError("--view and --search choose among all nodes; leave them out, or NODE")
    console = console_of_stdout()
    look = partial(_look_at_all, settings, flags) if node is None else partial(_look_at_node, settings, node)
    if flags["watch"]:
        _watch(look, flags)
        return
    try:
        shown = look()
    except NotDoneError as error:
        _print_error(error)
        raise click.exceptions.Exit(NOT_GOOD) from error
    if flags["output_format"] == "json":
        print(json.dumps(shown.plain, indent=2))
    else:
        console.print(shown.drawn)
    if not shown.is_good:
        raise click.exceptions.Exit(NOT_GOOD)


def _look_at_all(settings: Settings, flags: StatusFlags) -> Shown:
    words = {name: word for name in ("view", "search") if (word := flags[name])}
    status = ask(settings, "/api/status")
    clients = ask(settings, "/api/clients", {**words, "limit": MOST_CLIENTS})
    server = report_of(ServerReport, status)
    files = FileList(0, ())
    if bad_files(server):
        files = report_of(FileList, ask(settings, "/api/files", {"limit": MOST_FILES}))
        files = replace(files, files=tuple(each for each in files.files if each.state != "good"))
    listed = report_of(ClientList, clients)
    drawn = overview(server, listed, files, console_of_stdout())
    return Shown({"status": status, **clients}, drawn, is_good(server, listed.clients))


def _look_at_node(settings: Settings, node: str) -> Shown:
    plain = ask(settings, f"/api/clients/{quote(node, safe='', errors='surrogateescape')}")
    found = report_of(NodeReport, plain)
    return Shown(plain, node_detail(found, console_of_stdout()), are_synced(found.clients))


def _watch(look: Look, flags: StatusFlags) -> None:
    found = _looked(look)
    if isinstance(found, UsageError):
        # A wrong address never recovers.
        raise found
    console = console_of_stdout()
    if flags["output_format"] == "json" or not console.is_terminal:
        _watch_in_lines(look, found, is_json=flags["output_format"] == "json")
        return
    shown = found if isinstance(found, Shown) else None
    with Live(_drawn(shown, found), console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            time.sleep(REFRESH_S)
            found = _looked(look)
            shown = found if isinstance(found, Shown) else shown
            live.update(_drawn(shown, found), refresh=True)


def _watch_in_lines(look: Look, found: Shown | FsxdsError, *, is_json: bool) -> None:
    """Print changed statuses, as JSON every status; a repeated error once."""
    before = trouble = ""
    while True:
        words = "" if isinstance(found, Shown) else f"{found}; asked again each second"
        if isinstance(found, Shown):
            now = _AGE.sub("", json.dumps(found.plain))
            if is_json:
                print(json.dumps(found.plain), flush=True)
            elif now != before or trouble:
                console_of_stdout().print(found.drawn, Text(""))
                sys.stdout.flush()
            before = now
        elif words != trouble:
            _print_error(words)
        trouble = words
        time.sleep(REFRESH_S)
        found = _looked(look)


def _looked(look: Look) -> Shown | FsxdsError:
    try:
        return look()
    except (NotDoneError, UsageError) as error:
        return error


def _drawn(shown: Shown | None, found: Shown | FsxdsError) -> Group:
    trouble = [] if isinstance(found, Shown) else [Text(f"{escape(str(found))}; asked again each second", "yellow")]
    return Group(*trouble, *([] if shown is None else [shown.drawn]))


def _print_error(words: object) -> None:
    print(f"fsxds: {escape(str(words))}", file=sys.stderr, flush=True)


# A node id may be any text from a client.
LONGEST_TEXT = 80
LONGEST_REASON = 500
VERSION_DIGITS = 8
MOST_NAMES_SHOWN = 20

STYLES = {
    "SYNCED": "green", "STALE": "yellow", "NOT SENT": "dim", "NACK": "bold red",
    "good": "green", "held": "yellow", "broken": "bold red",
    "connected": "green", "connecting": "yellow", "away": "yellow", "refused": "bold red",
}  # fmt: skip
_DIFFERENCES = (
    ("lacks", "does not have"),
    ("outdated", "may have an older version of"),
    ("surplus", "may still have"),
    ("missing", "asked for, and no file has"),
)


def is_good(server: ServerReport, clients: Iterable[ClientReport]) -> bool:
    """Whether all is synced and connected, and nothing held, rejected or degraded."""
    are_served = not any(map(is_held, server.rollouts))
    are_well = all(each.state == "connected" and not each.rejected for each in server.upstreams)
    is_whole = server.is_ready and not (server.degraded or bad_files(server))
    return are_synced(clients) and are_served and are_well and is_whole


def bad_files(server: ServerReport) -> int:
    """Return the number of files not served in their current version."""
    return server.files.held + server.files.broken


def are_synced(clients: Iterable[ClientReport]) -> bool:
    """Whether no type is rejected or stale; the worst come first."""
    return all(client.state not in ("NACK", "STALE") for client in clients)


def overview(server: ServerReport, clients: ClientList, files: FileList, console: Console) -> Group:
    """Render a server, some clients, and held files."""
    parts: list[RenderableType] = [*map(Text, _server_lines(server))]
    if server.upstreams:
        parts.append(table_of(_UPSTREAM_HEADINGS, map(_upstream_row, server.upstreams), console))
        parts += map(Text, _upstream_remarks(server.upstreams))
    if server.fleet:
        parts.append(table_of(_FLEET_HEADINGS, map(_fleet_row, server.fleet), console))
    if clients.clients:
        parts.append(table_of(_CLIENT_HEADINGS, _client_rows(clients.clients), console))
        parts += map(Text, _reasons(clients.clients))
    if (others := clients.total - len(clients.clients)) > 0:
        parts.append(Text(f"and {count_of(others, 'more client')}; fsxds status --search TEXT finds some"))
    if files.files:
        rows = _file_rows(files, server.problems)
        parts.append(table_of(("FILE", "STATE", "SINCE", "FIRST PROBLEM"), rows, console))
    if (others := bad_files(server) - len(files.files)) > 0:
        parts.append(Text(f"and {count_of(others, 'more file')} held back; fsxds check lists all problems"))
    at_work = [one for one in server.rollouts if is_held(one) or one.lingering or not one.is_done]
    if at_work:
        parts.append(table_of(CHANNEL_HEADINGS, channel_rows(at_work), console))
        parts += (Text(_cut(line, LONGEST_REASON)) for line in remarks_on(at_work))
    return Group(*parts)


def node_detail(node: NodeReport, console: Console) -> Group:
    """Render a node's details."""
    parts: list[RenderableType] = []
    for client in node.clients:
        by = client.service if client.service == client.transport else f"{client.transport} {client.service}"
        peer = f" from {client.peer}" if client.peer else ""
        cluster = f", cluster {client.cluster}" if client.cluster else ""
        view = f", view {client.view}" if client.view else ""
        title = f"{_cut(client.node)}{cluster}{view}: {by}{peer} for {duration(client.since_s)}"
        parts.append(Text(_cut(title, 4 * LONGEST_TEXT)))
        parts.append(table_of(_TYPE_HEADINGS, map(_type_row, client.types), console))
        parts += map(Text, (*_reasons((client,)), *_differences(client)))
    return Group(*parts)


def _server_lines(server: ServerReport) -> Iterator[str]:
    files = server.files
    counts = [f"{count_of(files.good, 'file')} good"]
    counts += [f"{count} {word}" for count, word in ((files.held, "held"), (files.broken, "broken")) if count]
    tree = f"{server.directory}: {', '.join(counts)}" if server.directory else "no directory, upstreams alone"
    yield escape(f"{tree}; fsxds {server.version} for {duration(server.uptime_s)}")
    listeners = (f"{each.name} {each.address}{' (TLS)' if each.tls else ''}" for each in server.listeners)
    yield escape(", ".join(listeners))
    by_state: dict[str, int] = {}
    for each in server.clients:
        by_state[each.state] = by_state.get(each.state, 0) + each.count
    states = ", ".join(f"{count} {state}" for state, count in by_state.items())
    yield f"{count_of(sum(by_state.values()), 'client')}{f': {states}' if states else ''}"
    if not server.is_ready:
        yield escape(f"not ready: waits for {server.waits_for}")
    if server.degraded:
        yield escape(f"degraded: {', '.join(server.degraded)}; the log says why")


_FLEET_HEADINGS = ("FLEET", "PUBLICATION", "STATE", "CLIENTS")


def _fleet_row(each: FleetServerReport) -> tuple[str | Text, ...]:
    good = Text("publishes" if each.is_publisher else "follows", "green")
    state = Text("behind", "yellow") if each.is_behind else good
    return escape(each.name), each.publication, state, str(each.clients)


_UPSTREAM_HEADINGS = ("UPSTREAM", "SERVER", "STATE", "SINCE", "RESOURCES", "AGE")


def _upstream_row(each: UpstreamReport) -> tuple[str | Text, ...]:
    server = f"{each.server} ({each.wire})" if each.server else ", ".join(each.servers)
    held = " ".join(f"{one.type} {one.resources}" for one in each.resources) or "none"
    age = "" if each.age_s is None else duration(each.age_s)
    return _cut(each.name), _cut(server), _styled(each.state), duration(each.since_s), held, age


def _upstream_remarks(upstreams: Iterable[UpstreamReport]) -> Iterator[str]:
    for each in upstreams:
        name = _cut(each.name)
        if each.trouble:
            kept = "its last resources are served" if each.resources else "it has sent no resource yet"
            yield f"{name}: {_cut(each.trouble, LONGEST_REASON)}; {kept}"
        if each.state == "connected" and each.pending:
            yield f"{name} has not responded yet for {' '.join(each.pending)}"
        yield from (f"{name} sent resources that fsxds rejects: {_cut(text, LONGEST_REASON)}" for text in each.rejected)


_CLIENT_HEADINGS = ("NODE", "VIA", "VIEW", "STATE", "TYPES", "SINCE")


def _client_rows(clients: Iterable[ClientReport]) -> Iterator[tuple[str | Text, ...]]:
    for client in clients:
        named = _cut(client.node or "(no id)"), client.transport, _cut(client.view)
        by_state: dict[str, list[TypeReport]] = {}
        for each in client.types:
            by_state.setdefault(each.state, []).append(each)
        for state in [state for state in ("NACK", "STALE", "NOT SENT", "SYNCED") if state in by_state]:
            types = by_state[state]
            names = " ".join(each.type for each in types)
            yield *named, _styled(state), names, duration(min(each.since_s for each in types))
        if not by_state:
            yield *named, _styled(client.state), "", duration(client.since_s)


def _reasons(clients: Iterable[ClientReport]) -> Iterator[str]:
    for client in clients:
        for each in client.types:
            if each.state == "NACK":
                version = f" {each.nacked[:VERSION_DIGITS]}" if each.nacked else ""
                reason = _cut(each.reason or "without a reason", LONGEST_REASON)
                yield f"{_cut(client.node)} rejects {each.type}{version}: {reason}"


def _file_rows(files: FileList, problems: Sequence[ProblemReport]) -> Iterator[tuple[str | Text, ...]]:
    first = {each.path: each for each in reversed(problems) if each.severity == "error"}
    for file in files.files:
        problem = first.get(file.path)
        place, text = file.path, "waits for other files" if not file.problems else "see fsxds check"
        if problem is not None:
            place = f"{file.path}:{problem.line}:{problem.column}"
            text = f"{problem.message}; {problem.remedy}" if problem.remedy else problem.message
        yield place, _styled(file.state), duration(file.since_s), text


_TYPE_HEADINGS = ("TYPE", "STATE", "SINCE", "RESOURCES", "SENT", "ACKED", "CURRENT")


def _type_row(each: TypeReport) -> tuple[str | Text, ...]:
    versions = (("" if one is None else one[:VERSION_DIGITS]) for one in (each.sent, each.acked, each.current))
    return each.type, _styled(each.state), duration(each.since_s), str(each.resources), *versions


def _differences(client: ClientDetail) -> Iterator[str]:
    for each in client.types:
        for field, words in _DIFFERENCES:
            listed: ListedNames = getattr(each, field)
            if listed.count:
                shown = listed.names[:MOST_NAMES_SHOWN]
                more = f" and {listed.count - len(shown)} more" if listed.count > len(shown) else ""
                yield f"{each.type}: {words} {', '.join(map(_cut, shown))}{more}"


def _styled(state: str) -> Text:
    return Text(escape(state), STYLES.get(state, ""))


def _cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return one line without control sequences."""
    return escape(text if len(text) <= longest else f"{text[: longest - 1]}…")
