"""The table of faults: what is done, how, and how often."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.faults import clients, disks, killed, machine

Do = Callable[[Path, random.Random, int], Awaitable[Counter[str] | None]]
"""Does a fault so often to a server in a folder, and returns how often where; AssertionError when it did harm."""


@dataclass(frozen=True)
class Fault:
    """One sort of fault.

    Attributes:
        name: for `--only`.
        what: what is done.
        how: by which means.
        do: does it, and asserts what must hold.
        times: how often in a full run.
        batch: how often to one server, which is started for it.
        needs: returns why it cannot be done here; empty where it can.
    """

    name: str
    what: str
    how: str
    do: Do
    times: int
    batch: int
    needs: Callable[[], str] = str


@cache
def no_compiler() -> str:
    """Return why no library can stand in front of the C library; empty where one can."""
    return "" if shutil.which("cc") else "needs a C compiler: apt-get install gcc libc6-dev"


@cache
def no_namespaces() -> str:
    """Return why there is no user namespace; empty where there is."""
    tools = [tool for tool in ("unshare", "nsenter") if not shutil.which(tool)]
    if tools:
        return "needs unshare and nsenter: apt-get install util-linux"
    done = subprocess.run(["unshare", "-Ur", "true"], capture_output=True, text=True, check=False)
    return f"user namespaces are not allowed: {done.stderr.strip()}" if done.returncode else ""


@cache
def no_privileges_to_drop() -> str:
    """Return why root cannot become like others; empty where it can, or who runs this is none."""
    if os.geteuid() != 0 or shutil.which("setpriv"):
        return ""
    return "root needs setpriv: apt-get install util-linux"


@cache
def no_envoy() -> str:
    """Return why there is no real Envoy; empty where there is."""
    from tests.support.envoy import find_envoy

    try:
        find_envoy()
    except Exception as error:  # noqa: BLE001, whatever it is, it is the reason
        return str(error)
    return ""


_LIBRARY = "a library in front of libc"

FAULTS = (
    Fault(
        "kill",
        "SIGKILL during reload, mirror and state writing",
        "at random moments, and at random system calls or within them",
        killed.kill_at_random,
        500,
        50,
        no_compiler,
    ),
    Fault(
        "kill-rollout",
        "SIGKILL within rollouts of several steps",
        "at random moments",
        killed.kill_in_rollouts,
        100,
        50,
    ),
    Fault(
        "disk-full",
        "no space for mirror and state",
        "a full tmpfs",
        disks.disk_full,
        20,
        5,
        disks.cannot_mount,
    ),
    Fault(
        "read-only",
        "mirror and state on a read-only disk",
        "a read-only mount over them",
        disks.disk_read_only,
        20,
        5,
        disks.cannot_mount,
    ),
    Fault(
        "eio-write",
        "EIO on writes to mirror and state",
        _LIBRARY,
        disks.disk_fails_to_write,
        20,
        5,
        no_compiler,
    ),
    Fault("eio-read", "EIO on reading a file of the tree", _LIBRARY, disks.disk_fails_to_read, 50, 25, no_compiler),
    Fault(
        "permission",
        "file, tree, mirror and state lose their permissions",
        "chmod, without the privileges of root",
        disks.permission_lost,
        25,
        5,
        no_privileges_to_drop,
    ),
    Fault(
        "directory",
        "the tree is deleted, renamed, emptied, and comes back",
        "also over a restart",
        disks.tree_deleted,
        50,
        25,
    ),
    Fault("replaced", "20 000 files are replaced at once", "a link that turns, and in place", disks.all_replaced, 4, 4),
    Fault(
        "clock",
        "the clock jumps by up to ten years",
        f"{_LIBRARY}; polls held",
        machine.clock_jumps,
        50,
        25,
        no_compiler,
    ),
    Fault(
        "inotify",
        "no inotify instance is left",
        "the limit of a user namespace",
        machine.inotify_exhausted,
        25,
        25,
        no_namespaces,
    ),
    Fault("worker", "the processes that parse are killed", "SIGKILL during edits", machine.workers_killed, 100, 50),
    Fault(
        "envoys-vanish",
        "three real Envoys are killed, one after another",
        "SIGKILL with polls and streams open",
        clients.envoys_vanish,
        20,
        5,
        no_envoy,
    ),
    Fault(
        "storm",
        "1000 clients come back at once",
        "500 polls, 500 streams, after SIGKILL of fsxds",
        clients.all_reconnect,
        10,
        2,
    ),
    Fault(
        "silent",
        "800 clients never ACK or never read",
        "streams and polls that stop at each stage",
        clients.nobody_answers,
        10,
        5,
    ),
)
BY_NAME = {each.name: each for each in FAULTS}
