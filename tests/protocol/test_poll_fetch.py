from __future__ import annotations

from fsxds.model.resources import Snapshot
from fsxds.protocol.poll import MAY_BE_DEFINED, NOT_ANSWERED, NOTHING_LOADED, answer_fetch
from fsxds.protocol.subscription import Selection, Subscription
from tests.support.snapshots import snapshot, type_url

CDS, EDS = type_url("CDS"), type_url("EDS")
TWO = snapshot({"CDS": {"a": "1", "b": "1"}, "EDS": {"e": "1"}}, incomplete=["EDS"])


def names_of(subscription: Subscription, current: Snapshot) -> list[str]:
    answer = answer_fetch(subscription, current)
    assert isinstance(answer, Selection)
    return [resource.name for resource in answer.resources]


def test_everything() -> None:
    """Without names, all resources of the type; equal answers are equal."""
    selection = answer_fetch(Subscription(CDS), TWO)

    assert isinstance(selection, Selection)
    assert [resource.name for resource in selection.resources] == ["a", "b"]
    assert selection.version == TWO.versions[CDS]
    assert selection == answer_fetch(Subscription(CDS), TWO)


def test_names() -> None:
    """Those of them that exist."""
    assert names_of(Subscription.for_request(CDS, ("b", "x")), TWO) == ["b"]


def test_nothing_to_say() -> None:
    """Before anything good was loaded, and of a name that a broken file may define, nothing can honestly be said."""
    nothing = snapshot({"CDS": {"a": "1"}}, incomplete=["EDS"])
    named = Subscription.for_request(EDS, ("x",))

    assert answer_fetch(Subscription(CDS), None) is NOTHING_LOADED
    assert answer_fetch(Subscription(EDS), nothing) is NOTHING_LOADED
    assert answer_fetch(named, TWO) is MAY_BE_DEFINED
    assert names_of(Subscription.for_request(EDS, ("e",)), TWO) == ["e"]


def test_what_another_server_may_have() -> None:
    """As long as it has not said that it has none, nobody knows; what is here is no question for it."""
    asked = Subscription.for_request(CDS, ("b", "x"))

    assert answer_fetch(asked, TWO, lambda _, names: frozenset(names)) is NOT_ANSWERED
    assert answer_fetch(asked, TWO, lambda _, names: frozenset(names - {"x"})) == answer_fetch(asked, TWO)
    assert answer_fetch(Subscription(CDS), TWO, lambda _, names: frozenset(names)) is NOT_ANSWERED
