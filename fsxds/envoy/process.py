"""One Envoy process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fsxds.envoy.envoy_bootstrap import Section
from fsxds.envoy.envoy_log import LOG_ARGUMENTS, EnvoyLogLine, read_log_line
from fsxds.model.errors import UsageError

# How long Envoy may take to end after SIGTERM; it needs some milliseconds.
PATIENCE_S = 2.0
# Rejections can print whole configurations; the rest of a longer line is dropped.
LONGEST_LINE_BYTES = 65536
LINES_KEPT = 2000
TAIL_LINES = 12
ADDRESS_POLL_S = 0.02
# How long an old listener keeps its connections after an edit; Envoy's ten minutes hide the edit from a browser.
DRAIN_S = 2


@dataclass(frozen=True, slots=True)
class EndedEnvoy:
    """The exit status (negative: the signal), and the log's end."""

    status: int
    tail: tuple[str, ...]


class EnvoyLog:
    """An Envoy's last log lines."""

    def __init__(self, observe: Callable[[EnvoyLogLine], None] | None = None) -> None:
        self._lines: deque[EnvoyLogLine] = deque(maxlen=LINES_KEPT)
        self._observe = observe
        self.length = 0

    def append(self, text: str) -> None:
        """Add a line."""
        line = read_log_line(text)
        self._lines.append(line)
        self.length += 1
        if self._observe is not None:
            self._observe(line)

    def since(self, length: int) -> tuple[EnvoyLogLine, ...]:
        """Return the kept lines after the first `length`."""
        newer = min(self.length - length, len(self._lines))
        return tuple(self._lines)[len(self._lines) - newer :]

    def tail(self) -> tuple[str, ...]:
        """Return the last few messages."""
        return tuple(line.message for line in tuple(self._lines)[-TAIL_LINES:])


class LocalEnvoy:
    """A running Envoy; made by `running_envoy`."""

    def __init__(self, process: Process, log: EnvoyLog, address_file: Path) -> None:
        self._process = process
        self._address_file = address_file
        self.log = log
        self.was_stopped = False

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def admin_address(self) -> str | None:
        """Wait for the admin page; None if Envoy ended."""
        while self._process.returncode is None:
            if address := (self._address_file.read_text().strip() if self._address_file.exists() else ""):
                return address
            await asyncio.sleep(ADDRESS_POLL_S)
        return None

    async def read_log(self) -> None:
        """Read the log until Envoy closes it."""
        rest = b""
        while self._process.stdout and (chunk := await self._process.stdout.read(LONGEST_LINE_BYTES)):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:LONGEST_LINE_BYTES]
            for line in lines:
                self.log.append(line[:LONGEST_LINE_BYTES].decode(errors="replace"))

    async def ended(self) -> int:
        """Wait for the exit status."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after two seconds."""
        if self._process.returncode is not None:
            return
        self.was_stopped = True
        self._process.terminate()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        finally:
            # Reached in this state only when the wait was cancelled.
            if self._process.returncode is None:
                self._process.kill()


@asynccontextmanager
async def running_envoy(
    executable: Path, bootstrap: Section, observe: Callable[[EnvoyLogLine], None] | None = None
) -> AsyncIterator[LocalEnvoy]:
    """Run Envoy during the block. Unless the caller runs `read_log`, Envoy stops when the pipe is full.

    `executable` is the binary itself, not a script: signals have to reach Envoy.

    Raises:
        UsageError: the executable cannot be started.
    """
    _check(executable)
    with TemporaryDirectory(prefix="fsxds-envoy-") as folder:
        config, address_file = _write(bootstrap, folder), Path(folder, "admin-address")
        try:
            process = await asyncio.create_subprocess_exec(
                *command_line(executable, config, address_file),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                # Ctrl-C is for fsxds: it ends Envoy itself, after the last message about it.
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{executable}: {error.strerror}; --envoy names the Envoy binary") from error
        envoy = LocalEnvoy(process, EnvoyLog(observe), address_file)
        try:
            yield envoy
        finally:
            await envoy.stop()


def _check(executable: Path) -> None:
    """`setpriv` would only fail later."""
    if not executable.is_file() or not os.access(executable, os.X_OK):
        raise UsageError(f"{executable}: is no executable file; --envoy names the Envoy binary")


def _write(bootstrap: Section, folder: str) -> Path:
    path = Path(folder, "bootstrap.json")
    path.write_text(json.dumps(bootstrap))
    return path


def command_line(executable: Path, config: Path, address_file: Path) -> tuple[str, ...]:
    """Return the command that starts Envoy."""
    # Envoy should not outlive fsxds even when that is killed. Python could only ask for that between fork and exec,
    # which is not safe beside threads; this program of util-linux, present on nearly every Linux, does it and becomes
    # Envoy.
    setpriv = shutil.which("setpriv")
    prefix = (setpriv, "--pdeathsig", "TERM") if setpriv else ()
    return (
        *prefix,
        str(executable),
        "--config-path",
        str(config),
        "--admin-address-path",
        str(address_file),
        *LOG_ARGUMENTS,
        # Without hot restart any number of Envoys can run, and none leaves shared memory behind.
        "--disable-hot-restart",
        "--concurrency",
        "1",
        "--drain-time-s",
        str(DRAIN_S),
    )
