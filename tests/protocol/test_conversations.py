"""Every rule of the protocol by a written dialogue, and the index of them all."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import conversation, delta_conversation, stream_conversation
from tests.support.dialogue import Played

FOLDER = Path(__file__).parent.parent / "conversations"
PLAYERS: dict[str, Callable[[str], Played]] = {
    "poll": conversation.play,
    "sotw": stream_conversation.play,
    "delta": delta_conversation.play,
}
SCRIPTS = sorted(FOLDER.glob("*/*.txt"))


def _place(script: Path) -> str:
    return str(script.relative_to(FOLDER))


@pytest.mark.parametrize("script", SCRIPTS, ids=_place)
def test_conversation(script: Path) -> None:
    """The server says what the script says."""
    played = PLAYERS[script.parent.name](script.read_text())

    assert played.agrees, f"{script}\n{played.text}"


def _rule_and_source(script: Path) -> tuple[str, str]:
    comment = re.match(r"(#.*\n)+", script.read_text())
    assert comment, "a script begins with its rule"
    lines = comment[0].splitlines()
    rule = " ".join(line[2:] for line in lines if not line.startswith("#   "))
    source = " ".join(line[4:] for line in lines if line.startswith("#   "))
    assert source, "the source of the rule stands below it, indented by three"
    return rule, source


def _index_row(script: Path) -> str:
    rule, source = _rule_and_source(script)
    return f"| {rule} | [`{script.name}`]({_place(script)}) | {source} |"


def test_index_repeats_the_rule_of_every_script() -> None:
    """The index lists each script once, with its rule and source, and nothing else."""
    rows = [row for row in (FOLDER / "INDEX.md").read_text().splitlines() if re.search(r"\| \[`\w+\.txt`\]", row)]

    assert sorted(map(_index_row, SCRIPTS)) == sorted(rows)


def test_index_leads_to_scripts() -> None:
    """Every sentence of the specification and fact of Envoy is followed by scripts that exist, or by what else holds it."""
    text = (FOLDER / "INDEX.md").read_text()
    rows = [row for row in text.partition("## The specification")[2].splitlines() if row.startswith("| ")]
    sentences = [
        row.strip("| ").rpartition(" | ")
        for row in rows
        if row not in ("| sentence | conversations |", "| fact | conversations |", "| --- | --- |")
    ]
    targets = set(re.findall(r"\]\(([^)]*)\)", text))

    assert len(sentences) > 80
    assert targets == {_place(script) for script in SCRIPTS}
    for sentence, _, held_by in sentences:
        assert re.search(r"\.txt\)|client side|`tests/", held_by), sentence


def test_dialogue_shows_what_was_expected_and_seen() -> None:
    """Where a script differs, the dialogue shows both sides in place."""
    played = conversation.play("files EDS a=1\npoll EDS R=a V=-\nserver holds")

    assert not played.agrees
    expected = """\
    files EDS a=1
    poll EDS R=a V=-
  - server holds    (expected)
  + server EDS R=a V=?    (seen)"""
    assert expected == played.text


def test_one_version_has_one_symbol() -> None:
    """A script that gives an unchanged version a new symbol fails."""
    played = conversation.play(
        "files EDS a=1\npoll EDS R=a V=-\nserver EDS R=a V=1\npoll EDS R=a V=-\nserver EDS R=a V=2"
    )

    assert not played.agrees


def test_stream_that_says_something_else_is_shown() -> None:
    """A dialogue of a stream that differs shows both sides in place; what was left out is not compared."""
    script = "files EDS a=1\nclient EDS R=a\nserver EDS R=b N=1\nclient EDS R=a N=1\nserver silent"
    played = stream_conversation.play(script)

    assert not played.agrees
    expected = """\
    files EDS a=1
    client EDS R=a
  - server EDS R=b N=1    (expected)
  + server EDS R=a N=1    (seen)
    client EDS R=a N=1
  + ack V=?    (seen)"""
    assert expected == played.text


def test_stream_that_says_what_is_expected_agrees() -> None:
    """Versions and nonces that are left out may be any."""
    assert stream_conversation.play("files EDS a=1\nclient EDS R=a\nserver EDS R=a").agrees
    assert not stream_conversation.play("files EDS a=1\nclient EDS R=a").agrees
    assert not stream_conversation.play("files EDS a=1\nclient EDS R=a\nserver EDS R=a\nserver EDS R=a").agrees


def test_unknown_statement_is_an_error() -> None:
    """A misspelled statement does not pass for one that changes nothing."""
    with pytest.raises(ValueError, match="no such statement: flies"):
        conversation.play("flies EDS a=1")
