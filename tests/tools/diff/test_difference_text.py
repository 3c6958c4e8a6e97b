from __future__ import annotations

from fsxds.tools.diff.compare import TypeDifference
from fsxds.tools.diff.difference import text_lines
from tests.tools.diff.differences import CDS, EXAMPLE, compared, resource

EXPECTED = """\
secrets: 1 removed
  - key  main:xds/cds.yaml:3
clusters: 1 added, 2 changed
  + new  HEAD:xds/cds.yaml:7
  ~ web  HEAD:xds/cds.yaml:2
      ~ lb_policy: ROUND_ROBIN → LEAST_REQUEST
      + metadata.a: {"deep": [1.0, "two words"]}
      - connect_timeout: 1s
      ~ transport_socket.key: a secret, changed
      ~ filters: another order: ["a", "b"] → ["b", "a"]
      ~ listeners: another order
  ~ odd  HEAD:xds/cds.yaml:1
      the same fields in other bytes
"""


def test_all_of_a_difference() -> None:
    """Every change is one line, under its resource, under its type."""
    assert EXPECTED == "".join(f"{line.plain}\n" for line in text_lines(EXAMPLE))


def test_colours() -> None:
    """What came is green, what went is red."""
    lines = list(text_lines(EXAMPLE))

    assert {"red", "dim"} == {span.style for span in lines[1].spans}
    assert {"green", "dim"} == {span.style for span in lines[3].spans}


def test_names_cannot_forge_lines() -> None:
    """A name with a newline or an escape sequence stays on its line."""
    forged = compared(TypeDifference(CDS, added=(resource("a\n+ b\x1b[31m"),)))

    assert [r"  + a\n+ b\x1b[31m  HEAD:xds/cds.yaml:1"] == [line.plain for line in text_lines(forged)][1:]
