from __future__ import annotations

import pytest

from fsxds.lint.report import (
    count_of_resources,
    fact_of,
    findings_of,
    line_of,
    place_of,
    presentable_text,
    remedy_of,
    resource_counts,
)
from fsxds.model.values import Problem, Severity
from tests.lint.findings import TREE, problem, report
from tests.support.snapshots import snapshot

WARNING = problem(severity=Severity.WARNING, line=3)
NOTE = problem(severity=Severity.NOTE, line=4)


def test_problems_are_in_the_order_of_their_places() -> None:
    """Findings are sorted by file, line and column, whatever order they came in, and each is reported once."""
    problems = [problem("eds/web.yaml"), problem(line=10), problem(line=9, column=2), problem(line=9), problem(line=10)]

    found = [
        (str(finding.problem.path), finding.problem.line, finding.problem.column)
        for finding in findings_of(problems, TREE, {})
    ]

    assert [
        ("config/xds/cds.yaml", 9, 2),
        ("config/xds/cds.yaml", 9, 3),
        ("config/xds/cds.yaml", 10, 3),
        ("config/xds/eds/web.yaml", 2, 3),
    ] == found


def test_nothing_forges_lines_or_tells_secrets() -> None:
    """Every text of a problem is masked, and what could forge lines or colours is spelled out."""
    odd = problem(
        "a\nb.yaml",
        pointer="x\x1b[31m",
        message="inline_string: 'hunter2'",
        remedy="-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----",
    )
    (finding,) = findings_of([odd], TREE, {})

    shown = finding.problem
    assert ("config/xds/a\\nb.yaml", "x\\x1b[31m") == (str(shown.path), shown.pointer)
    assert ("inline_string: <hidden>", "<hidden>") == (shown.message, shown.remedy)


def test_words_of_a_problem() -> None:
    """A problem as one line has its place, severity, rule, fact and remedy; what it has not leaves no marks."""
    bare = problem(pointer="", remedy="")

    assert "cds.yaml:2:3: error[wrong-value]: [0].type: expected text, found a list; give one text" == line_of(
        problem()
    )
    assert ("cds.yaml:2:3", "expected text, found a list", "") == (place_of(bare), fact_of(bare), remedy_of(bare))


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        ((), "config/xds: clean, 2 files: 2 clusters"),
        ((problem(),), "config/xds: 1 error in 2 files: 2 clusters"),
        ((problem(), problem(line=7), WARNING, NOTE), "config/xds: 2 errors, 1 warning, 1 note in 2 files: 2 clusters"),
        ((WARNING, NOTE), "config/xds: clean, with 1 warning, 1 note, in 2 files: 2 clusters"),
    ],
)
def test_the_summary_counts(problems: tuple[Problem, ...], expected: str) -> None:
    """The summary says how much of what weight was found, in how many files, and what there is."""
    assert expected == report(*problems).summary


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (Severity.ERROR, [True, False, False]),
        (Severity.WARNING, [True, True, False]),
        (Severity.NOTE, [True, True, True]),
    ],
)
def test_the_threshold_decides_what_fails(threshold: Severity, expected: list[bool]) -> None:
    """A problem fails the check when it is as severe as the threshold."""
    weights = (problem(), WARNING, NOTE)

    assert expected == [report(one, threshold=threshold).has_failed for one in weights]
    assert expected == [report(threshold=threshold).counts_as_failure(one) for one in weights]
    assert not report(threshold=threshold).has_failed


@pytest.mark.parametrize(
    ("number", "noun", "expected"),
    [
        (1, "clusters", "1 cluster"),
        (2, "clusters", "2 clusters"),
        (1, "runtime", "1 runtime layer"),
        (2, "runtime", "2 runtime layers"),
        (1, "virtual-hosts", "1 virtual host"),
        (3, "extension-configs", "3 extension configs"),
    ],
)
def test_one_and_many(number: int, noun: str, expected: str) -> None:
    """One resource is not written in the plural."""
    assert expected == count_of_resources(number, noun)


def test_resources_are_counted_by_type() -> None:
    """Types come in push order, those without resources are left out."""
    counts = resource_counts([snapshot({"LDS": {"web": "1"}, "CDS": {"a": "1", "b": "1"}, "RDS": {}})])

    assert {"clusters": 2, "listeners": 1} == counts
    assert ["clusters", "listeners"] == list(counts)


def test_what_views_have_in_common_counts_once() -> None:
    """A resource of several views counts once, and once more for each other content."""
    views = [{"CDS": {"a": "1", "b": "1"}}, {"CDS": {"a": "1", "b": "2", "c": "1"}}, {"CDS": {"c": "1"}}]

    assert {"clusters": 4} == resource_counts(map(snapshot, views))


def test_presentable_text_leaves_harmless_text_alone() -> None:
    """What hides nothing stays as it is."""
    assert 'expected "日本"; found 5' == presentable_text('expected "日本"; found 5')
