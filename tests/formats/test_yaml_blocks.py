"""YAML read line by line, held against libyaml over what is and what is not of its form."""

import random
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsxds.formats import yaml_blocks
from fsxds.formats.decoded import MAX_DEPTH, PlainDocument
from fsxds.formats.yaml_blocks import read_blocks
from fsxds.formats.yaml_format import decode, read_yaml
from tests.formats.reading import values_of

ROOT = Path(__file__).parents[2]
FOLDERS = ("config", "tests/trees", "tests/data")

# Everything that the form has, some of it in both spellings.
SAMPLE = """\
# a comment
a: |
  x
   y

  z
b: |-
    q
c: 'it''s'
d: "a\\nb\\"c"
e: {a: 1, b: [x, 'y']}
f:
- a: 1
  b:
    - - c
      - d: e
- [1, 2]
- |
 f
-   g: :h
g: 1.5
h: -7
"i j": ~
j: a:b:c d # comment
o: 'one
  two \x20

  it''s three '  # comment
p:
- '
  # q'
- '

  q'

k:
l: {}
m: []
'n:o': "x" # y
resources:
  - name: é
  - typed_config: {"@type": x/y, 'a': {}}
"""

PIECES = (
    *" \t:#-'\"|>{}[],&*!?%@`~\n\r=.\\/_0a\x85\u2028é\ufeff\x07",
    *("- ", "  ", ": ", " #", "---", "...", "\n\n", "|-", "|+", ">-", "''", "\\n", "<<: ", "resources:\n", "? ", "!x "),
)


def plain_flow(text):
    """Return the value of a flow collection as libyaml reads it."""
    decoded = read_yaml(text)
    return values_of(decoded)[0] if len(decoded.documents) == 1 and not decoded.faults else None


def read(text):
    """Return what the reader makes of a text, None where it leaves it to libyaml."""
    return read_blocks(text, plain_flow)


def texts() -> Iterator[str]:
    """Yield the YAML files of the project."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.y*ml")):
            try:
                yield path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def mutated(text: str, chance: random.Random) -> str:
    """Return a part of a text with some lines and characters moved, lost or added."""
    lines = text.split("\n")
    if len(lines) > 60:
        first = chance.randrange(len(lines) - 40)
        lines = textwrap.dedent("\n".join(lines[first : first + chance.randrange(5, 60)])).split("\n")
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(lines))
        line, inside = lines[at], chance.randrange(len(lines[at]) + 1)
        lines[at : at + 1] = chance.choice((
            (),
            (line, line),
            (" " * chance.randrange(1, 4) + line,),
            (line[chance.randrange(1, 4) :],),
            (line[:inside] + chance.choice(PIECES) + line[inside:],),
            (line[:inside] + chance.choice(PIECES) + line[inside:],),
            (line[:inside] + line[inside + 1 :],),
            (chance.choice(lines), line),
            (" " * (len(line) - len(line.lstrip())) + chance.choice(SAMPLE.split("\n")).strip(), line),
        )) or [""]  # fmt: skip
    return "\n".join(lines)


def test_a_text_of_the_form() -> None:
    """Everything of the form has libyaml's value, the place of the document and those of the items."""
    decoded = read(SAMPLE)

    assert repr(read_yaml(SAMPLE)) == repr(decoded)
    assert decoded is not None
    (document,) = decoded.documents
    assert isinstance(document, PlainDocument)
    assert (2, (41, 42)) == (document.line, document.item_lines)


def test_files_of_the_project() -> None:
    """Most files of the project without a mistake are of the form, and mean what libyaml reads."""
    good = [text for text in texts() if len(read_yaml(text).documents) == 1 and not read_yaml(text).faults]
    found = [(read(text), text) for text in good]

    taken = [(decoded, text) for decoded, text in found if decoded is not None]

    assert len(taken) > len(good) / 2
    for decoded, text in taken:
        assert repr(read_yaml(text)) == repr(decoded)


