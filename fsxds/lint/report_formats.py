"""Writes problems in all formats."""

from __future__ import annotations

import hashlib
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote

from rich.text import Text

from fsxds import __version__
from fsxds.lint.report import Report, ReportedProblem, fact_of, line_of, place_of, remedy_of
from fsxds.lint.rules import page_as_markdown, rules
from fsxds.model.values import PlainValue, Problem, Severity

# Characters that XML 1.0 cannot write, not even as a reference.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(report: Report) -> str:
    """Write a case per file; it fails at the threshold."""
    by_file: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem in report.problems:
        by_file[str(problem.path)].append(problem)
    root = ET.Element("testsuites", name="fsxds check")
    suite = ET.SubElement(root, "testsuite", name=_text(report.subject))
    for name in sorted({*report.files, *by_file}):
        _add_case(suite, name, [(one, report.counts_as_failure(one)) for one in by_file[name]])
    for counted in (root, suite):
        counted.attrib |= {"tests": str(len(suite)), "failures": str(len(suite.findall("*/failure"))), "errors": "0"}
    suite.set("skipped", "0")
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add_case(suite: ET.Element, name: str, problems: Iterable[tuple[Problem, bool]]) -> None:
    case = ET.SubElement(suite, "testcase", name=_text(name), classname="fsxds.check")
    failing = [problem for problem, is_failure in problems if is_failure]
    others = [problem for problem, is_failure in problems if not is_failure]
    if failing:
        # One failure with all problems: many readers show only the first one of a case.
        first, more = failing[0], len(failing) - 1
        message = f"{first.rule}: {first.message}{f' (and {more} more)' if more else ''}"
        failure = ET.SubElement(case, "failure", message=_text(message), type=_text(first.rule))
        failure.text = _lines(failing)
    if others:
        ET.SubElement(case, "system-out").text = _lines(others)


def _lines(problems: Iterable[Problem]) -> str:
    return _text("\n".join(map(line_of, problems)))


def _text(text: str) -> str:
    return _NO_XML.sub("", text)


# The maximum number of notes in text that differ in nothing but names.
MOST_ALIKE = 10
_QUOTED = re.compile(r'"[^"]*"')

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "dim"}


def as_text(report: Report) -> str:
    """Write the problems without colours."""
    return as_styled_text(report).plain


def as_styled_text(report: Report) -> Text:
    """Write a block per problem; notes take one line."""
    text = Text()
    is_first, was_block = True, False
    shown, alike = (report.findings, {}) if report.lists_all else _without_alike(report.findings)
    for finding in shown:
        is_block = finding.problem.severity is not Severity.NOTE
        if not is_first and (is_block or was_block):
            text.append("\n")
        text.append_text(
            _block(finding) if is_block else Text(f"{line_of(finding.problem)}\n", style=_STYLES[Severity.NOTE])
        )
        is_first, was_block = False, is_block
    for first, more in alike.items():
        such = f"{more:,} more such as {place_of(first)}: note[{first.rule}]; fsxds check --all prints each"
        text.append(f"and {such}\n", style=_STYLES[Severity.NOTE])
    return text


def _without_alike(findings: Iterable[ReportedProblem]) -> tuple[list[ReportedProblem], dict[Problem, int]]:
    """Return each group's first notes, and by these the number of dropped ones.

    Notes of a group have the same rule and message, except for quoted names.
    """
    shown: list[ReportedProblem] = []
    groups: defaultdict[tuple[str, str], list[Problem]] = defaultdict(list)
    for finding in findings:
        problem = finding.problem
        if problem.severity is Severity.NOTE:
            group = groups[problem.rule, _QUOTED.sub("", problem.message)]
            group.append(problem)
            if len(group) > MOST_ALIKE:
                continue
        shown.append(finding)
    return shown, {group[0]: len(group) - MOST_ALIKE for group in groups.values() if len(group) > MOST_ALIKE}


def _block(finding: ReportedProblem) -> Text:
    problem = finding.problem
    style = _STYLES[problem.severity]
    text = Text.assemble(
        (place_of(problem), "bold"),
        ": ",
        (f"{problem.severity.value}[{problem.rule}]", style),
        ": ",
        (f"{problem.pointer}: " if problem.pointer else "", "cyan"),
        f"{problem.message}\n",
    )
    margin = 0
    if finding.excerpt is not None:
        margin = len(str(finding.excerpt.line))
        line, marks = finding.excerpt, " " * finding.excerpt.indent + "^" * finding.excerpt.marked
        text.append_text(Text.assemble((f"{line.line} | ", "blue"), f"{line.text}\n"))
        text.append_text(Text.assemble((f"{'':{margin}} | ", "blue"), (f"{marks}\n", style)))
    if problem.remedy:
        text.append_text(Text.assemble(f"{'':{margin}} ", ("= help: ", "bold cyan"), f"{problem.remedy}\n"))
    return text


