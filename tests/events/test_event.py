"""The catalogue of the log's events is what the code writes."""

from __future__ import annotations

import ast
import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePosixPath

from fsxds.envoy.admin import Listening
from fsxds.envoy.envoy_lines import LocalEnvoyLog
from fsxds.envoy.envoy_log import EnvoyLogLine
from fsxds.envoy.follow import EndedEnvoy
from fsxds.envoy.snapshot_status import EnvoyNack, InProgress
from fsxds.events import client_events, file_events, fleet_events, process_events, rollout_events, upstream_events
from fsxds.events.event import Event, Level, LogLine
from fsxds.events.file_events import Remark
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import RowsChange, TypeChange
from fsxds.model.values import HeldFile, Problem, Version
from fsxds.observe.internal_errors import LibraryLogs
from fsxds.observe.log import Log, LogOutput
from fsxds.observe.log_catalogue import CATALOGUE, EVENTS_BY_NAME, FIELDS
from fsxds.observe.problem_reports import MOST_LINES
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription
from fsxds.rollout import Held, Step
from fsxds.rollout.holding import Removal
from fsxds.rollout.rejections import RejectingNode
from fsxds.rollout.step import (
    Completed,
    LingeringEnded,
    LingeringStarted,
    PinsChanged,
    Standing,
    StepKind,
    StepStarted,
    StepTimedOut,
    Superseded,
)
from tests.support.checkout import TOP
from tests.support.log_events import subclasses
from tests.support.snapshots import snapshot

CDS = BY_SHORT_NAME["cds"]
PATH = PurePosixPath("cds.yaml")
NODE, SUBSCRIPTION, VERSION = Node("edge-1"), Subscription(CDS.type_url), Version("1")
ERROR = ValueError("x")
PROBLEMS = tuple(
    Problem(PATH, line, 1, "", "bad-syntax", f"mistake {line * 'x'}", "") for line in range(1, MOST_LINES + 3)
)
CHANGE = TypeChange(1, added=("a",), files=(PATH,))
CHANGED = replace(snapshot({"CDS": {"a": "1"}}, generation=1), changes={CDS.type_url: CHANGE})


class Taker:
    """A client that takes everything."""

    def standing(self, _: Step) -> Standing:
        """Return that it has taken it."""
        return Standing.TAKEN


CLIENT = Taker()
REJECTED = (CDS.type_url, "a"), VERSION
STEP = Step(StepKind.GROW, CHANGED, {CDS.type_url: RowsChange(frozenset({"a"}))})

