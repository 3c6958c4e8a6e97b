from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fsxds.events.event import Event
from fsxds.events.process_events import ReadinessChanged
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Snapshot
from fsxds.runtime.channels import Latest
from fsxds.runtime.row_source import UpstreamStatus
from fsxds.server.readiness import NOT_LOADED, NOT_MIRRORED, FirstAnswers, Readiness, ReadyFile, unready_reason

SILENT = UpstreamStatus("eu", ("a:1",), trouble="cannot connect: Connection refused")
HEARD = UpstreamStatus("us", ("b:1",), last_update_s=1.0)


def test_a_ready_file_is_written_at_once_and_removed(tmp_path: Path) -> None:
    """It is one JSON object in a directory that is made, and nothing else is left beside it."""
    path = tmp_path / "run" / "ready.json"
    ready_file = ReadyFile(path)
    ready_file.write({"http": "127.0.0.1:1", "pid": os.getpid()})

    assert json.loads(path.read_text()) == {"http": "127.0.0.1:1", "pid": os.getpid()}
    assert list(path.parent.iterdir()) == [path]

    ready_file.remove()
    assert list(path.parent.iterdir()) == []


def test_the_ready_file_of_a_process_that_was_killed_is_removed(tmp_path: Path) -> None:
    """Nobody shall take it for that of the new process, which is not ready."""
    path = tmp_path / "ready.json"
    path.write_text('{"pid": 1}')
    ReadyFile(path)

    assert not path.exists()


@pytest.mark.parametrize("content", ['{"pid": 1}', "[]", "{}", "no JSON"])
def test_the_ready_file_of_another_process_stays(tmp_path: Path, content: str) -> None:
    """A process that ends removes its own alone."""
    path = tmp_path / "ready.json"
    ready_file = ReadyFile(path)
    path.write_text(content)
    ready_file.remove()

    assert path.read_text() == content


def test_a_ready_file_is_not_taken_from_the_process_that_follows(tmp_path: Path) -> None:
    """Both have it while one hands over to the other: what changes for the first one then is not written."""
    path = tmp_path / "ready.json"
    ready_file = ReadyFile(path)
    ready_file.write({"pid": os.getpid()})
    ready_file.rewrite({"pid": os.getpid(), "versions": {}})
    assert json.loads(path.read_text()) == {"pid": os.getpid(), "versions": {}}

    path.write_text('{"pid": 1}')
    ready_file.rewrite({"pid": os.getpid()})

    assert path.read_text() == '{"pid": 1}'


def test_a_ready_file_that_is_missing_already_is_no_error(tmp_path: Path) -> None:
    """Somebody else removed it."""
    ReadyFile(tmp_path / "ready.json").remove()


def test_a_ready_file_that_cannot_be_written_or_removed_is_an_error_for_users(tmp_path: Path) -> None:
    """A directory is in its place, from the start or later."""
    with pytest.raises(UsageError, match="choose another --ready-file"):
        ReadyFile(tmp_path)

    ready_file = ReadyFile(tmp_path / "ready.json")
    (tmp_path / "ready.json").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        ready_file.write({})


# Connected, and asked for nothing before a client comes; and asked for what it does not answer.
UNASKED = UpstreamStatus("authority", ("1.2.3.4:5",), "1.2.3.4:5", "Delta ADS", "connected")
ASKED = replace(UNASKED, pending=(next(iter(BY_TYPE_URL)),))
GOOD = Snapshot(1, {})
BARREN = Snapshot(1, {}, withheld=frozenset(BY_TYPE_URL))
PARTLY_GOOD = Snapshot(1, {}, withheld=frozenset([*BY_TYPE_URL][1:]))


@pytest.mark.parametrize(
    ("views", "is_mirrored", "lost", "reason"),
    [
        (None, True, (), "the configuration is not loaded yet"),
        ((), True, (), ""),
        ((GOOD,), True, (), ""),
        ((PARTLY_GOOD,), True, (), ""),
        ((GOOD, BARREN), True, (), "1 of 2 views have no content; no file there is without a mistake"),
        ((GOOD,), False, (), "the first mirrored files are not written yet"),
        ((GOOD,), True, ("REST listener", "gRPC listener"), "REST listener, gRPC listener: degraded"),
    ],
)
def test_clients_are_served_when_each_view_has_something_good(
    views: tuple[Snapshot, ...] | None, is_mirrored: bool, lost: tuple[str, ...], reason: str
) -> None:
    """And the mirrors have their first files, and no listener is lost; the reason names nothing of the configuration."""
    assert unready_reason(views, is_mirrored=is_mirrored, lost=lost) == reason


