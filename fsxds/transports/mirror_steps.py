"""In which order files change, so that no reader ever misses what it needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import PurePosixPath

from fsxds.resource_types import BY_SHORT_NAME, BY_TYPE_URL
from fsxds.transports.mirror_files import Held, Layout, MirrorFile, united


@dataclass(frozen=True, slots=True)
class Write:
    """Put this file in place of the one that is there, if any."""

    file: MirrorFile


@dataclass(frozen=True, slots=True)
class Pause:
    """Give Envoy time to read what was written, before what relies on it follows.

    Two files renamed at once race: Envoy then rejects up to a fifth of the listeners, and does not try again
    (ENVOY.md B4).
    """


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove this file of ours."""

    path: PurePosixPath


Step = Write | Pause | Remove


class Act(IntEnum):
    """The acts of a change, with a pause between any two of them.

    Make before break: clusters before the routes and listeners that use them; then what these may have left.
    """

    CLUSTERS = 0
    LISTENERS = 1
    LEFT_CLUSTERS = 2
    LEFT_FILES = 3


CLUSTERS = BY_SHORT_NAME["cds"]


def steps_to(layout: Layout, held: Held) -> tuple[Step, ...]:
    """Return the steps from what is held to a layout; none when all is as it should be."""
    changed = [file for path, file in layout.files.items() if path not in held or held[path].content != file]
    acts: dict[Act, list[Step]] = {act: [] for act in Act}
    for file in sorted(changed, key=lambda file: (_rank(file, held), file.path)):
        acts[_act(file, held)].append(Write(file))
    if acts[Act.LISTENERS]:
        _keep_clusters_in_use(acts, held)
    acts[Act.LEFT_FILES] += [Remove(path) for path in _left_files(layout, held)]
    return tuple(_with_pauses(acts.values()))


def _rank(file: MirrorFile, held: Held) -> int:
    row = BY_TYPE_URL[file.type_url]
    return row.file_order if file.path in held or row.new_file_order is None else row.new_file_order


def _act(file: MirrorFile, held: Held) -> Act:
    if file.is_stand_in and file.path in held:
        return Act.LEFT_CLUSTERS
    return Act.LISTENERS if _rank(file, held) > CLUSTERS.file_order else Act.CLUSTERS


def _keep_clusters_in_use(acts: dict[Act, list[Step]], held: Held) -> None:
    """Let clusters go only when routes and listeners have changed: until then the bundle holds old and new ones."""
    for index, step in enumerate(acts[Act.CLUSTERS]):
        if not isinstance(step, Write) or step.file.path not in held or step.file.type_url != CLUSTERS.type_url:
            continue
        before = held[step.file.path].content
        both = united(step.file, before)
        if both != step.file:
            acts[Act.LEFT_CLUSTERS].append(step)
            acts[Act.CLUSTERS][index : index + 1] = [Write(both)] if both != before else []
            return


def _left_files(layout: Layout, held: Held) -> list[PurePosixPath]:
    """Return what is to be removed, users first."""
    left = [path for path in held if path not in layout.files and path not in layout.kept]
    ranks = {path: BY_TYPE_URL[held[path].type_url].file_order for path in left}
    return sorted(left, key=lambda path: (-ranks[path], path))


def _with_pauses(acts: Iterable[list[Step]]) -> Iterable[Step]:
    is_first = True
    for steps in acts:
        if steps and not is_first:
            yield Pause()
        yield from steps
        is_first = is_first and not steps