SAMPLES: tuple[Event, ...] = (
    process_events.ApiFound("Envoy 1.40.0"),
    process_events.TransportChosen("rest", "as --transport says"),
    process_events.ListeningStarted("REST", "127.0.0.1:1"),
    process_events.PlainTextExposed("REST", "0.0.0.0:1"),
    process_events.CertificatesReloaded(("tls.crt", "tls.key")),
    process_events.CertificatesKept("tls.key: cannot be read"),
    client_events.HandshakeFailed("127.0.0.1", "it does not speak TLS"),
    process_events.TokensRead(Path("/tokens"), 2),
    process_events.TokensRead(Path("/tokens"), 2, ("edge",)),
    process_events.TokensKept(Path("/tokens"), "cannot be read"),
    process_events.TokensExposed(Path("/tokens")),
    rollout_events.RolloutCommanded("rollout/abort", {"view": "edge"}, "127.0.0.1"),
    process_events.StartDelayed("the API", 3.0),
    file_events.CacheRead(3, 4),
    file_events.CacheFailed(Path("/cache"), "no space left on device"),
    process_events.StateFailed(Path("/state"), "No space left on device", 2.0),
    process_events.StateRecovered(Path("/state")),
    process_events.StateWritten(Path("/state"), 1),
    fleet_events.FleetLost("no member answers"),
    fleet_events.FleetReached(0.0),
    fleet_events.FleetReached(3.21),
    fleet_events.SnapshotUnreadable("an object is missing"),
    fleet_events.SecretsNotPublished("secrets.yaml:3"),
    fleet_events.PublicationFailed("database space exceeded"),
    fleet_events.PublisherElected(3),
    fleet_events.PublisherWaits(30.0),
    fleet_events.PublisherLost("the lease is no more"),
    process_events.ReadinessChanged(""),
    process_events.ReadinessChanged("REST listener: degraded"),
    client_events.RequestAnswered("REST", 200, "127.0.0.1"),
    process_events.StateRestored(Path("/state"), 2, 3),
    process_events.LingeringDropped(3),
    client_events.MembersNotKept(NODE),
    client_events.AuthorityMissing(NODE, "xdstp:///envoy.config.cluster.v3.Cluster/*", "example.com"),
    process_events.MembersNotWritten(Path("/home/me/.local/state/fsxds/members"), "No space left on device"),
    process_events.StateIgnored("/state/history-9.sqlite", "another version of fsxds wrote it"),
    process_events.StopRequested("SIGTERM"),
    process_events.SettingsReloaded(("settle",), ("http",)),
    process_events.SettingsReloaded((), ()),
    process_events.SettingsRejected("no such setting"),
    process_events.InternalError("mirror", ERROR),
    process_events.ComponentDegraded("mirror", "disk full", 1.0),
    process_events.ComponentRecovered("mirror"),
    process_events.SnapshotSetAside("mirror", ERROR),
    file_events.WatchStarted("poll", "asked for"),
    file_events.TreeDisappeared("gone"),
    file_events.TreeReturned(),
    file_events.FilesIgnored((PATH,)),
    file_events.ConfigurationMissing(Path("/x"), (PATH,), (PATH,)),
    file_events.QueueOverflowed(),
    file_events.TreeLoaded(PROBLEMS, (HeldFile(PATH, PROBLEMS[0], has_last_good=True),)),
    file_events.SnapshotPublished(CHANGED, 0.0),
    *(rollout_events.RolloutChanged(("edge",), "canary", happened, {CLIENT: "edge-1"}) for happened in (
        StepStarted("1a", STEP), StepTimedOut("1a", STEP, frozenset((CLIENT,))), Completed("1a"), Superseded("1a"),
        PinsChanged("1a", 2, 0), PinsChanged("1a", 1, 2), PinsChanged("1a", 0, 1),
        Held("1a", (Removal(CDS.type_url, 5, 8, frozenset(((CDS.type_url, "a"),))),)), LingeringStarted("1a", frozenset(((CDS.type_url, "a"),))),
        LingeringEnded("1a", frozenset(((CDS.type_url, "a"),))),
    )),
    rollout_events.HoldsChanged(PROBLEMS[:1]),
    rollout_events.HoldsChanged(()),
    rollout_events.VersionsHeld(frozenset({REJECTED}), (RejectingNode("edge-1", "edge-1", {REJECTED: ("no such thing", 0.0)}),)),
    rollout_events.VersionsReleased(frozenset({REJECTED})),
    rollout_events.CanaryAwaited(1, 2),
    client_events.StreamOpened(NODE, "StreamClusters", "127.0.0.1"),
    client_events.StreamClosed(NODE, "StreamClusters", "127.0.0.1"),
    client_events.ResponseSent(NODE, SUBSCRIPTION, VERSION),
    client_events.AckReceived(NODE, SUBSCRIPTION, VERSION),
    client_events.NackReceived(NODE, SUBSCRIPTION, Acknowledgement(VERSION, accepted=False), (PATH,)),
    client_events.RequestRejected("127.0.0.1", 404, "no such path"),
    client_events.LimitReached("max-streams", "127.0.0.1"),
    client_events.RequestRejected("127.0.0.1", 403, "another node", "node edge-1"),
    file_events.FilesWritten(
        1, written=(PATH,), kept=(Remark("a", "b"),), left_sources=(Remark("a", "c"),), blocked=(Remark("a", "d"),),
        restored=(PATH,),
    ),
    file_events.MirrorFailed(OSError("disk full"), 1.0),
    upstream_events.UpstreamConnected("top", "10.0.0.1:18000", "Delta ADS"),
    upstream_events.UpstreamLost("top", "10.0.0.1:18000", "connection refused", 1.0, 3),
    upstream_events.UpstreamFailedOver("top", "10.0.0.1:18000", "10.0.0.2:18000", "connection refused"),
    upstream_events.UpstreamFailedOver("top", "10.0.0.2:18000", "10.0.0.1:18000"),
    upstream_events.UpstreamChanged("top", "10.0.0.1:18000", CDS.type_url, "1", 2, 1),
    upstream_events.UpstreamExpired("top", ((CDS.type_url, "a"),)),
    upstream_events.UpstreamUnanswered("top", (CDS.type_url,)),
    upstream_events.UpstreamRejected("top", "10.0.0.1:18000", CDS.type_url, "1", ('"a" is in it twice',)),
    upstream_events.UpstreamNacked("top", CDS.type_url, "node edge-1: no", frozenset("a"), was_sent=True),
    upstream_events.UpstreamLooped("top", "10.0.0.1:18000", ("1a", "2b")),
    upstream_events.UpstreamShadowed("top", 1, (((CDS.type_url, "a"), "the directory"),)),
    upstream_events.UpstreamShadowed("top", 0),
    upstream_events.UpstreamsRestored(Path("/state"), {"top": 3}, 60.0),
)  # fmt: skip


