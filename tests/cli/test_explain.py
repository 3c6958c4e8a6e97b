from __future__ import annotations

import json

import pytest

from fsxds.cli.main import main
from fsxds.lint.rules import chapters, rules


def test_a_rule(capfd: pytest.CaptureFixture[str]) -> None:
    """A rule is explained with its weight, its demand, what Envoy does, the remedy and both examples."""
    assert 0 == main(["explain", "duplicate-key"])
    out, err = capfd.readouterr()
    assert out.startswith(
        "duplicate-key: error, though Envoy accepts it\n\nDemand\n  A key is not duplicated in an object.\n"
    )
    assert [] == [heading for heading in ("\nEnvoy\n", "\nRemedy\n", "\nWrong (", "\nRight (") if heading not in out]
    assert ("", False) == (err, "\x1b" in out)


def test_all_rules(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a rule, every rule of the book is listed under its chapter."""
    assert 0 == main(["explain"])
    out = capfd.readouterr().out
    lines = out.splitlines()
    assert [chapter.title for chapter in chapters().values()] == [
        line for line in lines if line and not line.startswith(" ")
    ]
    assert [rule.name for rule in rules().values()] == [
        line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "
    ]


def test_programs_read_json(capfd: pytest.CaptureFixture[str]) -> None:
    """`--format json` prints an object for a rule, and a list for all."""
    main(["explain", "duplicate-key", "--format", "json"])
    page = json.loads(capfd.readouterr().out)
    main(["explain", "--format", "json"])
    listing = json.loads(capfd.readouterr().out)

    assert "duplicate-key" == page["rule"]
    assert page in listing
    assert len(rules()) == len(listing)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("duplicate-kye", "fsxds: duplicate-kye: there is no such rule; did you mean duplicate-key?\n"),
        ("Vanished", "fsxds: Vanished: there is no such rule; did you mean vanished?\n"),
        ("zzz\x1b", "fsxds: zzz\\x1b: there is no such rule; `fsxds explain` lists them\n"),
    ],
)
def test_a_rule_that_does_not_exist(capfd: pytest.CaptureFixture[str], name: str, expected: str) -> None:
    """An unknown rule is wrong use; the nearest one is named."""
    assert 2 == main(["explain", name])
    assert ("", expected) == tuple(capfd.readouterr())
