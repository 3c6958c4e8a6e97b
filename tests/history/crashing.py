"""Kill a process that writes to a state directory before each of its system calls in turn: `python -m tests.history.crashing DIR [EVERY]`.

The process is traced, as strace does it, so that no moment is left out. After each kill the directory must have what was in
it before or what was written, whole, and must go on. Prints the number of the first moment that the process did not reach.
With EVERY, only one of so many moments is tried: all 590 take 50 s.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from fsxds.events.event import Event
from fsxds.history.state import MOST_SNAPSHOTS, State
from fsxds.rollout.machine import RolloutState
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.row_source import KeptUpstream
from tests.history.made import (
    CDS,
    UPSTREAM,
    assert_same,
    check_database,
    cluster,
    clusters,
    held_of,
    held_resource,
    snapshot_of,
)

# <sys/ptrace.h>
_TRACE_ME, _SYSCALL, _KILL_WITH_TRACER, _SET_OPTIONS = 0, 24, 0x100000, 0x4200

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    if _libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def killed_before(number: int, work: Callable[[], object]) -> bool:
    """Do work in another process, and kill it before its system call with this number; whether it came so far."""
    pid = os.fork()
    if not pid:
        _ptrace(_TRACE_ME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            work()
        finally:
            os._exit(0 if sys.exc_info()[1] is None else 1)
    os.waitpid(pid, 0)
    _ptrace(_SET_OPTIONS, pid, _KILL_WITH_TRACER)
    # Two stops for each call: before it and after it.
    for _ in range(2 * number + 1):
        _ptrace(_SYSCALL, pid)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return False
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def main(top: Path, every: int) -> None:
    """Prepare a directory with a full history, and have one more snapshot written to it again and again."""
    events: list[Event] = []
    snapshot = snapshot_of([*clusters(300), cluster("large", os.urandom(20_000))])
    base, path = top / "base", top / "state"
    with_history = State.open(base, events.append)
    for number in range(MOST_SNAPSHOTS):
        before, snapshot = snapshot, snapshot_of(clusters(300, {number: b"edited"}), snapshot)
        with_history.save({ChannelKey(): RolloutState(before, before, before)}, None, float(number))
    kept = KeptUpstream(UPSTREAM, (UPSTREAM,), held_of(*(held_resource(f"c{n}", b"%d" % n * 99) for n in range(200))))
    with_history.keep_upstreams([kept])
    with_history.close()
    edited = {"new": held_resource("new", os.urandom(9000)), "c3": held_resource("c3", b"3")}
    changed = kept._replace(held={CDS: kept.held[CDS].changed(edited, {"c4"})})

    def write() -> None:
        state = State.open(path, events.append)
        state.restored_upstreams([kept])
        state.keep_upstreams([changed])
        state.save({ChannelKey(): RolloutState(before, snapshot, snapshot)}, None, 99.0)
        state.close()

    for moment in count(0, every):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(base, path)
        was_killed = killed_before(moment, write)
        state = State.open(path, events.append)
        numbers = [row.number for row in state.entries(())]
        newest = numbers[0]
        assert newest == MOST_SNAPSHOTS + 1 if not was_killed else newest in {MOST_SNAPSHOTS, MOST_SNAPSHOTS + 1}
        assert numbers == [*range(newest, newest - MOST_SNAPSHOTS, -1)]
        reached = before if newest == MOST_SNAPSHOTS else snapshot
        assert_same(reached, state.snapshot((), newest))
        found = state.restored_upstreams([kept]).held[UPSTREAM]
        assert found == changed.held or (found == kept.held and newest == MOST_SNAPSHOTS)
        rollout = state.rollouts(99.0)[ChannelKey()]
        assert_same(before, rollout.served)
        assert_same(reached, rollout.target)
        assert_same(reached, rollout.good)
        assert state.record((), snapshot, None, 0.0) == MOST_SNAPSHOTS + 1
        state.close()
        check_database(path)
        assert events == []
        if not was_killed:
            sys.stdout.write(f"{moment}\n")
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
