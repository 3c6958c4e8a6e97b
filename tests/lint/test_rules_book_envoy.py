"""What the pages says of Envoy, asked of a real one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.validate import ValidationOptions, validate_resources
from fsxds.lint.linter import Linter
from fsxds.lint.rules import Rule, RuleLevels, rules
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.parse import FileParser
from fsxds.values import Problem, Severity
from tests.support.envoy import find_envoy
from tests.support.trees import tree_of

# Errors that Envoy, asked about static configuration, does not tell: it takes one of two, waits for what
# does not come, or would find the file on its own machine.
UNTOLD = {"duplicate-key", "no-extension-config", "no-secret", "unknown-tag", "wrong-certificate"}

LOADABLE = [rule for rule in rules().values() if rule.file]
# A breach of the others leaves nothing that Envoy could be asked about.
REJECTED = [
    rule for rule in LOADABLE if rule.severity is Severity.ERROR and not rule.is_fixed and rule.name not in UNTOLD
]
LOWERED = Linter(RuleLevels({rule.name: Severity.NOTE for rule in rules().values() if not rule.is_fixed}))


@cache
def parser_of(catalogue: Catalogue) -> FileParser:
    """Return one parser for all examples: compiling its rules takes longer than an example."""
    return FileParser(catalogue, check=LOWERED)


def rejected(text: str, rule: Rule, catalogue: Catalogue, folder: Path) -> tuple[Problem, ...]:
    """Return what Envoy rejects of a tree of one file, whatever our own rules say of it."""
    parse = parser_of(catalogue).parse
    tree, acceptance = tree_of({rule.file: text}), Acceptance(check=LOWERED)
    loaded = load(tree, None, lambda files: tuple(map(parse, files)), acceptance)
    resources = [resource for row in loaded.snapshot.by_type.values() for resource in row.values()]
    return validate_resources(resources, folder, ValidationOptions(Path(find_envoy()), catalogue))


@pytest.mark.parametrize("rule", LOADABLE, ids=lambda rule: rule.name)
def test_envoy_takes_right_examples(rule: Rule, catalogue: Catalogue, tmp_path: Path) -> None:
    """A real Envoy takes what the pages calls right."""
    assert () == rejected(rule.right, rule, catalogue, tmp_path)


@pytest.mark.parametrize("rule", REJECTED, ids=lambda rule: rule.name)
def test_envoy_rejects_wrong_examples(rule: Rule, catalogue: Catalogue, tmp_path: Path) -> None:
    """A real Envoy rejects what the pages calls an error."""
    assert rejected(rule.wrong, rule, catalogue, tmp_path)


def test_no_exception_is_left_over() -> None:
    """What Envoy does not tell is an error of the pages whose example can be loaded."""
    known = {rule.name for rule in LOADABLE if rule.severity is Severity.ERROR and not rule.is_fixed}

    assert set() == UNTOLD - known
