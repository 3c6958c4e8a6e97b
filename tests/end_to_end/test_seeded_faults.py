from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsxds.cli.subjects import FOUND_PROBLEMS
from fsxds.lint.rules import rules
from tests.end_to_end.seeded_faults import FAULTS, FORMATS, GOLDEN, SeededFault, checked, seed


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample tree with all faults in it."""
    return seed(tmp_path_factory.mktemp("seeded"))


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_output_is_the_expected_one(tree: Path, format_name: str) -> None:
    """Every format tells the faults byte for byte as it is kept in `tests/data/seeded_faults`."""
    status, output, summary = checked(tree, format_name)

    assert (GOLDEN / f"expected.{FORMATS[format_name]}").read_text(encoding="utf-8") == output.decode()
    assert (FOUND_PROBLEMS, 1) == (status, len(summary.splitlines()))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}:{fault.line}")
def test_each_fault_is_told_at_its_line(fault: SeededFault) -> None:
    """Each fault is told by its rule, at its line, with a remedy; the rule is in the book."""
    told = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
    here = [problem for problem in told if (problem["file"], problem["line"]) == (f"xds/{fault.file}", fault.line)]

    assert [fault.rule] == [problem["rule"] for problem in here if problem["rule"] == fault.rule]
    assert [] == [problem for problem in here if not problem["remedy"]]
    assert fault.rule in rules()


def test_nothing_else_is_told() -> None:
    """There are no more problems of weight than faults."""
    told = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))

    assert sorted((f"xds/{fault.file}", fault.line, fault.rule) for fault in FAULTS) == sorted(
        (problem["file"], problem["line"], problem["rule"]) for problem in told if problem["severity"] != "note"
    )
