"""The ready file: it says that a server serves, with what and where, and it goes with the process."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fsxds.errors import UsageError
from fsxds.values import PlainValue


class ReadyFile:
    """The ready file of this process. Blocking: write it outside of the event loop."""

    def __init__(self, path: Path) -> None:
        """Remove the file of a process before, which was killed.

        Raises:
            UsageError: it cannot be removed.
        """
        self._path = path
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; choose another --ready-file") from error

    def write(self, content: dict[str, PlainValue]) -> None:
        """Write the file, in one step for who reads it.

        Raises:
            UsageError: it cannot be written.
        """
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content) + "\n")
            temporary.replace(self._path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UsageError(f"{self._path}: cannot be written: {error.strerror}") from error

    def remove(self) -> None:
        """Remove the file, where it is still that of this process."""
        try:
            content = json.loads(self._path.read_bytes())
            if content["pid"] == os.getpid():
                self._path.unlink()
        except (OSError, ValueError, KeyError, TypeError):
            # Gone, or somebody else's.
            return
