from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import forkserver
from pathlib import Path, PurePosixPath
from typing import Any, Never

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hooks
from fsxds.disk_cache.parsed_files import ParseCache
from fsxds.events.event import Event
from fsxds.events.file_events import CacheRead
from fsxds.model.resources import ParsedFile
from fsxds.model.values import BackOff, Severity, SourceFile
from fsxds.server.parse_worker import ParseJob, ParseRules, ParseWorker, WorkerStartError, file_key, parse_all
from fsxds.server.parsing import MOST_EDITED_FILES, ParseLimits, Parsing, cores, parse_now
from fsxds.snapshots.parse import FileParser
from fsxds.snapshots.proposals import Found, NoCheck
from tests.support.this_envoy import this_envoy
from tests.support.trees import tree_of

SMALL = tree_of({"cds.yaml": "- name: a\n", "eds.yaml": "- cluster_name: e\n"}).files


@pytest.fixture(scope="module")
def rules() -> ParseRules:
    """What Envoy knows, with unknown fields as errors."""
    return ParseRules(this_envoy())


ALL_APART = ParseLimits(apart_above_bytes=0, file_apart_above_bytes=0, patience_s=60, first_patience_s=60)
"""Everything is parsed by the worker, and waited for."""


@asynccontextmanager
async def parsing_apart(
    rules: ParseRules, limits: ParseLimits = ALL_APART, look_again: Callable[[], object] = lambda: None
) -> AsyncIterator[Parsing]:
    """Parse everything in the worker, and wait for it."""
    async with asyncio.TaskGroup() as tasks:
        with Parsing(rules, limits, look_again) as parsing:
            keeping = tasks.create_task(parsing.keep_parsing())
            yield parsing
            keeping.cancel()


def large(count: int) -> tuple[SourceFile, ...]:
    """Return one file of so many clusters."""
    cluster = (
        "- name: c{}\n  connect_timeout: 1s\n  load_assignment: {{cluster_name: a, endpoints: [{{priority: 1}}]}}\n"
    )
    return tree_of({"cds.yaml": "".join(cluster.format(number) for number in range(count))}).files


def worker_pids(parsing: Parsing) -> list[int]:
    """Return the process ids of the workers; nothing public tells them."""
    return [lane.worker.pid for lane in parsing._lanes if lane.worker]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def is_gone(pid: int) -> bool:
    """Wait until a process was reaped; it is no child of this one."""
    async with asyncio.timeout(60):
        while is_alive(pid):  # noqa: ASYNC110  # the kernel has no event for the end of another's child
            await asyncio.sleep(0.01)
    return True


@asynccontextmanager
async def longest_stall_s() -> AsyncIterator[list[float]]:
    """Measure how long the event loop lets others wait while the block runs; the last of the list is the longest."""
    stalls = [0.0]

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0)
            stalls[-1] = max(stalls[-1], time.perf_counter() - before)
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(tick())
        yield stalls
        ticking.cancel()


async def test_small_files_are_parsed_here(rules: ParseRules) -> None:
    """Files of few bytes need no worker; results come in their order."""
    with Parsing(rules) as parsing:
        parsed = await parsing.parse(SMALL)

        assert [file.path for file in SMALL] == [file.path for file in parsed]
        assert [["a"], ["e"]] == [[resource.name for resource in file.resources] for file in parsed]
        assert worker_pids(parsing) == []


async def test_no_files_need_no_worker(rules: ParseRules) -> None:
    """Nothing to parse is done at once."""
    async with parsing_apart(rules) as parsing:
        assert await parsing.parse(()) == ()
        assert worker_pids(parsing) == []


