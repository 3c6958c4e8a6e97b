"""Writes problems as a SARIF 2.1.0 log, for code scanning and editors.

Source: docs.oasis-open.org/sarif/sarif/v2.1.0, the sections named below.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath
from urllib.parse import quote

from fsxds import __version__
from fsxds.lint.report import Report, fact_of, remedy_of
from fsxds.lint.rules import Rule, rules
from fsxds.model.values import PlainValue, Problem

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

# The base of relative paths: the top of the repository, or the working directory of fsxds.
ROOT = "%SRCROOT%"

_FINGERPRINT = "fsxdsProblem/v1"


def as_sarif(report: Report) -> str:
    """Write one run: broken rules, and results."""
    names = sorted({problem.rule for problem in report.problems})
    run: PlainValue = {
        "tool": {
            "driver": {
                "name": "fsxds",
                "semanticVersion": __version__,
                "rules": [_rule(name) for name in names],
            }
        },
        # 3.14.14
        **({"originalUriBaseIds": {ROOT: {"uri": f"file://{quote(report.base)}/"}}} if report.base else {}),
        "columnKind": "unicodeCodePoints",
        "results": _results(report.problems, names),
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(name: str) -> PlainValue:
    """Describe a rule by its page (3.49)."""
    row = rules().get(name)
    if row is None:
        return {"id": name}
    return {
        "id": name,
        "shortDescription": {"text": _first_sentence(row.meaning)},
        "fullDescription": {"text": f"{row.meaning} {row.envoy}".strip()},
        "help": {"text": row.remedy, "markdown": page_as_markdown(row)},
        "defaultConfiguration": {"level": row.severity.value},
    }


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def page_as_markdown(row: Rule) -> str:
    """Write a rule's page in Markdown."""
    parts = [row.meaning, row.envoy, f"**To fix it:** {row.remedy}"]
    parts += [f"{title}:\n\n{_fenced(text)}" for title, text in (("Wrong", row.wrong), ("Right", row.right)) if text]
    return "\n\n".join(part for part in parts if part)


def _fenced(text: str) -> str:
    return f"```yaml\n{text.rstrip()}\n```"


def _results(problems: Iterable[Problem], names: list[str]) -> list[PlainValue]:
    seen: Counter[str] = Counter()
    results: list[PlainValue] = []
    for problem in problems:
        essence = _essence(problem)
        seen[essence] += 1
        results.append(
            {
                "ruleId": problem.rule,
                "ruleIndex": names.index(problem.rule),
                "level": problem.severity.value,
                "message": {"text": fact_of(problem) + remedy_of(problem)},
                "locations": [_location(problem)],
                "partialFingerprints": {_FINGERPRINT: f"{essence}:{seen[essence]}"},
            }
        )
    return results


def _essence(problem: Problem) -> str:
    """Return a fingerprint that is stable when lines and list items move (3.27.17)."""
    pointer = re.sub(r"\[\d+\]", "[]", problem.pointer)
    message = re.sub(r"\d+", "0", problem.message)
    parts = (str(problem.path), problem.rule, pointer, message)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _location(problem: Problem) -> PlainValue:
    """Return the place (3.28); the pointer is its fully qualified logical name."""
    location: dict[str, PlainValue] = {
        "physicalLocation": {
            "artifactLocation": _artifact(problem.path),
            "region": {"startLine": problem.line, "startColumn": problem.column},
        }
    }
    if problem.pointer:
        location["logicalLocations"] = [{"fullyQualifiedName": problem.pointer, "kind": "member"}]
    return location


def _artifact(path: PurePosixPath) -> PlainValue:
    """Return the path, relative to the root, or absolute outside of it (3.4)."""
    if path.is_absolute():
        return {"uri": f"file://{quote(str(path))}"}
    return {"uri": quote(str(path)), "uriBaseId": ROOT}
