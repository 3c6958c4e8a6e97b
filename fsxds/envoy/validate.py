"""Validates resources with a real Envoy.

`envoy --mode validate` reads one static bootstrap, without ports or calls, and stops at the first mistake (ENVOY.md
E61), so `find_conflicts` asks again about parts.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.envoy_log import (
    LOG_ARGUMENTS,
    EnvoyLogLine,
    ValidationFailure,
    counts_differ,
    read_failure,
    read_log_line,
)
from fsxds.envoy.envoy_rejections import EnvoyRejection, ProblemWriter, Read
from fsxds.envoy.static_bootstrap import BOOTSTRAP, SRDS, Member, Prepared, Renderer, Rendering
from fsxds.envoy.stub_files import STUB_FILE
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import Resource
from fsxds.model.values import Problem

Members: TypeAlias = tuple[Member, ...]

Validate: TypeAlias = "Callable[[Sequence[Members]], Sequence[ValidationFailure | None]]"
"""Validates several sets of resources at once; None stands for an accepted set."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Resources rejected only together; mostly one.

    Without members, Envoy rejects the whole set for an unknown cause.
    """

    members: Members
    reason: str


def find_conflicts(members: Sequence[Member], ask: Validate) -> tuple[Conflict, ...]:
    """Return all conflicts.

    For each suspect in Envoy's log, two questions are asked at once: about it alone, and about the rest. Without a right
    suspect, the set is cut into thirds.
    """
    found = _Search(ask).run(tuple(members))
    return tuple(sorted(found, key=lambda conflict: conflict.members[-1:]))


class _Search:
    def __init__(self, ask: Validate) -> None:
        self._ask = ask
        self._found: list[Conflict] = []

    def run(self, members: Members) -> list[Conflict]:
        answer = self._ask_one(members)
        while answer is not None:
            part = members
            while answer is not None:
                part, answer = self._advance(part, answer)
            if not self._found[-1].members:
                break
            members = self._without_found(members)
            answer = self._ask_one(members)
        return self._found

    def _ask_one(self, members: Members) -> ValidationFailure | None:
        return self._ask((members,))[0] if members else None

    def _without_found(self, members: Members) -> Members:
        # Of a conflict, the last member is removed: it was added to the others.
        gone = {conflict.members[-1] for conflict in self._found if conflict.members}
        return tuple(member for member in members if member not in gone)

    def _advance(self, members: Members, answer: ValidationFailure) -> tuple[Members, ValidationFailure | None]:
        """Return the untested rest with its answer.

        Members accepted before the rejection are tested again only in the end.
        """
        suspect = answer.suspect
        if len(members) == 1:
            self._found.append(Conflict(members, answer.reason))
            return (), None
        if suspect not in members:
            return self._search(members, (), answer)
        rest = tuple(member for member in members if member != suspect and member not in answer.proven)
        alone, answer_of_rest = self._ask(((suspect,), rest)) if rest else (self._ask_one((suspect,)), None)
        if alone is None:
            return self._search(tuple(member for member in members if member != suspect), (suspect,), answer)
        self._found.append(Conflict((suspect,), alone.reason))
        return rest, answer_of_rest

    def _search(
        self, members: Members, fixed: Members, answer: ValidationFailure
    ) -> tuple[Members, ValidationFailure | None]:
        conflict = self._narrow(members, fixed, answer)
        self._found.append(conflict)
        if not conflict.members:
            return (), None
        rest = self._without_found((*fixed, *members))
        return rest, self._ask_one(rest)

    def _narrow(self, members: Members, fixed: Members, answer: ValidationFailure) -> Conflict:
        """Return a smallest set rejected together with `fixed`."""
        reason = answer.reason
        while True:
            end = self._shortest_rejected(members, fixed)
            if end is None:
                return Conflict((), reason)
            fixed = (*fixed, members[end - 1])
            members = members[: end - 1]
            now, alone = self._ask((fixed, (fixed[-1],)))
            if alone is not None:
                return Conflict((fixed[-1],), alone.reason)
            if now is not None:
                return Conflict(tuple(sorted(fixed)), now.reason)

    def _shortest_rejected(self, members: Members, fixed: Members) -> int | None:
        low, high, is_sure = 0, len(members), False
        while high - low > 1 or not is_sure:
            third = max(1, (high - low) // 3)
            cuts = sorted({min(low + third, high), min(low + 2 * third, high)} | (set() if is_sure else {high}))
            answers = self._ask([(*fixed, *members[:cut]) for cut in cuts])
            rejected = [cut for cut, one in zip(cuts, answers, strict=True) if one is not None]
            taken = [cut for cut, one in zip(cuts, answers, strict=True) if one is None]
            if not is_sure and not rejected:
                return None
            is_sure = True
            high = min([*rejected, high])
            low = max([low, *(cut for cut in taken if cut < high)])
        return high


def scope_key_conflicts(prepared: Sequence[Prepared]) -> tuple[Conflict, ...]:
    """Return scoped routes with an earlier one's key."""
    found: list[Conflict] = []
    first: dict[bytes, int] = {}
    for member, one in enumerate(prepared):
        if one.resource.type_url == SRDS:
            other = first.setdefault(one.scope_key, member)
            if other != member:
                names = prepared[other].resource.name, one.resource.name
                reason = "scope key conflict found, first scope is '{}', second scope is '{}'".format(*names)
                found.append(Conflict((other, member), reason))
    return tuple(found)