async def test_worker_says_what_would_be_said_here(rules: ParseRules) -> None:
    """What comes from the worker is equal to what parsing here gives, problems and places too."""
    files = (*SMALL, *tree_of({"lds.yaml": "- name: l\n  typo: 1\n", "x.yaml": "["}).files)
    here = parse_all(FileParser(rules.catalogue, rules.unknown_fields), files)

    async with parsing_apart(rules) as parsing:
        apart = await parsing.parse(files)
        assert worker_pids(parsing)

    assert here == apart
    assert [list(map(str, file.problems)) for file in here] == [list(map(str, file.problems)) for file in apart]
    assert [resource.origin for file in here for resource in file.resources] == [
        resource.origin for file in apart for resource in file.resources
    ]


async def test_worker_weighs_unknown_fields_as_told(rules: ParseRules) -> None:
    """The worker knows what the process knows: the API, and how much an unknown field weighs."""
    files = tree_of({"cds.yaml": "- name: a\n  typo: 1\n"}).files

    async with parsing_apart(ParseRules(rules.catalogue, Severity.WARNING)) as parsing:
        (parsed,) = await parsing.parse(files)

    assert [Severity.WARNING] == [problem.severity for problem in parsed.problems]
    assert [resource.name for resource in parsed.resources] == ["a"]


async def test_one_worker_serves_all_reloads(rules: ParseRules) -> None:
    """The worker stays, so that only the first large reload pays for its start."""
    async with parsing_apart(rules) as parsing:
        await parsing.parse(SMALL)
        first = worker_pids(parsing)
        await parsing.parse(SMALL)

        assert len(first) == 1
        assert first == worker_pids(parsing)


async def test_large_parse_does_not_stall_the_loop(rules: ParseRules) -> None:
    """While a large file is parsed apart, others wait far less than the parsing takes, the worker's start included."""
    files = large(10_000)
    begin = time.perf_counter()
    parse_all(FileParser(rules.catalogue), files)
    parsing_s = time.perf_counter() - begin

    async with parsing_apart(rules) as parsing, longest_stall_s() as stalls:
        (parsed,) = await parsing.parse(files)

    assert len(parsed.resources) == 10_000
    assert stalls[-1] < parsing_s / 3, (stalls, parsing_s)


async def test_killed_worker_is_replaced(rules: ParseRules) -> None:
    """A worker that was killed while it had nothing to do is replaced at the next parse."""
    async with parsing_apart(rules) as parsing:
        await parsing.parse(SMALL)
        (killed,) = worker_pids(parsing)
        os.kill(killed, signal.SIGKILL)
        await is_gone(killed)

        parsed = await parsing.parse(SMALL)

        assert [(), ()] == [file.problems for file in parsed]
        assert [["a"], ["e"]] == [[resource.name for resource in file.resources] for file in parsed]
        assert killed not in worker_pids(parsing)


async def kill_workers(parsing: Parsing, most: int) -> None:
    """Kill each worker as it starts, so many of them."""
    killed: set[int] = set()
    while len(killed) < most:
        for pid in set(worker_pids(parsing)) - killed:
            killed.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.001)


async def test_file_that_kills_its_parser_is_tried_until_it_is_parsed(rules: ParseRules) -> None:
    """A file of which each worker dies has a problem that says when it is tried again, and is parsed once it can be."""
    looks = asyncio.Event()
    limits = replace(ALL_APART, back_off=BackOff(first_s=0.02, longest_s=0.04))
    (file,) = files = large(1000)
    async with parsing_apart(rules, limits, looks.set) as parsing, asyncio.TaskGroup() as tasks:
        killer = tasks.create_task(kill_workers(parsing, 1000))
        (parsed,) = await parsing.parse(files)
        assert [problem.rule for problem in parsed.problems] == ["parser-died"]
        assert "killed 2 times; it is tried again 0.02s after" in parsed.problems[0].message
        assert not parsed.is_good
        assert (file.path, "") == (parsed.path, parsed.digest), "it is asked for again at every look"
        while "again and again" not in parsed.problems[0].message:
            await looks.wait()
            looks.clear()
            (parsed,) = await parsing.parse(files)
        killer.cancel()
        while not parsed.is_good:
            await looks.wait()
            looks.clear()
            (parsed,) = await parsing.parse(files)
        assert parsed.digest == file.digest


