from __future__ import annotations

import xml.etree.ElementTree as ET

from fsxds.lint.report import Report, ReportedProblem
from fsxds.lint.report_formats import as_junit
from fsxds.model.values import Severity
from tests.lint.findings import problem, report

# What readers of JUnit XML agree on: the children and the attributes of each element, the latter all of them needed.
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "system-out"},
    "failure": set[str](),
    "system-out": set[str](),
}
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped"},
    "testcase": {"name", "classname"},
    "failure": {"message", "type"},
    "system-out": set[str](),
}


def parsed(found: Report) -> ET.Element:
    """Return the XML of a report, once it is known to have the form that readers expect."""
    root = ET.fromstring(as_junit(found))
    for element in root.iter():
        assert ATTRIBUTES[element.tag] == set(element.attrib)
        assert {child.tag for child in element} <= CHILDREN[element.tag]
    cases = root.findall("testsuite/testcase")
    failed = [case for case in cases if case.find("failure") is not None]
    for counted in (root, *root.findall("testsuite")):
        assert (str(len(cases)), str(len(failed))) == (counted.get("tests"), counted.get("failures"))
    return root


def test_files_without_problems_pass() -> None:
    """Every file is a test case; one without problems has nothing in it."""
    cases = parsed(report()).findall("testsuite/testcase")

    assert [("config/xds/cds.yaml", 0), ("config/xds/eds/web.yaml", 0)] == [
        (case.get("name"), len(case)) for case in cases
    ]


def test_a_file_with_problems_fails_once_with_all_of_them() -> None:
    """A file's problems are one failure, whose message is the first of them."""
    root = parsed(report(problem(), problem(line=9, rule="bad-key")))
    (failure,) = root.iter("failure")

    assert ("wrong-value: expected text, found a list (and 1 more)", "wrong-value") == (
        failure.get("message"),
        failure.get("type"),
    )
    assert failure.text == (
        "config/xds/cds.yaml:2:3: error[wrong-value]: [0].type: expected text, found a list; give one text\n"
        "config/xds/cds.yaml:9:3: error[bad-key]: [0].type: expected text, found a list; give one text"
    )


def test_less_severe_problems_do_not_fail() -> None:
    """What is below the threshold is reported beside the case; a file that was not read may have problems too."""
    note = problem("README.md", severity=Severity.NOTE)

    root = parsed(report(note))
    assert ([], 1) == (list(root.iter("failure")), len(list(root.iter("system-out"))))
    assert 3 == len(list(root.iter("testcase")))
    assert 1 == len(list(parsed(report(note, threshold=Severity.NOTE)).iter("failure")))


def test_nothing_breaks_the_xml() -> None:
    """Markup and quotes are escaped, and characters that XML cannot hold are left out."""
    odd = problem("a<&\"'>.yaml", message="<b> & \"c\" ]]> 'd' \x00\x1b\ufffe\ud800", remedy="\x0b")
    raw = Report("<&\"'\x00>", (ReportedProblem(odd),))

    for found in (report(odd), raw):
        (failure,) = parsed(found).iter("failure")
        assert "<b> & \"c\" ]]> 'd' " in (failure.text or "")
    assert "<&\"'>" == parsed(raw)[0].get("name")
