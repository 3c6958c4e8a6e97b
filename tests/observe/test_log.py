from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import pytest

from fsxds.events.client_events import AckReceived, NackReceived, RequestRejected, ResponseSent
from fsxds.events.event import Level, LogLine
from fsxds.events.file_events import (
    ConfigurationMissing,
    FilesIgnored,
    QueueOverflowed,
    TreeDisappeared,
    TreeLoaded,
    TreeReturned,
    WatchStarted,
)
from fsxds.events.process_events import ApiFound, ListeningStarted, StopRequested
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import HeldFile, Problem, Severity, Version
from fsxds.observe.internal_errors import MOST_KEYS, RepeatLimit
from fsxds.observe.log import Clock, Log, LogOutput
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription

CDS = Subscription(BY_SHORT_NAME["cds"].type_url)
NODE = Node("edge-1", "edge", "127.0.0.1")
VERSION = Version("0123456789abcdef")


class RecordedLog:
    """A log whose lines and clock are in the hands of a test."""

    def __init__(self, level: Level = Level.INFO) -> None:
        self.now_s = 100.0
        self.lines: list[str] = []
        clock = Clock(lambda: self.now_s, lambda: datetime(2026, 5, 1, 12, 3, 11, tzinfo=UTC))
        self.log = Log(LogOutput(self._render, self.lines.append, level), clock)

    def _render(self, line: LogLine, moment: datetime) -> str:
        return f"{line.level.name} {line.event}: {line.text}"


def test_what_a_stranger_needs_to_know_first() -> None:
    """API, addresses and the way of watching are reported in a line each."""
    recorded = RecordedLog()
    recorded.log.receive(ApiFound("Envoy 1.40.0 from /usr/bin/envoy, 557 files"))
    recorded.log.receive(ListeningStarted("REST", "127.0.0.1:18001"))
    recorded.log.receive(WatchStarted("poll", "config/xds is on nfs"))
    recorded.log.receive(StopRequested("SIGTERM"))

    assert recorded.lines == [
        "INFO api_found: API: Envoy 1.40.0 from /usr/bin/envoy, 557 files",
        "INFO listening: REST: 127.0.0.1:18001",
        "INFO watching: watching by poll: config/xds is on nfs",
        "INFO stopping: stopping: SIGTERM",
    ]


def test_what_happens_to_the_tree() -> None:
    """A lost tree, its return, ignored files and lost events are reported."""
    recorded = RecordedLog()
    recorded.log.receive(TreeDisappeared("config/xds: is gone"))
    recorded.log.receive(TreeReturned())
    recorded.log.receive(FilesIgnored((PurePosixPath("a.txt"),)))
    recorded.log.receive(FilesIgnored(tuple(PurePosixPath(f"{number}.txt") for number in range(9))))
    excluded = (PurePosixPath("Chart.yaml"),)
    recorded.log.receive(ConfigurationMissing(Path("/config"), (PurePosixPath("a.txt"),), excluded))
    recorded.log.receive(QueueOverflowed())

    assert recorded.lines == [
        "ERROR tree_lost: config/xds: is gone; fsxds serves the last content until the directory is back",
        "INFO tree_found: the tree is back",
        "INFO files_ignored: a.txt: ignored, no format has this suffix",
        "INFO files_ignored: 0.txt, 1.txt, 2.txt and 6 more: ignored, no format has these suffixes",
        (
            "WARNING waiting_for_files: waiting for configuration: no file in /config has one of the suffixes .yaml, .yml, "
            ".json, .textproto, .txtpb, .pbtxt, .prototxt, .pb_text, .pb, .binpb; ignored: a.txt; excluded: Chart.yaml"
        ),
        "WARNING queue_overflowed: too many file events at once: reading the whole tree again",
    ]


def test_problems() -> None:
    """The problems of a tree and the state that they bring about are reported."""
    recorded = RecordedLog()
    problem = Problem(PurePosixPath("edge.yaml"), 17, 3, "", "bad-syntax", "a colon is missing", "")
    held = HeldFile(problem.path, problem, has_last_good=True)
    recorded.log.receive(TreeLoaded((problem,), (held,)))

    assert recorded.lines == [
        "ERROR problem_found: edge.yaml:17:3: error: a colon is missing",
        "WARNING degraded: not served: edge.yaml:17: a colon is missing; the last good version stays, since 12:03:11",
    ]


@pytest.mark.parametrize(("level", "expected"), [(Level.ERROR, 2), (Level.WARNING, 4), (Level.INFO, 4)])
def test_the_end_of_a_problem_is_in_every_log_that_had_it(level: Level, expected: int) -> None:
    """What a log of this level had as a problem it has as fixed too, and never the end of what it did not have."""
    recorded = RecordedLog(level)
    error = Problem(PurePosixPath("edge.yaml"), 17, 3, "", "bad-syntax", "a colon is missing", "")
    note = replace(error, severity=Severity.NOTE, message="nobody uses it")
    held = HeldFile(error.path, error, has_last_good=True)
    recorded.log.receive(TreeLoaded((error, note), (held,)))
    recorded.log.receive(TreeLoaded((), ()))

    assert len(recorded.lines) == expected
    assert recorded.lines[-1].startswith("INFO ")


