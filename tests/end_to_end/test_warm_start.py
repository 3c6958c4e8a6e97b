"""What files parsed to outlives a process: killed ones, two at once, full disks, and directories of others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fsxds.disk_cache.parsed_files import DIRECTORY
from tests.support.fsxds_process import FsxdsProcess, run_fsxds, start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.server import events_in, write_file

FILES = 60

# So many bytes that the cache is used, and a worker parses.
PADDING = f"# {'x' * 100}\n" * 250


@dataclass
class Serving:
    """A server that is ready."""

    process: FsxdsProcess
    ready: dict[str, Any]
    log: Path

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of the log about one event."""
        return [line for line in events_in(self.log.read_bytes()) if line["event"] == name]

    @property
    def found(self) -> tuple[int, int]:
        """How many files the cache knew, of how many."""
        (line,) = self.events("cache_read")
        return line["found"], line["count"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of many files, one with a warning."""
    for number in range(FILES):
        write_file(tmp_path / "tree" / f"{number:02}.cds.yaml", content_of(number))
    return tmp_path / "tree"


def content_of(number: int, timeout: str = "1s") -> str:
    """Return a file of two clusters; of the first, one field is deprecated."""
    more = "  hidden_envoy_deprecated_max_requests_per_connection: 1\n" if not number else ""
    return f"{PADDING}- name: a{number}\n  type: STATIC\n  connect_timeout: {timeout}\n{more}- name: b{number}\n  type: STATIC\n"


def start(tree: Path, cache: Path, name: str, *flags: str) -> tuple[FsxdsProcess, Path, Path]:
    """Start a server; return it with its ready file and its log."""
    log, ready = (tree.parent / f"{name}.{suffix}" for suffix in ("log", "ready"))
    ready.unlink(missing_ok=True)
    places = ("--cache-dir", str(cache), "--ready-file", str(ready), "--unknown-fields", "warn", "--log-format", "json")
    arguments = ["serve", str(tree), "--http", "127.0.0.1:0", "--grpc", "off", *places, *flags]
    with log.open("wb") as file:
        return start_fsxds(arguments, stdout=file, stderr=file), ready, log


@contextmanager
def serving(tree: Path, cache: Path, name: str = "server") -> Iterator[Serving]:
    """Serve until everything is served, and end in good order."""
    process, ready, log = start(tree, cache, name)
    try:
        yield Serving(process, wait_for(ready, process, log), log)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def wait_for(ready: Path, process: FsxdsProcess, log: Path) -> dict[str, Any]:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s and process.poll() is None:
        if ready.exists():
            content: dict[str, Any] = json.loads(ready.read_text())
            return content["versions"]  # type: ignore[no-any-return]
        time.sleep(0.01)
    raise AssertionError(log.read_text())


def test_next_start_parses_nothing(tree: Path, tmp_path: Path) -> None:
    """The second start finds every file, serves the same versions, and reports the same problems."""
    with serving(tree, tmp_path / "cache", "cold") as cold:
        assert cold.found == (0, FILES)
    with serving(tree, tmp_path / "cache", "warm") as warm:
        assert warm.found == (FILES, FILES)

    assert cold.ready == warm.ready
    problems = [[line["problem"] for line in one.events("problem_found")] for one in (cold, warm)]
    assert problems[0]
    assert problems[0] == problems[1]


def test_what_changed_meanwhile_is_parsed(tree: Path, tmp_path: Path) -> None:
    """Files that are others or new are parsed; the others are not."""
    with serving(tree, tmp_path / "cache") as cold:
        pass
    write_file(tree / "07.cds.yaml", content_of(7, "2s"))
    write_file(tree / "new.cds.yaml", content_of(100))
    with serving(tree, tmp_path / "cache") as changed:
        assert changed.found == (FILES - 1, FILES + 1)
    with serving(tree, tmp_path / "other") as fresh:
        assert fresh.ready == changed.ready != cold.ready
    with serving(tree, tmp_path / "cache") as warm:
        assert warm.found == (FILES + 1, FILES + 1)
        assert warm.ready == fresh.ready


def test_edits_while_serving_are_kept(tree: Path, tmp_path: Path) -> None:
    """What was edited while a server ran is known to the next one."""
    with serving(tree, tmp_path / "cache") as first:
        write_file(tree / "07.cds.yaml", content_of(7, "2s"))
        deadline_s = time.monotonic() + PATIENCE_S
        while len(first.events("snapshot_published")) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.01)
    with serving(tree, tmp_path / "cache") as warm:
        assert warm.found == (FILES, FILES)


def test_killed_servers_do_no_harm(tree: Path, tmp_path: Path) -> None:
    """Servers that are killed at any moment of a start leave what the next one starts with, and its content is right."""
    for pause_s in (0.0, 0.2, 0.5, 1.0, 2.0):
        process, _, _ = start(tree, tmp_path / "cache", "killed")
        time.sleep(pause_s)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    with serving(tree, tmp_path / "cache") as after, serving(tree, tmp_path / "none", "fresh") as fresh:
        assert after.ready == fresh.ready
        assert not after.events("cache_failed")


def test_two_servers_share_a_directory(tree: Path, tmp_path: Path) -> None:
    """Two servers of one tree start at once and write to one pack; the next one finds all."""
    with (
        serving(tree, tmp_path / "cache", "first") as first,
        serving(tree, tmp_path / "cache", "second") as second,
    ):
        assert first.ready == second.ready
    with serving(tree, tmp_path / "cache") as warm:
        assert warm.found == (FILES, FILES)
        assert warm.ready == first.ready


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_full_disk_is_reported_once(tree: Path, tmp_path: Path) -> None:
    """A server whose cache does not fit on the disk serves, and says so once."""
    cache = tmp_path / "cache"
    cache.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", cache], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        with serving(tree, cache) as server, serving(tree, tmp_path / "fresh", "fresh") as fresh:
            assert server.ready == fresh.ready
        (line,) = server.events("cache_failed")
        assert line["error"] == "No space left on device"
        subprocess.run(["mount", "-o", "remount,ro", cache], check=True)
        with serving(tree, cache) as server:
            assert server.ready == fresh.ready
        assert len(server.events("cache_failed")) == 1
    finally:
        subprocess.run(["umount", "-l", cache], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
def test_directory_of_another_user_is_not_used(tree: Path, tmp_path: Path) -> None:
    """What somebody else could write to is left alone, and everything is parsed."""
    with serving(tree, tmp_path / "cache") as first:
        pass
    os.chown(tmp_path / "cache" / DIRECTORY, 12345, 12345)
    with serving(tree, tmp_path / "cache") as server:
        assert server.ready == first.ready
    (line,) = server.events("cache_failed")
    assert "belongs to user 12345" in line["error"]


def test_check_uses_what_serving_kept(tree: Path, tmp_path: Path) -> None:
    """`fsxds check` finds what a server kept, adds nothing to it, and reports what it would without it."""
    (tree / "00.cds.yaml").unlink()
    with serving(tree, tmp_path / "cache"):
        pass
    (pack,) = (tmp_path / "cache" / DIRECTORY).iterdir()
    flags = ["--unknown-fields", "warn", "--no-envoy"]
    size = pack.stat().st_size

    warm = run_fsxds(["check", str(tree), "--cache-dir", str(tmp_path / "cache"), *flags])
    cold = run_fsxds(["check", str(tree), "--cache-dir", str(tmp_path / "other"), *flags])
    again = run_fsxds(["check", str(tree), "--cache-dir", str(tmp_path / "other"), *flags])

    assert (warm.returncode, warm.stdout) == (cold.returncode, cold.stdout) == (again.returncode, again.stdout)
    assert (
        [pack.stat().st_size] == [path.stat().st_size for path in (tmp_path / "cache" / DIRECTORY).iterdir()] == [size]
    )