# Envoy takes 55 ms, and up to a millisecond per resource; if it takes this much longer, it hangs.
PATIENCE_S = 20.0
PATIENCE_PER_PART_S = 0.02
# The number of parts above which the first run asks only for the status: a detailed log takes Envoy half as long as the
# work itself.
LARGE = 300

_ADVICE = "--with-envoy takes the path of an Envoy binary"
_ACCEPTED = re.compile("configuration '.*' OK$")
_ARGUMENTS = (
    *LOG_ARGUMENTS,
    # Envoy takes unknown fields from a server, with a warning.
    "--allow-unknown-static-fields",
    "--disable-hot-restart",
    "--concurrency",
    "1",
)


class Validator:
    """Runs one Envoy on bootstraps in a private folder. Thread-safe."""

    def __init__(self, executable: Path, folder: Path, patience_s: float = PATIENCE_S) -> None:
        """`patience_s` comes on top of the time for a bootstrap's size.

        Raises:
            UsageError: there is no such executable.
        """
        if not executable.is_file() or not os.access(executable, os.X_OK):
            raise UsageError(f"{executable}: is no executable file; {_ADVICE}")
        self._executable = executable.absolute()
        self._folder = folder
        self._patience_s = patience_s

    def validate(self, rendering: Rendering) -> ValidationFailure | None:
        """Return why Envoy rejects a bootstrap, or None.

        Raises:
            UsageError: the executable cannot be run, or is no Envoy.
        """
        path = self._folder / f"{id(rendering):x}.pb"
        path.write_bytes(rendering.content())
        try:
            if rendering.size > LARGE and self._run(path, rendering, "info") is None:
                return None
            failure = self._run(path, rendering, "debug")
            # A missing reason, under heavy load, says nothing about the bootstrap.
            is_explained = failure is None or failure.reason != UNEXPLAINED
            return failure if is_explained else self._run(path, rendering, "debug")
        except subprocess.TimeoutExpired:
            return ValidationFailure(
                "Envoy hangs: it was ended after a time in which it takes much larger configurations"
            )
        except OSError as error:
            raise UsageError(f"{self._executable}: {error.strerror}; {_ADVICE}") from error
        finally:
            path.unlink()

    def _run(self, path: Path, rendering: Rendering, level: str) -> ValidationFailure | None:
        done = subprocess.run(  # noqa: S603 - no shell
            [self._executable, "--mode", "validate", "--config-path", path, "--log-level", level, *_ARGUMENTS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            timeout=self._patience_s + rendering.size * PATIENCE_PER_PART_S,
            check=False,
        )
        lines = [read_log_line(line) for line in done.stdout.decode(errors="replace").splitlines()]
        if any(_ACCEPTED.match(line.message) for line in lines):
            # A crash after that concerns its end, which does not happen in serving.
            return ValidationFailure("Envoy reads only a part of it") if counts_differ(lines, rendering) else None
        return self._failure(done.returncode, lines, rendering)

    def _failure(self, status: int, lines: list[EnvoyLogLine], rendering: Rendering) -> ValidationFailure:
        if not any(line.level for line in lines):
            raise UsageError(f"{self._executable}: does not answer as Envoy does; {_ADVICE}")
        rejected = read_failure(lines, rendering)
        if status >= 0:
            return rejected if rejected.reason else replace(rejected, reason=UNEXPLAINED)
        if any("inotify_fd_ >= 0" in line.message for line in lines):
            raise UsageError("Envoy cannot watch files: raise fs.inotify.max_user_instances of this machine by sysctl")
        return replace(rejected, reason=f"Envoy crashes of it ({signal.Signals(-status).name})")


UNEXPLAINED = "Envoy ends, and does not say why"

AT_ONCE = 2

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of runs of Envoy so far, and the expected total."""


@dataclass(frozen=True, slots=True)
class ValidationOptions:
    """The validating Envoy and message types."""

    executable: Path
    catalogue: Catalogue
    progress: Progress | None = None


def validate_resources(resources: Iterable[Resource], read: Read, options: ValidationOptions) -> tuple[Problem, ...]:
    """Return a tree's rejections as sorted problems.

    Raises:
        UsageError: the executable is no Envoy, or cannot be started.
    """
    writer = ProblemWriter(options.catalogue, read)
    return tuple(sorted(map(writer.problem, rejections_of(resources, options))))


def rejections_of(resources: Iterable[Resource], options: ValidationOptions) -> tuple[EnvoyRejection, ...]:
    """Return rejections of resources served together, in push order.

    Raises:
        UsageError: as `validate_resources`.
    """
    if not options.catalogue.knows(BOOTSTRAP):
        raise UsageError(f"--with-envoy: there is no {BOOTSTRAP} in {options.catalogue.description}")
    order = {row.type_url: number for number, row in enumerate(RESOURCE_TYPES)}
    known = [one for one in resources if one.type_url in BY_TYPE_URL]
    ordered = sorted(known, key=lambda one: (order[one.type_url], one.origin.path, one.origin.line, one.name))
    with _validating(ordered, options) as validation:
        return tuple(map(validation.rejection, validation.find()))


def accepted_of(resources: Sequence[Resource], options: ValidationOptions) -> tuple[Resource, ...]:
    """Return resources accepted alone and completely.

    Raises:
        UsageError: as `validate_resources`.
    """
    with _validating(resources, options) as validation:
        return tuple(
            resource for resource, is_accepted in zip(resources, validation.each(), strict=True) if is_accepted
        )


@contextmanager
def _validating(resources: Sequence[Resource], options: ValidationOptions) -> Iterator[_Validation]:
    with TemporaryDirectory(prefix="fsxds-judge-") as name, ThreadPoolExecutor(AT_ONCE) as threads:
        validator = Validator(options.executable, Path(name))
        stubs = Path(name, "stubs")
        stubs.mkdir()
        Path(stubs, STUB_FILE).touch()
        yield _Validation(Renderer(options.catalogue, resources, str(stubs)), validator, threads, options.progress)


class _Validation:
    def __init__(
        self, renderer: Renderer, validator: Validator, threads: ThreadPoolExecutor, progress: Progress | None
    ) -> None:
        self._renderer = renderer
        self._validator = validator
        self._threads = threads
        self._progress = progress or (lambda *_: None)
        self._answered = 0

    def find(self) -> tuple[Conflict, ...]:
        repeated = scope_key_conflicts(self._renderer.prepared)
        gone = {conflict.members[-1] for conflict in repeated}
        members = [member for member in range(len(self._renderer.prepared)) if member not in gone]
        found = (*repeated, *(find_conflicts(members, self._ask) if members else ()))
        return tuple(sorted(found, key=lambda conflict: conflict.members[-1:]))

    def each(self) -> list[bool]:
        members = range(len(self._renderer.prepared))
        shown = [
            self._renderer.prepared[one].is_complete and self._renderer.render((one,)).shows(one) for one in members
        ]
        answers = self._ask([(member,) for member in members])
        return [answer is None and is_shown for answer, is_shown in zip(answers, shown, strict=True)]

    def _ask(self, sets: Sequence[Members]) -> list[ValidationFailure | None]:
        self._progress(self._answered, self._answered + len(sets))
        answers = list(self._threads.map(self._validator.validate, map(self._renderer.render, sets)))
        self._answered += len(sets)
        # A rejection brings two more questions: about its member, and about the rest.
        self._progress(self._answered, self._answered + 2 * sum(answer is not None for answer in answers))
        return answers

    def rejection(self, conflict: Conflict) -> EnvoyRejection:
        parts = [self._renderer.prepared[member] for member in conflict.members]
        *others, last = (one.resource for one in parts) if parts else (None,)
        is_certain = all(one.is_complete for one in parts)
        return EnvoyRejection(last, conflict.reason, tuple(one for one in others if one), is_certain)
