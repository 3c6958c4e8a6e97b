"""Problems as JUnit XML, which every CI system shows: a test case for each file, passed where nothing is wrong in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from fsxds.lint.report import Report, is_as_weighty, line_of
from fsxds.values import Problem, Severity

# What XML 1.0 has no way to write, not even as a reference.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(report: Report) -> str:
    """Write one suite: files are its cases, and problems as weighty as the threshold are their failures."""
    by_file: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem in report.problems:
        by_file[str(problem.path)].append(problem)
    names = sorted({*report.files, *by_file})
    cases = [_case(name, by_file[name], report.threshold) for name in names]
    failures = sum(_has_failed(by_file[name], report.threshold) for name in names)
    counts = f'tests="{len(names)}" failures="{failures}" errors="0"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="fsxds check" {counts}>',
        f'  <testsuite name={_attribute(report.subject)} {counts} skipped="0">',
        *cases,
        "  </testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _has_failed(problems: Sequence[Problem], threshold: Severity) -> bool:
    return any(is_as_weighty(problem.severity, threshold) for problem in problems)


def _case(name: str, problems: Sequence[Problem], threshold: Severity) -> str:
    opening = f'    <testcase name={_attribute(name)} classname="fsxds.check"'
    if not problems:
        return f"{opening}/>"
    failing = [problem for problem in problems if is_as_weighty(problem.severity, threshold)]
    milder = [problem for problem in problems if not is_as_weighty(problem.severity, threshold)]
    return "\n".join((f"{opening}>", *_failure(failing), *_remarks(milder), "    </testcase>"))


def _failure(problems: Sequence[Problem]) -> list[str]:
    """Return one failure with all problems: many readers show the first one of a case only."""
    if not problems:
        return []
    first, more = problems[0], len(problems) - 1
    message = f"{first.rule}: {first.message}{f' (and {more} more)' if more else ''}"
    opening = f"      <failure message={_attribute(message)} type={_attribute(first.rule)}>"
    return [f"{opening}{_lines(problems)}</failure>"]


def _remarks(problems: Sequence[Problem]) -> list[str]:
    return [f"      <system-out>{_lines(problems)}</system-out>"] if problems else []


def _lines(problems: Sequence[Problem]) -> str:
    return escape(_NO_XML.sub("", "\n".join(map(line_of, problems))))


def _attribute(text: str) -> str:
    return quoteattr(_NO_XML.sub("", text))
