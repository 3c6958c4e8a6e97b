"""Remember on disk which descriptors an executable holds, so that it is read once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fsxds.api.features import Features, from_json, to_json

# Part of every name: entries of another format are not found, rather than misread.
_FORMAT = "api-1"


@dataclass(frozen=True, slots=True)
class StoredApi:
    """A serialized FileDescriptorSet, the version of what it was read from (None if untold), and its number of files."""

    serialized: bytes
    version: str | None
    file_count: int


class ApiCache:
    """A directory with one entry for each content, and a note for each file that leads to the content it had.

    Nothing here fails: an entry that is missing, broken or not to be written is only as if it had never been.
    """

    def __init__(self, directory: Path | None) -> None:
        """Use this directory; None for no cache at all."""
        self._directory = directory

    def digest_of(self, signature: str) -> str | None:
        """Return the digest noted for a file's signature (its path, size and time of change), if any."""
        note = self._read(_name_of(signature, "note"))
        return note.decode("ascii", "replace").strip() if note else None

    def note(self, signature: str, digest: str) -> None:
        """Note that the file of this signature has content of this digest."""
        self._write(_name_of(signature, "note"), digest.encode())

    def load(self, key: str) -> StoredApi | None:
        """Return what was stored for a content, if anything sound."""
        stored = self._read(_name_of(key, "descriptors")) or b""
        checksum, _, checked = stored.partition(b"\n")
        if checksum != hashlib.sha256(checked).hexdigest().encode():
            return None
        header, _, serialized = checked.partition(b"\n")
        version, file_count = json.loads(header)
        return StoredApi(serialized, version, file_count)

    def store(self, key: str, api: StoredApi) -> None:
        """Keep what was read from a content."""
        checked = json.dumps([api.version, api.file_count]).encode() + b"\n" + api.serialized
        self._write(_name_of(key, "descriptors"), hashlib.sha256(checked).hexdigest().encode() + b"\n" + checked)

    def load_features(self, key: str) -> Features | None:
        """Return the features that were stored for a content, if anything sound."""
        try:
            return from_json(self._read(_name_of(key, "features")) or b"")
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def store_features(self, key: str, features: Features) -> None:
        """Keep what an executable of this content has."""
        self._write(_name_of(key, "features"), to_json(features).encode())

    def _read(self, name: str) -> bytes | None:
        if self._directory is None:
            return None
        try:
            return (self._directory / name).read_bytes()
        except OSError:
            return None

    def _write(self, name: str, content: bytes) -> None:
        """Put a file in place as a whole: other processes may read it at any time."""
        if self._directory is None:
            return
        with contextlib.suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self._directory, prefix=".new-")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                Path(temporary).replace(self._directory / name)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise


def _name_of(key: str, suffix: str) -> str:
    return f"{_FORMAT}-{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}.{suffix}"
