"""`fsxds status`: shows clients and problems."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict
from urllib.parse import quote

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from fsxds.cli.status_tables import Overview, bad_files, is_synced, node_detail, overview
from fsxds.cli.tables import console_of_stdout
from fsxds.events.phrases import escape
from fsxds.model.errors import FsxdsError, UsageError
from fsxds.settings.options import Settings
from fsxds.tools.admin_client import AdminServer, NotDoneError, ask_admin
from fsxds.transports.admin.admin_api import report_of
from fsxds.transports.admin.status_reports import ClientList, FileList, NodeReport, ServerReport

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


Look = Callable[[], Shown]
"""Queries the server. Raises UsageError without an answer, NotDoneError without such a node."""


def run_status(target: str | None, settings: Settings, flags: StatusFlags) -> None:
    """Show a server or node; exit with 1 if a part is not good."""
    node = flags["node"]
    if target is not None and _ADDRESS.fullmatch(target):
        settings = replace(settings, admin=_address_in(target, settings))
    elif target is not None and node is not None:
        raise click.UsageError("two nodes are named; give one of them")
    else:
        node = node if target is None else target
    if node is not None and (flags["view"] or flags["search"]):
        raise click.UsageError("--view and --search choose among all nodes; leave them out, or NODE")
    console = console_of_stdout()
    look: Look = (lambda: _look_at_all(settings, flags)) if node is None else (lambda: _look_at_node(settings, node))
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


def _address_in(target: str, settings: Settings) -> str:
    if target.startswith("https://") and settings.admin_ca is None:
        raise UsageError(f"{target}: https needs a CA to trust; give --admin-ca FILE")
    return re.sub("^https?://", "", target).removesuffix("/")


def _look_at_all(settings: Settings, flags: StatusFlags) -> Shown:
    words = {name: word for name in ("view", "search") if (word := flags[name])}
    status = _ask(settings, "/api/status")
    clients = _ask(settings, "/api/clients", {**words, "limit": MOST_CLIENTS})
    server = report_of(ServerReport, status)
    files = FileList(0, ())
    if bad_files(server):
        listed = report_of(FileList, _ask(settings, "/api/files", {"limit": MOST_FILES}))
        files = replace(listed, files=tuple(each for each in listed.files if each.state != "good"))
    found = Overview(server, report_of(ClientList, clients), files)
    return Shown({"status": status, **clients}, overview(found, console_of_stdout()), found.is_good)


def _look_at_node(settings: Settings, node: str) -> Shown:
    plain = _ask(settings, f"/api/clients/{quote(node, safe='', errors='surrogateescape')}")
    found = report_of(NodeReport, plain)
    return Shown(plain, node_detail(found, console_of_stdout()), is_synced(found))


def _ask(settings: Settings, path: str, words: Mapping[str, str | int] | None = None) -> Any:
    return asyncio.run(ask_admin(AdminServer.of(settings), "GET", path, words or {}))


def _watch(look: Look, flags: StatusFlags) -> None:
    """A server that is away is queried again."""
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
