"""Resource names as file names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.transports.mirror.files import CUT, EMPTY, LONGEST_BYTES, file_name_of

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def name_of_file(file_name: str) -> str | None:
    """Return the resource name of a file name without suffix, None where it was cut."""
    if file_name == EMPTY:
        return ""
    return None if CUT in file_name else unquote(file_name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web", "web"),
        ("Web_1-a.b", "Web_1-a.b"),
        ("edge/web", "edge%2Fweb"),
        ("outbound|80||web.svc", "outbound%7C80%7C%7Cweb.svc"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("100%", "100%25"),
        ("a~b c", "a%7Eb%20c"),
        ("ü", "%C3%BC"),
        ("\0\n", "%00%0A"),
        ("", "%empty"),
    ],
)
def test_names_become_safe(name: str, expected: str) -> None:
    """All but letters, digits, `_`, `-` and dots that do not lead is written per byte."""
    assert expected == file_name_of(name)
    assert name == name_of_file(expected)


@given(NAMES)
def test_names_are_reversible_unless_cut(name: str) -> None:
    """A file name leads back to its resource, but for one that was cut, which says so."""
    file_name = file_name_of(name)

    assert name_of_file(file_name) in ({name} if "%~" not in file_name else {None})


@given(NAMES)
def test_file_names_are_what_any_file_system_takes(name: str) -> None:
    """They are ASCII, not too long, no way out of the folder, and not hidden."""
    file_name = file_name_of(name)

    assert 0 < len(file_name.encode("ascii")) <= LONGEST_BYTES
    assert "/" not in file_name
    assert not file_name.startswith(".")


@given(st.lists(NAMES, unique=True, max_size=20))
def test_no_two_names_share_a_file(names: list[str]) -> None:
    """Different names have different files."""
    assert len(names) == len({file_name_of(name) for name in names})


def test_long_names_differ_by_their_ends(tmp_path: Path) -> None:
    """A name that is cut keeps a readable beginning and a digest of all of it, and a file of that name can be made."""
    one, other = file_name_of("ü" * 200 + "1"), file_name_of("ü" * 200 + "2")

    assert one != other
    assert one.startswith("%C3%BC" * 25 + "%~")
    (tmp_path / (one + ".pb_text")).touch()
