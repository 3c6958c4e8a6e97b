"""Ask a real Envoy what it makes of resources, and find out which of them it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.errors import UsageError
from fsxds.local_envoy.bisection import Culprits, Members, find_culprits
from fsxds.local_envoy.judge_log import Refused
from fsxds.local_envoy.judge_problems import ProblemWriter
from fsxds.local_envoy.rejection import Rejection
from fsxds.local_envoy.scope_keys import repeated_scopes
from fsxds.local_envoy.static_rendering import BOOTSTRAP, Renderer
from fsxds.local_envoy.stub_files import STUB_FILE
from fsxds.local_envoy.validating import Validator
from fsxds.resource_types import BY_TYPE_URL, RESOURCE_TYPES
from fsxds.resources import Resource
from fsxds.values import Problem

AT_ONCE = 2

Progress: TypeAlias = Callable[[int, int], None]
"""Is told how many questions were answered, and how many it takes as far as is known by then."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Who judges, and by which message types.

    Attributes:
        executable: the Envoy to ask.
        catalogue: the message types; of the same Envoy or of another.
        progress: is told how far it is.
        contents: what the files hold, where that was read already; None where it is to be read from the disk.
    """

    executable: Path
    catalogue: Catalogue
    progress: Progress | None = None
    contents: Mapping[PurePosixPath, bytes] | None = None


def judge(resources: Iterable[Resource], directory: Path, bench: Bench) -> tuple[Problem, ...]:
    """Return what Envoy refuses of a tree, as problems at their places, sorted.

    Args:
        resources: all that an Envoy would get; they are judged together.
        directory: the tree that their origins are relative to.
        bench: who judges.

    Raises:
        UsageError: the executable is no Envoy, or cannot be started.
    """
    contents = bench.contents
    content_of = contents.get if contents is not None else lambda path: _content(directory / path)
    writer = ProblemWriter(bench.catalogue, content_of)
    return tuple(sorted(map(writer.problem, rejections_of(resources, bench))))


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def rejections_of(resources: Iterable[Resource], bench: Bench) -> tuple[Rejection, ...]:
    """Return what Envoy refuses of resources that it would get together, in push order.

    Raises:
        UsageError: the executable is no Envoy, or cannot be started.
    """
    if not bench.catalogue.knows(BOOTSTRAP):
        raise UsageError(f"--with-envoy: there is no {BOOTSTRAP} in {bench.catalogue.description}")
    order = {row.type_url: number for number, row in enumerate(RESOURCE_TYPES)}
    known = [one for one in resources if one.type_url in BY_TYPE_URL]
    ordered = sorted(known, key=lambda one: (order[one.type_url], one.origin.path, one.origin.line, one.name))
    with _court(ordered, bench) as court:
        return tuple(map(court.rejection, court.find()))


@contextmanager
def _court(resources: Sequence[Resource], bench: Bench) -> Iterator[_Court]:
    with TemporaryDirectory(prefix="fsxds-judge-") as name, ThreadPoolExecutor(AT_ONCE) as threads:
        validator = Validator(bench.executable, Path(name))
        stubs = Path(name, "stubs")
        stubs.mkdir()
        Path(stubs, STUB_FILE).touch()
        yield _Court(Renderer(bench.catalogue, resources, str(stubs)), validator, threads, bench.progress)


class _Court:
    """Asks Envoy about sets of resources, two at a time."""

    def __init__(
        self, renderer: Renderer, validator: Validator, threads: ThreadPoolExecutor, progress: Progress | None
    ) -> None:
        self._renderer = renderer
        self._validator = validator
        self._threads = threads
        self._progress = progress or (lambda *_: None)
        self._answered = 0

    def find(self) -> tuple[Culprits, ...]:
        """Return all that Envoy refuses, in the order of the resources."""
        repeated = repeated_scopes(self._renderer.prepared)
        gone = {culprits.members[-1] for culprits in repeated}
        members = [member for member in range(len(self._renderer.prepared)) if member not in gone]
        found = (*repeated, *(find_culprits(members, self._ask) if members else ()))
        return tuple(sorted(found, key=lambda culprits: culprits.members[-1:]))

    def _ask(self, sets: Sequence[Members]) -> list[Refused | None]:
        self._progress(self._answered, self._answered + len(sets))
        answers = list(self._threads.map(self._validator.validate, map(self._renderer.render, sets)))
        self._answered += len(sets)
        # Who is refused brings two more questions: of itself, and of the rest.
        self._progress(self._answered, self._answered + 2 * sum(answer is not None for answer in answers))
        return answers

    def rejection(self, culprits: Culprits) -> Rejection:
        """Say what culprits mean in terms of resources."""
        guilty = [self._renderer.prepared[member] for member in culprits.members]
        *others, last = (one.resource for one in guilty) if guilty else (None,)
        is_certain = all(one.is_complete for one in guilty)
        return Rejection(last, culprits.reason, tuple(one for one in others if one), is_certain)
