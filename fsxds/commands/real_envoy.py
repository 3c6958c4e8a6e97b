"""What a real Envoy on this machine refuses of a tree that is checked."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fsxds import __version__
from fsxds.api.catalogue import Catalogue
from fsxds.commands.running import progress_bar
from fsxds.errors import UsageError
from fsxds.loading import levels_of
from fsxds.local_envoy.judge import Bench, judge
from fsxds.resources import Resource
from fsxds.settings import Settings
from fsxds.snapshots.load import Loaded
from fsxds.sources.api_cache import ApiCache
from fsxds.sources.envoy_api import find_envoy
from fsxds.values import Problem, SourceTree

# Counts what changes the question that Envoy is asked, so that older answers no longer count.
_QUESTION = 1
_NONE_HERE = "--with-envoy: there is no Envoy here; pip install 'fsxds[envoy]', or give the path of one"


def refused_by_envoy(
    loaded: Loaded, directory: Path, tree: SourceTree, settings: Settings, catalogue: Catalogue
) -> tuple[Problem, ...]:
    """Ask a real Envoy about all that is good so far, and return what it refuses.

    Where the settings say nothing of it, an Envoy is asked if there is one that can be run. A tree of which nothing was
    refused is not asked about again while neither it nor the Envoy changes.

    Raises:
        UsageError: the settings want an Envoy; there is none, or what was given is none.
    """
    wanted = settings.with_envoy
    if wanted is False:
        return ()
    executable = wanted if isinstance(wanted, Path) else find_envoy(settings.envoy)
    if executable is None:
        if wanted:
            raise UsageError(_NONE_HERE)
        return ()
    resources = [resource for row in loaded.snapshot.by_type.values() for resource in row.values()]
    try:
        contents = {file.path: file.content for file in tree.files}
        bench = Bench(executable, catalogue, contents=contents)
        found = _ask(resources, directory, ApiCache(settings.cache_dir), bench)
    except UsageError as error:
        if wanted:
            raise
        print(f"no real Envoy was asked: {error}; --no-envoy asks none", file=sys.stderr)
        return ()
    levels = levels_of(settings)
    return tuple(weighed for problem in found if (weighed := levels.weigh(problem)))


def _ask(resources: list[Resource], directory: Path, cache: ApiCache, bench: Bench) -> tuple[Problem, ...]:
    if not resources:
        return ()
    tree = f"accepted by Envoy\0{directory.absolute()}"
    digest = _digest(resources, bench)
    if cache.digest_of(tree) == digest:
        return ()
    with progress_bar("asking Envoy") as progress:
        found = judge(resources, directory, replace(bench, progress=progress))
    if not found:
        cache.note(tree, digest)
    return found


def _digest(resources: Iterable[Resource], bench: Bench) -> str:
    """Return a digest of all that the answer depends on."""
    try:
        status = bench.executable.stat()
    except OSError as error:
        raise UsageError(f"{bench.executable}: {error.strerror}; give the path of an Envoy executable") from error
    identity = f"{bench.executable.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    whole = hashlib.sha256(f"{_QUESTION}\0{__version__}\0{bench.catalogue.description}\0{identity}".encode())
    for resource in sorted(resources, key=lambda one: (one.type_url, one.name)):
        body = hashlib.sha256(resource.body).hexdigest()
        whole.update(f"\0{resource.type_url}\0{resource.name}\0{body}".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()
