"""Problems as JUnit XML, which every CI system shows: a test case for each file, passed where nothing is wrong in it.

A module of its own, for each further format is one.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable

from fsxds.lint.report import Report, line_of
from fsxds.values import Problem

# What XML 1.0 has no way to write, not even as a reference.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(report: Report) -> str:
    """Write one suite: files are its cases, and problems at or above the threshold are their failures."""
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
        # One failure with all problems: many readers show the first one of a case only.
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
