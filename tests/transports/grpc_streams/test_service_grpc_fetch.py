from __future__ import annotations

import pytest

from fsxds.errors import ProtocolError
from fsxds.protocol.messages import SotwRequest
from fsxds.protocol.subscription import Subscription
from fsxds.transports.grpc_streams.service import answer_fetch
from tests.support.snapshots import snapshot, type_url

CDS, EDS = type_url("CDS"), type_url("EDS")
TWO = snapshot({"CDS": {"a": "1", "b": "1"}, "EDS": {"e": "1"}}, incomplete=["EDS"])


def test_everything() -> None:
    """Without names, all resources of the type; equal answers are equal."""
    response, subscription = answer_fetch(SotwRequest(CDS), TWO)

    assert [resource.name for resource in response.resources] == ["a", "b"]
    assert response.version == TWO.versions[CDS]
    assert response == answer_fetch(SotwRequest(CDS), TWO)[0]
    assert subscription == Subscription(CDS)


def test_names() -> None:
    """Those of them that exist."""
    response, subscription = answer_fetch(SotwRequest(CDS, ("b", "x")), TWO)

    assert [resource.name for resource in response.resources] == ["b"]
    assert subscription == Subscription(CDS, frozenset({"b", "x"}), wildcard=False)


def test_nothing_to_say() -> None:
    """Before anything good was loaded, and of a name that a broken file may define, nothing can honestly be said."""
    nothing = snapshot({"CDS": {"a": "1"}}, incomplete=["EDS"])
    for request, current in ((SotwRequest(CDS), None), (SotwRequest(EDS), nothing), (SotwRequest(EDS, ("x",)), TWO)):
        with pytest.raises(ProtocolError) as caught:
            answer_fetch(request, current)
        assert caught.value.code == "UNAVAILABLE"

    assert answer_fetch(SotwRequest(EDS, ("e",)), TWO)[0].resources
