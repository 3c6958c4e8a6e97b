"""Find all that Envoy refuses among many, in few questions: it stops at the first (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fsxds.local_envoy.judge_log import Refused
from fsxds.local_envoy.static_rendering import Member

Members: TypeAlias = tuple[Member, ...]

Ask: TypeAlias = "Callable[[Sequence[Members]], Sequence[Refused | None]]"
"""Asks about several sets of resources at once; None stands for a set that is taken."""


@dataclass(frozen=True, slots=True)
class Culprits:
    """Resources that Envoy refuses together, though it takes any part of them; mostly it is one alone.

    No members at all: Envoy refuses what it was asked, and it could not be found out why.
    """

    members: Members
    reason: str


def find_culprits(members: Sequence[Member], ask: Ask) -> tuple[Culprits, ...]:
    """Return all culprits.

    For each one that Envoy's log points at, two questions are asked at the same time: about it alone, and about what is
    left. Where the log points at none, or at a wrong one, the set is cut into thirds.
    """
    found = _Search(ask).run(tuple(members))
    return tuple(sorted(found, key=lambda culprits: culprits.members[-1:]))


class _Search:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._found: list[Culprits] = []

    def run(self, members: Members) -> list[Culprits]:
        """Look through a set until what is left of it is taken as a whole."""
        answer = self._ask_one(members)
        while answer is not None:
            part = members
            while answer is not None:
                part, answer = self._advance(part, answer)
            if not self._found[-1].members:
                break
            members = self._without_found(members)
            answer = self._ask_one(members)
        return self._found

    def _ask_one(self, members: Members) -> Refused | None:
        return self._ask((members,))[0] if members else None

    def _without_found(self, members: Members) -> Members:
        # Of those that are refused together the last goes: it came to what was there.
        gone = {culprits.members[-1] for culprits in self._found if culprits.members}
        return tuple(member for member in members if member not in gone)

    def _advance(self, members: Members, answer: Refused) -> tuple[Members, Refused | None]:
        """Find a culprit in a set that is refused, and return what of it was not asked for yet, with the answer to that.

        What Envoy took before it refused need not be asked again, other than in the end with all else.
        """
        suspect = answer.suspect
        if len(members) == 1:
            self._found.append(Culprits(members, answer.reason))
            return (), None
        if suspect not in members:
            return self._search(members, (), answer)
        rest = tuple(member for member in members if member != suspect and member not in answer.proven)
        alone, answer_of_rest = self._ask(((suspect,), rest)) if rest else (self._ask_one((suspect,)), None)
        if alone is None:
            return self._search(tuple(member for member in members if member != suspect), (suspect,), answer)
        self._found.append(Culprits((suspect,), alone.reason))
        return rest, answer_of_rest

    def _search(self, members: Members, fixed: Members, answer: Refused) -> tuple[Members, Refused | None]:
        """Do what `_advance` does without a hint, or with one that is only a part of the truth."""
        culprits = self._narrow(members, fixed, answer)
        self._found.append(culprits)
        if not culprits.members:
            return (), None
        rest = self._without_found((*fixed, *members))
        return rest, self._ask_one(rest)

    def _narrow(self, members: Members, fixed: Members, answer: Refused) -> Culprits:
        """Return a smallest set that is refused, of members that are refused together with those that are fixed."""
        reason = answer.reason
        while True:
            end = self._shortest_refused(members, fixed)
            if end is None:
                return Culprits((), reason)
            fixed = (*fixed, members[end - 1])
            members = members[: end - 1]
            now, alone = self._ask((fixed, (fixed[-1],)))
            if alone is not None:
                return Culprits((fixed[-1],), alone.reason)
            if now is not None:
                return Culprits(tuple(sorted(fixed)), now.reason)

    def _shortest_refused(self, members: Members, fixed: Members) -> int | None:
        """Return how many members, from the first on, it takes to be refused; None when all of them are taken."""
        low, high, is_sure = 0, len(members), False
        while high - low > 1 or not is_sure:
            third = max(1, (high - low) // 3)
            cuts = sorted({min(low + third, high), min(low + 2 * third, high)} | (set() if is_sure else {high}))
            answers = self._ask([(*fixed, *members[:cut]) for cut in cuts])
            refused = [cut for cut, one in zip(cuts, answers, strict=True) if one is not None]
            taken = [cut for cut, one in zip(cuts, answers, strict=True) if one is None]
            if not is_sure and not refused:
                return None
            is_sure = True
            high = min([*refused, high])
            low = max([low, *(cut for cut in taken if cut < high)])
        return high
