"""In which order the parts of changes go out."""

from __future__ import annotations

import pytest

from fsxds.rollout import Staged, make_before_break, staged_state


def test_removals_come_last_and_in_reverse() -> None:
    """What is used comes before what uses it, and goes after it."""
    changes = [
        Staged("+clusters", "-clusters"),
        Staged(None, "-endpoints"),
        Staged("+listeners"),
        Staged("+routes", "-routes"),
    ]

    expected = ["+clusters", "+listeners", "+routes", "-routes", "-endpoints", "-clusters"]
    assert expected == list(make_before_break(changes))


@pytest.mark.parametrize(
    ("before", "both", "after", "expected"),
    [
        ("a", "ab", "ab", Staged("ab")),
        ("ab", "ab", "b", Staged(None, "b")),
        ("a", "ab", "b", Staged("ab", "b")),
        ("a", "a", "a", Staged(None)),
        (None, "b", "b", Staged("b")),
    ],
)
def test_a_whole_state_goes_out_twice_where_it_removes_something(
    before: str | None, both: str, after: str, expected: Staged[str]
) -> None:
    """Old and new together first, where that is not what is there already; the new alone last."""
    assert expected == staged_state(before, both, after)
