"""(n): what a start costs `fsxds serve`, with and without what the last one left; what a look at the tree costs; memory."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.server.loading_rules import find_catalogue
from fsxds.settings.options import Settings
from fsxds.snapshots.parse import FileParser
from fsxds.source.scan import Scanner
from tests.bench import processes
from tests.bench.data import lean_clusters, write_tree
from tests.bench.diverse import TYPES, write_diverse_tree
from tests.bench.figures import Figure, cpu_of
from tests.bench.loading import usual_way
from tests.support.settings_files import file_flags

WriteTree: TypeAlias = Callable[[Path, int, int], object]
"""Writes so many resources in so many files below a directory."""

TREES: Mapping[str, WriteTree] = {"uniform": write_tree, "diverse": write_diverse_tree}
"""Trees by what is in them."""

RESOURCES = 4000
FILES = 100
SCANNED = 10_000
SCANS = 8
STARTS = 3  # of those that take a second or so, the best
IN_MEMORY = 10_000
# Nothing else happens meanwhile, and nothing is said of names that nobody defines or uses: trees hold hundreds of them.
ABSENT = ("no-cluster", "no-endpoints", "no-route-configuration", "no-scoped-route", "no-secret")
UNUSED = ("unused-endpoints", "unused-route-configuration")
QUIET = ("--log-level", "error", "--rules", ",".join(f"{rule}=off" for rule in (*ABSENT, *UNUSED)))


def cpu_of_start(tree: Path, cache: Path) -> float:
    """Return the CPU seconds of a server until it is ready, its workers' included, with what the cache has."""
    with processes.fsxds(tree, "--cache-dir", str(cache), *QUIET) as server:
        return server.cpu_s(with_children=True)


def starts(name: str, write: WriteTree) -> Iterator[Figure]:
    """Compare a start with an empty cache, one with a full one, and the usual way of reading the same files."""
    with tempfile.TemporaryDirectory() as folder:
        tree, empty, cache = (Path(folder, part) for part in ("tree", "empty", "cache"))
        for directory in (tree, empty):
            directory.mkdir()
        write(tree, RESOURCES, FILES)
        # Once, what is read of the Envoy's executable is kept: that is no part of a cold start.
        cpu_of_start(empty, cache)
        bare_s = min(cpu_of_start(empty, cache) for _ in range(STARTS))
        cold_s = cpu_of_start(tree, cache)
        warm_s = min(cpu_of_start(tree, cache) for _ in range(STARTS))
        catalogue = find_catalogue(Settings())
        usual_s = sum(_usual_cost(path, catalogue) for path in tree.rglob("*.yaml"))
    size = f"{RESOURCES} resources in {FILES} files"
    yield Figure(f"(n) cold start / CSafeLoader + ParseDict, {name}", (cold_s - bare_s) / usual_s, 0.25, "",
                 f"{size}: {cold_s - bare_s:.2f} s beyond the {bare_s:.2f} s of an empty tree, against {usual_s:.2f} s CPU")  # fmt: skip
    yield Figure(f"(n) warm start / cold start, {name}", warm_s / cold_s, 0.5, "",
                 f"{size}: {warm_s:.2f} s against {cold_s:.2f} s CPU; {bare_s:.2f} s with an empty tree")  # fmt: skip


def _usual_cost(path: Path, catalogue: Catalogue) -> float:
    content = path.read_bytes()
    return cpu_of(lambda: usual_way(content, catalogue))[0]


def rescan() -> Iterator[Figure]:
    """Compare a look at a tree in which nothing changed with asking the system for the same, by a server that polls."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for number in range(SCANNED):
            directory = tree / f"part-{number // 100:03d}"
            directory.mkdir(exist_ok=True)
            (directory / f"clusters-{number:05d}.yaml").write_text(lean_clusters(number, 1))
        floor_s = min(cpu_of(partial(_look, tree))[0] for _ in range(SCANS))
        with processes.fsxds(tree, "--watch", "poll", *file_flags(poll="1s", rescan="24h"), *QUIET) as server:
            time.sleep(2)
            before_s, began_s = server.exact_cpu_s(), time.monotonic()
            time.sleep(SCANS)
            each_s = (server.exact_cpu_s() - before_s) / (time.monotonic() - began_s)
    detail = f"{SCANNED} files in 100 directories: {each_s * 1e3:.0f} ms against {floor_s * 1e3:.0f} ms CPU"
    yield Figure("(n) rescan of 10 000 files / os.scandir and stat", each_s / floor_s, 2, "", detail)


def _look(directory: Path | str) -> int:
    """Count the files of a tree, with the status of each."""
    count = 0
    with os.scandir(directory) as entries:
        for one in entries:
            if one.is_dir(follow_symlinks=False):
                count += _look(one.path)
            else:
                count += one.stat(follow_symlinks=False).st_size > 0
    return count


def memory(name: str, write: WriteTree) -> Iterator[Figure]:
    """Compare what a server's memory grows by for each resource with the bytes that it sends of it."""
    with tempfile.TemporaryDirectory() as folder:
        tree, empty = Path(folder, "tree"), Path(folder, "empty")
        for directory in (tree, empty):
            directory.mkdir()
        write(tree, IN_MEMORY, FILES)
        with processes.fsxds(empty, *QUIET) as server:
            bare_bytes = server.memory_bytes()
        with processes.fsxds(tree, *QUIET) as server:
            server.resting_cpu_s()
            each_bytes = (server.memory_bytes() - bare_bytes) / IN_MEMORY
    sent_bytes = _bytes_of_one(write)
    detail = f"{IN_MEMORY} resources, {name}: {each_bytes:.0f} bytes for {sent_bytes:.0f}"
    yield Figure(f"(n) memory of a resource / its bytes, {name}", each_bytes / sent_bytes, 3, "", detail)


def _bytes_of_one(write: WriteTree) -> float:
    """Return the mean of the bytes of a thousand resources."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), 1000, len(TYPES))
        scanner = Scanner(Path(folder), is_read=lambda path: path.endswith(".yaml"))
        parser = FileParser(find_catalogue(Settings()))
        found = [resource for file in scanner.scan().files for resource in parser.parse(file).resources]
    return sum(len(resource.body) for resource in found) / len(found)


def rows_for() -> dict[str, Callable[[], Iterator[Figure]]]:
    """Return the rows by name, those that depend on what is in the files for each of the trees."""
    rows: dict[str, Callable[[], Iterator[Figure]]] = {"rescan": rescan}
    for name, write in TREES.items():
        rows[f"start-{name}"] = partial(starts, name, write)
        rows[f"memory-{name}"] = partial(memory, name, write)
    return rows
