"""All conflict among many, by an Envoy made of rules: it refuses certain sets, and points at some of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from hypothesis import given
from hypothesis import strategies as st

from fsxds.envoy.envoy_log import ValidationFailure
from fsxds.envoy.validate import Conflict, Members, find_conflicts


class Rules:
    """Refuses every set that has all members of one of the bad ones."""

    def __init__(self, *bad: Members, points: bool = True) -> None:
        self._bad = bad
        self._points = points
        self.asked = 0

    def ask(self, sets: Sequence[Members]) -> list[ValidationFailure | None]:
        """Answer as the judge does."""
        self.asked += len(sets)
        return [self._answer(one) for one in sets]

    def _answer(self, members: Members) -> ValidationFailure | None:
        met = sorted((bad for bad in self._bad if set(bad) <= set(members)), key=max)
        if not met:
            return None
        suspect = max(met[0])
        proven = frozenset(member for member in members if member < suspect)
        return ValidationFailure(str(met[0]), suspect, proven) if self._points else ValidationFailure(str(met[0]))


def test_all_good() -> None:
    """One question is enough for what is taken."""
    rules = Rules()

    assert find_conflicts(range(100), rules.ask) == ()
    assert rules.asked == 1


def test_culprits_that_the_log_points_at() -> None:
    """Each costs two questions, and all together one before and one after."""
    rules = Rules((3,), (70,), (150,))

    found = find_conflicts(range(200), rules.ask)

    assert found == (Conflict((3,), "(3,)"), Conflict((70,), "(70,)"), Conflict((150,), "(150,)"))
    assert rules.asked == 2 + 2 * 3


def test_culprit_without_a_hint() -> None:
    """Without a hint it takes about two questions for each third of a third."""
    rules = Rules((137,), points=False)

    assert find_conflicts(range(200), rules.ask) == (Conflict((137,), "(137,)"),)
    assert rules.asked <= 2 * log2(200) + 2


def test_two_together() -> None:
    """Of two that are rejected together both are named, the later last."""
    rules = Rules((20, 90))

    assert find_conflicts(range(200), rules.ask) == (Conflict((20, 90), "(20, 90)"),)


def test_a_wrong_hint() -> None:
    """A hint at a good one does not hide the culprit."""

    def ask(sets: Sequence[Members]) -> list[ValidationFailure | None]:
        return [ValidationFailure("because", 5, frozenset({1, 2})) if 7 in one else None for one in sets]

    assert find_conflicts(range(10), ask) == (Conflict((7,), "because"),)


def test_what_cannot_be_explained() -> None:
    """A set that is rejected while all its parts are taken ends the search, with the reason."""
    whole = tuple(range(10))

    def ask(sets: Sequence[Members]) -> list[ValidationFailure | None]:
        return [ValidationFailure("moody", 3) if one == whole and len(sets) == 1 else None for one in sets]

    assert find_conflicts(whole, ask) == (Conflict((), "moody"),)


@given(
    st.integers(1, 60),
    st.lists(st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True), max_size=4),
    st.booleans(),
)
def test_what_is_left_is_taken(count: int, bad: list[list[int]], points: bool) -> None:
    """Whatever is rejected, alone or together: each find is rejected, and what is left without them is taken."""
    sets = [tuple(sorted(one)) for one in bad if max(one) < count]
    rules = Rules(*sets, points=points)

    found = find_conflicts(range(count), rules.ask)
    gone = {conflict.members[-1] for conflict in found}

    assert all(conflict.members in sets for conflict in found)
    assert rules.ask((tuple(member for member in range(count) if member not in gone),)) == [None]
