from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from fsxds.events.event import Level, LogLine
from fsxds.events.file_events import FilesWritten, MirrorFailed, Remark
from fsxds.observe.mirror_lines import MirrorReports, summary

NOTHING = FilesWritten(1, unchanged=7, duration_s=0.012)
WRITTEN = replace(NOTHING, written=(PurePosixPath("cds.pb"), PurePosixPath("eds/web.pb"), PurePosixPath("cds.pb")))


def test_a_report() -> None:
    """A report counts what was written, removed and left alone; a bundle that was written twice is one file."""
    assert summary(WRITTEN) == "2 files written (cds.pb, eds/web.pb), 0 removed, 7 unchanged, in 12 ms"


def test_nothing_written_is_not_told() -> None:
    """A snapshot that changes no file makes no line."""
    assert list(MirrorReports().lines(NOTHING, 0.0)) == []


def test_what_others_did_to_the_files() -> None:
    """Files that somebody removed or changed are named in a line of their own."""
    lines = list(MirrorReports().lines(replace(WRITTEN, restored=(PurePosixPath("cds.pb"),)), 0.0))

    assert [(line.level, line.text) for line in lines[:1]] == [
        (Level.WARNING, "mirror: another program removed or changed cds.pb; fsxds wrote them again")
    ]


def test_remarks_are_told_while_they_are_new() -> None:
    """What was not done as asked is reported once, and again when it comes back."""
    lines: list[LogLine] = []
    reports = MirrorReports()
    blocked = replace(NOTHING, blocked=(Remark("cds.pb", "is not ours; move it away"),))
    for report in (blocked, blocked, NOTHING, blocked):
        lines.extend(reports.lines(report, 0.0))

    assert [line.text for line in lines] == ["mirror: cds.pb: is not ours; move it away"] * 2
    assert {line.level for line in lines} == {Level.ERROR}


def test_failure_and_recovery() -> None:
    """A directory that cannot be written is reported, and the success after it even when nothing had to be written."""
    lines: list[LogLine] = []
    reports = MirrorReports()
    lines.extend(reports.lines(MirrorFailed(OSError(28, "No space left on device", "/run/out/cds.pb"), 2.0), 0.0))
    lines.extend(reports.lines(NOTHING, 0.0))

    assert [line.text for line in lines] == [
        "mirror: [Errno 28] No space left on device: '/run/out/cds.pb'; trying again in 2 s, serving goes on",
        "mirror: 0 files written, 0 removed, 7 unchanged, in 12 ms",
    ]
