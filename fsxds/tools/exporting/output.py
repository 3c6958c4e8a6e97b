"""Writes and removes the files of an export.

Rules: which files of a directory an export may replace and remove, and in which order.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fsxds.events.file_events import Remark
from fsxds.model.errors import UsageError
from fsxds.transports.mirror.directory import MANIFEST as MANIFEST_OF_MIRROR
from fsxds.transports.mirror.directory import OURS, MirrorDirectory

MANIFEST = PurePosixPath(OURS, "export.json")
OBJECTS = "objects"
"""The folder of files that are named by their content."""

_FORMAT = 1

Digests = dict[PurePosixPath, str | None]
"""SHA-256; None for a file about to be written, which is ours whatever its content."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that fsxds wrote into a directory.

    Attributes:
        exported_at_s: their newest modification time.
        unused: objects left unused by the last change.
    """

    digests: Digests = field(default_factory=dict)
    exported_at_s: int = 0
    unused: frozenset[PurePosixPath] = frozenset()

    def encode(self) -> bytes:
        """Encode it; equal manifests make equal bytes."""
        document = {
            "format": _FORMAT,
            "exported_at_s": self.exported_at_s,
            "files": {str(path): self.digests[path] for path in sorted(self.digests)},
            "unused": sorted(map(str, self.unused)),
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes | None) -> Manifest:
        """Decode a manifest; an unreadable one is empty: equal files are adopted, others reported."""
        try:
            document = json.loads(content or b"")
            if document["format"] != _FORMAT:
                return cls()
            digests = {
                _inside(path): None if digest is None else str(digest) for path, digest in document["files"].items()
            }
            return cls(digests, int(document["exported_at_s"]), frozenset(map(_inside, document["unused"])))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return cls()


def _inside(text: str) -> PurePosixPath:
    """Reject a path outside: a manifest's files may be overwritten and removed."""
    path = PurePosixPath(text)
    if path.is_absolute() or not path.parts or ".." in path.parts or path.parts[0] == OURS or "\0" in text:
        raise ValueError(f"fsxds exports no file {text!r}")
    return path


@dataclass(frozen=True, slots=True)
class FilesExported:
    """The result of an export.

    Attributes:
        written: in order.
        blocked: foreign files in an exported one's place.
        kept: gone from the export, but changed since.
    """

    written: tuple[PurePosixPath, ...]
    removed: tuple[PurePosixPath, ...]
    unchanged: int
    blocked: tuple[Remark, ...]
    kept: tuple[Remark, ...]


def write_files(root: Path, files: Mapping[PurePosixPath, bytes]) -> FilesExported:
    """Update a directory; files that fsxds did not export are not touched.

    Files are replaced atomically, in the order of the mapping: a file before the index that names it. Then files that are
    gone are removed; an object with the second change after its last use, for clients with the previous index.

    Changed files get a modification time later, in whole seconds, than all before: web servers make ETags of it.

    Raises:
        ValueError: a path leads out of the directory.
        UsageError: another process exports there, or it is a mirror.
        OSError: some files were not written; the next call continues.
    """
    for path in files:
        _inside(str(path))
    directory = MirrorDirectory(root, durable=False, use="exports into this directory")
    if directory.signature(MANIFEST_OF_MIRROR) is not None:
        raise UsageError(f"{root}: `fsxds mirror` writes this directory; export into another one")
    directory.hold()
    try:
        return _Export(directory, files).run()
    finally:
        directory.release()


class _Export:
    def __init__(self, directory: MirrorDirectory, files: Mapping[PurePosixPath, bytes]) -> None:
        self._directory = directory
        self._files = files
        self._before = Manifest.decode(directory.read(MANIFEST))
        self._digests = dict(self._before.digests)
        self._now_s = max(int(time.time()), self._before.exported_at_s + 1)
        self._written: list[PurePosixPath] = []
        self._removed: list[PurePosixPath] = []
        self._kept: list[Remark] = []

    def run(self) -> FilesExported:
        gone = self._before.digests.keys() - self._files.keys()
        # Files may be in the place of a new folder, or below a new file.
        folders = {folder for path in self._files for folder in path.parents}
        self._remove_each({path for path in gone if path in folders or not self._files.keys().isdisjoint(path.parents)})
        blocked = tuple(self._blocked())
        others = {remark.subject for remark in blocked}
        self._write_each([path for path in self._files if str(path) not in others])
        unused = {path for path in gone & self._digests.keys() if path.parts[0] == OBJECTS}
        # A change has a new index. Without a change, clients may still use the last one.
        outlived = unused & self._before.unused if self._written else set()
        self._remove_each((gone & self._digests.keys()) - unused | outlived)
        exported_at_s = self._now_s if self._written else self._before.exported_at_s
        self._save(Manifest(self._digests, exported_at_s, frozenset(unused - outlived)))
        unchanged = len(self._files) - len(blocked) - len(self._written)
        return FilesExported(tuple(self._written), tuple(self._removed), unchanged, blocked, tuple(self._kept))

    def _blocked(self) -> Iterator[Remark]:
        """A foreign file with equal content is adopted."""
        for path, content in self._files.items():
            fact = ""
            if (obstacle := self._directory.obstacle(path)) is not None:
                fact = f"{obstacle} was not exported by fsxds"
            elif path not in self._digests and self._directory.read(path) not in {None, content}:
                fact = "a file that fsxds did not export is there"
            if fact:
                yield Remark(str(path), f"{fact}, and stays; move it away, and export again")

    def _write_each(self, paths: Iterable[PurePosixPath]) -> None:
        wanted = [path for path in paths if self._directory.read(path) != self._files[path]]
        if wanted:
            # Announced before the first write, so that a killed process leaves no unknown file.
            announced: Digests = {**self._digests, **dict.fromkeys(wanted)}
            self._save(Manifest(announced, self._now_s, self._before.unused))
        for path in wanted:
            self._directory.replace(path, self._files[path], changed_at_s=self._now_s)
            self._written.append(path)
        self._digests |= {path: hashlib.sha256(self._files[path]).hexdigest() for path in paths}

    def _remove_each(self, paths: Iterable[PurePosixPath]) -> None:
        for path in sorted(paths):
            content, digest = self._directory.read(path), self._digests.pop(path)
            if content is None:
                continue
            if digest is not None and digest != hashlib.sha256(content).hexdigest():
                fact = "it was changed since fsxds exported it, and stays; remove it yourself"
                self._kept.append(Remark(str(path), fact))
                continue
            self._directory.remove(path)
            self._directory.remove_empty_folders(path)
            self._removed.append(path)

    def _save(self, manifest: Manifest) -> None:
        content = manifest.encode()
        if content != self._directory.read(MANIFEST):
            self._directory.replace(MANIFEST, content, is_private=True)
