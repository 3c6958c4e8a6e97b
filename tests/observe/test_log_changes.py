from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePosixPath

from fsxds.events.event import Level, LogLine, count_of, some_of
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Snapshot, TypeChange
from fsxds.observe.log import ChangeReports, PublishedChange

CDS = BY_SHORT_NAME["cds"].type_url
EDS = BY_SHORT_NAME["eds"].type_url
LDS = BY_SHORT_NAME["lds"].type_url


def snapshot(generation: int, **changes: TypeChange) -> Snapshot:
    """Return a snapshot without resources that came about by these changes."""
    return Snapshot(generation, {}, changes={BY_SHORT_NAME[name].type_url: row for name, row in changes.items()})


@asynccontextmanager
async def reporting() -> AsyncIterator[tuple[ChangeReports, asyncio.Queue[LogLine]]]:
    """Run reports in the background, their lines in a queue."""
    lines: asyncio.Queue[LogLine] = asyncio.Queue()
    reports = ChangeReports(lines.put_nowait, time.monotonic)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reports.report())
        yield reports, lines
        running.cancel()


def test_a_report() -> None:
    """A report says what changed per type, from which files, which clients were sent it, and how long it took."""
    change = PublishedChange(
        types={
            CDS: TypeChange(2, ("a",), ("b", "c"), (), (PurePosixPath("edge.yaml"), PurePosixPath("cds.yaml"))),
            EDS: TypeChange(2, (), ("b",), (), (PurePosixPath("eds.yaml"),)),
        },
        detected_s=10.0,
        last_s=10.063,
        clients=dict.fromkeys(("edge-1", "edge-2", "edge-3", "edge-4")),
    )

    line = change.line()

    assert line.text == (
        "+1 ~2 -0 clusters, +0 ~1 -0 endpoints from cds.yaml, edge.yaml, eds.yaml"
        " for 4 clients: edge-1, edge-2, edge-3 and 1 more in 63 ms"
    )
    assert line.details == {
        "changes": {
            "cds": {"added": 1, "changed": 2, "removed": 0},
            "eds": {"added": 0, "changed": 1, "removed": 0},
        },
        "files": ["cds.yaml", "edge.yaml", "eds.yaml"],
        "client_count": 4,
        "clients": ["edge-1", "edge-2", "edge-3"],
        "took_ms": 63,
    }


def test_a_report_without_clients() -> None:
    """When nobody waited, the report says so, and how long publication took."""
    change = PublishedChange({CDS: TypeChange(1, (), (), ("a",), ())}, detected_s=1.0, last_s=1.012)

    assert change.line().text == "+0 ~0 -1 clusters, published in 12 ms, no client waited"


async def test_answers_are_gathered() -> None:
    """A change is reported once, after its answers, each client counted once."""
    async with reporting() as (reports, lines):
        reports.publish(snapshot(1, cds=TypeChange(1, ("a",))), time.monotonic())
        for client in ("edge-1", "edge-2", "edge-1"):
            reports.answer(CDS, client)
        line = await lines.get()

    assert line.text.startswith("+1 ~0 -0 clusters for 2 clients: edge-1, edge-2 in ")
    assert lines.empty()


async def test_a_report_names_who_rejected_the_change() -> None:
    """A change that a client rejected does not end on a line that reads like success."""
    async with reporting() as (reports, lines):
        reports.publish(snapshot(1, cds=TypeChange(1, ("a",))), time.monotonic())
        reports.answer(CDS, "edge-1")
        reports.reject(CDS, "edge-1")
        reports.reject(EDS, "edge-2")
        line = await lines.get()

    assert line.text.endswith("; rejected by edge-1")
    assert line.details["rejected_by"] == ["edge-1"]


async def test_an_answer_belongs_to_the_change_of_its_type() -> None:
    """Answers of a type count for the newest change of that type, and otherwise for none."""
    async with reporting() as (reports, lines):
        reports.publish(snapshot(1, cds=TypeChange(1, ("a",))), time.monotonic())
        reports.publish(snapshot(2, cds=TypeChange(1, ("a",)), eds=TypeChange(2, ("a",))), time.monotonic())
        reports.answer(CDS, "one")
        reports.answer(EDS, "two")
        reports.answer(LDS, "three")
        texts = [(await lines.get()).text for _ in range(2)]

    assert texts[0].startswith("+1 ~0 -0 clusters for 1 client: one in ")
    assert texts[1].startswith("+1 ~0 -0 endpoints for 1 client: two in ")


async def test_the_end_reports_what_is_open() -> None:
    """A change that was published just before the end is reported nevertheless."""
    async with reporting() as (reports, lines):
        await asyncio.sleep(0)
        reports.publish(snapshot(1, cds=TypeChange(1, ("a",))), time.monotonic())

    assert lines.get_nowait().text.startswith("+1 ~0 -0 clusters")


async def test_a_publication_without_changes() -> None:
    """When no resource changed, that is reported to those who debug alone."""
    lines: list[LogLine] = []
    ChangeReports(lines.append, time.monotonic).publish(snapshot(2, cds=TypeChange(1, ("a",))), 0.0)

    assert [Level.DEBUG] == [line.level for line in lines]


async def test_gathering_ends() -> None:
    """A stream of answers without end does not put a report off for ever."""
    now_s = 0.0

    def later() -> float:
        nonlocal now_s
        now_s += 0.1
        return now_s

    lines: asyncio.Queue[LogLine] = asyncio.Queue()
    reports = ChangeReports(lines.put_nowait, later)
    reports.publish(snapshot(1, cds=TypeChange(1, ("a",))), 0.0)

    async def answer_for_ever() -> None:
        while True:
            reports.answer(CDS, "edge")
            await asyncio.sleep(0.001)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(reports.report()), tasks.create_task(answer_for_ever())]
            line = await lines.get()
            for task in running:
                task.cancel()

    assert line.text.startswith("+1 ~0 -0 clusters for 1 client: edge")


def test_phrases() -> None:
    """Numbers agree with their nouns, and long lists are cut."""
    assert count_of(1, "file") == "1 file"
    assert count_of(0, "file") == "0 files"
    assert some_of(["a", "b", "c"]) == "a, b, c"
    assert some_of(("a", "b", "c", "d", "e")) == "a, b, c and 2 more"
