from __future__ import annotations

import pytest

from fsxds.tools.diff.compare import (
    ChangeAction,
    ComparedView,
    Difference,
    FieldChange,
    ResourceChange,
    TypeDifference,
    grouped,
)
from fsxds.tools.diff.difference import LONGEST_COMMENT, Compared, Side, code, markdown
from tests.tools.diff.differences import CDS, EXAMPLE, SDS, compared, resource

EXPECTED = """\
### xDS resources: `main` → `HEAD`

| type | added | changed | removed |
| --- | ---: | ---: | ---: |
| secrets | 0 | 0 | 1 |
| clusters | 1 | 2 | 0 |

<details>
<summary>secrets: 1 removed</summary>

- removed `key` (`main:xds/cds.yaml:3`)

</details>

<details>
<summary>clusters: 1 added, 2 changed</summary>

- added `new` (`HEAD:xds/cds.yaml:7`)
- changed `web` (`HEAD:xds/cds.yaml:2`)
  - `lb_policy`: `ROUND_ROBIN` → `LEAST_REQUEST`
  - `metadata.a`: added `{"deep": [1.0, "two words"]}`
  - `connect_timeout`: removed `1s`
  - `transport_socket.key`: a secret, changed
  - `filters`: another order: `["a", "b"]` → `["b", "a"]`
  - `listeners`: another order
- changed `odd` (`HEAD:xds/cds.yaml:1`)
  - the same fields in other bytes

</details>

"""


def test_all_of_a_difference() -> None:
    """A comment has a table of counts, and the details of each type folded away."""
    assert EXPECTED == markdown(EXAMPLE)


def test_no_difference() -> None:
    """Of equals it says so in a line."""
    assert "### xDS resources: `a` → `b`\n\nNo difference.\n" == markdown(compared(before="a", after="b"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("web", "`web`"),
        ("a`b", "``a`b``"),
        ("`a``b", "``` `a``b ```"),
        ("<b>@team|x", "`<b>@team|x`"),
        ("a\n# b", r"`a\n# b`"),
        ("", "`  `"),
    ],
)
def test_code(text: str, expected: str) -> None:
    """Whatever a text holds, it stands as code on one line."""
    assert expected == code(text)


def test_code_in_a_table() -> None:
    """A bar does not end the cell of a table."""
    assert r"`a\|b`" == code("a|b", in_table=True)


def test_a_comment_is_never_too_long() -> None:
    """Of a large difference each type gets its share, and how much was cut is said; small types stay whole."""
    fields = tuple(FieldChange(f"field_{number}", ChangeAction.CHANGED, "x" * 90, "y" * 90) for number in range(2000))
    large = TypeDifference(CDS, changed=(ResourceChange(resource("web"), resource("web"), fields),))
    text = markdown(compared(TypeDifference(SDS, removed=(resource("key"),)), large))

    assert LONGEST_COMMENT * 0.9 < len(text) <= LONGEST_COMMENT
    assert "- removed `key`" in text
    assert " more lines do not fit into a comment; `fsxds diff` prints them all." in text
    assert text.count("<details>") == text.count("</details>") == 2


def test_long_names() -> None:
    """Names and paths of thousands of characters are cut."""
    field = FieldChange("f" * 5000, ChangeAction.CHANGED, "x" * 5000, ["y"] * 5000)
    change = ResourceChange(resource("n" * 5000), resource("n" * 5000), (field,))

    assert len(markdown(compared(TypeDifference(CDS, changed=(change,))))) < 2000


def of_views(count: int, layer: str = "nodes/{number}") -> Compared:
    """Return a comparison of so many views, each with a difference of its own."""
    differences = {
        ComparedView(("edge",), (layer.format(number=number),)): Difference(
            (TypeDifference(CDS, added=(resource(f"c{number}"),)),)
        )
        for number in range(count)
    }
    return Compared.of_views((Side("a"), Side("b")), grouped(differences), (), count)


def test_views_have_headings() -> None:
    """What the settings and the tree call views stands as code, cut where it is long."""
    text = markdown(of_views(2, "<b>{number}: *"))

    assert "#### in 1 of 2 views: `edge (<b>0: *)`\n\n| type |" in text
    assert text.count("<details>") == 2
    assert len(markdown(of_views(2, "x" * 5000 + "{number}"))) < 2000


def test_a_comment_about_many_views_is_never_too_long() -> None:
    """As many groups as leave room for their details, and how many more there are."""
    text = markdown(of_views(1000))
    shown = text.count("#### ")

    assert len(text) <= LONGEST_COMMENT
    assert 50 < shown < 1000
    assert text.count("- added `c") == shown
    assert text.endswith(
        f"{1000 - shown} more groups of views do not fit into a comment; `fsxds diff` prints them all.\n"
    )
