"""Caches parsed files for the next start.

A file's key consists of its content, format, type by name, its folder's context parameters, and a digest of code, API
and settings. Nothing else affects parsing, so a renamed or restored file is found, too.

Only a process with the original file can read a record: it is enciphered and authenticated by keys derived from the
file's digest, which is in no pack. A damaged or forged record counts as missing. The cipher is SHAKE-256's output for that key and a fresh nonce, the authenticator keyed
BLAKE2b. Files with `Secret` resources or PEM private keys are not written.

The pack is a growing file of records, rewritten when half is obsolete: a newer record of the same place makes one so. A
record is `magic, length, place, name, payload`; the name is the key for reading. An incomplete record ends the pack,
and is cut off by the next write. Readers verify payloads.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from sys import version as python_version
from typing import NamedTuple, Protocol

from fsxds import __version__
from fsxds.disk_cache.private_directory import TEMPORARY, NotPrivateError, PrivateDirectory
from fsxds.events.event import Observer
from fsxds.events.file_events import CacheFailed, CacheRead
from fsxds.formats import format_of
from fsxds.model.resource_types import BY_SHORT_NAME, type_from_path
from fsxds.model.resources import ParsedFile
from fsxds.model.values import SourceFile
from fsxds.settings.naming_rules import NamingRules
from fsxds.snapshots.encoding import DamagedBytesError, decode, encode

# Part of every name: records of another form are not found, rather than misread.
_FORM = b"fsxds-parsed-1"

DIRECTORY = "fsxds-parsed"
"""The directory of packs.
"""

# Parsing less takes no longer than the lookup.
LEAST_CACHED_BYTES = 256 * 1024

# The packages that affect parsing.
_LIBRARIES = ("protobuf", "pyyaml", "google-re2", "cryptography")

_NONCE_BYTES = 16
_MAC_BYTES = 16

_SECRET = BY_SHORT_NAME["sds"].type_url
_PRIVATE_KEY = b"PRIVATE KEY-----"


class CacheRules(Protocol):
    """The rules that affect parsing."""

    @property
    def naming(self) -> NamingRules:
        """The rules by folder."""

    def digest(self) -> bytes:
        """Return a digest of the rules."""


class ParseCache:
    """One tree's parsed files by one set of rules. Blocking, except `add`; no method raises.

    The directory's first error is reported, and ends its use.
    """

    def __init__(self, directory: Path, tree: Path, rules: CacheRules, observer: Observer) -> None:
        """Use a subdirectory of `directory`, by `tree`; `observer` receives hits and errors."""
        self._directory = directory / DIRECTORY
        self._tree = tree
        self._rules = rules
        self._observer = observer
        self._store: _Store | None = None
        self._is_usable = True
        self._added: dict[PurePosixPath, tuple[SourceFile, ParsedFile, bytes | None]] = {}

    def find(self, files: Sequence[SourceFile]) -> Sequence[ParsedFile | None]:
        """Return cached results, or None; few bytes are not worth a lookup."""
        found: Sequence[ParsedFile | None] = [None] * len(files)
        if sum(file.size_bytes for file in files) < LEAST_CACHED_BYTES or not self._is_usable:
            return found
        try:
            if self._store is None:
                self._store = _Store(self._directory, self._tree, self._rules.digest(), self._rules.naming)
            found = self._store.find(files)
        except OSError as error:
            self._give_up(error)
            return found
        self._observer(CacheRead(len(files) - found.count(None), len(files)))
        return found

    def add(self, file: SourceFile, parsed: ParsedFile, encoded: bytes | None = None) -> bool:
        """Schedule a result for the next `write`; return whether it was accepted.

        No file with an error or credential is, and none if no lookup was worthwhile.
        """
        if self._store is None or not self._is_usable or parsed.digest != file.digest or not parsed.is_good:
            return False
        if any(row.type_url == _SECRET or _PRIVATE_KEY in row.body for row in parsed.resources):
            return False
        self._added[file.path] = file, parsed, encoded
        return True

    def write(self) -> bool:
        """Write scheduled results; keep them, and return False, if another process is writing."""
        taken = [self._added.popitem() for _ in range(len(self._added))]
        if self._store is None or not taken or not self._is_usable:
            return True
        try:
            is_written = self._store.write([row for _, row in reversed(taken)])
        except OSError as error:
            self._give_up(error)
            return True
        if not is_written:
            self._added = dict(taken) | self._added
        return is_written

    def _give_up(self, error: OSError) -> None:
        self._is_usable = False
        self._added = {}
        reason = str(error) if isinstance(error, NotPrivateError) else error.strerror or str(error)
        self._observer(CacheFailed(self._directory, reason))


class _Store:
    def __init__(self, directory: Path, tree: Path, rules: bytes, naming: NamingRules) -> None:
        self._naming = naming
        self._key = hashlib.blake2b(rules, key=_FORM).digest()
        label = hashlib.blake2b(os.fsencode(tree.absolute()), key=self._key, digest_size=NAME_BYTES)
        self._pack = Pack(directory, label.hexdigest())

    def find(self, files: Sequence[SourceFile]) -> Sequence[ParsedFile | None]:
        payloads = self._pack.read()
        return [self._found(file, payloads) for file in files]

    def _found(self, file: SourceFile, payloads: Mapping[bytes, bytes]) -> ParsedFile | None:
        name, key = self._name_and_key(file)
        encoded = unsealed(payloads.get(name, b""), key)
        with suppress(DamagedBytesError):  # it is parsed again, and that is written
            return None if encoded is None else decode(file.path, file.digest, encoded)
        return None

    def write(self, rows: Iterable[tuple[SourceFile, ParsedFile, bytes | None]]) -> bool:
        return self._pack.append([self._record(*row) for row in rows])

    def _record(self, file: SourceFile, parsed: ParsedFile, encoded: bytes | None) -> Record:
        name, key = self._name_and_key(file)
        place = hashlib.blake2b(os.fsencode(str(file.path)), digest_size=NAME_BYTES).digest()
        return Record(place, name, sealed(encode(parsed) if encoded is None else encoded, key))

    def _name_and_key(self, file: SourceFile) -> tuple[bytes, bytes]:
        """Neither can be derived from the other."""
        form, hint = format_of(file.path), type_from_path(file.path)
        parts = (form.name if form else "", hint.short_name if hint else "", file.digest)
        context = self._naming.context_of(file.path)
        words = "\0".join((*parts, repr(context)) if context else parts).encode("utf-8", "surrogatepass")
        name = hashlib.blake2b(words, key=self._key, digest_size=NAME_BYTES, person=b"name").digest()
        return name, hashlib.blake2b(words, key=self._key, person=b"seal").digest()


def sealed(content: bytes, key: bytes) -> bytes:
    """Encipher and authenticate content."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    enciphered = _enciphered(content, key, nonce)
    return nonce + _mac(nonce + enciphered, key) + enciphered


