"""Writes an import atomically."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath

from fsxds.events.event import escape
from fsxds.model.errors import UsageError
from fsxds.tools.importing.plan import ImportPlan

# Hidden, so that files in such a directory are never read as resources.
_STAGING = ".import-"
_REPLACED = ".replaced-"


@dataclass(frozen=True, slots=True)
class Destination:
    """The tree, and the remaining bootstrap."""

    directory: Path
    bootstrap: Path

    def require_free(self) -> None:
        """Raise UsageError if files are there."""
        if self.directory.exists() and not self.directory.is_dir():
            raise UsageError(f"{escape(str(self.directory))}: is not a directory; give a new one")
        if self.directory.is_dir() and any(not path.name.startswith(".") for path in self.directory.iterdir()):
            remedy = "give a new one, or --force to replace its folders clusters, listeners and secrets"
            raise UsageError(f"{escape(str(self.directory))}: is not empty, no file was written; {remedy}")
        if self.bootstrap.exists() or self.bootstrap.is_symlink():
            remedy = "give another file by --output, or --force to replace it"
            raise UsageError(f"{escape(str(self.bootstrap))}: exists already, no file was written; {remedy}")


def write_import(plan: ImportPlan, target: Destination) -> tuple[Path, ...]:
    """Write an import, and return replaced files' new paths.

    Files with secrets are readable by their owner only. Files are moved to their destination, the bootstrap last; a
    failure or Ctrl-C undoes all moves, and a failure is a UsageError.
    """
    moves: list[tuple[Path, Path]] = []
    try:
        with (
            _created(target.directory),
            _staging(target.directory) as tree,
            _staging(target.bootstrap.parent) as beside,
        ):
            for path, content, is_secret in plan.contents:
                _write(tree / path, content, is_secret=is_secret)
            _write(beside / target.bootstrap.name, plan.bootstrap, is_secret=plan.is_secret)
            folders = sorted({PurePosixPath(path.parts[0]) for path, _, _ in plan.contents})
            with _undone_on_error(moves):
                for folder in folders:
                    _move(tree / folder, target.directory / folder, moves)
                _move(beside / target.bootstrap.name, target.bootstrap, moves)
    except OSError as error:
        where = error.filename or target.directory
        raise UsageError(f"{escape(str(where))}: cannot be written: {error.strerror}; not imported") from error
    return tuple(new for old, new in moves if _REPLACED in new.name)


@contextmanager
def _created(directory: Path) -> Iterator[None]:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except (OSError, KeyboardInterrupt):
        for path in missing:
            with suppress(OSError):
                path.rmdir()
        raise


@contextmanager
def _staging(directory: Path) -> Iterator[Path]:
    staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=directory))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write(path: Path, content: bytes, *, is_secret: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if is_secret else 0o666), "wb") as file:  # noqa: PTH123
        # Without fsync: the original bootstrap still exists.
        file.write(content)


def _move(path: Path, place: Path, moves: list[tuple[Path, Path]]) -> None:
    if place.exists() or place.is_symlink():
        names = (place.with_name(f"{_REPLACED}{number}-{place.name}") for number in count(1))
        aside = next(name for name in names if not name.exists() and not name.is_symlink())
        place.rename(aside)
        moves.append((place, aside))
    path.rename(place)
    moves.append((path, place))


@contextmanager
def _undone_on_error(moves: list[tuple[Path, Path]]) -> Iterator[None]:
    try:
        yield
    except (OSError, KeyboardInterrupt):
        for old, new in reversed(moves):
            with suppress(OSError):
                new.rename(old)
        moves.clear()
        raise
