from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.parse_worker import parse_all
from fsxds.parsing import ParseRules, Parsing
from fsxds.snapshots.document import FileParser
from fsxds.sources.envoy_api import find_api
from fsxds.values import Severity, SourceFile
from tests.support.trees import tree_of

SMALL = tree_of({"cds.yaml": "- name: a\n", "eds.yaml": "- cluster_name: e\n"}).files


@pytest.fixture(scope="module")
def rules() -> ParseRules:
    """What Envoy knows, with unknown fields as errors."""
    return ParseRules(find_api(envoy=None, descriptors=None, cache_dir=None))


def large(count: int) -> tuple[SourceFile, ...]:
    """Return one file of so many clusters."""
    cluster = (
        "- name: c{}\n  connect_timeout: 1s\n  load_assignment: {{cluster_name: a, endpoints: [{{priority: 1}}]}}\n"
    )
    return tree_of({"cds.yaml": "".join(cluster.format(number) for number in range(count))}).files


def worker_pids(parsing: Parsing) -> list[int]:
    """Return the worker's process id, none where there is no worker; nothing public tells it."""
    return [parsing._worker.pid] if parsing._worker else []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def is_gone(pid: int) -> bool:
    """Wait until a process was reaped; it is no child of this one."""
    async with asyncio.timeout(5):
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
    with Parsing(rules, apart_above_bytes=0) as parsing:
        assert await parsing.parse(()) == ()
        assert worker_pids(parsing) == []


async def test_worker_says_what_would_be_said_here(rules: ParseRules) -> None:
    """What comes from the worker is equal to what parsing here gives, problems and places too."""
    files = (*SMALL, *tree_of({"lds.yaml": "- name: l\n  typo: 1\n", "x.yaml": "["}).files)
    here = parse_all(FileParser(rules.catalogue, rules.unknown_fields), files)

    with Parsing(rules, apart_above_bytes=0) as parsing:
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

    with Parsing(ParseRules(rules.catalogue, Severity.WARNING), apart_above_bytes=0) as parsing:
        (parsed,) = await parsing.parse(files)

    assert [Severity.WARNING] == [problem.severity for problem in parsed.problems]
    assert [resource.name for resource in parsed.resources] == ["a"]


async def test_one_worker_serves_all_reloads(rules: ParseRules) -> None:
    """The worker stays, so that only the first large reload pays for its start."""
    with Parsing(rules, apart_above_bytes=0) as parsing:
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

    with Parsing(rules, apart_above_bytes=0) as parsing:
        async with longest_stall_s() as stalls:
            (parsed,) = await parsing.parse(files)

    assert len(parsed.resources) == 10_000
    assert stalls[-1] < parsing_s / 3, (stalls, parsing_s)


async def test_killed_worker_is_replaced(rules: ParseRules) -> None:
    """A worker that was killed while it had nothing to do is replaced at the next parse."""
    with Parsing(rules, apart_above_bytes=0) as parsing:
        await parsing.parse(SMALL)
        (killed,) = worker_pids(parsing)
        os.kill(killed, signal.SIGKILL)
        await is_gone(killed)

        parsed = await parsing.parse(SMALL)

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


async def test_file_that_kills_every_worker_is_a_problem(rules: ParseRules) -> None:
    """A file of which each worker dies is told as a problem, and the next one is parsed."""
    files = large(1000)
    with Parsing(rules, apart_above_bytes=0) as parsing:
        async with asyncio.TaskGroup() as tasks:
            killer = tasks.create_task(kill_workers(parsing, 1000))
            (parsed,) = await parsing.parse(files)
            killer.cancel()

        assert [problem.rule for problem in parsed.problems] == ["parser-died"]
        assert not parsed.is_good
        assert (files[0].path, files[0].digest) == (parsed.path, parsed.digest)
        assert [file.is_good for file in await parsing.parse(SMALL)] == [True, True]


async def test_files_beside_a_deadly_one_are_parsed(rules: ParseRules) -> None:
    """When the worker dies of several files, each gets a try of its own."""
    with Parsing(rules, apart_above_bytes=0) as parsing:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kill_workers(parsing, 2))
            parsed = await parsing.parse(SMALL)

    assert [["a"], ["e"]] == [[resource.name for resource in file.resources] for file in parsed]


async def test_shutdown_leaves_no_worker(rules: ParseRules) -> None:
    """At the end of the block the worker is gone, also when nobody waits for its result any more."""
    with Parsing(rules, apart_above_bytes=0) as parsing:
        await parsing.parse(SMALL)
        (pid,) = worker_pids(parsing)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await parsing.parse(large(20_000))
        begin = time.perf_counter()

    assert time.perf_counter() - begin < 2
    assert await is_gone(pid)


async def test_ending_without_a_worker(rules: ParseRules) -> None:
    """Where no worker was needed there is nothing to end."""
    with Parsing(rules):
        pass


async def test_api_of_the_worker_is_that_of_the_process(rules: ParseRules) -> None:
    """A worker tells of unknown types as this process does, by the name of the API in use."""
    catalogue = Catalogue.of(rules.catalogue.serialized, "some API")
    files = tree_of({"a.yaml": "- '@type': x/no.such.Type\n"}).files

    with Parsing(ParseRules(catalogue), apart_above_bytes=0) as parsing:
        (parsed,) = await parsing.parse(files)

    assert "some API" in parsed.problems[0].message