def unsealed(payload: bytes, key: bytes) -> bytes | None:
    """Return the content sealed with this key, or None."""
    start = _NONCE_BYTES + _MAC_BYTES
    nonce, mac, enciphered = payload[:_NONCE_BYTES], payload[_NONCE_BYTES:start], payload[start:]
    if not hmac.compare_digest(mac, _mac(nonce + enciphered, key)):
        return None
    return _enciphered(enciphered, key, nonce)


def _mac(content: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(content, key=key, digest_size=_MAC_BYTES, person=b"mac").digest()


def _enciphered(content: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(key + nonce).digest(len(content))
    return (int.from_bytes(content) ^ int.from_bytes(stream)).to_bytes(len(content))


@cache
def code_digest() -> bytes:
    """Return a digest of the code that affects parsing: fsxds, Python, some libraries; the version is not enough."""
    whole = hashlib.sha256(f"{python_version}\0{__version__}\0{_versions()}\0".encode())
    top = Path(__file__).parent.parent
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".pyc", ".md", ".json")):
                path = Path(folder, name)
                whole.update(f"{path.relative_to(top)}\0".encode())
                whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.digest()


def _versions() -> str:
    # Its own imports take 6 ms, and few trees are large enough for the cache.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    found = []
    for library in _LIBRARIES:
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            found.append(library)
    return ", ".join(found)


NAME_BYTES = 16

_HEADER = struct.Struct(f">4sI{NAME_BYTES}s{NAME_BYTES}s")
_MAGIC = b"fsx\x01"

# Smaller packs are not worth rewriting.
SMALLEST_BYTES = 4 * 1024 * 1024

# About two million clusters. Records of removed files count, too, because the pack does not know about them.
MOST_BYTES = 256 * 1024 * 1024

# The names of packs, and of temporary files; only such files are ever removed.
SUFFIX = ".pack"
_OURS = re.compile(rf"[0-9a-f]{{32}}{re.escape(SUFFIX)}|{re.escape(TEMPORARY)}[0-9a-f]{{16}}")