async def test_files_beside_a_deadly_one_are_parsed(rules: ParseRules) -> None:
    """When the worker dies of one of several files, the others are parsed by the next one, and wait for nothing."""
    deadly = SourceFile.of(PurePosixPath("cds.yaml"), b"- name: a\n")
    async with parsing_apart(rules) as parsing, asyncio.TaskGroup() as tasks:
        killer = tasks.create_task(kill_while_parsing(parsing, deadly))
        died, good = await parsing.parse((deadly, SMALL[1]))
        killer.cancel()

    assert [problem.rule for problem in died.problems] == ["parser-died"]
    assert ["e"] == [resource.name for resource in good.resources]


async def kill_while_parsing(parsing: Parsing, deadly: SourceFile) -> None:
    """Kill each worker before it can answer about one file."""
    while True:
        for lane in parsing._lanes:
            if lane.running and lane.worker and deadly in [job.file for job in lane.running[0]]:
                with suppress(ProcessLookupError):
                    os.kill(lane.worker.pid, signal.SIGKILL)
        await asyncio.sleep(0)


class DyingCheck(NoCheck):
    """A check that ends the process which reads it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a call of `os._exit`."""
        return os._exit, (3,)


async def test_worker_that_does_not_start_is_nobodys_fault(rules: ParseRules) -> None:
    """Where no worker starts, the component fails, and no file is said to have killed a parser."""
    limits = replace(ALL_APART, first_patience_s=0)
    with Parsing(ParseRules(rules.catalogue, check=DyingCheck()), limits) as parsing:
        (parsed,) = await parsing.parse(SMALL[:1])
        with pytest.raises(WorkerStartError):
            await parsing.keep_parsing()
        (again,) = await parsing.parse(SMALL[:1])

    assert ["still-parsing"] * 2 == [found.rule for file in (parsed, again) for found in file.problems]


def test_server_that_forks_may_be_killed_while_it_does(rules: ParseRules) -> None:
    """That is no error of fsxds: it has words for the log, and the next worker starts by a new server."""
    ParseWorker.start(rules).end()
    server: int = vars(forkserver._forkserver)["_forkserver_pid"]
    os.kill(server, signal.SIGSTOP)
    killer = threading.Timer(0.2, os.kill, (server, signal.SIGKILL))
    killer.start()

    with pytest.raises(WorkerStartError, match="no process that parses files can be started"):
        ParseWorker.start(rules)

    killer.join()
    # Until it has ended for its parent too, which then starts another one.
    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
    ParseWorker.start(rules).end()


async def test_file_that_takes_too_long_is_a_problem(rules: ParseRules) -> None:
    """A file that takes more processor time than it may has a problem that stands until its content changes."""
    limits = replace(ALL_APART, time_s=0.5)
    hostile = SourceFile.of(PurePosixPath("cds.yaml"), b"---\n- a\n" * 200_000)
    async with parsing_apart(rules, limits) as parsing:
        slow, good = await parsing.parse((hostile, SMALL[1]))

    assert ["parse-time"] == [problem.rule for problem in slow.problems]
    assert "parse_time" in slow.problems[0].remedy
    assert slow.digest == hostile.digest
    assert good.is_good


async def test_others_do_not_wait_for_a_slow_file(rules: ParseRules) -> None:
    """A file that is not done in time is said to be parsed still, no look waits for it twice, and its end is a new look."""
    done = asyncio.Event()
    limits = replace(ALL_APART, file_apart_above_bytes=1000, apart_above_bytes=10**9, first_patience_s=0)
    files = (*large(2000), SMALL[1])
    async with parsing_apart(rules, limits, done.set) as parsing:
        slow, good = await parsing.parse(files)
        again, _ = await parsing.parse(files)
        assert ["still-parsing"] == [problem.rule for problem in slow.problems]
        assert slow == again
        assert good.is_good
        await done.wait()
        parsed, _ = await parsing.parse(files)

    assert len(parsed.resources) == 2000