@pytest.mark.parametrize(
    ("statuses", "is_over", "views", "reason"),
    [
        ((SILENT, HEARD), False, (GOOD,), "1 of 2 upstreams did not answer yet"),
        ((SILENT, HEARD), False, (BARREN,), "1 of 2 upstreams did not answer yet"),
        ((SILENT, HEARD), True, (GOOD,), ""),
        ((SILENT,), True, (BARREN,), "1 of 1 views have no content; 1 of 1 upstreams have sent no resource yet"),
        ((HEARD,), False, (GOOD,), ""),
        ((HEARD,), False, (BARREN,), "the configuration is not loaded yet"),
        ((HEARD,), True, (BARREN,), "1 of 1 views have no content; no file there is without a mistake"),
        ((SILENT,), False, None, "the configuration is not loaded yet"),
        ((UNASKED,), False, (BARREN,), ""),
        ((UNASKED, SILENT), False, (GOOD,), "1 of 2 upstreams did not answer yet"),
        ((ASKED,), False, (GOOD,), "1 of 1 upstreams did not answer yet"),
    ],
)
def test_upstreams_are_awaited(
    statuses: tuple[UpstreamStatus, ...], is_over: bool, views: tuple[Snapshot, ...] | None, reason: str
) -> None:
    """One that says nothing, and did not to an earlier process; after a while alone where there is nothing else.

    One that nobody asks for anything is not awaited: clients come to who is ready.
    """
    answers = FirstAnswers.of(statuses, is_over=is_over)

    assert unready_reason(views, is_mirrored=True, lost=(), answers=answers) == reason


def test_a_server_without_upstreams_serves_names_that_others_ask_for() -> None:
    """In a fleet it has no content before a client asks; a server with a silent upstream waits for that all the same."""
    follower = FirstAnswers.of((), is_over=True, asks_others=True)
    publisher = FirstAnswers.of((SILENT,), is_over=True, asks_others=True)

    assert unready_reason((BARREN,), is_mirrored=True, lost=(), answers=follower) == ""
    assert "have no content" in unready_reason((BARREN,), is_mirrored=True, lost=(), answers=publisher)


def test_what_is_awaited_of_upstreams_is_named_in_the_log_alone() -> None:
    """`/readyz` is open to everybody: it has counts."""
    answers = FirstAnswers.of((SILENT, HEARD), is_over=False)

    assert str(answers) == "the first answer of upstream eu (cannot connect: Connection refused)"
    assert "eu" not in unready_reason((GOOD,), is_mirrored=True, lost=(), answers=answers)


async def test_who_follows_readiness_is_woken_when_it_changes() -> None:
    """By a load, by another degraded component, and by the first mirrored files; what every start waits for is no event."""
    reasons = [NOT_LOADED]
    published: Latest[object] = Latest(None)
    degraded: Latest[tuple[str, ...]] = Latest(())
    written, received = asyncio.Event(), list[Event]()
    readiness = Readiness(lambda: reasons[-1], degraded, received.append)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(readiness.keep_current(published, [written]))
        reasons.append(NOT_MIRRORED)
        published.replace(1)
        await readiness.reason.other_than(NOT_LOADED)
        reasons.append("")
        written.set()
        assert await readiness.reason.other_than(readiness.reason.current) == ""
        state = readiness.state.current
        degraded.replace(("watcher",))
        assert await readiness.state.other_than(state) == ("", ("watcher",))
        assert readiness.reason.current == ""
        reasons.append("REST listener: degraded")
        degraded.replace(("watcher", "REST listener"))
        await readiness.reason.other_than(readiness.reason.current)
        running.cancel()

    assert received == [ReadinessChanged(""), ReadinessChanged("REST listener: degraded")]
