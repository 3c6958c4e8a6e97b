"""`fsxds rollout`, `rollback` and `history`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, islice
from typing import Any, TypedDict

import click

from fsxds.cli.running import print_table
from fsxds.events.event import count_of, escape, some_of
from fsxds.history.entries import HistoryChange, HistoryEntry, SomeNames
from fsxds.model.errors import ProtocolError, UsageError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.rollout.holding import HoldReason
from fsxds.settings.options import Settings
from fsxds.tools.admin_client import NotDoneError, ask
from fsxds.transports.admin.admin_api import report_of
from fsxds.transports.admin.admin_reports import (
    ChannelReport,
    DecisionReport,
    LingeringReport,
    RetryReport,
    StatusReport,
    StepReport,
    snapshot_number,
)

# A rollout is unfinished, or the request could not be done.
NOT_DONE = 1

# The maximum number of clients named per step.
MOST_CLIENTS = 20
TENTHS_BELOW_S = 10

# Of more channels, those in one state share a row; also the maximum number of remarks then.
MOST_ROWS = 20

# Reasons that hold many resources at once, which are named in one line.
PINNED = HoldReason.PINNED.value
WAITS = HoldReason.REMOVAL.value

_DONE = {"approve": "approved", "promote": "promoted", "abort": "aborted", "resume": "the tree is followed again,"}
# The parameter of an action's subject in the request.
_SUBJECTS = {"approve": "id", "retry": "name"}
_SCOPED = frozenset({"status", "abort", "resume"})


class AdminFlags(TypedDict):
    """The nodes and the output format."""

    view: str | None
    node_id: str | None
    output_format: str


def run_rollout(action: str, subject: str | None, settings: Settings, flags: AdminFlags) -> None:
    """Show or decide rollouts; exit with 1 if one is unfinished, or nothing done."""
    if (action == "approve" and subject is None) or (subject is not None and action not in _SUBJECTS):
        demand = "takes the ID that `fsxds rollout status` shows" if subject is None else "takes no argument"
        raise click.UsageError(f"{action} {demand}")
    if action == "status":
        _show_status(asked(settings, "GET", "/api/rollout", scope_parameters(flags)), flags)
        return
    if action not in _SCOPED and scope_parameters(flags):
        raise click.UsageError(f"{action} is for all nodes; leave --view and --node-id out")
    words = scope_parameters(flags) if subject is None else {_SUBJECTS[action]: subject}
    path = "/api/resume" if action == "resume" else f"/api/rollout/{action}"
    content = asked(settings, "POST", path, words)
    if action == "retry":
        count = count_of(report_of(RetryReport, content).versions, "version")
        line = f"{count} that nodes reject: offered to all nodes again"
    else:
        line = f"{_DONE[action]} in {_channels(content)}"
    print_answer(content, flags, [line])


def run_rollback(number: str | None, settings: Settings, flags: AdminFlags, *, time: str | None) -> None:
    """Serve a former snapshot, or exit with 1."""
    if (number is None) is (time is None):
        raise click.UsageError("give the number of a snapshot, such as @3, or --all-views TIME")
    words: dict[str, str | int]
    if number is not None:
        words, served = {"number": number_of(number, flags)}, f"@{number_of(number, flags)}"
    elif scope_parameters(flags):
        raise click.UsageError("--all-views is for all nodes; leave --view and --node-id out")
    else:
        words, served = {"time": str(time)}, f"the content of {time}"
    content = asked(settings, "POST", "/api/rollback", words)
    remedy = "each resource until it changes in the tree; fsxds rollout resume ends that for all"
    print_answer(content, flags, [f"serving {served} in {_channels(content)}, {remedy}"])


def _channels(content: dict[str, Any]) -> str:
    return count_of(report_of(DecisionReport, content).channels, "channel")


def number_of(written: str, flags: AdminFlags) -> int:
    """Return 3 for `@3`; UsageError for other texts, or with flags of nodes."""
    if scope_parameters(flags):
        raise click.UsageError("@N is of certain nodes already; leave --view and --node-id out")
    try:
        return snapshot_number(written)
    except ProtocolError as error:
        raise UsageError(str(error)) from error


def asked(settings: Settings, method: str, path: str, words: Mapping[str, str | int]) -> dict[str, Any]:
    """Ask the admin address; exit with 1 if a request was not done."""
    try:
        content: dict[str, Any] = ask(settings, path, words, method)
    except NotDoneError as error:
        print(f"fsxds: {escape(str(error))}", file=sys.stderr)
        raise click.exceptions.Exit(NOT_DONE) from error
    return content


def scope_parameters(flags: AdminFlags) -> dict[str, str | int]:
    """Return parameters that choose nodes."""
    named = {"view": flags["view"], "node": flags["node_id"]}
    return {name: word for name, word in named.items() if word is not None}


def print_answer(content: dict[str, Any], flags: AdminFlags, lines: list[str]) -> None:
    """Print JSON, or else the lines."""
    if flags["output_format"] == "json":
        print(json.dumps(content, indent=2))
        return
    for line in lines:
        print(escape(line))


def _show_status(content: dict[str, Any], flags: AdminFlags) -> None:
    channels = report_of(StatusReport, content).channels
    print_answer(content, flags, [])
    if flags["output_format"] == "text":
        print_table(CHANNEL_HEADINGS, channel_rows(channels))
        for line in remarks_on(channels):
            print(escape(line))
    if not all(channel.is_done and not is_held(channel) for channel in channels):
        raise click.exceptions.Exit(NOT_DONE)


def is_held(channel: ChannelReport) -> bool:
    """Whether a part of the tree is not served, on purpose or not."""
    return bool(channel.held or channel.approval or channel.pinned)


CHANNEL_HEADINGS = ("VIEW", "LAYERS", "COHORT", "CLIENTS", "SERVED", "TREE", "STATE")


def _views(channel: ChannelReport) -> str:
    return some_of([view for view in channel.views if view]) or "whole tree"


def channel_rows(channels: Sequence[ChannelReport]) -> Iterator[tuple[str, ...]]:
    """Yield rows under `CHANNEL_HEADINGS`, or one per state."""
    if len(channels) <= MOST_ROWS:
        yield from map(_channel_row, channels)
        return

    def state_of(channel: ChannelReport) -> tuple[str, str]:
        return channel.cohort, _state(channel).partition(" for ")[0]

    for (cohort, state), group in groupby(sorted(channels, key=state_of), state_of):
        members = list(group)
        if len(members) == 1:
            yield _channel_row(members[0])
            continue
        views, layers = _common(map(_views, members)), _common("+".join(one.layers) for one in members)
        ids = _common(one.served or "" for one in members), _common(one.asked or "" for one in members)
        yield views, layers, cohort, str(sum(one.clients for one in members)), *ids, state


def _common(words: Iterable[str]) -> str:
    found = sorted(set(words))
    return found[0] if len(found) == 1 else f"{found[0]} and {len(found) - 1} more"


def _channel_row(channel: ChannelReport) -> tuple[str, ...]:
    ids = channel.served or "", channel.asked or ""
    return _views(channel), "+".join(channel.layers), channel.cohort, str(channel.clients), *ids, _state(channel)


def _state(channel: ChannelReport) -> str:
    if channel.step is not None:
        return f"{channel.step.name} for {_seconds(channel.step.since_s)}"
    states = {
        "rolled back": bool(channel.pinned),
        "waits for approval": channel.approval is not None,
        "waits for the canary": channel.waits_for_canary,
        "bakes": channel.baking_s is not None,
        "held back": bool(channel.held),
        "done": channel.is_done,
    }
    return next((state for state, holds in states.items() if holds), "in progress")


def remarks_on(channels: Sequence[ChannelReport]) -> Iterator[str]:
    """Yield lines to act on, each once for several views."""
    found: dict[str, list[str]] = {}
    for channel in channels:
        title = _views(channel) if channel.cohort == "main" else f"{_views(channel)}, {channel.cohort}"
        for line in _remarks(channel):
            found.setdefault(line, []).append(title)
    most = MOST_ROWS if len(channels) > MOST_ROWS else len(found)
    yield from (f"{some_of(titles)}: {line}" for line, titles in islice(found.items(), most))
    if len(found) > most:
        yield f"and {len(found) - most} more; fsxds rollout status --view NAME shows those of one view"


def _remarks(channel: ChannelReport) -> Iterator[str]:
    if channel.step is not None:
        yield from _waits(channel.step)
    if channel.waits_for_canary:
        yield "waits for canaries that have not taken the change, or are not there; without them: fsxds rollout promote"
    if channel.baking_s is not None:
        yield f"follows the canary in {_seconds(channel.baking_s)}; at once by: fsxds rollout promote"
    if channel.approval is not None:
        approval = channel.approval
        names = _held_names(channel, WAITS)
        yield f"keeps {approval.removal} that the tree removed{names}; let them go by: fsxds rollout approve {approval.id}"
    if channel.pinned:
        resources, since = count_of(channel.pinned, "resource"), _seconds(channel.pinned_for_s or 0.0)
        names = _held_names(channel, PINNED)
        yield f"{resources} rolled back for {since}{names}; each until it changes in the tree, or: fsxds rollout resume"
    for one in channel.held:
        if one.reason not in (PINNED, WAITS):
            since = "" if one.since_s is None else f", for {_seconds(one.since_s)}"
            yield f"{one.place}: {one.message}{since}; {one.remedy}"
    yield from _lingering(channel.lingering)


def _held_names(channel: ChannelReport, reason: str) -> str:
    names = [f"{one.type} {one.name}" for one in channel.held if one.reason == reason]
    return f": {some_of(names)}" if names else ""


def _waits(step: StepReport) -> Iterator[str]:
    names = [f"{each.client} ({each.transport})" for each in step.waits_for[:MOST_CLIENTS]]
    if (others := len(step.waits_for) - len(names)) > 0:
        names.append(f"{others} more")
    if names:
        since_s = max(each.since_s for each in step.waits_for)
        times = f"for {_seconds(since_s)}, and {_seconds(step.ends_within_s)} more at most"
        yield f"{step.name} waits for {', '.join(names)} {times}"


def _lingering(lingering: tuple[LingeringReport, ...]) -> Iterator[str]:

    def waits_for(each: LingeringReport) -> tuple[str, tuple[str, ...]]:
        return each.type, each.listeners

    for (short_name, listeners), group in groupby(sorted(lingering, key=waits_for), waits_for):
        members = list(group)
        ends, limit = [each.left_s for each in members if each.left_s is not None], "clients have not left it yet"
        if len(ends) == len(members):
            limit = f"for {_seconds(max(ends))} more at most"
        names, noun = some_of([each.name for each in members]), BY_SHORT_NAME[short_name].noun
        yield f"keeps {noun} {names} for open connections of listeners {some_of(listeners)}, {limit}"


def _seconds(time_s: float) -> str:
    return f"{time_s:.1f} s" if time_s < TENTHS_BELOW_S else f"{time_s:.0f} s"


COMMIT_DIGITS = 12


def run_history(number: str | None, settings: Settings, flags: AdminFlags) -> None:
    """Show the history or one snapshot; exit with 1 without one."""
    if number is not None:
        content = asked(settings, "GET", f"/api/history/{number_of(number, flags)}", {})
        print_answer(content, flags, [*_lines_of(report_of(HistoryEntry, content))])
        return
    content = asked(settings, "GET", "/api/history", scope_parameters(flags))
    print_answer(content, flags, [])
    if flags["output_format"] == "text":
        headings = ("NUMBER", "TIME", "LAYERS", "VERSION", "COMMIT", "CHANGES")
        print_table(headings, map(_row_of, report_of(tuple[HistoryEntry, ...], content.get("snapshots"))))


def _row_of(kept: HistoryEntry) -> tuple[str, ...]:
    counts = {name: " ".join(f"{sign}{one.count}" for sign, one in _parts(kept.changes[name])) for name in kept.changes}
    changes = ", ".join(f"{count} {BY_SHORT_NAME[name].noun}" for name, count in counts.items())
    layers, commit = "+".join(kept.layers) or "whole tree", (kept.commit or "")[:COMMIT_DIGITS]
    return f"@{kept.number}", _time(kept), layers, kept.version, commit, changes


def _lines_of(kept: HistoryEntry) -> Iterator[str]:
    commit = f", commit {kept.commit}" if kept.commit else ""
    yield f"@{kept.number} {kept.version} of {_time(kept)}{commit}"
    for short_name, change in kept.changes.items():
        for sign, some in _parts(change):
            yield from (f"{sign} {BY_SHORT_NAME[short_name].noun} {name}" for name in some.names)
            if some.count > len(some.names):
                yield f"{sign} {BY_SHORT_NAME[short_name].noun}: {some.count - len(some.names)} more"


def _parts(change: HistoryChange) -> list[tuple[str, SomeNames]]:
    parts = (("+", change.added), ("~", change.changed), ("-", change.removed))
    return [(sign, some) for sign, some in parts if some.count]


def _time(kept: HistoryEntry) -> str:
    return datetime.fromtimestamp(kept.time_s).astimezone().isoformat(timespec="seconds")
