"""Look at the files that config sources name, for the doctor."""

# Paths are looked at as they are written; Path objects would lose what matters, and find nothing more.
# ruff: noqa: PTH110, PTH113, PTH114, PTH115, PTH118, PTH119, PTH120

from __future__ import annotations

import os
from pathlib import Path

from fsxds.doctor.files import FileFacts

_HEAD_BYTES = 64
_CONFIG_MAP_LINK = "..data"


def look_at(path: str) -> FileFacts:
    """Look at a path, relative to the current directory as it is for an Envoy started here."""
    if "\0" in path:
        return FileFacts(exists=False)
    swapped_in, is_config_map = _swapping(path)
    return FileFacts(os.path.exists(path), swapped_in, is_config_map, _head(path))


def _swapping(path: str) -> tuple[str | None, bool]:
    """Return the directory on the way to a path whose link is swapped, as the path spells it, and what kind it is."""
    folder = os.path.dirname(path)
    while True:
        if os.path.islink(os.path.join(folder, _CONFIG_MAP_LINK)):
            return folder or ".", True
        if _is_generation_link(folder):
            return os.path.dirname(folder) or ".", os.path.basename(folder) == _CONFIG_MAP_LINK
        parent = os.path.dirname(folder)
        if parent == folder:
            return None, False
        folder = parent


def _is_generation_link(folder: str) -> bool:
    """Tell whether a directory is a link to its neighbour: `current -> generation-7`.

    Links that lead elsewhere (`/var/run -> /run`) are part of the system, and stay.
    """
    try:
        target = os.readlink(folder)
    except OSError:
        return False
    return "/" not in target.rstrip("/") and target not in {".", ".."}


def _head(path: str) -> bytes:
    try:
        if not os.path.isfile(path):
            return b""
        with Path(path).open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""