class FailingCheck(NoCheck):
    """A check that fails."""

    def adjusted(self, found: Found) -> Never:
        """Fail as nobody expects."""
        raise ZeroDivisionError(found.message)


@pytest.mark.parametrize("limits", [ParseLimits(), ALL_APART], ids=["here", "apart"])
async def test_error_of_fsxds_is_a_problem_of_one_file(rules: ParseRules, limits: ParseLimits) -> None:
    """A file on which fsxds fails has a problem with the place of the error and nothing of its content; others go on."""
    files = (tree_of({"cds.yaml": "- name: a\n  s3cret: 1\n"}).files[0], SMALL[1])
    async with parsing_apart(ParseRules(rules.catalogue, check=FailingCheck()), limits) as parsing:
        broken, good = await parsing.parse(files)

    assert ["internal-error"] == [problem.rule for problem in broken.problems]
    assert "ZeroDivisionError at " in broken.problems[0].message
    assert "s3cret" not in str(broken.problems[0])
    assert broken.digest == files[0].digest
    assert good.is_good


async def test_shutdown_leaves_no_worker(rules: ParseRules) -> None:
    """At the end of the block the worker is gone, also when nobody waits for its result any more."""
    async with parsing_apart(rules) as parsing:
        await parsing.parse(SMALL)
        (pid,) = worker_pids(parsing)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                # It would take half a minute.
                await parsing.parse(large(100_000))
        begin = time.perf_counter()

    assert time.perf_counter() - begin < 10
    assert await is_gone(pid)


async def test_ending_without_a_worker(rules: ParseRules) -> None:
    """Where no worker was needed there is nothing to end."""
    with Parsing(rules):
        pass


async def test_api_of_the_worker_is_that_of_the_process(rules: ParseRules) -> None:
    """A worker tells of unknown types as this process does, by the name of the API in use."""
    catalogue = Catalogue.of(rules.catalogue.serialized, "some API")
    files = tree_of({"a.yaml": "- '@type': x/no.such.Type\n"}).files

    async with parsing_apart(ParseRules(catalogue)) as parsing:
        (parsed,) = await parsing.parse(files)

    assert "some API" in parsed.problems[0].message


SIDE_BY_SIDE = replace(ALL_APART, workers=2)


def many(count: int) -> tuple[SourceFile, ...]:
    """Return so many files, of which each is a batch, and all together are worth another worker."""
    padding = f"# {'x' * 98}\n" * 2600
    return tree_of({f"{number:03}.cds.yaml": f"{padding}- name: c{number}\n" for number in range(count)}).files


def names_in(parsed: Iterable[ParsedFile]) -> list[str]:
    """Return the names of all resources."""
    return [resource.name for file in parsed for resource in file.resources]


async def test_many_files_are_parsed_side_by_side(rules: ParseRules) -> None:
    """Where much waits, another worker starts, and ends when nothing does; results come in the order of the files."""
    files = many(40)
    seen: set[int] = set()

    async def look() -> None:
        while True:
            seen.update(worker_pids(parsing))
            await asyncio.sleep(0)

    async with parsing_apart(rules, SIDE_BY_SIDE) as parsing, asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(look())
        parsed = await parsing.parse(files)
        looking.cancel()
        assert len(seen) == 2
        while len(worker_pids(parsing)) > 1:  # noqa: ASYNC110  # it ends when its turn comes
            await asyncio.sleep(0.01)
        await parsing.parse(many(2))
        assert len(worker_pids(parsing)) == 1

    assert names_in(parsed) == [f"c{number}" for number in range(40)]
    assert [file.path for file in files] == [file.path for file in parsed]


