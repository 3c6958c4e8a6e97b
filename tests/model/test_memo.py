from __future__ import annotations

from functools import partial

import pytest

from fsxds.model import memo
from fsxds.model.memo import MOST_EARLIER, AnswersByNames, Lru


def test_what_was_not_used_for_longest_goes_first() -> None:
    """Of more values than are kept, the one goes that was used before all others; to use is to get, find or put."""
    memory: Lru[str, int] = Lru(3)
    for key in "abc":
        assert memory.put(key, ord(key)) == []

    assert memory.get("a") == ord("a")
    assert memory.find("b", lambda: 0) == ord("b")
    assert memory.put("d", 1) == [("c", ord("c"))]
    assert memory.put("a", 2) == []
    assert list(memory) == ["b", "d", "a"]
    assert len(memory) == 3


def test_asking_is_no_use() -> None:
    """Whether there is a value can be asked without keeping it."""
    memory: Lru[str, int] = Lru(1)
    memory.put("a", 0)

    assert "a" in memory
    memory.put("b", 0)
    assert "a" not in memory
    assert memory.get("a") is None


def test_a_value_is_made_once() -> None:
    """`find` makes what is not kept, and keeps it."""
    memory, made = Lru[str, int](2), []

    def make() -> int:
        made.append(1)
        return 7

    assert [memory.find("a", make) for _ in range(2)] == [7, 7]
    assert made == [1]


def test_sizes_have_a_limit() -> None:
    """Values go until the others are small enough together; the last one stays whatever its size is."""
    memory: Lru[str, str] = Lru(10, len, 5)
    memory.put("a", "12")
    memory.put("b", "123")

    assert memory.put("c", "1") == [("a", "12")]
    assert memory.put("c", "12") == []
    assert memory.put("d", "123456") == [("b", "123"), ("c", "12")]
    assert list(memory) == ["d"]


def test_what_is_dropped_counts_no_more() -> None:
    """A value that was dropped makes room; there is nothing to drop twice."""
    memory: Lru[str, str] = Lru(10, len, 5)
    memory.put("a", "12345")

    assert memory.pop("a") == "12345"
    assert memory.pop("a") is None
    memory.put("b", "123")
    assert memory.put("c", "12") == []


def test_nothing_is_a_value() -> None:
    """`find` keeps None as well: it is not made twice."""
    memory, made = Lru[str, None](2), []

    def make() -> None:
        made.append(1)

    for _ in range(2):
        memory.find("a", make)

    assert made == [1]


def test_answers_hold_until_a_name_changes() -> None:
    """What was answered before a change is the answer after it for all but the names that changed."""
    answers, made = AnswersByNames[str](4), list[str]()

    def ask(names: str, of: AnswersByNames[str]) -> str:
        return of.find(frozenset(names), lambda: made.append(names) or f"{names} {len(made)}")  # type: ignore[func-returns-value]

    assert [ask("ab", answers), ask("cd", answers)] == ["ab 1", "cd 2"]
    later = answers.after(frozenset("bx")).after(frozenset("y"))
    assert [ask("cd", later), ask("ab", later), ask("ab", later)] == ["cd 2", "ab 3", "ab 3"]
    assert [ask("ab", answers), ask("cd", answers)] == ["ab 1", "cd 2"]


def test_answers_from_long_ago_are_forgotten() -> None:
    """So that nothing stays for ever, what nobody asked for in many changes is made again."""
    answers = AnswersByNames[int](4)
    assert answers.find(frozenset("a"), lambda: 1) == 1
    for _ in range(MOST_EARLIER):
        answers = answers.after(frozenset("b"))
    assert answers.after(frozenset("b")).find(frozenset("a"), lambda: 2) == 2
    assert answers.find(frozenset("a"), lambda: 3) == 1


def test_questions_are_forgotten_for_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few questions there are, they have no more names than the limit; nor do those of earlier rows."""
    monkeypatch.setattr(memo, "MOST_NAMES", 10)
    questions = [frozenset(f"{number}-{index}" for index in range(4)) for number in range(20)]
    answers = AnswersByNames[int](100)
    for number, names in enumerate(questions):
        assert answers.find(names, partial(int, number)) == number
        assert sum(map(len, answers._kept)) <= 10

    assert answers.after(frozenset("x")).find(questions[-1], lambda: -1) == 19
    later = answers
    for names in questions:
        later = later.after(names)
        later.find(names, lambda: 0)
        assert sum(len(each) for _, kept, _ in later._earlier[1:] for each in kept) <= 10
