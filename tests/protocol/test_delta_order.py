"""A Delta client that comes with content is led to what is current by steps, as in a rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fsxds.model.resources import Snapshot
from fsxds.model.values import Nonce
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import ENVOY, DeltaRequest, DeltaResponse, Node
from fsxds.protocol.subscription import SharedMemory
from fsxds.protocol.ttl import TtlMode
from fsxds.rollout.machine import RolloutOptions
from tests.support.rollouts import Tree, tree_snapshot
from tests.support.snapshots import type_url

OLD: Tree = {
    "CDS": {"a": "1"},
    "LDS": {"l": "1 RDS:r"},
    "RDS": {"r": "1 CDS:a"},
}
NEW: Tree = {
    "CDS": {"b": "1"},
    "LDS": {"l": "1 RDS:r"},
    "RDS": {"r": "2 CDS:b"},
}
OTHER_LISTENER = {**NEW, "LDS": {"l": "2 RDS:r"}}
STEPS = RolloutOptions(linger_s=0.0, step_timeout_s=5.0)
NAMES = {"CDS": ("*",), "LDS": ("*",), "RDS": ("r",)}


class Client:
    """A client that has what a tree says, and connects to a server that has just started on another one.

    Attributes:
        told: each response, such as `CDS b` or `CDS -a`, in order.
        options: those of rollouts, as the server has them now.
        agent: what it is.
    """

    def __init__(self, tree: Tree, options: RolloutOptions = STEPS, *, is_aggregated: bool = True) -> None:
        self.told: list[str] = []
        self.options = options
        self.agent = ENVOY
        self.stream = DeltaStream(
            SharedMemory(rollout=lambda: self.options), TtlMode.ENVOY, is_aggregated=is_aggregated
        )
        self._snapshot = tree_snapshot(tree)
        self._held = tree_snapshot(OLD)
        self._unanswered: dict[str, Nonce] = {}

    def ask(self, short_name: str) -> None:
        """Ask for all that it has of a type."""
        held = {name: one.version for name, one in self._held.resources(type_url(short_name)).items()}
        self._request(DeltaRequest(type_url(short_name), NAMES[short_name], initial_resource_versions=held))

    def answer(self, short_name: str, error_detail: str | None = None) -> None:
        """ACK the last response of a type, or NACK it."""
        nonce = self._unanswered.pop(short_name)
        self._request(DeltaRequest(type_url(short_name), nonce=nonce, error_detail=error_detail))

    def wait(self, until_s: float) -> None:
        """Let time pass."""
        at_s = self.stream.timer_at_s
        if at_s is not None and at_s <= until_s:
            self._take(self.stream.receive_timer(until_s))
        assert self.stream.timer_at_s is None or self.stream.timer_at_s > until_s

    def take_tree(self, tree: Tree) -> None:
        """Take another tree of the server."""
        self._snapshot = tree_snapshot(tree, self._snapshot)
        self._take(self.stream.receive_snapshot(self._snapshot, 0.0))

    def _request(self, request: DeltaRequest) -> None:
        node = Node("n", agent=self.agent)
        self._take(self.stream.receive_request(replace(request, node=node), self._snapshot, 0.0).responses)

    def _take(self, responses: tuple[DeltaResponse, ...]) -> None:
        for response in responses:
            short_name = next(name for name in NAMES if type_url(name) == response.type_url)
            self._unanswered[short_name] = response.nonce
            names = (*(one.name for one in response.resources), *(f"-{name}" for name in response.removed))
            self.told.append(" ".join((short_name, *names)))


def test_what_is_used_comes_first_and_goes_last() -> None:
    """Users wait for the ACK of what they use, and removals for that of all users; requests come one by one."""
    client = Client(NEW)
    for short_name in NAMES:
        client.ask(short_name)
    assert client.told == ["CDS b"]
    client.answer("CDS")
    assert client.told == ["CDS b", "RDS r"]
    client.answer("RDS")
    assert client.told == ["CDS b", "RDS r", "CDS -a"]
    assert client.stream.timer_at_s is None


def test_removals_wait_for_types_that_users_name() -> None:
    """The request for routes may come when clusters and listeners are answered; there is nothing new in these."""
    client = Client({**NEW, "CDS": {}, "RDS": {"r": "2"}})
    client.ask("CDS")
    client.ask("LDS")
    assert client.told == []
    client.ask("RDS")
    client.answer("RDS")
    assert client.told == ["RDS r", "CDS -a"]


def test_each_step_waits_no_longer_than_the_timeout() -> None:
    """A client that answers nothing gets all of it."""
    client = Client(NEW)
    for short_name in NAMES:
        client.ask(short_name)
    client.wait(4.9)
    assert client.told == ["CDS b"]
    client.wait(5.0)
    assert client.told == ["CDS b", "RDS r"]
    client.wait(10.0)
    assert client.told == ["CDS b", "RDS r", "CDS -a"]
    assert client.stream.timer_at_s is None


def test_a_nack_is_an_answer_but_removes_nothing_in_use() -> None:
    """Routes come after the NACK of a cluster; a removal after the NACK of a route waits for the time-out."""
    client = Client(NEW)
    for short_name in NAMES:
        client.ask(short_name)
    client.answer("CDS", "no")
    client.answer("RDS", "no")
    assert client.told[:2] == ["CDS b", "RDS r"]
    assert "CDS -a" not in client.told


def test_what_comes_back_meanwhile_is_not_removed() -> None:
    """The server takes another tree before it removed what the client brought."""
    client = Client(NEW)
    for short_name in NAMES:
        client.ask(short_name)
    client.take_tree({**NEW, "CDS": {"a": "1", "b": "1"}})
    client.answer("CDS")
    client.answer("RDS")
    assert client.told == ["CDS b", "CDS a", "RDS r"]


def test_what_draining_listeners_may_use_lingers() -> None:
    """Nobody knows what the connections of a listener use that was replaced while the server was away."""
    client = Client(OTHER_LISTENER, replace(STEPS, linger_s=600.0))
    for short_name in NAMES:
        client.ask(short_name)
    client.answer("CDS")
    client.answer("LDS")
    client.answer("RDS")
    assert client.told == ["CDS b", "LDS l", "RDS r"]
    client.wait(609.9)
    assert client.told == ["CDS b", "LDS l", "RDS r"]
    client.wait(610.0)
    assert client.told[3:] == ["CDS -a"]


def test_after_a_start_without_state_what_may_linger_stays() -> None:
    """Connections of listeners of an Envoy that drained before may use it, though it has the listeners that are served."""
    client = Client(NEW, replace(STEPS, unknown_until_s=600.0))
    for short_name in NAMES:
        client.ask(short_name)
    client.answer("CDS")
    client.answer("RDS")
    client.wait(599.9)
    assert client.told == ["CDS b", "RDS r"]
    client.wait(600.0)
    assert client.told == ["CDS b", "RDS r", "CDS -a"]


def test_nothing_lingers_at_a_relay() -> None:
    """It has no listeners, and knows what those of its clients use."""
    client = Client(NEW, replace(STEPS, unknown_until_s=600.0))
    client.agent = "fsxds"
    for short_name in NAMES:
        client.ask(short_name)
    client.answer("CDS")
    client.answer("RDS")
    assert client.told == ["CDS b", "RDS r", "CDS -a"]


def test_on_a_stream_of_its_own_a_removal_waits_for_the_time_out() -> None:
    """The users have other streams."""
    client = Client(NEW, is_aggregated=False)
    client.ask("CDS")
    client.answer("CDS")
    assert client.told == ["CDS b"]
    client.wait(5.0)
    assert client.told == ["CDS b", "CDS -a"]


@pytest.mark.parametrize("tree", [OLD, NEW])
def test_without_rollouts_all_is_sent_at_once(tree: Mapping[str, Mapping[str, str]]) -> None:
    """And a client that has what is current is sent nothing."""
    client = Client(tree, RolloutOptions(is_on=False))
    for short_name in NAMES:
        client.ask(short_name)
    assert client.told == ([] if tree is OLD else ["CDS b -a", "RDS r"])


def test_who_came_in_a_rollout_is_led_to_its_end() -> None:
    """Rollouts that are switched off meanwhile do not have its removals overtake their users."""
    client = Client(NEW)
    client.ask("LDS")
    client.options = RolloutOptions(is_on=False)
    client.ask("CDS")
    assert client.told == ["CDS b"]
    client.ask("RDS")
    client.answer("CDS")
    client.answer("RDS")
    assert client.told == ["CDS b", "RDS r", "CDS -a"]


def test_a_client_that_brings_nothing_waits_for_nothing() -> None:
    """It is sent everything as it asks for it."""
    client = Client(NEW)
    client._held = Snapshot(1, {})
    for short_name in NAMES:
        client.ask(short_name)
    assert client.told == ["CDS b", "LDS l", "RDS r"]
