"""What the log says of upstreams, how often, and what it never says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.events.event import Level, LogLine
from fsxds.events.upstream_events import (
    UpstreamConnected,
    UpstreamEvent,
    UpstreamFailedOver,
    UpstreamLooped,
    UpstreamLost,
    UpstreamNacked,
    UpstreamRejected,
    UpstreamShadowed,
)
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.observe.upstream_lines import REMINDER_S, UpstreamReports

CDS = BY_SHORT_NAME["cds"].type_url
CONNECTED = UpstreamConnected("top", "10.0.0.1:18000", "Delta ADS")
NACKED = UpstreamNacked("top", CDS, "node edge-1: no such thing", frozenset({"web"}), was_sent=True)
LOST = UpstreamLost("top", "10.0.0.1:18000", "cannot connect: Connection refused", 1.0, 3)


def said(reports: UpstreamReports, event: UpstreamEvent, now_s: float = 0.0) -> list[LogLine]:
    """Return the lines of an event at a time."""
    return list(reports.lines(event, now_s))


def line(event: UpstreamEvent) -> LogLine:
    """Return the only line of an event that nothing came before."""
    (only,) = said(UpstreamReports(), event)
    return only


@pytest.mark.parametrize(
    ("event", "level", "words"),
    [
        (CONNECTED, Level.INFO, "upstream top: connected with 10.0.0.1:18000 by Delta ADS"),
        (UpstreamConnected("a:1", "a:1", "REST"), Level.INFO, "upstream a:1: connected by REST"),
        (LOST, Level.WARNING, "upstream top: no connection with 10.0.0.1:18000: cannot connect: Connection refused; its 3 resources stay; fsxds tries again"),
        (replace(LOST, resources=0), Level.WARNING, "upstream top: no connection with 10.0.0.1:18000: cannot connect: Connection refused; no resource is known yet; fsxds tries again"),
        (UpstreamFailedOver("top", "a:1", "b:1", "it gives no response"), Level.WARNING, "upstream top: b:1 replaces a:1: it gives no response"),
        (UpstreamFailedOver("top", "b:1", "a:1"), Level.INFO, "upstream top: a:1 answers again, and replaces b:1"),
        (UpstreamRejected("top", "top", CDS, "7", ("web: no message", "b: 2", "c: 3", "d: 4")), Level.WARNING, "upstream top: NACKed clusters 7: web: no message; b: 2; c: 3 and 1 more; its valid resources are served, with the last good version of the others"),
        (NACKED, Level.WARNING, "upstream top: clusters web: held back from all nodes; node edge-1: no such thing; it was NACKed"),
        (replace(NACKED, was_sent=False), Level.WARNING, "upstream top: clusters web: held back from all nodes; node edge-1: no such thing; it is not connected, and got no NACK"),
        (UpstreamLooped("top", "a:1", ("1", "2")), Level.ERROR, "upstream top: a loop: a:1 gets its resources from here (1 → 2), so fsxds ignores it; resources received before stay; remove one of the --upstream options on the way"),
        (UpstreamLooped("top", "a:1", ()), Level.ERROR, "upstream top: a loop: a:1 gets its resources from here, so fsxds ignores it; resources received before stay; remove one of the --upstream options on the way"),
        (UpstreamShadowed("top", 2, (((CDS, "web"), "the directory"),)), Level.INFO, "upstream top: earlier sources replace 2 resources of it: cds web (of the directory)"),
        (UpstreamShadowed("top", 0), Level.INFO, "upstream top: earlier sources replace none of its resources any more"),
    ],
)  # fmt: skip
def test_words(event: UpstreamEvent, level: Level, words: str) -> None:
    """Place, fact and what becomes of what is held."""
    assert (line(event).level, line(event).text) == (level, words)


def test_an_outage_is_one_line_and_a_reminder() -> None:
    """Attempts that fail for the same reason are counted; another reason, and each outage, has a line of its own."""
    reports = UpstreamReports()

    assert len(said(reports, LOST, 0.0)) == 1
    assert [said(reports, LOST, second) for second in range(20, int(REMINDER_S), 20)] == [[]] * 14
    (reminder,) = said(reports, LOST, REMINDER_S + 1)
    assert reminder.details["repeats"] == 14
    assert len(said(reports, replace(LOST, reason="cannot connect: timed out"), REMINDER_S + 2)) == 1
    assert len(said(reports, CONNECTED, REMINDER_S + 2)) == 1
    assert len(said(reports, LOST, REMINDER_S + 20)) == 1


def test_a_server_that_lets_clients_in_and_ends_at_once_fills_no_log() -> None:
    """The last line always says what is; a thousand connections in ten seconds are two lines."""
    reports = UpstreamReports()
    lines = [each for tick in range(1000) for event in (CONNECTED, LOST) for each in said(reports, event, tick / 100)]

    assert [each.event for each in lines] == ["upstream_connected", "upstream_lost", "upstream_connected"]
    (last,) = said(reports, LOST, 20.0)
    assert last.details["repeats"] == 999


def test_other_outages_are_said_beside() -> None:
    """What repeats at one upstream keeps nothing of another one from the log."""
    reports = UpstreamReports()

    assert len(said(reports, LOST)) == 1
    assert len(said(reports, replace(LOST, upstream="other"))) == 1
    assert len(said(reports, replace(CONNECTED, upstream="other"))) == 1
    assert said(reports, replace(CONNECTED, upstream="other")) == []


@pytest.mark.parametrize(
    "event",
    [
        UpstreamRejected("top", "a:1", CDS, "7", ('web: "hunter2 is my password"',)),
        replace(NACKED, reason='node n: Proto constraint: inline_string: "hunter2 is here"'),
        UpstreamLost("top", "a:1", "the server ended the stream: Bearer hunter2hunter2", 1.0),
        UpstreamFailedOver("top", "a:1", "b:1", "see https://me:hunter2@example.com/"),
    ],
)
def test_words_of_others_are_masked_and_cut(event: UpstreamEvent) -> None:
    """A server, or an Envoy, may quote what it was sent."""
    found = line(event)

    assert "hunter2" not in found.text + str(found.details)


def test_reasons_that_all_differ_fill_no_log() -> None:
    """A server that ends each stream with other words has ten lines."""
    reports = UpstreamReports()
    events = [replace(LOST, reason=f"it says {number}") for number in range(1000)]

    assert len([each for event in events for each in said(reports, event)]) == 10


def test_a_hostile_server_fills_no_log() -> None:
    """Of rejections that all differ, a hundred are said in ten seconds; each is cut."""
    reports = UpstreamReports()
    events = [UpstreamRejected("top", "a:1", CDS, "7", (f"{number}{'x' * 10_000}",)) for number in range(1000)]
    lines = [each for event in events for each in said(reports, event)]

    assert len(lines) == 100
    assert len(said(reports, replace(events[-1], upstream="other"))) == 1
    assert max(len(each.text) for each in lines) < 1000