def test_mutations() -> None:
    """What is read of texts with random changes is what libyaml reads."""
    chance = random.Random(20260101)
    samples = [*texts(), *[SAMPLE] * 30]
    taken = 0
    for _ in range(6000):
        text = mutated(chance.choice(samples), chance)
        decoded = read(text)
        if decoded is not None:
            taken += 1
            assert repr(read_yaml(text)) == repr(decoded), text
    assert taken > 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        "a",
        "[a]",
        "a: &x b",
        "a: *x",
        "a: !!str b",
        "a: b\n---\nc: d",
        "a: b\n...",
        "%YAML 1.1\n---\na: b",
        "a: b\na: c",
        "a: yes",
        "a: 007",
        "a:\tb",
        "a: b\r\nc: d",
        "a: b\x85c: d",
        "a: >-\n  b",
        "a: |+\n  b\n\n",
        "a: |2\n  b\n",
        "a: |\n \tb\n",
        "a: |\n  b",
        "a: |\nb: c\n",
        "a: b\n  c",
        "a: 'b\nc'",
        "a: 'b\n  c' d",
        "a: 'b\n  c': d",
        "a: 'b\n  c",
        "a: 'b\n\tc'",
        "a:\n  b",
        "a: {b: 1,\n  c: 2}",
        'a: "b\n  c"',
        'a: "\\x41"',
        "<<: {a: b}",
        "a: {<<: *b}",
        "? a",
        "-\n  a: b",
        "a: - b",
        "a: b: c",
        "a: %b",
        "a: b\n c: d",
        "a:\n  b: c\n d: e",
        "- a\nb: c",
        "b: c\n- a",
        "a:\n  - b\n- c",
        "resources: [{name: a}, {name: b}]",
    ],
)
def test_texts_of_other_forms(text: str) -> None:
    """Whatever may mean something else, or is a mistake, is left to libyaml."""
    assert read(text) is None


def test_depth() -> None:
    """Text that nests deeper than is read is left to libyaml, which reports it; the deepest that is read is read alike."""
    for levels in (MAX_DEPTH, MAX_DEPTH + 1):
        blocks = "".join(" " * level + "a:\n" for level in range(levels - 1)) + " " * levels + "b: c\n"
        for text in (blocks, "- " * levels + "a\n", f"a: {'[' * (levels - 1)}{']' * (levels - 1)}\n"):
            decoded, expected = read(text), read_yaml(text)
            assert bool(expected.faults) == (decoded is None) == (levels > MAX_DEPTH)
            assert decoded is None or repr(decoded) == repr(expected)


@pytest.mark.parametrize(
    "line",
    [
        "a: " + "b " * 500_000 + "\x07",
        "a: '" + "''" * 500_000,
        "a: " + "[" * 500_000,
        "- " * 500_000,
        "a" * 999_999 + ":",
    ],
)
def test_long_lines(line: str) -> None:
    """A line of a million characters takes no time that grows with the square of its length."""
    assert read(line) is None


def test_memory_of_lines_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither very long lines, nor more lines than the limit, are remembered."""
    monkeypatch.setattr(yaml_blocks, "_known", {})
    read("\n".join(f"a{number}: b" for number in range(yaml_blocks._MOST_REMEMBERED + 5)) + "\nb: " + "c" * 1000)

    assert len(yaml_blocks._known) == 5


def test_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is read alike wherever it is cut into windows."""
    for size in range(1, 60):
        monkeypatch.setattr(yaml_blocks, "_WINDOW", size)
        assert repr(read_yaml(SAMPLE)) == repr(read(SAMPLE))


def test_decode_falls_back() -> None:
    """A file of another form is read by libyaml."""
    decoded = decode(b"a: &x 1\nb: *x\n", None, None)  # type: ignore[arg-type]  # YAML needs no catalogue
    assert [{"a": 1, "b": 1}] == [
        document.value for document in decoded.documents if isinstance(document, PlainDocument)
    ]
