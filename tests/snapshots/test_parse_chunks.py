"""A large list that is parsed by its items says the same as one that is parsed as a whole."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath
from random import Random

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import Linter
from fsxds.resource_types import type_from_path
from fsxds.resources import ParsedFile
from fsxds.snapshots.parse import ChunkParser, FileParser
from fsxds.values import SourceFile

PATH = PurePosixPath("clusters.yaml")

ITEM = """\
- name: c{number}
  connect_timeout: 1s
  # a comment
  type: STATIC

  metadata:
    filter_metadata: {{a: {{b: "x - y", c: [1, 2]}}}}
"""


def text_of(count: int, head: str = "version_info: 'v'\nresources:\n") -> str:
    """Return a list of clusters."""
    return head + "".join(ITEM.format(number=number) for number in range(count))


def file_of(text: str, path: PurePosixPath = PATH) -> SourceFile:
    """Return a file."""
    return SourceFile.of(path, text.encode())


@pytest.fixture
def parser(catalogue: Catalogue) -> FileParser:
    # Small files shall take the way of large ones.
    return FileParser(catalogue, chunked_from_bytes=0, check=Linter())


@cache
def plain_parser(catalogue: Catalogue) -> FileParser:
    """Return a parser that takes files of this size as a whole, and so remembers nothing of them."""
    return FileParser(catalogue, check=Linter())


def whole(catalogue: Catalogue, file: SourceFile) -> ParsedFile:
    """Parse a file as a whole."""
    return plain_parser(catalogue).parse(file)


def taken_apart(parser: FileParser, file: SourceFile) -> bool:
    """Tell whether a file is parsed by its items."""
    return parser._chunks.parse(file, type_from_path(file.path)) is not None


def lines_of(parsed: ParsedFile) -> list[str]:
    """Return where each resource was found; origins are no part of equality."""
    return [str(resource.origin) for resource in parsed.resources]


@pytest.mark.parametrize(
    "head", ["resources:\n", "# why\nversion_info: 'v'\n\nresources:\n", "", "# a bare list\n", "\n"], ids=repr
)
def test_an_edit_says_the_same_as_the_whole(catalogue: Catalogue, parser: FileParser, head: str) -> None:
    """After an edit in the middle, an insertion and a deletion, resources and lines are those of the whole."""
    text = text_of(20, head)
    parser.parse(file_of(text))
    item = ITEM.format(number=7)
    for edited in (
        text.replace("name: c7\n", "name: other\n"),
        text.replace(item, item + ITEM.format(number=700)),
        text.replace(item, ""),
        text,
    ):
        assert taken_apart(parser, file_of(edited))
        expected = whole(catalogue, file_of(edited))

        assert expected == parser.parse(file_of(edited))
        assert lines_of(expected) == lines_of(parser.parse(file_of(edited)))


def test_unchanged_items_are_not_parsed_again(parser: FileParser) -> None:
    """An edit of one item keeps the bytes of all others, as the same objects."""
    before = parser.parse(file_of(text_of(5)))
    after = parser.parse(file_of(text_of(5).replace("name: c2\n", "name: other\n")))

    kept = [old.body is new.body for old, new in zip(before.resources, after.resources, strict=True)]
    assert kept == [True, True, False, True, True]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("- name: c1\n", "- &one\n  name: c1\n").replace(
            "- name: c2\n", "- <<: *one\n  name: c2\n"
        ),
        lambda text: text + "more: 1\n",
        lambda text: text + "---\nresources: []\n",
        lambda text: "%YAML 1.2\n---\n" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("name: c3", 'name: "c\n- 3"'),
        lambda text: text.replace("name: c3", "name: [c\n- 3"),
        lambda text: text.replace("name: c3", "name: c2"),
        lambda text: text.replace("name: c3", "nam: c3"),
        lambda text: text.replace("name: c3", "name: c3\n\tconnect_timeout: 1s"),
        lambda text: text.replace("resources:\n", "resources: &all\n"),
        lambda text: text.replace("resources:", "canary: true\nresources:"),
        lambda text: text.replace("resources:\n", "resources:\ntype_url: envoy.config.cluster.v3.Cluster\n"),
        lambda text: text.replace("resources:\n", "resources: null\n"),
        lambda text: text.replace("resources:\n", "resources: # here they come\n"),
        lambda text: text + "# the end\n",
        lambda text: text.replace("  # a comment\n", "# a comment at the margin\n"),
        lambda text: text + "- name: last",
        lambda text: text + "- name: last\n  connect_timeout: 0777s\n",
        lambda text: text + "-\n  name: last\n",
        lambda text: text + "- - name: last\n",
        lambda text: text + "- {name: last}\n- !ignore a: b\n",
        lambda text: text.replace(
            "version_info: 'v'", "type_url: type.googleapis.com/envoy.config.listener.v3.Listener"
        ),
    ],
)
def test_whatever_is_odd_says_what_the_whole_says(catalogue: Catalogue, parser: FileParser, spoil) -> None:
    """Anchors, quotes, marks, faults and duplicates end in the same resources and problems."""
    text = text_of(5)
    parser.parse(file_of(text))
    spoilt = file_of(spoil(text))

    assert whole(catalogue, spoilt) == parser.parse(spoilt)
    assert lines_of(whole(catalogue, spoilt)) == lines_of(parser.parse(spoilt))


def test_random_edits_say_what_the_whole_says(catalogue: Catalogue, parser: FileParser) -> None:
    """Whatever bytes are inserted, replaced or cut out, remembered items never change the outcome."""
    random = Random(20)
    base = text_of(6)
    parts = [
        "\n",
        "- ",
        "\n- ",
        "'",
        '"',
        "[",
        "]",
        "{",
        "}",
        "#",
        ": ",
        "&a ",
        "*a",
        "|",
        ">",
        "---\n",
        "  ",
        "\t",
        "x",
        "!x ",
    ]
    for _ in range(400):
        text = base
        for _ in range(random.randint(1, 3)):
            at, cut = random.randrange(len(text)), random.choice([0, 0, 1, 5, 40])
            text = text[:at] + random.choice(parts) + text[at + cut :]
        parser.parse(file_of(base))
        file = file_of(text)
        expected, actual = whole(catalogue, file), parser.parse(file)

        assert expected == actual, text
        assert lines_of(expected) == lines_of(actual), text


def test_an_item_that_means_what_another_says_is_not_remembered(catalogue: Catalogue, parser: FileParser) -> None:
    """An edit of an anchored item reaches the items that refer to it."""
    text = text_of(5).replace("- name: c1\n", "- &one\n  name: c1\n")
    text = text.replace("- name: c2\n", "- <<: *one\n  name: c2\n").replace("  connect_timeout: 1s\n", "", 3)
    parser.parse(file_of(text))
    edited = file_of(text.replace("- &one\n", "- &one\n  connect_timeout: 9s\n"))

    assert whole(catalogue, edited) == parser.parse(edited)


def test_files_that_were_not_parsed_for_long_are_forgotten(parser: FileParser) -> None:
    """Names that change with every deployment do not pile up; the file that was parsed last is always remembered."""
    chunks = ChunkParser(parser._tools, 0, most_remembered=7)
    paths = [PurePosixPath(f"{number}.clusters.yaml") for number in range(3)]
    for path in paths:
        file = file_of(text_of(5), path)
        chunks.learn(file, type_from_path(path), parser.parse(file).documents[0])

    known = [chunks.parse(file_of(text_of(5), path), type_from_path(path)) is not None for path in paths]
    assert known == [False, False, True]