async def all_lines() -> list[LogLine]:
    """Return what becomes of one event of each class, of libraries, and of a local Envoy."""
    lines: list[LogLine] = []

    def render(line: LogLine, _: datetime) -> str:
        lines.append(line)
        return ""

    log = Log(LogOutput(render, lambda _: None, Level.DEBUG))
    for event in SAMPLES:
        log.receive(event)
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await log.report_changes()
    libraries = LibraryLogs(log.write)
    for level in (logging.ERROR, logging.DEBUG):
        libraries.handle(logging.LogRecord("asyncio", level, "", 0, "slow", None, (ValueError, ERROR, None)))
    envoy = LocalEnvoyLog(log.write)
    envoy.envoy_started("127.0.0.1:1", (Listening("web", "127.0.0.1:2"),))
    envoy.envoy_acked((CDS,), 1.0)
    envoy.envoy_nacked(EnvoyNack(CDS, "a", "b", ()), 1.0)
    envoy.envoy_pending(InProgress((), 1), (), 1.0)
    envoy.envoy_logged(EnvoyLogLine("warning", "config", "deprecated"))
    envoy.envoy_ended(EndedEnvoy(1, ()))
    log.receive(file_events.TreeLoaded((), ()))
    return lines


def strings(node: ast.AST) -> list[str]:
    """Return the strings that are written in a piece of code."""
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def modules_of_lines() -> Iterator[ast.Module]:
    """Yield the modules that make lines of the log."""
    for path in sorted((TOP / "fsxds").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "LogLine(" in text:
            yield ast.parse(text)


def test_every_line_is_in_the_catalogue() -> None:
    """The name that is given to a line has a row; names that are put together have one for each part."""
    calls = [call for tree in modules_of_lines() for call in ast.walk(tree) if isinstance(call, ast.Call)]
    names = {
        call.args[1].value
        for call in calls
        if ast.unparse(call.func) == "LogLine"
        and "level" in ast.unparse(call.args[0]).lower()
        and isinstance(call.args[1], ast.Constant)
    }

    assert len(names) > 15
    assert set() == names - EVENTS_BY_NAME.keys()


async def test_every_row_is_what_becomes_of_an_event() -> None:
    """Each event of the code makes lines of the catalogue: with the levels of its row, and in all with its fields."""
    fields: dict[str, set[str]] = defaultdict(set)
    for line in await all_lines():
        assert line.level in EVENTS_BY_NAME[line.event].levels, line
        fields[line.event] |= line.details.keys()

    classes = subclasses(Event)
    bases = {each.__name__ for each in classes if each.__subclasses__()}
    assert {type(event).__name__ for event in SAMPLES} == {each.__name__ for each in classes} - bases
    assert {row.event: set(row.fields) for row in CATALOGUE} == fields


def test_a_field_that_is_not_known_is_left_out() -> None:
    """A rejected request has a subject in the log only if it is about something."""
    plain = client_events.RequestRejected("127.0.0.1", 404, "no such path").line()
    about = client_events.RequestRejected("127.0.0.1", 403, "another node", "node edge-1").line()

    assert plain.details == {"peer": "127.0.0.1", "status": 404, "reason": "no such path"}
    assert about.details["subject"] == "node edge-1"


def test_the_end_of_an_error_is_in_every_log_that_had_it() -> None:
    """Who logs errors alone reads that the directory was lost, and that it is back."""
    assert file_events.TreeReturned().line().admitted_as is Level.ERROR
    assert file_events.TreeDisappeared("gone").line().admitted_as is None


def test_every_field_has_one_meaning() -> None:
    """The fields of all rows are those that are explained."""
    assert {name for row in CATALOGUE for name in row.fields} == FIELDS.keys()
    assert sorted(FIELDS) == list(FIELDS)
