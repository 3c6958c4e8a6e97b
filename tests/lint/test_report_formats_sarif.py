from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fsxds.lint.report import Report
from fsxds.lint.report_formats import SCHEMA, as_sarif
from fsxds.lint.rules import rules
from fsxds.model.values import Severity
from tests.lint.findings import problem, report

LEVEL = {"enum": ["none", "note", "warning", "error"]}
TEXT = {"type": "string", "minLength": 1}


def exactly(needed: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "required": [*needed],
        "properties": needed | optional,
        "additionalProperties": False,
    }


def message(**more: Any) -> dict[str, Any]:
    """Return the schema of a message (3.11) or a multiformat message (3.12): it has a text."""
    return exactly({"text": TEXT}, **more)


# The parts of SARIF 2.1.0 that are used here, as its prose and its schema have them; section numbers are the prose's.
RULE = exactly(  # 3.49
    {"id": TEXT},
    shortDescription=message(),
    fullDescription=message(),
    help=message(markdown=TEXT),
    defaultConfiguration=exactly({"level": LEVEL}),
)
LOCATION = exactly(  # 3.28 to 3.33
    {
        "physicalLocation": exactly(
            {
                "artifactLocation": exactly(
                    {"uri": {"type": "string", "pattern": r"^(file:///)?[A-Za-z0-9._~!$&'()*+,;=@%/-]+$"}},
                    uriBaseId={"const": "%SRCROOT%"},
                ),
                "region": exactly(
                    {"startLine": {"type": "integer", "minimum": 1}, "startColumn": {"type": "integer", "minimum": 1}}
                ),
            }
        )
    },
    logicalLocations={"type": "array", "items": exactly({"fullyQualifiedName": TEXT, "kind": TEXT}), "minItems": 1},
)
RESULT = exactly(  # 3.27
    {
        "ruleId": TEXT,
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "message": message(),
        "locations": {"type": "array", "items": LOCATION, "minItems": 1, "maxItems": 1},
        "partialFingerprints": {"type": "object", "additionalProperties": TEXT, "minProperties": 1},
    }
)
LOG = exactly(  # 3.13, 3.14, 3.18, 3.19
    {
        "$schema": {"const": SCHEMA},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1,
            "items": exactly(
                {
                    "tool": exactly(
                        {
                            "driver": exactly(
                                {
                                    "name": {"const": "fsxds"},
                                    "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
                                    "rules": {"type": "array", "items": RULE, "uniqueItems": True},
                                }
                            )
                        }
                    ),
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {"type": "array", "items": RESULT},
                }
            ),
        },
    }
)


def run_of(found: Report) -> dict[str, Any]:
    """Return the one run of a report's log, once it is known to have the form of SARIF 2.1.0."""
    log = json.loads(as_sarif(found))
    Draft202012Validator(LOG).validate(log)
    run: dict[str, Any] = log["runs"][0]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    return run


def fingerprints(found: Report) -> list[str]:
    """Return what tells results apart from one run to the next."""
    return [result["partialFingerprints"]["fsxdsProblem/v1"] for result in run_of(found)["results"]]


def test_a_problem_is_a_result() -> None:
    """A problem has its rule, level, text, and its place relative to the root of the sources."""
    (result,) = run_of(report(problem(severity=Severity.NOTE)))["results"]

    assert ("wrong-value", "note") == (result["ruleId"], result["level"])
    assert {"text": "[0].type: expected text, found a list; give one text"} == result["message"]
    assert [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "config/xds/cds.yaml", "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": 2, "startColumn": 3},
            },
            "logicalLocations": [{"fullyQualifiedName": "[0].type", "kind": "member"}],
        }
    ] == result["locations"]


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.name)
def test_rules_are_described_from_their_pages(rule) -> None:
    """The description of every rule of the pages has the form that code scanning asks for."""
    (described,) = run_of(report(problem(rule=rule.name)))["tool"]["driver"]["rules"]

    assert {"id", "shortDescription", "fullDescription", "help", "defaultConfiguration"} == set(described)
    assert rule.severity.value == described["defaultConfiguration"]["level"]
    assert rule.meaning.startswith(described["shortDescription"]["text"])
    assert rule.wrong.rstrip() in described["help"]["markdown"]


def test_a_clean_tree_has_no_results() -> None:
    """Without problems, there are no results and no rules."""
    run = run_of(report())

    assert ([], []) == (run["results"], run["tool"]["driver"]["rules"])


def test_odd_file_names_are_uris() -> None:
    """Spaces, percent signs and other letters are encoded; a file outside of the root is named as a whole."""
    outside = Report("x", tuple(report(problem("/etc/a b.yaml", pointer="")).findings))
    (odd,) = run_of(report(problem("a b%#?日.yaml")))["results"]
    (absolute,) = run_of(outside)["results"]

    assert (
        "config/xds/a%20b%25%23%3F%E6%97%A5.yaml" == odd["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    )
    assert {"uri": "file:///etc/a%20b.yaml"} == absolute["locations"][0]["physicalLocation"]["artifactLocation"]


def test_fingerprints_survive_moves() -> None:
    """A problem keeps its fingerprint when lines are added above it, and two equal ones have different ones."""
    first = report(problem(line=2, pointer="[0].type"), problem(line=9, pointer="[1].type"))
    moved = report(problem(line=5, pointer="[2].type"), problem(line=12, pointer="[3].type"))

    assert fingerprints(first) == fingerprints(moved)
    assert 2 == len(set(fingerprints(first)))
    assert set(fingerprints(first)).isdisjoint(fingerprints(report(problem("eds/web.yaml"), problem(rule="bad-key"))))
