"""Run Envoy's `--mode validate` on a bootstrap: it binds no port, and contacts nobody."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

from fsxds.errors import UsageError
from fsxds.local_envoy.complaints import LOG_ARGUMENTS, LogLine, read_log_line
from fsxds.local_envoy.judge_log import Refused, counts_differ, read_refusal
from fsxds.local_envoy.static_rendering import Rendering

# Envoy takes 55 ms, and up to a millisecond for each resource; where it takes so much longer it hangs.
PATIENCE_S = 20.0
PATIENCE_PER_PART_S = 0.02
# Parts of a configuration above which it is first asked for the verdict alone: to tell what it does takes it half as long
# as to do it.
LARGE = 300

_ADVICE = "--with-envoy takes the path of an Envoy binary"
_ACCEPTED = re.compile("configuration '.*' OK$")
_ARGUMENTS = (
    *LOG_ARGUMENTS,
    # Envoy takes unknown fields from a server, with a warning.
    "--allow-unknown-static-fields",
    "--disable-hot-restart",
    "--concurrency",
    "1",
)


class Validator:
    """Runs one Envoy on bootstraps, in a folder that is its own. Threads may share it."""

    def __init__(self, executable: Path, folder: Path, patience_s: float = PATIENCE_S) -> None:
        """Take an Envoy, and how long it may take beyond what the size of a bootstrap calls for.

        Raises:
            UsageError: there is no such executable.
        """
        if not executable.is_file() or not os.access(executable, os.X_OK):
            raise UsageError(f"{executable}: is no executable file; {_ADVICE}")
        self._executable = executable.absolute()
        self._folder = folder
        self._patience_s = patience_s

    def validate(self, rendering: Rendering) -> Refused | None:
        """Return why Envoy refuses a bootstrap, None if it does not.

        Raises:
            UsageError: the executable cannot be run, or is no Envoy.
        """
        path = self._folder / f"{id(rendering):x}.pb"
        path.write_bytes(rendering.content())
        try:
            if rendering.size > LARGE and self._run(path, rendering, "info") is None:
                return None
            return self._run(path, rendering, "debug")
        except subprocess.TimeoutExpired:
            return Refused("Envoy hangs: it was ended after a time in which it takes much larger configurations")
        except OSError as error:
            raise UsageError(f"{self._executable}: {error.strerror}; {_ADVICE}") from error
        finally:
            path.unlink()

    def _run(self, path: Path, rendering: Rendering, level: str) -> Refused | None:
        done = subprocess.run(  # noqa: S603 - no shell
            [self._executable, "--mode", "validate", "--config-path", path, "--log-level", level, *_ARGUMENTS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            timeout=self._patience_s + rendering.size * PATIENCE_PER_PART_S,
            check=False,
        )
        lines = [read_log_line(line) for line in done.stdout.decode(errors="replace").splitlines()]
        if any(_ACCEPTED.match(line.message) for line in lines):
            # A crash after that is one of its end, which does not come where it is served.
            return Refused("Envoy reads only a part of it") if counts_differ(lines, rendering) else None
        return self._refusal(done.returncode, lines, rendering)

    def _refusal(self, status: int, lines: list[LogLine], rendering: Rendering) -> Refused:
        if not any(line.level for line in lines):
            raise UsageError(f"{self._executable}: does not answer as Envoy does; {_ADVICE}")
        refused = read_refusal(lines, rendering)
        if status >= 0:
            return refused
        if any("inotify_fd_ >= 0" in line.message for line in lines):
            raise UsageError("Envoy cannot watch files: raise fs.inotify.max_user_instances of this machine by sysctl")
        return replace(refused, reason=f"Envoy crashes of it ({signal.Signals(-status).name})")