async def test_little_needs_one_worker(rules: ParseRules) -> None:
    """Where little waits, one worker does it."""
    async with parsing_apart(rules, SIDE_BY_SIDE) as parsing:
        await parsing.parse(many(3))

        assert len(worker_pids(parsing)) == 1


async def test_edits_of_a_large_file_go_to_the_worker_that_knows_it(rules: ParseRules) -> None:
    """However large a file is, no other worker starts for it alone: that would parse all of it again at every second edit."""
    padding = f"# {'x' * 98}\n" * 12_000
    seen: set[int] = set()

    async def look() -> None:
        while True:
            seen.update(worker_pids(parsing))
            await asyncio.sleep(0)

    async with parsing_apart(rules, SIDE_BY_SIDE) as parsing, asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(look())
        for number in range(6):
            await parsing.parse(tree_of({"cds.yaml": f"{padding}- name: c{number}\n"}).files)
            await asyncio.sleep(0.1)  # until all workers wait again
        looking.cancel()

    assert len(seen) == 1


async def test_killed_workers_lose_nothing(rules: ParseRules) -> None:
    """Workers that are killed again and again while they parse side by side delay their files, and lose none."""
    files = many(30)
    async with parsing_apart(rules, SIDE_BY_SIDE) as parsing, asyncio.TaskGroup() as tasks:
        killer = tasks.create_task(kill_workers(parsing, 6))
        parsed = await parsing.parse(files)
        killer.cancel()
        died = [file for file in parsed if not file.is_good]
        assert all(problem.rule == "parser-died" for file in died for problem in file.problems)
        while died:
            await asyncio.sleep(0.05)
            parsed = await parsing.parse(files)
            died = [file for file in parsed if not file.is_good]

    assert names_in(parsed) == [f"c{number}" for number in range(30)]


class DeadlyCheck(NoCheck):
    """A check that ends the process which finds a fault."""

    def adjusted(self, _: Found) -> Never:
        """End the process."""
        os._exit(3)


async def test_a_worker_that_dies_blames_its_own_files_alone(rules: ParseRules) -> None:
    """Of workers side by side, one dies on each attempt at one file; all others are parsed."""
    deadly = tree_of({"050.cds.yaml": "- name: a\n  typo: 1\n"}).files
    async with parsing_apart(ParseRules(rules.catalogue, check=DeadlyCheck()), SIDE_BY_SIDE) as parsing:
        *others, last = await parsing.parse((*many(20), *deadly))

    assert names_in(others) == [f"c{number}" for number in range(20)]
    assert ["parser-died"] == [problem.rule for problem in last.problems]


async def test_a_file_that_another_worker_dies_on_is_tried_again(rules: ParseRules) -> None:
    """Whichever worker died on it, and however small it is."""
    limits = replace(SIDE_BY_SIDE, back_off=BackOff(first_s=0.05, longest_s=0.05))
    deadly = tree_of({"050.cds.yaml": "- name: a\n  typo: 1\n"}).files[0]
    async with parsing_apart(ParseRules(rules.catalogue, check=DeadlyCheck()), limits) as parsing:
        await asyncio.sleep(0)
        job = ParseJob(deadly, deaths=1)
        parsing._queue.jobs[file_key(deadly)] = job
        # The first worker is idle when the second one dies on it for the second time.
        parsing._queue._taken.add(job)
        await asyncio.sleep(0.01)
        parsing._receive_batch(parsing._lanes[1], [job], None)
        async with asyncio.timeout(60):
            while job.deaths < 4:  # noqa: ASYNC110, nothing tells of a death
                await asyncio.sleep(0.01)


