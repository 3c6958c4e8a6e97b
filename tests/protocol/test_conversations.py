from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.conversation import play

FOLDER = Path(__file__).parent.parent / "conversations"
SCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_conversation(script: Path) -> None:
    """The server says what the script says."""
    played = play(script.read_text())

    assert played.agrees, f"{script}\n{played.text}"


def _index_row(script: Path) -> str:
    comment = re.match(r"(#.*\n)+", script.read_text())
    assert comment, "a script begins with its rule"
    lines = comment[0].splitlines()
    rule = " ".join(line[2:] for line in lines if not line.startswith("#   "))
    source = " ".join(line[4:] for line in lines if line.startswith("#   "))
    assert source, "the source of the rule stands below it, indented by three"
    return f"| {rule} | [`{script.name}`]({script.name}) | {source} |"


def test_index_repeats_the_rule_of_every_script() -> None:
    """The index lists each script once, with its rule and source, and nothing else."""
    rows = [row for row in (FOLDER / "INDEX.md").read_text().splitlines() if ".txt)" in row]

    assert sorted(map(_index_row, SCRIPTS)) == sorted(rows)


def test_dialogue_shows_what_was_expected_and_seen() -> None:
    """Where a script differs, the dialogue shows both sides in place."""
    played = play("files EDS a=1\npoll EDS R=a V=-\nserver holds")

    assert not played.agrees
    expected = """\
    files EDS a=1
    poll EDS R=a V=-
  - server holds    (expected)
  + server EDS R=a V=?    (seen)"""
    assert expected == played.text


def test_one_version_has_one_symbol() -> None:
    """A script that gives an unchanged version a new symbol fails."""
    played = play("files EDS a=1\npoll EDS R=a V=-\nserver EDS R=a V=1\npoll EDS R=a V=-\nserver EDS R=a V=2")

    assert not played.agrees


def test_unknown_statement_is_an_error() -> None:
    """A misspelled statement does not pass for one that changes nothing."""
    with pytest.raises(ValueError, match="no such statement: flies"):
        play("flies EDS a=1")
