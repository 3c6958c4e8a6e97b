"""In which order files change, so that Envoy always finds what it needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import PurePosixPath

from fsxds.resource_types import BY_SHORT_NAME, BY_TYPE_URL
from fsxds.rollout import Staged, staged_state
from fsxds.transports.mirror.files import Held, Layout, MirrorFile, united


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


Step = Write | Pause | Remove


class Phase(IntEnum):
    """The phases of a change, with a pause between any two of them.

    Clusters change before the routes and listeners that use them; then what those do not use any more is removed.
    """

    CLUSTERS = 0
    LISTENERS = 1
    UNUSED_CLUSTERS = 2
    UNUSED_FILES = 3


CLUSTERS = BY_SHORT_NAME["cds"]


def steps_to(layout: Layout, held: Held) -> tuple[Step, ...]:
    """Return the steps from what is held to a layout; none when all is as it should be."""
    changed = [file for path, file in layout.files.items() if path not in held or held[path].content != file]
    phases: dict[Phase, list[Step]] = {phase: [] for phase in Phase}
    is_in_use = any(_phase(file, held) is Phase.LISTENERS for file in changed)
    for file in sorted(changed, key=lambda file: (_rank(file, held), file.path)):
        staged = _staged_clusters(file, held) if is_in_use and file.type_url == CLUSTERS.type_url else Staged(file)
        if staged.make is not None:
            phases[_phase(file, held)].append(Write(staged.make))
        if staged.removal is not None:
            phases[Phase.UNUSED_CLUSTERS].append(Write(staged.removal))
    phases[Phase.UNUSED_FILES] += [Remove(path) for path in _unused_files(layout, held)]
    return tuple(_with_pauses(phases.values()))


def _rank(file: MirrorFile, held: Held) -> int:
    row = BY_TYPE_URL[file.type_url]
    return row.file_order if file.path in held or row.new_file_order is None else row.new_file_order


def _phase(file: MirrorFile, held: Held) -> Phase:
    if file.is_stand_in and file.path in held:
        return Phase.UNUSED_CLUSTERS
    return Phase.LISTENERS if _rank(file, held) > CLUSTERS.file_order else Phase.CLUSTERS


def _staged_clusters(file: MirrorFile, held: Held) -> Staged[MirrorFile]:
    """Keep removed clusters until routes and listeners have changed: until then the file has old and new ones."""
    if file.path not in held:
        return Staged(file)
    before = held[file.path].content
    return staged_state(before, united(file, before), file)


def _unused_files(layout: Layout, held: Held) -> list[PurePosixPath]:
    """Return what is to be removed, users first."""
    unused = [path for path in held if path not in layout.files and path not in layout.kept]
    ranks = {path: BY_TYPE_URL[held[path].type_url].file_order for path in unused}
    return sorted(unused, key=lambda path: (-ranks[path], path))


def _with_pauses(phases: Iterable[list[Step]]) -> Iterable[Step]:
    is_first = True
    for steps in phases:
        if steps and not is_first:
            yield Pause()
        yield from steps
        is_first = is_first and not steps
