"""What of a step is not waited for any more when a node that polls rejects a part of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.model.resources import Snapshot
from fsxds.protocol.messages import Node
from fsxds.protocol.poll import PollMemory, PollRequest
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.rollout.step import Standing
from tests.support.snapshots import snapshot, type_url
from tests.support.steps import step_between

NODE = Node("n1")
LDS = Subscription(type_url("LDS"))
RDS = Subscription.for_request(type_url("RDS"), ("r",))
BEFORE = snapshot({"LDS": {"l": "1"}, "RDS": {"r": "1"}})
CHANGED = snapshot({"LDS": {"l": "2"}, "RDS": {"r": "2"}}, generation=2)
CDS = Subscription(type_url("CDS"))
OLD, NEW = snapshot({"CDS": {"a": "1"}}), snapshot({"CDS": {"a": "1", "b": "bad"}}, generation=2)
VERSIONS = {"old": version_of(OLD, CDS)}


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "not there"])
def test_routes_of_a_listener_that_is_rejected(*, is_held: bool) -> None:
    """They are waited for while the client may poll them again, not when it rejected the listener several times since."""
    memory = PollMemory()

    def poll(at_s: float, subscription: Subscription, version: str | None, *, is_over: bool = True) -> None:
        request = PollRequest(NODE, subscription, version_of(BEFORE, subscription) if version else None)
        memory.receive_request(request, BEFORE if version is None else CHANGED, at_s)
        if is_over:
            memory.receive_end(request, at_s, is_given_up=False)

    poll(100.0, LDS, None)
    poll(100.0, RDS, None, is_over=not is_held)
    node = memory.node_of(NODE)
    assert node is not None
    step = step_between(BEFORE, CHANGED, ())
    for seconds in (2, 10, 30, 70):
        assert node.standing(step) is Standing.PENDING
        poll(100.0 + seconds, LDS, "1")

    poll(171.0, LDS, "1", is_over=False)
    assert node.standing(step) is (Standing.PENDING if is_held else Standing.TAKEN)


def test_what_was_rejected_is_waited_for_when_it_is_offered_again() -> None:
    """What names it may only follow when the client has taken it: it may reject it again."""
    memory = PollMemory()

    def poll(held: str, served: Snapshot, error_detail: str | None = None) -> None:
        request = PollRequest(NODE, CDS, VERSIONS[held], error_detail=error_detail)
        memory.receive_request(request, served, 100.0)
        memory.receive_end(request, 100.0, is_given_up=False)

    for held, served in (("old", OLD), ("old", NEW)):
        poll(held, served)
    node = memory.node_of(NODE)
    assert node is not None
    assert node.standing(step_between(OLD, NEW, ())) is Standing.PENDING
    poll("old", NEW, "bad")
    assert node.standing(step_between(OLD, NEW, ())) is Standing.TAKEN
    again = replace(OLD, generation=3)
    assert node.standing(step_between(NEW, again, ())) is Standing.PENDING
    poll("old", again, "bad")
    poll("old", again)
    assert node.standing(step_between(NEW, again, ())) is Standing.TAKEN

    offered = replace(NEW, generation=4)
    step = step_between(again, offered, ())
    assert node.standing(step) is Standing.PENDING
    poll("old", offered)
    assert node.standing(step) is Standing.PENDING
    poll("old", offered, "bad")
    assert node.standing(step) is Standing.TAKEN