def as_json(report: Report) -> str:
    """Write one object per problem."""
    fields = ("line", "column", "pointer", "rule", "severity", "message", "remedy")
    rows = [
        {"file": str(one.path)} | {field: getattr(one, field) for field in fields} | {"severity": one.severity.value}
        for one in report.problems
    ]
    return json.dumps(rows, indent=2) + "\n"


_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_DATA_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY_ESCAPES = _DATA_ESCAPES | str.maketrans({":": "%3A", ",": "%2C"})


def as_annotations(report: Report) -> str:
    """Write one command per problem."""
    return "".join(f"{_command(problem)}\n" for problem in report.problems)


def _command(problem: Problem) -> str:
    properties = {
        "file": str(problem.path),
        "line": str(problem.line),
        "col": str(problem.column),
        "title": problem.rule,
    }
    written = ",".join(f"{name}={value.translate(_PROPERTY_ESCAPES)}" for name, value in properties.items())
    text = f"{fact_of(problem)}\n{problem.remedy}".rstrip()
    return f"::{_COMMANDS[problem.severity]} {written}::{text.translate(_DATA_ESCAPES)}"


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

# The base of relative paths: the top of the repository, or the working directory of fsxds.
ROOT = "%SRCROOT%"

_FINGERPRINT = "fsxdsProblem/v1"


def as_sarif(report: Report) -> str:
    """Write one run: broken rules, and results."""
    names = sorted({problem.rule for problem in report.problems})
    run: PlainValue = {
        "tool": {"driver": {"name": "fsxds", "semanticVersion": __version__, "rules": [_rule(name) for name in names]}},
        # 3.14.14
        **({"originalUriBaseIds": {ROOT: {"uri": f"file://{quote(report.base)}/"}}} if report.base else {}),
        "columnKind": "unicodeCodePoints",
        "results": _results(report.problems, names),
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(name: str) -> PlainValue:
    row = rules().get(name)
    if row is None:
        return {"id": name}
    return {
        "id": name,
        "shortDescription": {"text": re.split(r"(?<=\.)\s", row.meaning, maxsplit=1)[0]},
        "fullDescription": {"text": f"{row.meaning} {row.envoy}".strip()},
        "help": {"text": row.remedy, "markdown": page_as_markdown(row)},
        "defaultConfiguration": {"level": row.severity.value},
    }


def _results(problems: Iterable[Problem], names: list[str]) -> list[PlainValue]:
    seen: Counter[str] = Counter()
    results: list[PlainValue] = []
    for problem in problems:
        # Stable when lines and list items move (3.27.17).
        pointer = re.sub(r"\[\d+\]", "[]", problem.pointer)
        message = re.sub(r"\d+", "0", problem.message)
        parts = (str(problem.path), problem.rule, pointer, message)
        essence = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        seen[essence] += 1
        # Relative to the root, or absolute outside of it (3.4). The pointer is the fully qualified logical name (3.28).
        path, is_absolute = quote(str(problem.path)), problem.path.is_absolute()
        location: dict[str, PlainValue] = {
            "physicalLocation": {
                "artifactLocation": {"uri": f"file://{path}"} if is_absolute else {"uri": path, "uriBaseId": ROOT},
                "region": {"startLine": problem.line, "startColumn": problem.column},
            }
        }
        if problem.pointer:
            location["logicalLocations"] = [{"fullyQualifiedName": problem.pointer, "kind": "member"}]
        results.append(
            {
                "ruleId": problem.rule,
                "ruleIndex": names.index(problem.rule),
                "level": problem.severity.value,
                "message": {"text": fact_of(problem) + remedy_of(problem)},
                "locations": [location],
                "partialFingerprints": {_FINGERPRINT: f"{essence}:{seen[essence]}"},
            }
        )
    return results


@dataclass(frozen=True, slots=True)
class ProblemFormat:
    """A format's name and writer; whether it shows lines."""

    name: str
    write: Callable[[Report], str]
    shows_source: bool = False


PROBLEM_FORMATS: tuple[ProblemFormat, ...] = (
    ProblemFormat("text", as_text, shows_source=True),
    ProblemFormat("json", as_json),
    ProblemFormat("github", as_annotations),
    ProblemFormat("sarif", as_sarif),
    ProblemFormat("junit", as_junit),
)

BY_NAME = {row.name: row for row in PROBLEM_FORMATS}
