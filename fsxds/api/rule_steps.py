"""What is done with each field that is set: its values are judged, and the messages in it visited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from fsxds.api.rule_checks import Check, show_value
from fsxds.api.walk import Hook, Path, Visit, Walk

Step: TypeAlias = "Callable[[Any, Path, Walk], None]"
"""Takes the value of one field, and the path of the message that holds it."""

Judge: TypeAlias = "Callable[[Any, Path, str | int, Walk], None]"
"""Tells what is wrong with a value; its path is that of its holder and one step more, made only for a fault."""


def judge_of(checks: Sequence[Check], *, secret: bool, prefix: str = "") -> Judge | None:
    """Return what judges a value by checks, of which the first broken one is told; None when there are none."""
    if not checks:
        return None
    tests = tuple(check.is_broken for check in checks)

    def judge(value: Any, path: Path, step: str | int, walk: Walk) -> None:
        for is_broken in tests:
            if is_broken(value):
                check = checks[tests.index(is_broken)]
                walk.tell((path, step), check.rule, prefix + check.message(value, secret=secret), check.remedy)
                return

    if len(checks) > 1:
        return judge
    (is_alone_broken,) = tests

    def judge_by_one(value: Any, path: Path, step: str | int, walk: Walk) -> None:
        if is_alone_broken(value):
            judge(value, path, step, walk)

    return judge_by_one


def step_for_one(name: str, judge: Judge | None, visit: Visit | None) -> Step | None:
    """Return what is done with a field of one value."""
    if visit is None:
        return None if judge is None else _step_to_judge(name, judge)
    if judge is None:

        def step(value: Any, path: Path, walk: Walk) -> None:
            visit(value, (path, name), walk)

    else:

        def step(value: Any, path: Path, walk: Walk) -> None:
            judge(value, path, name, walk)
            visit(value, (path, name), walk)

    return step


def step_with_hooks(name: str, hooks: Sequence[Hook], step: Step | None) -> Step | None:
    """Return what is done with a field whose value hooks look at first."""
    for hook in reversed(hooks):
        step = _step_after(hook, name, step)
    return step


def _step_after(hook: Hook, name: str, step: Step | None) -> Step:
    def step_behind(value: Any, path: Path, walk: Walk) -> None:
        hook(value, (path, name), walk)
        if step is not None:
            step(value, path, walk)

    return step_behind


def _step_to_judge(name: str, judge: Judge) -> Step:
    def step(value: Any, path: Path, walk: Walk) -> None:
        judge(value, path, name, walk)

    return step


def step_for_list(name: str, judges: tuple[Judge | None, Judge | None], visit: Visit | None) -> Step | None:
    """Return what is done with a list: the judges are of the whole and of an element."""
    judge_whole, judge = judges
    if judge_whole is None and judge is None and visit is None:
        return None

    def step(values: Any, path: Path, walk: Walk) -> None:
        if judge_whole is not None:
            judge_whole(values, path, name, walk)
        place = (path, name)
        if judge is not None:
            for index, value in enumerate(values):
                judge(value, place, index, walk)
        if visit is not None:
            for index, value in enumerate(values):
                visit(value, (place, index), walk)

    return step


def step_for_map(
    name: str, judges: tuple[Judge | None, Judge | None, Judge | None], visit: Visit | None
) -> Step | None:
    """Return what is done with a map: the judges are of the whole, of a key and of a value."""
    judge_whole, judge_key, judge = judges
    if judge_whole is None and judge_key is None and judge is None and visit is None:
        return None

    def step(values: Any, path: Path, walk: Walk) -> None:
        if judge_whole is not None:
            judge_whole(values, path, name, walk)
        place = (path, name)
        # In the order of keys: that of a map changes from process to process.
        for key in sorted(values):
            key_step = key if isinstance(key, str) else str(key).lower()
            if judge_key is not None:
                judge_key(key, place, key_step, walk)
            if judge is not None:
                judge(values[key], place, key_step, walk)
            if visit is not None:
                visit(values[key], (place, key_step), walk)

    return step


def judge_unique(*, secret: bool) -> Judge:
    """Return what tells the elements of a list that are in it before."""

    def judge(values: Any, path: Path, step: str | int, walk: Walk) -> None:
        if len(set(values)) == len(values):
            return
        seen = set()
        for index, value in enumerate(values):
            if value in seen:
                text = "must not be there twice" + show_value(value, secret)
                walk.tell(((path, step), index), "not-unique", text, "remove it")
            seen.add(value)

    return judge


def both(first: Judge | None, second: Judge | None) -> Judge | None:
    """Return a judge that asks both."""
    if first is None or second is None:
        return first or second

    def judge(value: Any, path: Path, step: str | int, walk: Walk) -> None:
        first(value, path, step, walk)
        second(value, path, step, walk)

    return judge
