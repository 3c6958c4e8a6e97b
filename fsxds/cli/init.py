"""`fsxds init`: writes a first tree."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from fsxds.events.event import escape
from fsxds.model.errors import UsageError


def run_init(directory: Path, *, is_empty: bool) -> None:
    """Write a tree with its settings file, and print the next steps.

    `directory` may hold other files. With `is_empty`, files have only comments.

    Raises:
        UsageError: a file exists already, and none is written; or the disk is at fault.
    """
    contents = dict(_contents(files("fsxds") / "cli" / ("empty" if is_empty else "sample"), PurePosixPath()))
    for path in contents:
        if (directory / path).exists() or (directory / path).is_symlink():
            raise UsageError(
                f"{escape(str(directory / path))}: exists already, no file was written; give a new directory"
            )
    for path, content in contents.items():
        _write(directory / path, content)
        print(escape(str(directory / path)))
    tree, settings = (shlex.quote(str(directory / name)) for name in ("xds", "fsxds.yaml"))
    print(f"\nGo on with:\n  fsxds check {tree}\n  fsxds dev {tree}\n  fsxds serve {tree} --settings {settings}")


def _contents(source: Traversable, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    for part in sorted(source.iterdir(), key=lambda one: one.name):
        if part.is_dir():
            yield from _contents(part, path / part.name)
        else:
            yield path / part.name, part.read_bytes()


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # "x": a file created in the meantime is not overwritten either.
        with path.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"{escape(str(path))}: cannot be written: {error.strerror}; give another directory") from error
