"""`fsxds rollout` and `rollback`: what becomes of rollouts, and what an operator decides about them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, TypedDict

import click

from fsxds.cli.tables import print_table
from fsxds.errors import ProtocolError, UsageError
from fsxds.observe.log_lines import count_of, escape, some_of
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.settings.options import Settings
from fsxds.tools.admin_client import AdminServer, NotDoneError, ask_admin, report_of
from fsxds.transports.admin.rollout_control import (
    ChannelReport,
    DecisionReport,
    LingeringReport,
    StatusReport,
    StepReport,
    snapshot_number,
)

# A rollout is unfinished, or what was asked for could not be done.
NOT_DONE = 1

# So many of the clients that a step waits for are named.
MOST_CLIENTS = 20
TENTHS_BELOW_S = 10

_DONE = {"approve": "approved", "promote": "promoted", "abort": "aborted"}


class AdminFlags(TypedDict):
    """The flags of a command: which nodes are meant, and how the answer is printed."""

    view: str | None
    node_id: str | None
    output_format: str


def run_rollout(action: str, version: str | None, settings: Settings, flags: AdminFlags) -> None:
    """Show rollouts, or decide about them; exit with 1 where one is unfinished, or nothing was done."""
    if (action == "approve") != (version is not None):
        demand = "takes no VERSION" if version else "takes the VERSION that `fsxds rollout status` shows"
        raise click.UsageError(f"{action} {demand}")
    if action == "status":
        _show_status(asked(settings, "GET", "/api/rollout", meant(flags)), flags)
        return
    if action != "abort" and meant(flags):
        raise click.UsageError(f"{action} is for all nodes; leave --view and --node-id out")
    words = meant(flags) if version is None else {"version": version}
    content = asked(settings, "POST", f"/api/rollout/{action}", words)
    print_answer(content, flags, [f"{_DONE[action]} in {_channels(content)}"])


def run_rollback(number: str | None, settings: Settings, flags: AdminFlags, *, is_resumed: bool) -> None:
    """Serve a snapshot of the history, or follow the tree again; exit with 1 where that cannot be done."""
    if is_resumed == (number is not None):
        raise click.UsageError("give the number of a snapshot, such as @3, or --resume")
    if number is None:
        print_answer(asked(settings, "POST", "/api/resume", meant(flags)), flags, ["the tree is followed again"])
        return
    content = asked(settings, "POST", "/api/rollback", {"number": number_of(number, flags)})
    remedy = "until the tree changes; fsxds rollback --resume ends that before"
    print_answer(content, flags, [f"serving @{number_of(number, flags)} in {_channels(content)} {remedy}"])


def _channels(content: dict[str, Any]) -> str:
    return count_of(report_of(DecisionReport, content).channels, "channel")


def number_of(written: str, flags: AdminFlags) -> int:
    """Return the number of a snapshot, such as 3 of `@3`; UsageError where it is none, or nodes are named as well."""
    if meant(flags):
        raise click.UsageError("@N is of certain nodes already; leave --view and --node-id out")
    try:
        return snapshot_number(written)
    except ProtocolError as error:
        raise UsageError(str(error)) from error


def asked(settings: Settings, method: str, path: str, words: Mapping[str, str | int]) -> dict[str, Any]:
    """Return what the admin address answers, and end with 1 where it did not do it."""
    try:
        return asyncio.run(ask_admin(AdminServer.of(settings), method, path, words))
    except NotDoneError as error:
        print(f"fsxds: {escape(str(error))}", file=sys.stderr)
        raise click.exceptions.Exit(NOT_DONE) from error


def meant(flags: AdminFlags) -> dict[str, str | int]:
    """Return which nodes are meant as a request has it."""
    named = {"view": flags["view"], "node": flags["node_id"]}
    return {name: word for name, word in named.items() if word is not None}


def print_answer(content: dict[str, Any], flags: AdminFlags, lines: list[str]) -> None:
    """Print an answer as JSON, or the lines in its place."""
    if flags["output_format"] == "json":
        print(json.dumps(content, indent=2))
        return
    for line in lines:
        print(escape(line))


def _show_status(content: dict[str, Any], flags: AdminFlags) -> None:
    channels = report_of(StatusReport, content).channels
    print_answer(content, flags, [])
    if flags["output_format"] == "text":
        print_table(CHANNEL_HEADINGS, map(channel_row, channels))
        for channel in channels:
            for line in remarks_on(channel):
                print(escape(line))
    if not all(channel.is_done for channel in channels):
        raise click.exceptions.Exit(NOT_DONE)


CHANNEL_HEADINGS = ("VIEW", "LAYERS", "COHORT", "CLIENTS", "SERVED", "TREE", "STATE")


def _title(channel: ChannelReport) -> str:
    return _views(channel) if channel.cohort == "all" else f"{_views(channel)}, {channel.cohort}"


def _views(channel: ChannelReport) -> str:
    return some_of([view for view in channel.views if view]) or "whole tree"


def channel_row(channel: ChannelReport) -> tuple[str, ...]:
    """Return what becomes of a channel, under `CHANNEL_HEADINGS`."""
    ids = channel.served or "", channel.asked or ""
    return _views(channel), "+".join(channel.layers), channel.cohort, str(channel.clients), *ids, _state(channel)


def _state(channel: ChannelReport) -> str:
    """Return in a word or two what becomes of a channel."""
    if channel.step is not None:
        return f"{channel.step.name} for {_seconds(channel.step.since_s)}"
    states = {
        "rolled back": channel.pinned is not None,
        "held": channel.held is not None,
        "taken back": channel.asked in channel.tainted,
        "waits for the canary": channel.waits_for_canary,
        "bakes": channel.baking_s is not None,
        "done": channel.is_done,
    }
    return next((state for state, holds in states.items() if holds), "in progress")


def remarks_on(channel: ChannelReport) -> Iterator[str]:
    """Yield a line on each thing that an operator may want to know or to decide."""
    return (f"{_title(channel)}: {line}" for line in _remarks(channel))


def _remarks(channel: ChannelReport) -> Iterator[str]:
    if channel.step is not None:
        yield from _waits(channel.step)
    if channel.late:
        yield f"goes on without {some_of(channel.late)}, which did not take a step in time"
    if channel.baking_s is not None:
        yield f"follows the canary in {_seconds(channel.baking_s)}; at once by: fsxds rollout promote"
    if channel.held is not None:
        version = channel.held.version
        yield f"holds {version} back: it {channel.held.reason}; serve it by: fsxds rollout approve {version}"
    if channel.pinned is not None:
        yield f"serves {channel.pinned} of its history until the tree changes, or: fsxds rollback --resume"
    if channel.tainted:
        yield f"does not serve {some_of(channel.tainted)} again until the tree changes"
    yield from channel.rejections
    yield from _lingering(channel.lingering)


def _waits(step: StepReport) -> Iterator[str]:
    """Yield whom a step waits for, and for how long; nothing while that is nobody."""
    names = [f"{each.client} ({each.transport})" for each in step.waits_for[:MOST_CLIENTS]]
    if (others := len(step.waits_for) - len(names)) > 0:
        names.append(f"{others} more")
    if names:
        since_s = max(each.since_s for each in step.waits_for)
        times = f"for {_seconds(since_s)}, and {_seconds(step.ends_within_s)} more at most"
        yield f"{step.name} waits for {', '.join(names)} {times}"


def _lingering(lingering: tuple[LingeringReport, ...]) -> Iterator[str]:
    """Yield one line for what waits for the same listeners."""

    def waits_for(each: LingeringReport) -> tuple[str, tuple[str, ...]]:
        return each.type, each.listeners

    for (short_name, listeners), group in groupby(sorted(lingering, key=waits_for), waits_for):
        members = list(group)
        ends = [each.left_s for each in members if each.left_s is not None]
        limit = (
            f"for {_seconds(max(ends))} more at most" if len(ends) == len(members) else "clients have not left it yet"
        )
        names, noun = some_of([each.name for each in members]), BY_SHORT_NAME[short_name].noun
        yield f"keeps {noun} {names} for open connections of listeners {some_of(listeners)}, {limit}"


def _seconds(time_s: float) -> str:
    return f"{time_s:.1f} s" if time_s < TENTHS_BELOW_S else f"{time_s:.0f} s"
