from __future__ import annotations

import pytest

from fsxds.formats.positions import locate_in_textproto
from fsxds.model.values import FieldPath

TEXT = """\
version_info: "1"
resources {
  [type.googleapis.com/a.B] {
    name: "a" # connect_timeout {
    numbers: [1, 2,
      3]
    parts { a: 1 } parts { a: 2
      b: 3 }
    labels { key: "k" value { z: 1 } }
    labels { key: "l", value: <
       z: 2 > }
  }
}
resources: [{ [a.com/a.B] { name: "b" } }, < [a.com/a.B] { name: "c"
  nmae: "d" } >]
"""


@pytest.mark.parametrize(
    ("field_path", "place"),
    [
        ((), (1, 1)),
        (("version_info",), (1, 1)),
        (("resources", 0), (2, 1)),
        (("resources", 0, "@type"), (3, 3)),
        (("resources", 0, "name"), (4, 5)),
        (("resources", 0, "numbers", 2), (6, 7)),
        (("resources", 0, "parts", 0, "a"), (7, 13)),
        (("resources", 0, "parts", 1), (7, 20)),
        (("resources", 0, "parts", 1, "b"), (8, 7)),
        (("resources", 0, "labels", "l", "z"), (11, 8)),
        (("resources", 1, "name"), (14, 29)),
        (("resources", 2, "nmae"), (15, 3)),
        (("resources", 0, "missing"), (2, 1)),
        (("resources", 9, "name"), (2, 1)),
    ],
)
def test_places(field_path: FieldPath, place: tuple[int, int]) -> None:
    """Fields are found by the paths that JSON has for them; of what is missing, what is around it."""
    assert place == locate_in_textproto(TEXT.encode(), [(0, field_path)])[0, field_path]


@pytest.mark.parametrize("text", ["", "a {", "a: [", "}", 'a { key: "', "a { key: 'b' }", "[a.b/c", "a: [b", "{" * 500])
def test_broken_texts(text: str) -> None:
    """A walk through a broken text ends."""
    path = ("a", "b", 0)

    assert locate_in_textproto(text.encode(), [(0, path)])[0, path] >= (1, 1)