def test_what_reads_like_success_names_what_is_not_served() -> None:
    """A line about what was served or taken ends with the files that are held."""
    recorded = RecordedLog()
    path = PurePosixPath("edge.yaml")
    recorded.log.receive(TreeLoaded((), (HeldFile(path, None, has_last_good=True),)))
    recorded.log.write(LogLine(Level.INFO, "envoy_acked", "Envoy ACKed clusters after 9 ms"))

    assert recorded.lines[-1] == "INFO envoy_acked: Envoy ACKed clusters after 9 ms; not served: edge.yaml"


def test_nacks() -> None:
    """A NACK has node, type, the first digits of the version, its files, and the reason or how it was inferred."""
    recorded = RecordedLog()
    files = (PurePosixPath("cds.yaml"), PurePosixPath("edge.yaml"))
    recorded.log.receive(
        NackReceived(NODE, CDS, Acknowledgement(VERSION, accepted=False, reason="no such\nfilter"), files)
    )
    recorded.log.receive(NackReceived(Node(""), CDS, Acknowledgement(VERSION, accepted=False), ()))

    assert recorded.lines == [
        "WARNING nack_received: NACK: edge-1 rejected cds 0123456789ab from cds.yaml, edge.yaml: no such\nfilter",
        (
            "WARNING nack_received: NACK: a client without an id rejected cds 0123456789ab:"
            " it requested the type again with its previous version; see the client's log"
        ),
    ]


def test_a_long_reason_is_cut() -> None:
    """Envoy may quote a megabyte of configuration; the log does not."""
    recorded = RecordedLog()
    recorded.log.receive(NackReceived(NODE, CDS, Acknowledgement(VERSION, accepted=False, reason="x" * 1_000_000), ()))

    assert len(recorded.lines[0]) < 600


def test_acks_are_for_debugging() -> None:
    """Answers and ACKs are reported at level debug alone."""
    for level, count in ((Level.INFO, 0), (Level.DEBUG, 2)):
        recorded = RecordedLog(level)
        recorded.log.receive(ResponseSent(NODE, CDS, VERSION))
        recorded.log.receive(AckReceived(NODE, CDS, VERSION))

        assert count == len(recorded.lines)


def test_refusals_are_told_once_in_ten_seconds() -> None:
    """The same rejection of the same peer is reported again after ten seconds, with the number of those between."""
    recorded = RecordedLog()
    for _ in range(5):
        recorded.log.receive(RequestRejected("10.0.0.1", 404, "no such path"))
    recorded.log.receive(RequestRejected("10.0.0.2", 404, "no such path"))
    recorded.now_s += 10
    recorded.log.receive(RequestRejected("10.0.0.1", 404, "no such path"))

    assert recorded.lines == [
        "WARNING request_rejected: rejected a request of 10.0.0.1 with 404: no such path",
        "WARNING request_rejected: rejected a request of 10.0.0.2 with 404: no such path (4 rejections before it omitted)",
        "WARNING request_rejected: rejected a request of 10.0.0.1 with 404: no such path",
    ]


def test_a_loop_of_nacks_is_one_line_in_ten_seconds() -> None:
    """A client that rejects the same again and again, and one that does so in ever new words, fill no log."""
    recorded = RecordedLog()

    def reject(reason: str) -> None:
        recorded.log.receive(NackReceived(NODE, CDS, Acknowledgement(VERSION, accepted=False, reason=reason), ()))

    for _ in range(1000):
        reject("no such filter")
    assert len(recorded.lines) == 1
    recorded.now_s += 10
    reject("no such filter")
    assert len(recorded.lines) == 2
    assert recorded.lines[1].endswith("no such filter (999 NACKs before it omitted)")
    for number in range(1000):
        reject(f"no filter {number}")
    assert len(recorded.lines) == 1 + MOST_KEYS


def test_refusals_that_differ_are_limited_too() -> None:
    """A client that is rejected in ever new words fills neither log nor memory."""
    limit = RepeatLimit()
    answers = [limit.admit(("10.0.0.1", f"bad JSON at {number}"), 0.0) for number in range(1000)]

    assert [0] * MOST_KEYS + [None] * (1000 - MOST_KEYS) == answers
    assert limit.admit(("10.0.0.1", "bad JSON"), 10.0) == 1000 - MOST_KEYS


@pytest.mark.parametrize("log_format", ["auto", "json", "human"])
def test_the_log_is_on_stderr(log_format: str) -> None:
    """Lines go to stderr, as JSON where that is no terminal, and stdout stays free."""
    code = f"from fsxds.events.file_events import TreeReturned\nfrom fsxds.observe.log import open_log\nwith open_log({log_format!r}, 'info') as log: log.receive(TreeReturned())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == ""
    if log_format == "human":
        assert done.stderr[8:] == " the tree is back\n"
    else:
        assert json.loads(done.stderr)["event"] == "tree_found"


def test_the_last_lines_get_out() -> None:
    """A slow reader of the log gets the last lines of a process that ends."""
    code = (
        "from fsxds.events.process_events import ListeningStarted\n"
        "from fsxds.observe.log import open_log\n"
        "with open_log('json', 'info') as log:\n"
        "    for number in range(300): log.receive(ListeningStarted('x' * 1000, str(number)))"
    )
    reader, writer = os.pipe()
    with subprocess.Popen([sys.executable, "-c", code], stderr=writer) as process:
        os.close(writer)
        with os.fdopen(reader) as stream:
            lines = stream.read().splitlines()

        assert process.wait() == 0
    assert [json.loads(line)["address"] for line in lines] == [str(number) for number in range(300)]
