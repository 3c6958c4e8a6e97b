"""Serves a directory of files to Envoy as xDS. `fsxds/README.md` has the map of the code, the words, and how to extend it.

In a program of your own, `fsxds.load` does what `fsxds check` does, and `fsxds.testing` has a server for tests. Importing
`fsxds` imports nothing else: every module is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from fsxds.settings.options import Settings
    from fsxds.snapshots.load import Loaded

__all__ = ["Loaded", "Settings", "__version__", "load"]

__version__ = "0.1.0"


def load(path: str | PathLike[str], settings: Settings | None = None) -> Loaded:
    """Load a tree once, as `fsxds serve` would: `snapshot` has the good files, `problems` the mistakes.

        >>> import fsxds
        >>> loaded = fsxds.load("config/xds")
        >>> [str(problem) for problem in loaded.problems if problem.severity is problem.severity.ERROR]
        []
        >>> from fsxds.model.resource_types import BY_SHORT_NAME
        >>> clusters = loaded.snapshot.resources(BY_SHORT_NAME["cds"].type_url)
        >>> list(clusters)
        ['backend', 'secure-web']
        >>> str(clusters["backend"].origin)
        'clusters.yaml:8'

    Args:
        path: the directory.
        settings: such as `fsxds.Settings(unknown_fields="warn")`; None for those of `fsxds check`, with the environment.

    Raises:
        FsxdsError: there is no such directory, or no API of an Envoy can be had.
    """
    loading = import_module("fsxds.server.loading_rules")
    chosen = settings or import_module("fsxds.settings.reading").read_settings({})
    directory, check = import_module("pathlib").Path(path), import_module("fsxds.lint.linter").linter_of(chosen)
    loaded: Loaded = loading.load_once(directory, chosen, loading.find_catalogue(chosen), check)
    return loaded


def __getattr__(name: str) -> object:
    """Import what is asked for by its name, such as `fsxds.Settings`."""
    homes = {"Loaded": "fsxds.snapshots.load", "Settings": "fsxds.settings.options"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)
