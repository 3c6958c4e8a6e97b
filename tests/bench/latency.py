"""(l): how long an edit takes from the disk to a client of a Delta stream."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.data import clusters, replace_file
from tests.bench.figures import Figure
from tests.bench.stream_clients import Channels, Stream

ROUNDS = 21
COUNT = 1000

# What an edit may take on a quiet machine. go-control-plane takes 17 to 20 ms from SetSnapshot, with no file to read.
TARGET_MS = 40.0

# Between two edits, so that each is one of its own, and none meets what the last one left to do.
PAUSE_S = 1.2


def measure() -> Iterator[Figure]:
    """Measure `fsxds serve` with its defaults: 1000 clusters in one file, and in 1000 files."""
    for files, save in ((1, replace_file), (COUNT, replace_file), (COUNT, Path.write_text)):
        times_ms = latencies_ms(files, save)
        how = "renamed" if save is replace_file else "written in place"
        detail = f"min {min(times_ms):.0f}, max {max(times_ms):.0f} ms, of {len(times_ms)} edits"
        name = f"(l) edit to Delta client, 1 of {COUNT} clusters in {files} files, {how}"
        yield Figure(name, statistics.median(times_ms), TARGET_MS, "ms", detail)


def latencies_ms(files: int, save: Callable[[Path, str], object]) -> list[float]:
    """Return how long each of some edits took to be at a client, in milliseconds of wall time."""
    with tempfile.TemporaryDirectory() as folder:
        each = COUNT // files
        for number in range(files):
            Path(folder, f"part-{number:04d}.yaml").write_text(clusters(number * each, each))
        edited = Path(folder, f"part-{files // 2:04d}.yaml")
        first = files // 2 * each

        def edit(port: int) -> float:
            text = clusters(first, each, port)
            began_s = time.monotonic()
            save(edited, text)
            return began_s

        with _serving(Path(folder)) as address:
            return asyncio.run(_follow(address, edit))


async def _follow(address: str, edit: Callable[[int], float]) -> list[float]:
    async with Channels(address, 1) as channels:
        (stream,) = await channels.subscribe(1, is_delta=True)
        return [await _time_ms(stream, edit, 9000 + number) for number in range(ROUNDS)]


async def _time_ms(stream: Stream, edit: Callable[[int], float], port: int) -> float:
    await asyncio.sleep(PAUSE_S)
    began_s = await asyncio.to_thread(edit, port)
    body: bytes = await stream.call.read()
    took_s = time.monotonic() - began_s
    await stream.accept(body)
    return took_s * 1e3


@contextmanager
def _serving(tree: Path) -> Iterator[str]:
    """Serve a tree; yields the address of gRPC."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder, "ready.json")
        options = ["--http", "off", "--grpc", "127.0.0.1:0", "--ready-file", str(ready)]
        command = [sys.executable, "-m", "fsxds", "serve", str(tree), *options]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                while not ready.exists():
                    time.sleep(0.05)
                yield str(json.loads(ready.read_text())["grpc"])
            finally:
                process.terminate()
