"""A check's result for every format."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.api.secrets import mask_text
from fsxds.events.event import count_of, escape
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Snapshot
from fsxds.model.values import Problem, Severity
from fsxds.observe.source_lines import Excerpt, Source

# How messages name another place of the tree: `already defined at clusters.yaml:3`.
_PLACE = re.compile(r"\bat (?P<path>\S.*?):(?P<line>\d+)\b")

_ORDER = tuple(Severity)

# Names of resources that differ from the type's noun.
_PLURALS = {"runtime": "runtime layers"}


@dataclass(frozen=True, slots=True)
class ReportedProblem:
    """A problem without secrets, and its showable line."""

    problem: Problem
    excerpt: Excerpt | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A check's outcome; relative paths start at `base`.

    Attributes:
        findings: sorted by place; their paths can be opened from here.
        files: all that were read, in the same form.
        resources: counts by the type's noun.
        threshold: the lowest severity that fails the check.
        lists_all: whether text has each note; else only the first of those that differ in nothing but names.
    """

    subject: str
    findings: tuple[ReportedProblem, ...]
    files: tuple[str, ...] = ()
    resources: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    threshold: Severity = Severity.ERROR
    base: str = ""
    lists_all: bool = True

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems without excerpts."""
        return tuple(finding.problem for finding in self.findings)

    @property
    def has_failed(self) -> bool:
        """Whether any counts as failure."""
        return any(map(self.counts_as_failure, self.problems))

    def counts_as_failure(self, problem: Problem) -> bool:
        """Whether a problem reaches the threshold."""
        return _ORDER.index(problem.severity) <= _ORDER.index(self.threshold)

    @property
    def summary(self) -> str:
        """Problems, files and resources in one line."""
        counted = [count_of_resources(number, noun) for noun, number in self.resources.items()]
        return f"{self.subject}: {self._outcome()}: {', '.join(counted) or 'no resources'}"

    def _outcome(self) -> str:
        counts = Counter(problem.severity for problem in self.problems)
        found = [count_of(counts[severity], severity.value) for severity in Severity if counts[severity]]
        read = count_of(len(self.files), "file")
        if counts[Severity.ERROR]:
            return f"{', '.join(found)} in {read}"
        return f"clean, with {', '.join(found)}, in {read}" if found else f"clean, {read}"


def count_of_resources(number: int, noun: str) -> str:
    """Return `1 cluster`, `2 clusters`."""
    plural = _PLURALS.get(noun, noun.replace("-", " "))
    return f"{number} {plural.removesuffix('s') if number == 1 else plural}"


def findings_of(
    problems: Iterable[Problem],
    tree: PurePosixPath,
    sources: Mapping[PurePosixPath, bytes],
    files: Collection[PurePosixPath] = (),
    is_word: Callable[[str], bool] = lambda _: False,
) -> tuple[ReportedProblem, ...]:
    """Return problems with paths from the top of `tree`, as shown from here."""
    ordered = sorted(set(problems))
    texts = {
        path: Source(path, sources[path], is_word) for path in {problem.path for problem in ordered} & sources.keys()
    }
    return tuple(
        ReportedProblem(
            _presentable(problem, tree, files),
            texts[problem.path].excerpt(problem) if problem.path in texts else None,
        )
        for problem in ordered
    )


def _presentable(problem: Problem, tree: PurePosixPath, files: Collection[PurePosixPath]) -> Problem:

    def led_to(match: re.Match[str]) -> str:
        path = PurePosixPath(match["path"])
        return f"at {tree / path}:{match['line']}" if path in files else match[0]

    return replace(
        problem,
        path=PurePosixPath(escape(str(tree / problem.path))),
        pointer=presentable_text(problem.pointer),
        message=presentable_text(_PLACE.sub(led_to, problem.message)),
        remedy=presentable_text(problem.remedy),
    )


def line_of(problem: Problem) -> str:
    """Write place, severity, rule, fact and remedy."""
    return f"{place_of(problem)}: {problem.severity.value}[{problem.rule}]: {fact_of(problem)}{remedy_of(problem)}"


def place_of(problem: Problem) -> str:
    """Write the place as editors open it."""
    return f"{problem.path}:{problem.line}:{problem.column}"


def fact_of(problem: Problem) -> str:
    """Write the fault, with its field."""
    return f"{problem.pointer}: {problem.message}" if problem.pointer else problem.message


def remedy_of(problem: Problem) -> str:
    """Write the remedy as a sentence's end."""
    return f"; {problem.remedy}" if problem.remedy else ""


def presentable_text(text: str) -> str:
    """Hide secrets; escape characters that forge lines."""
    return escape(mask_text(text))


def resource_counts(snapshots: Iterable[Snapshot]) -> dict[str, int]:
    """Count views' resources by noun.

    One in several views counts once per content.
    """
    first, *others = snapshots
    more = {
        (resource.type_url, resource.name, resource.version) for other in others for resource in other.beyond(first)
    }
    counted = Counter(type_url for type_url, _, _ in more)
    counts = {row.noun: len(first.resources(row.type_url)) + counted[row.type_url] for row in RESOURCE_TYPES}
    return {noun: number for noun, number in counts.items() if number}
