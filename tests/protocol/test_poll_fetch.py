from __future__ import annotations

import pytest

from fsxds.errors import ProtocolError
from fsxds.protocol.poll import answer_fetch
from fsxds.protocol.subscription import Subscription
from tests.support.snapshots import snapshot, type_url

CDS, EDS = type_url("CDS"), type_url("EDS")
TWO = snapshot({"CDS": {"a": "1", "b": "1"}, "EDS": {"e": "1"}}, incomplete=["EDS"])


def test_everything() -> None:
    """Without names, all resources of the type; equal answers are equal."""
    selection = answer_fetch(Subscription(CDS), TWO)

    assert [resource.name for resource in selection.resources] == ["a", "b"]
    assert selection.version == TWO.versions[CDS]
    assert selection == answer_fetch(Subscription(CDS), TWO)


def test_names() -> None:
    """Those of them that exist."""
    selection = answer_fetch(Subscription.for_request(CDS, ("b", "x")), TWO)

    assert [resource.name for resource in selection.resources] == ["b"]


def test_nothing_to_say() -> None:
    """Before anything good was loaded, and of a name that a broken file may define, nothing can honestly be said."""
    nothing = snapshot({"CDS": {"a": "1"}}, incomplete=["EDS"])
    named = Subscription.for_request(EDS, ("x",))
    for subscription, current in ((Subscription(CDS), None), (Subscription(EDS), nothing), (named, TWO)):
        with pytest.raises(ProtocolError) as caught:
            answer_fetch(subscription, current)
        assert caught.value.code == "UNAVAILABLE"

    assert answer_fetch(Subscription.for_request(EDS, ("e",)), TWO).resources
