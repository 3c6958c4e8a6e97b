"""In which order files change, so that Envoy always finds what it needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import PurePosixPath

from fsxds.resource_types import BY_SHORT_NAME, BY_TYPE_URL
from fsxds.transports.mirror.files import Held, Layout, MirrorFile


@dataclass(frozen=True, slots=True)
class Write:
    """Put this file in place of the one that is there, if any."""

    file: MirrorFile


@dataclass(frozen=True, slots=True)
class Pause:
    """Give Envoy time to read what was written, before what relies on it follows.

    Two files renamed at once race: Envoy then rejects up to a fifth of the listeners, and does not try again
    (ENVOY.md E26).
    """


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove this one of our files."""

    path: PurePosixPath


FileStep = Write | Pause | Remove


class Phase(IntEnum):
    """The phases of a change, with a pause between any two of them.

    Clusters change before the routes and listeners that use them; what is not used any more goes last.
    """

    CLUSTERS = 0
    LISTENERS = 1
    STAND_INS = 2
    UNUSED_FILES = 3


CLUSTERS = BY_SHORT_NAME["cds"]


def steps_to(layout: Layout, held: Held) -> tuple[FileStep, ...]:
    """Return the steps from what is held to a layout; none when all is as it should be."""
    changed = [file for path, file in layout.files.items() if path not in held or held[path].content != file]
    phases: dict[Phase, list[FileStep]] = {phase: [] for phase in Phase}
    for file in sorted(changed, key=lambda file: (_rank(file, held), file.path)):
        phases[_phase(file, held)].append(Write(file))
    phases[Phase.UNUSED_FILES] += [Remove(path) for path in _unused_files(layout, held)]
    return tuple(_with_pauses(phases.values()))


def _rank(file: MirrorFile, held: Held) -> int:
    row = BY_TYPE_URL[file.type_url]
    return row.file_order if file.path in held or row.new_file_order is None else row.new_file_order


def _phase(file: MirrorFile, held: Held) -> Phase:
    if file.is_stand_in and file.path in held:
        return Phase.STAND_INS
    return Phase.LISTENERS if _rank(file, held) > CLUSTERS.file_order else Phase.CLUSTERS


def _unused_files(layout: Layout, held: Held) -> list[PurePosixPath]:
    """Return what is to be removed, users first."""
    unused = [path for path in held if path not in layout.files and path not in layout.kept]
    ranks = {path: BY_TYPE_URL[held[path].type_url].file_order for path in unused}
    return sorted(unused, key=lambda path: (-ranks[path], path))


def _with_pauses(phases: Iterable[list[FileStep]]) -> Iterable[FileStep]:
    is_first = True
    for steps in phases:
        if steps and not is_first:
            yield Pause()
        yield from steps
        is_first = is_first and not steps