async def test_commands_parse_as_serving_does(rules: ParseRules) -> None:
    """Parsing at once, with or without workers, inside of an event loop or not, gives what a parser gives."""
    files = (*many(34), *tree_of({"x.yaml": "["}).files)
    right = parse_all(FileParser(rules.catalogue), files)

    assert parse_now(files, rules, SIDE_BY_SIDE) == right
    assert await asyncio.to_thread(parse_now, files, rules, SIDE_BY_SIDE) == right
    assert await asyncio.to_thread(parse_now, files, rules, replace(SIDE_BY_SIDE, workers=1)) == right


async def test_commands_see_how_many_files_are_parsed(rules: ParseRules) -> None:
    """With workers or without: the number of parsed files rises, to all of them."""
    files = many(34)
    seen: dict[int, list[tuple[int, int]]] = {1: [], SIDE_BY_SIDE.workers: []}
    for workers, counts in seen.items():
        note = partial(_note_counts, counts)
        await asyncio.to_thread(parse_now, files, rules, replace(SIDE_BY_SIDE, workers=workers), None, note)

    for counts in seen.values():
        assert counts == sorted(counts)
        assert ((34, 34), True) == (counts[-1], len(counts) > 2)


def _note_counts(counts: list[tuple[int, int]], parsed: int, all_files: int) -> None:
    counts.append((parsed, all_files))


async def test_commands_do_without_workers(rules: ParseRules) -> None:
    """Where no worker starts, a command parses by itself."""
    dying = ParseRules(rules.catalogue, check=DyingCheck())

    parsed = await asyncio.to_thread(parse_now, many(34), dying, SIDE_BY_SIDE)

    assert len(names_in(parsed)) == 34


async def test_results_go_to_the_cache(rules: ParseRules, tmp_path: Path) -> None:
    """What was parsed here and apart is found by the next process, and then nothing is parsed."""
    files = (*many(3), *SMALL)
    limits = ParseLimits(apart_above_bytes=10**9)
    events: list[Event] = []

    def cache() -> ParseCache:
        return ParseCache(tmp_path, tmp_path, rules, events.append)

    async with asyncio.TaskGroup() as tasks:
        with Parsing(rules, limits, cache=cache()) as parsing:
            keeping = [tasks.create_task(work()) for work in (parsing.keep_parsing, parsing.keep_written)]
            first = await parsing.parse(files)
            assert worker_pids(parsing)
            for task in keeping:
                task.cancel()
    with Parsing(rules, limits, cache=cache()) as parsing:
        again = await parsing.parse(files)
        assert not worker_pids(parsing)

    assert first == again
    assert events == [CacheRead(0, 5), CacheRead(5, 5)]
    assert parse_now(files, rules, limits, cache()) == first


@dataclass(frozen=True)
class CountingCheck(NoCheck):
    """Counts the clusters that any process parses, by the bytes of a file."""

    counts: Path

    def message_hooks(self, _: Catalogue) -> Hooks:
        """Count in the walk over each."""
        return {"envoy.config.cluster.v3.Cluster": (self.count,)}

    def count(self, *_: object) -> None:
        """Count one."""
        with self.counts.open("ab") as file:
            file.write(b".")


def test_first_edit_after_a_start_costs_what_it_changes(rules: ParseRules, tmp_path: Path) -> None:
    """Of a large file that came from the cache, the next content is parsed by its items, as it is when it was parsed."""
    check = CountingCheck(tmp_path / "counts")
    counting = ParseRules(rules.catalogue, check=check)

    def list_of(number: int) -> tuple[SourceFile, ...]:
        items = "".join(f"- name: c{index}\n  alt_stat_name: {'x' * 400}\n" for index in range(1000))
        return tree_of({"cds.yaml": f"{items}- name: last{number}\n"}).files

    async def parse_twice(number: int) -> int:
        """Return how many clusters the second content costs."""
        cache = ParseCache(tmp_path / "cache", tmp_path, counting, lambda _: None)
        async with asyncio.TaskGroup() as tasks:
            with Parsing(counting, ALL_APART, cache=cache) as parsing:
                keeping = [tasks.create_task(work()) for work in (parsing.keep_parsing, parsing.keep_written)]
                await parsing.parse(list_of(number))
                before = len(check.counts.read_bytes())
                (parsed,) = await parsing.parse(list_of(number + 1))
                for task in keeping:
                    task.cancel()
        assert len(parsed.resources) == 1001
        assert parsed.resources[-1].name == f"last{number + 1}"
        return len(check.counts.read_bytes()) - before

    assert asyncio.run(parse_twice(1)) == 1
    check.counts.write_bytes(b"")
    assert asyncio.run(parse_twice(2)) == 1
    assert len(check.counts.read_bytes()) == 1


