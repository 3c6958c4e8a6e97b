from __future__ import annotations

import json

from fsxds.lint.rules import Chapter, Rule, list_as_json, list_of, page_as_json, page_of
from fsxds.values import Severity

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
        "meaning": ODD.meaning,
        "envoy": ODD.envoy,
        "remedy": ODD.remedy,
        "file": "cds.yaml",
        "wrong": ODD.wrong,
        "right": ODD.right,
    }
    assert ["odd-name", "gone"] == [row["rule"] for row in json.loads(list_as_json(CHAPTERS))]
