"""What a start waits for is said after three seconds, and then at growing intervals."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from fsxds.server.readiness import report_times
from tests.support.fsxds_process import FsxdsProcess, start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.server import events_in, write_file
from tests.support.settings_files import file_flags

ADDRESSES = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
RESOURCES = {
    "cds.yaml": "[{name: web, type: STATIC, connect_timeout: 1s}]",
    "lds.yaml": "[{name: in, address: {socket_address: {address: 127.0.0.1, port_value: 0}}, filter_chains: [{}]}]",
}


def test_intervals_grow() -> None:
    """After 3, 9 and 27 seconds, and then every 30."""
    assert [*islice(report_times(), 6)] == [3, 9, 27, 57, 87, 117]


def said(log_file: Path, process: FsxdsProcess) -> str:
    """Wait for what a process says that it waits for."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s and process.poll() is None:
        log = log_file.read_bytes()
        for event in events_in(log):
            if event["event"] == "waiting":
                return str(event["waits_for"])
        for line in log.decode().splitlines():
            if line.endswith("3 s so far"):
                return line
        time.sleep(0.05)
    raise AssertionError(log_file.read_text())


def test_each_start_says_what_it_waits_for(tmp_path: Path) -> None:
    """Each within its own process: for a file, for a good file, for mirrored files; and that a long `mirror` goes on."""
    for name, files in {"empty": {}, "broken": {"cds.yaml": "[{name: web, type: NONE}]"}, "tree": RESOURCES}.items():
        (tmp_path / name).mkdir()
        for path, text in files.items():
            write_file(tmp_path / name / path, text)
    out, slow = str(tmp_path / "out"), file_flags(mirror_pause="60s")
    commands = {
        f"the first file with configuration in {tmp_path / 'empty'}": ("serve", "empty", *ADDRESSES),
        f"the first file without a mistake: none of 1 in {tmp_path / 'broken'} can be served": (
            *("dev", "broken", *ADDRESSES),
        ),
        f"the first mirrored files in {out}": ("serve", "tree", *ADDRESSES, "--mirror", out, *slow),
        f"mirroring {tmp_path / 'tree'}: 3 s so far": ("mirror", "tree", f"{out}2", *slow),
    }
    with ExitStack() as stack:
        running = []
        for number, (command, tree, *flags) in enumerate(commands.values()):
            log_file = tmp_path / f"{number}.log"
            with log_file.open("wb") as log:
                process = start_fsxds([command, str(tmp_path / tree), *flags], stdout=log, stderr=log)
            stack.callback(process.kill)
            running.append((log_file, process))

        assert [*commands] == [said(*one) for one in running]
        for _, process in running:
            process.terminate()
            process.wait(PATIENCE_S)