HALF_KIB = "x" * 500


def list_with(changed: range, to: str, count: int = 1000) -> tuple[SourceFile, ...]:
    """Return one large file of clusters of half a KiB, of which some differ."""
    marks = [to if index in changed else "same" for index in range(count)]
    items = (f"- name: c{index}\n  alt_stat_name: {mark}{HALF_KIB}\n" for index, mark in enumerate(marks))
    return tree_of({"cds.yaml": "".join(items)}).files


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[SourceFile, ...]]:
    """Return a list of what workers are asked to parse from now on."""
    batches: list[tuple[SourceFile, ...]] = []
    parse = ParseWorker.parse

    def parse_and_note(self: ParseWorker, files: tuple[SourceFile, ...], *others: Any) -> tuple[bytes, ...]:
        batches.append(files)
        return parse(self, files, *others)

    monkeypatch.setattr(ParseWorker, "parse", parse_and_note)
    return batches


PATIENT = ParseLimits(patience_s=60, first_patience_s=60)
EDITS = [range(3, 4), range(0), range(998, 1000)]


@pytest.mark.parametrize("is_cached", [False, True], ids=["from a worker", "from the cache"])
async def test_small_edit_of_a_large_file_asks_no_worker(
    rules: ParseRules, tmp_path: Path, asked: list[tuple[SourceFile, ...]], is_cached: bool
) -> None:
    """Wherever it was parsed first, the edits of a large file are parsed here, and say what the whole says."""
    base = list_with(range(0), "")

    def cache() -> ParseCache:
        return ParseCache(tmp_path, tmp_path, rules, lambda _: None)

    if is_cached:
        parse_now(base, rules, ParseLimits(), cache())
    async with asyncio.TaskGroup() as tasks:
        with Parsing(rules, PATIENT, cache=cache()) as parsing:
            keeping = tasks.create_task(parsing.keep_parsing())
            await parsing.parse(base)
            assert len(asked) == (not is_cached)
            asked.clear()
            base[0].pack()
            for changed in EDITS:
                files = list_with(changed, "other")
                parsed = await parsing.parse(files)

                right = parse_all(FileParser(rules.catalogue), files)
                assert parsed == right
                assert [row.origin for row in parsed[0].resources] == [row.origin for row in right[0].resources]
            assert asked == []
            keeping.cancel()


async def test_large_change_goes_to_a_worker_that_knows_the_edits(
    rules: ParseRules, tmp_path: Path, asked: list[tuple[SourceFile, ...]]
) -> None:
    """After edits here, a worker parses what is new of a larger change, and edits after that are parsed here again."""
    check = CountingCheck(tmp_path / "counts")

    async def cost_of(files: tuple[SourceFile, ...]) -> int:
        check.counts.write_bytes(b"")
        assert await parsing.parse(files) == parse_all(FileParser(rules.catalogue), files)
        return len(check.counts.read_bytes())

    async with parsing_apart(ParseRules(rules.catalogue, check=check), PATIENT) as parsing:
        assert await cost_of(list_with(range(0), "")) == 1000
        assert await cost_of(list_with(range(7), "edited")) == 7
        assert len(asked) == 1
        assert await cost_of(list_with(range(400), "edited")) == 393
        assert len(asked) == 2
        assert await cost_of(list_with(range(401), "edited")) == 1
        assert len(asked) == 2


