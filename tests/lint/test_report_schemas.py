"""Reports for pipelines, against the schemas of those who read them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import xmlschema
from jsonschema import Draft7Validator

from fsxds.lint.report import Report
from fsxds.lint.report_formats import as_junit, as_sarif
from fsxds.model.values import Severity
from tests.lint.findings import problem, report

DATA = Path(__file__).parents[1] / "data"
SARIF = Draft7Validator(json.loads((DATA / "schemas/sarif-2.1.0.json").read_text()))
JUNIT = xmlschema.XMLSchema(DATA / "schemas/junit-10.xsd")

REPORTS: list[Report] = [
    report(),
    report(problem(), problem(line=9, rule="bad-key")),
    report(problem(severity=Severity.WARNING), problem(severity=Severity.NOTE)),
    report(problem("a b/ü \x1b\x00.yaml", message="]]> \x00 \ud800 <b>", rule="bad-key")),
]


def test_sarif_is_valid_by_its_schema() -> None:
    """What is written of a tree with every rule's fault, and of small reports, is SARIF 2.1.0."""
    texts = [(DATA / "seeded_faults/expected.sarif").read_text(), *map(as_sarif, REPORTS)]

    assert [] == [error for text in texts for error in SARIF.iter_errors(json.loads(text))]


def test_junit_is_valid_by_its_schema() -> None:
    """The same as JUnit XML."""
    texts = [(DATA / "seeded_faults/expected.xml").read_text(), *map(as_junit, REPORTS)]

    assert [] == [error for text in texts for error in JUNIT.iter_errors(ET.ElementTree(ET.fromstring(text)))]