# The limit for all packs of a directory.
MOST_BYTES_OF_ALL = 1024 * 1024 * 1024


class Record(NamedTuple):
    """One record; `place` and `name` have 16 bytes each."""

    place: bytes
    name: bytes
    payload: bytes

    def to_bytes(self) -> bytes:
        """Serialize the record."""
        return _HEADER.pack(_MAGIC, len(self.payload), self.place, self.name) + self.payload


class _Slice(NamedTuple):
    place: bytes
    name: bytes
    start: int
    end: int


def _slices(content: bytes) -> Iterator[_Slice]:
    start = 0
    while start + _HEADER.size <= len(content):
        magic, length, place, name = _HEADER.unpack_from(content, start)
        end = start + _HEADER.size + length
        if magic != _MAGIC or end > len(content):
            return
        yield _Slice(place, name, start, end)
        start = end


class Pack:
    """A pack, shared by any number of processes. Blocking; every method may raise OSError."""

    def __init__(self, directory: Path, name: str, smallest_bytes: int = SMALLEST_BYTES) -> None:
        self._directory = directory
        self._file_name = name + SUFFIX
        self._smallest_bytes = smallest_bytes
        # The inode and size of the file after the last write of this object: it ends with a complete record.
        self._written: tuple[int, int] | None = None
        self._clean_above_bytes = 0

    def read(self) -> dict[bytes, bytes]:
        """Return payloads by name, empty without a pack."""
        with PrivateDirectory.opened(self._directory) as directory:
            descriptor = directory.open(self._file_name)
            if descriptor is None:
                return {}
            try:
                content = _read(descriptor)
                # Records the time of use, by which packs are evicted.
                os.utime(descriptor)
            finally:
                os.close(descriptor)
        return {row.name: content[row.start + _HEADER.size : row.end] for row in _slices(content)}

    def append(self, records: Sequence[Record]) -> bool:
        """Add all records or none; return False if another process is writing."""
        added = b"".join(record.to_bytes() for record in records)
        with PrivateDirectory.opened(self._directory) as directory:
            is_first = self._written is None
            descriptor = self._locked(directory)
            if descriptor is None:
                return False
            try:
                self._add(descriptor, added, directory)
            finally:
                os.close(descriptor)
            if is_first:
                directory.evict(_OURS, self._file_name, MOST_BYTES_OF_ALL)
        return True

    def _locked(self, directory: PrivateDirectory) -> int | None:
        descriptor = directory.open(self._file_name, create=True)
        if descriptor is None:
            return None
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have replaced this pack.
            if os.fstat(descriptor).st_nlink:
                return descriptor
        os.close(descriptor)
        return None

    def _add(self, descriptor: int, added: bytes, directory: PrivateDirectory) -> None:
        status = os.fstat(descriptor)
        end = status.st_size
        if self._written != (status.st_ino, end) or end + len(added) > self._clean_above_bytes:
            content = _read(descriptor)
            kept = _newest(content, MOST_BYTES // 2 - len(added))
            size_bytes = sum(row.end - row.start for row in kept)
            self._clean_above_bytes = min(max(self._smallest_bytes, 2 * (size_bytes + len(added))), MOST_BYTES)
            if end + len(added) > self._clean_above_bytes:
                directory.replace(self._file_name, (*(content[row.start : row.end] for row in kept), added))
                self._written = None
                return
            end = max((row.end for row in _slices(content)), default=0)
        _write_at(descriptor, added, end)
        self._written = status.st_ino, end + len(added)


def _newest(content: bytes, most_bytes: int) -> list[_Slice]:
    kept: dict[bytes, _Slice] = {}
    size_bytes = 0
    for row in reversed(list(_slices(content))):
        if row.place not in kept:
            size_bytes += row.end - row.start
            if size_bytes > most_bytes:
                break
            kept[row.place] = row
    return list(reversed(kept.values()))


def _read(descriptor: int) -> bytes:
    """Larger files than any pack are read as empty."""
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes > 2 * MOST_BYTES:
        return b""
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return file.read(size_bytes)


def _write_at(descriptor: int, added: bytes, end: int) -> None:
    os.ftruncate(descriptor, end)
    try:
        written = 0
        while written < len(added):
            written += os.pwrite(descriptor, added[written:], end + written)
    except OSError:
        with suppress(OSError):
            os.ftruncate(descriptor, end)
        raise
