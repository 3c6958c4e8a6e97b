"""What the pages says of Envoy, asked of a real one."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.validate import ValidationOptions, validate_resources
from fsxds.lint.linter import Linter
from fsxds.lint.reference_findings import REFERENTS, with_undefined_names
from fsxds.lint.rules import (
    Chapter,
    Rule,
    RuleLevels,
    chapters,
    list_as_json,
    list_of,
    page_as_json,
    page_of,
    read_chapter,
    rules,
)
from fsxds.model.values import Problem, Severity
from fsxds.server import loading_rules
from fsxds.settings.options import Settings
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.loaded_views import ResolutionRules, only_view, whole_tree, with_served
from fsxds.snapshots.parse import FileParser
from tests.envoy.judged import read_in
from tests.support.checkout import TOP
from tests.support.envoy import find_envoy
from tests.support.rule_list import own_rules, rule_list
from tests.support.trees import tree_of

PACKAGE = TOP / "fsxds"
# Where problems are found; elsewhere they are only passed on.
FINDING = (
    *("api", "envoy", "formats", "lint", "signing", "snapshots", "source", "tools/doctor"),
    *(
        "cli/check.py",
        "cli/subjects.py",
        "server/parse_worker.py",
        "server/parsing.py",
        "publishing/held_resources.py",
        "server/loading_rules.py",
        "server/reload.py",
        "runtime/supervisor.py",
        "tools/held_changes.py",
    ),
)
RULE_NAME = re.compile(r"[a-z]+(-[a-z]+)*\Z")

# Words with hyphens, in the packages where problems are found, that name no rule.
OTHER_WORDS = {
    "admin-address", "cat-file", "extension-config", "fsxds-dev", "fsxds-stand-in", "ls-tree", "merge-base", "start-up",
    "read-back", "rev-parse", "route-configuration", "scoped-route", "stream-need", "system-out", "unnamed-internal", "xds-protos",
}  # fmt: skip

# Which argument of a call is the name of a rule.
RULE_ARGUMENTS = {
    "Fault": 0,
    "Problem": 4,
    "Complaint": 0,
    "Refusal": 0,
    "UntrustedError": 0,
    "add_unknown": 0,
    "of_file": 1,
    "problem_of": 1,
    "error": 1,
    "warning": 1,
    "_lose": 1,
}

# Made of a noun and a word before it.
REFERENCE_RULES = {
    name
    for row in REFERENTS.values()
    for name in (row.missing, row.unused, row.missing.replace("no-", "no-static-", 1))
}

RULES = tuple(rules().values())
LOADABLE = [rule for rule in RULES if rule.file]


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax trees of the packages where problems are found, without the pages."""
    paths = [path for room in FINDING for path in (PACKAGE / room).rglob("*.py") or [PACKAGE / room]]
    paths += [PACKAGE / room for room in FINDING if room.endswith(".py")]
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def literals(tree: ast.AST) -> set[str]:
    """Return every text that is written down in a module."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def literal_rules(tree: ast.AST) -> set[str]:
    """Return the names that are written down as the rule of a problem."""
    names = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        position = 0 if called == "add" and len(node.args) == 3 else RULE_ARGUMENTS.get(called)
        given = [keyword.value for keyword in node.keywords if keyword.arg == "rule"]
        if position is not None and position < len(node.args):
            given.append(node.args[position])
        names |= {text.value for text in given if isinstance(text, ast.Constant) and isinstance(text.value, str)}
    return names


@pytest.fixture(scope="module")
def problems(catalogue: Catalogue) -> Mapping[tuple[str, str], tuple[Problem, ...]]:
    """What is wrong with every example, by the name of its rule and `wrong` or `right`."""
    examples = {
        (rule.name, side): tree_of({rule.file: text})
        for rule in LOADABLE
        for side, text in (("wrong", rule.wrong), ("right", rule.right))
    }
    rules = loading_rules.LoadingRules.of(Settings(), catalogue, Linter())
    loaded = dict(zip(examples, loading_rules.load_trees(examples.values(), rules, None), strict=True))
    # What is right is a part of a tree, whose clusters are elsewhere.
    settings = {"wrong": Settings(), "right": replace(Settings(), references="warn")}
    return {key: with_undefined_names(views.problems, settings[key[1]]) for key, views in loaded.items()}


def test_every_rule_of_a_problem_is_on_a_page() -> None:
    """What the source gives as the name of a rule has a row."""
    found = {name: path for path, tree in modules().items() for name in literal_rules(tree)}

    assert {"unknown-field", "duplicate-name", "vanished", "ignored-file", "broken-link"} <= found.keys()
    assert {} == {name: path for name, path in found.items() if name not in rules()}


def test_every_name_with_hyphens_is_on_a_page() -> None:
    """A name of a rule that stands in a table has a row as well: in these rooms, words with hyphens are rules."""
    words = {
        (path, text)
        for path, tree in modules().items()
        for text in literals(tree)
        # The parts of a JSON Schema have such names as well.
        if "-" in text and RULE_NAME.match(text) and not path.startswith("tools/")
    }

    assert [] == sorted((path, text) for path, text in words if text not in rules() and text not in OTHER_WORDS)


def test_every_row_is_used() -> None:
    """The book has no rule that nothing finds."""
    used = set().union(*map(literals, modules().values())) | REFERENCE_RULES

    assert [] == [rule.name for rule in RULES if rule.name not in used]


def test_names_are_unique_and_stable_words() -> None:
    """A name stands once on a page, in lower case with hyphens."""
    assert [] == [rule.name for rule in RULES if not RULE_NAME.match(rule.name)]
    assert RULES == tuple(rule for chapter in chapters().values() for rule in chapter.rules)


def test_the_list_of_all_rules_is_up_to_date() -> None:
    """`fsxds/lint/README.md` lists what the pages have; `python -m tests.support.rule_list` writes it."""
    assert rule_list() == (PACKAGE / "lint" / "README.md").read_text(encoding="utf-8")


def test_a_section_of_another_form() -> None:
    """A rule whose section lacks a part is an error that names it."""
    with pytest.raises(ValueError, match="form of a page: odd-name"):
        read_chapter("# Names\n\n## odd-name\n\n**Severity:** error\n\nNames are even.\n")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rows_are_whole(rule: Rule) -> None:
    """Every page is written in sentences, and has both examples where a file can show it."""
    assert [] == [text for text in (rule.meaning, rule.envoy, rule.remedy) if not text.endswith((".", "…"))]
    assert bool(rule.file) <= bool(rule.wrong and rule.right)
    assert bool(rule.wrong) == bool(rule.right)


@pytest.mark.parametrize("rule", LOADABLE, ids=lambda rule: rule.name)
def test_wrong_examples_break_their_rule(rule: Rule, problems: Mapping[tuple[str, str], tuple[Problem, ...]]) -> None:
    """The wrong example of a rule is found to break it, with the severity that the pages has."""
    assert (rule.name, rule.severity) in {(found.rule, found.severity) for found in problems[rule.name, "wrong"]}


@pytest.mark.parametrize("rule", LOADABLE, ids=lambda rule: rule.name)
def test_right_examples_are_clean(rule: Rule, problems: Mapping[tuple[str, str], tuple[Problem, ...]]) -> None:
    """In the right example of a rule, there is nothing but notes to find, and none of this rule."""
    found = problems[rule.name, "right"]

    assert [] == [str(one) for one in found if one.severity is not Severity.NOTE or one.rule == rule.name]


# Envoy would find the file on its own machine.
UNTOLD = "wrong-certificate"

# A breach of the others leaves nothing that Envoy could be asked about.
ERRORS = [rule for rule in LOADABLE if rule.severity is Severity.ERROR and not rule.is_fixed and rule.name != UNTOLD]
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
    served = only_view(with_served(whole_tree(loaded), ResolutionRules(catalogue=catalogue), None)).snapshot
    resources = [resource for row in served.by_type.values() for resource in row.values()]
    return validate_resources(resources, read_in(folder), ValidationOptions(Path(find_envoy()), catalogue))


@pytest.mark.parametrize("rule", LOADABLE, ids=lambda rule: rule.name)
def test_envoy_accepts_right_examples(rule: Rule, catalogue: Catalogue, tmp_path: Path) -> None:
    """A real Envoy takes what the pages calls right."""
    assert () == rejected(rule.right, rule, catalogue, tmp_path)


@pytest.mark.parametrize("rule", ERRORS, ids=lambda rule: rule.name)
def test_envoy_rejects_wrong_examples(rule: Rule, catalogue: Catalogue, tmp_path: Path) -> None:
    """A real Envoy rejects what the pages call an error, and accepts what they call one all the same."""
    assert bool(rejected(rule.wrong, rule, catalogue, tmp_path)) is not rule.is_own


def test_rules_that_predict_envoy_are_shown_by_examples() -> None:
    """What an Envoy may overrule is an error of which its answer to an example is tested."""
    assert {rule.name for rule in RULES if rule.predicts_envoy} <= {rule.name for rule in ERRORS}
    assert [] == [rule.name for rule in RULES if rule.predicts_envoy and rule.is_own]


def test_errors_that_envoy_accepts_are_on_one_page() -> None:
    """`config/errors/README.md` has the table that `python -m tests.support.rule_list own` writes."""
    assert own_rules() in (TOP / "config/errors/README.md").read_text(encoding="utf-8")


ODD = Rule(
    "odd-name",
    Severity.WARNING,
    "A name is even, and this sentence is long enough to need a second line.",
    "Envoy laughs at [it].",
    "Add a letter.",
    "- name: odd\n  type: STATIC\n",
    "- name: even\n",
    file="cds.yaml",
)
FIXED = Rule("gone", Severity.ERROR, "Files stay.", "It waits.", "Put it back.", "", "", is_fixed=True, file="")
CHAPTERS = (Chapter("Names", (ODD,)), Chapter("Files", (FIXED,)))


def test_a_page_tells_all() -> None:
    """A page has the severity, the demand, what Envoy does, the remedy and both examples."""
    assert page_of(ODD, 50).plain == (
        "odd-name: warning\n"
        "\n"
        "Demand\n"
        "  A name is even, and this sentence is long enough\n"
        "  to need a second line.\n"
        "\n"
        "Envoy\n"
        "  Envoy laughs at [it].\n"
        "\n"
        "Remedy\n"
        "  Add a letter.\n"
        "\n"
        "Wrong (cds.yaml)\n"
        "    - name: odd\n"
        "      type: STATIC\n"
        "\n"
        "Right (cds.yaml)\n"
        "    - name: even\n"
    )


def test_a_page_without_examples() -> None:
    """What no file shows has no examples, and a severity that is fixed is said to be."""
    assert page_of(FIXED, 50).plain == (
        "gone: error; its severity cannot be changed\n\n"
        "Demand\n  Files stay.\n\nEnvoy\n  It waits.\n\nRemedy\n  Put it back.\n"
    )


def test_the_list_has_chapters() -> None:
    """Every rule is a row under its chapter, its demand folded beside its name."""
    assert list_of(CHAPTERS, 60).plain == (
        "Names\n"
        "  odd-name  warning  A name is even, and this sentence is\n"
        "                     long enough to need a second line.\n"
        "\n"
        "Files\n"
        "  gone      error    Files stay.\n"
    )


def test_programs_get_the_same() -> None:
    """As JSON, a rule has all its fields and its chapter; the list has all rules."""
    assert json.loads(page_as_json(ODD, CHAPTERS)) == {
        "rule": "odd-name",
        "chapter": "Names",
        "severity": "warning",
        "is_fixed": False,
        "predicts_envoy": False,
        "is_own": False,
        "meaning": ODD.meaning,
        "envoy": ODD.envoy,
        "remedy": ODD.remedy,
        "file": "cds.yaml",
        "wrong": ODD.wrong,
        "right": ODD.right,
    }
    assert ["odd-name", "gone"] == [row["rule"] for row in json.loads(list_as_json(CHAPTERS))]
