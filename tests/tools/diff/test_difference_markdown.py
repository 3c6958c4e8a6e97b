from __future__ import annotations

import pytest

from fsxds.tools.diff.compare import ChangeAction, FieldChange, ResourceChange, TypeDifference
from fsxds.tools.diff.difference import LONGEST_COMMENT, code, markdown
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
