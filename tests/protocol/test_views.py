"""What streams share: equal questions have one answer, and what is kept of the past is bounded."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

from fsxds.protocol.subscription import Subscription, version_of
from fsxds.protocol.views import MOST_STEPS, Views
from fsxds.resources import Resource, Snapshot, TypeChange
from tests.support.snapshots import snapshot, type_url

EDS = type_url("EDS")


def endpoints(generation: int = 1, **contents: str) -> Snapshot:
    """Make a snapshot of endpoints by name."""
    return snapshot({"EDS": contents}, generation=generation)


def changed(before: Snapshot, after: Snapshot, change: TypeChange) -> tuple[Snapshot, Snapshot]:
    """Let one snapshot say that it follows another by this change."""
    first = TypeChange(before.generation)
    return replace(before, changes={EDS: first}), replace(after, changes={EDS: change})


def test_equal_questions_have_one_answer() -> None:
    """Answers are the same object for all streams, so that their bytes can be kept by their identity."""
    views, current = Views(), endpoints(a="1", b="1")
    rows = current.resources(EDS)

    assert views.whole(rows) is views.whole(rows)
    assert views.same([rows["a"]]) is views.same((rows["a"],))
    assert views.names(views.whole(rows)) is views.names(views.whole(rows))
    assert views.timed(rows) is views.timed(rows)
    first, second = (Subscription(EDS, frozenset(["a", "b"]), wildcard=False) for _ in range(2))
    assert views.shared(first) is views.shared(second)


def test_what_is_gone_stands_beside_what_is_there() -> None:
    """Resources that are gone are put in their places, and all of them have a version of their own."""
    views, before, after = Views(), endpoints(a="1", b="1"), endpoints(2, a="1", c="1")
    rows, gone = views.whole(after.resources(EDS)), (before.resources(EDS)["b"],)
    union, version = views.together(EDS, rows, gone)

    assert [resource.name for resource in union] == ["a", "b", "c"]
    assert version == endpoints(a="1", b="1", c="1").versions[EDS]
    assert views.together(EDS, rows, (before.resources(EDS)["b"],))[0] is union


def test_step_between_strangers_is_their_difference() -> None:
    """Where one snapshot does not follow the other, they are compared."""
    before, after = endpoints(1, a="1", b="1", c="1"), endpoints(5, b="2", c="1", d="1")
    step = Views().step(EDS, before, after)

    assert step.updated.keys() == step.fresh == {"b", "d"}
    assert step.removed == {"a"}
    assert not step.renewed
    assert step


def test_step_to_what_follows_is_what_the_snapshot_says() -> None:
    """Where one snapshot follows the other, nothing is compared: its change tells all."""
    before, after = changed(
        endpoints(1, a="1", b="1"),
        endpoints(2, a="2", b="2"),
        TypeChange(2, changed=("a",), removed=("x",), follows=1),
    )
    step = Views().step(EDS, before, after)

    assert step.updated == {"a": after.resources(EDS)["a"]}
    assert step.removed == {"x"}


def test_step_over_a_missed_snapshot_is_compared() -> None:
    """A change that follows another one than the stream was told of does not tell all."""
    before, after = changed(
        endpoints(1, a="1", b="1"), endpoints(3, a="2", b="2"), TypeChange(3, changed=("a",), follows=2)
    )

    assert Views().step(EDS, before, after).updated.keys() == {"a", "b"}


def test_step_without_a_change_is_none() -> None:
    """Between snapshots with one and the same change of a type there is no step, nor between the same rows."""
    before, after = changed(endpoints(1, a="1"), endpoints(2, a="1"), TypeChange(1))

    assert not Views().step(EDS, before, after)
    assert not Views().step(EDS, before, replace(before, generation=2))


def test_step_tells_what_is_only_renewed() -> None:
    """Another time to live, or other aliases, are told apart from other content."""
    before, after = endpoints(1, a="1", b="1"), endpoints(2, a="1", b="2")
    rows = {**after.resources(EDS), "a": replace(after.resources(EDS)["a"], ttl_s=5.0)}
    step = Views().step(EDS, before, replace(after, by_type={**after.by_type, EDS: rows}))

    assert step.updated.keys() == {"a", "b"}
    assert step.renewed == {"a"}
    assert step.fresh == {"b"}
    assert Views().timed(rows) == {"a": rows["a"]}


def test_versions_are_those_of_the_selection() -> None:
    """What is kept is what `version_of` says, for everything, for names, and for authored versions."""
    views, current, other = Views(), endpoints(a="1", b="1"), endpoints(2, a="2", b="1")
    subscriptions = [Subscription(EDS), *(Subscription(EDS, frozenset(names), wildcard=False) for names in ("a", "ab"))]
    for made in (current, other, replace(current, authored={EDS: "7"})):
        for subscription in subscriptions:
            for _ in range(2):
                assert views.version_of(made, subscription) == version_of(made, subscription)


def test_versions_that_were_said_are_known() -> None:
    """A version is known after it was said."""
    views, version = Views(), version_of(endpoints(a="1"), Subscription(EDS))
    assert not views.has_said(version)
    views.say(version)

    assert views.has_said(version)


class _Rows(dict[str, Resource]):
    """Rows that can be watched going."""


def test_the_past_is_forgotten() -> None:
    """Of many snapshots only the last few stay alive, whatever was asked of them."""
    views, alive, before = Views(), list[weakref.ref[_Rows]](), endpoints(a="0")
    subscription = Subscription(EDS, frozenset("a"), wildcard=False)
    for generation in range(2, 500):
        made = endpoints(generation, a=str(generation))
        rows = _Rows(made.resources(EDS))
        alive.append(weakref.ref(rows))
        typed = {**made.by_type, EDS: rows}
        made = replace(made, by_type=typed)
        _ask_everything(views, before, made, subscription)
        before = made
    del before, made, rows, typed
    gc.collect()

    assert 0 < sum(ref() is not None for ref in alive) <= 2 * MOST_STEPS


def _ask_everything(views: Views, before: Snapshot, after: Snapshot, subscription: Subscription) -> None:
    rows = after.resources(EDS)
    views.step(EDS, before, after)
    views.names(views.whole(rows))
    views.timed(rows)
    views.same([rows["a"]])
    views.version_of(after, subscription)
    views.lookup(EDS, after)
