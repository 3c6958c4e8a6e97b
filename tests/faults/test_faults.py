"""A few of each sort of fault; `python -m tests.faults` does all of them hundreds of times."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.faults import clients, disks
from tests.faults.__main__ import do, main
from tests.faults.faults import BY_NAME

# As often as shows that it still works; the rare is for the command.
TIMES = {"kill": 2, "directory": 2, "worker": 2}
# What is only large in a full run: fewer files and clients.
SMALLER = {
    "replaced": partial(disks.all_replaced, count=300),
    "storm": partial(clients.all_reconnect, count=100),
    "silent": partial(clients.nobody_answers, count=50),
}
# `tests/end_to_end/test_state.py`, and by the command below.
ELSEWHERE = {"kill-rollout", "eio-read"}
if not disks.cannot_mount():
    # To fsxds this is as a disk that is full.
    ELSEWHERE.add("eio-write")


@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in ELSEWHERE])
async def test_fault(tmp_path: Path, name: str) -> None:
    """Others are served meanwhile, nothing good is removed, the log says what fails, and it is over when the fault is."""
    fault = BY_NAME[name]
    if why := fault.needs():
        pytest.skip(why)
    await SMALLER.get(name, fault.do)(tmp_path / "site", random.Random(name), TIMES.get(name, 1))


def test_command_counts_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints a row for each fault with its counts, and ends with 0 where none did harm."""
    if why := BY_NAME["eio-read"].needs():
        pytest.skip(why)

    assert main(["--only", "eio-read", "--times", "1", "--seed", "1"]) == 0

    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].endswith("| 1 | 0 |")
    assert "eio-read: 1 of 1" in shown.err


async def test_command_reports_harm() -> None:
    """A fault that does harm is counted, with its traceback, and ends no other."""

    async def harm(*_: object) -> None:
        raise AssertionError("a file is torn")

    outcome = await do(replace(BY_NAME["kill"], do=harm, needs=str), 2, seed=1, is_shown=False)

    assert "a file is torn" in outcome.error
    assert outcome.row.endswith("| 0 | 1 |")