async def test_files_that_are_gone_are_forgotten(rules: ParseRules) -> None:
    """Of large files under ever new names, parsed and edited, nothing is kept when they are not there any more."""

    async def parse_and_edit(parsing: Parsing, number: int) -> None:
        for changed in (range(0), range(3, 4), range(4, 5)):
            (file,) = list_with(changed, "other")
            await parsing.parse((SourceFile.of(PurePosixPath(f"{number}-cds.yaml"), file.content),))

    def known() -> set[str]:
        gc.collect()
        return {each.path.name for each in gc.get_objects() if isinstance(each, ParsedFile | SourceFile)}

    async with asyncio.TaskGroup() as tasks:
        with Parsing(rules, PATIENT) as parsing:
            keeping = tasks.create_task(parsing.keep_parsing())
            for number in range(3):
                await parse_and_edit(parsing, number)
            parsing.forget_gone(tree_of({"2-cds.yaml": ""}))

            assert {f"{number}-cds.yaml" for number in range(3)} & known() == {"2-cds.yaml"}
            keeping.cancel()


async def test_edit_with_a_mistake_goes_to_a_worker(rules: ParseRules, asked: list[tuple[SourceFile, ...]]) -> None:
    """What is wrong in an edit is what the whole says; its correction is an edit of the last good content."""
    async with parsing_apart(rules, PATIENT) as parsing:
        await parsing.parse(list_with(range(0), ""))
        faulty = tree_of({"cds.yaml": list_with(range(0), "")[0].content + b"- name: d\n  typo: 1\n"}).files
        assert await parsing.parse(faulty) == parse_all(FileParser(rules.catalogue), faulty)
        assert len(asked) == 2
        (parsed,) = await parsing.parse(list_with(range(5), "other"))

    assert parsed.is_good
    assert len(asked) == 2


@dataclass(frozen=True)
class FailingHere(NoCheck):
    """A check that fails in one process."""

    pid: int

    def message_hooks(self, _: Catalogue) -> Hooks:
        """Fail in the walk over each cluster."""
        return {"envoy.config.cluster.v3.Cluster": (self.fail,)}

    def fail(self, *_: object) -> None:
        """Fail as nobody expects."""
        if os.getpid() == self.pid:
            raise ZeroDivisionError


async def test_edit_on_which_parsing_here_fails_goes_to_a_worker(
    rules: ParseRules, asked: list[tuple[SourceFile, ...]]
) -> None:
    """An error of fsxds in an edit ends nothing: the worker says what the file holds."""
    async with parsing_apart(ParseRules(rules.catalogue, check=FailingHere(os.getpid())), PATIENT) as parsing:
        await parsing.parse(list_with(range(0), ""))
        (parsed,) = await parsing.parse(list_with(range(1), "other"))

    assert parsed.is_good
    assert len(asked) == 2


async def test_many_edits_at_once_go_to_workers(rules: ParseRules, asked: list[tuple[SourceFile, ...]]) -> None:
    """Of more large files than a few, none is parsed here."""

    def trees(to: str) -> tuple[SourceFile, ...]:
        (file,) = list_with(range(1), to, 300)
        return tree_of({f"{number}.cds.yaml": file.content for number in range(MOST_EDITED_FILES + 1)}).files

    async with parsing_apart(rules, PATIENT) as parsing:
        await parsing.parse(trees("one"))
        before = len(asked)
        await parsing.parse(trees("other"))
        assert len(asked) == before + MOST_EDITED_FILES + 1
        await parsing.parse(trees("third")[1:])
        assert len(asked) == before + MOST_EDITED_FILES + 1


def test_cores_are_those_of_this_process() -> None:
    """A process that may use one core has one."""
    usable = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(usable)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, usable)
    assert 1 <= cores() <= len(usable)
