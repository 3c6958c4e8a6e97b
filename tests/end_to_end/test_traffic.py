"""A real Envoy under constant load: no kind of change loses one request, by any transport.

`python -m tests.end_to_end.traffic` makes more changes, and shows that the same lose requests without rollouts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.traffic.company import freed_port
from tests.end_to_end.traffic.kinds import KINDS
from tests.end_to_end.traffic.running import MIRROR_WITH_ADMIN, TRANSPORTS, Demand, running


@pytest.mark.parametrize("transport", [*TRANSPORTS, MIRROR_WITH_ADMIN])
def test_no_change_loses_a_request(transport: str, tmp_path: Path, size: Callable[[int, int], int]) -> None:
    """Each kind of change, by night twice in a row, reaches Envoy while every request is answered, on connections that stay open."""
    options = ["--linger", "600s", "--max-removal", "off"]
    with running(tmp_path, transport, 600, options, Demand(size(120, 240))) as run:
        for number, name in enumerate(name for name in KINDS for _ in range(size(1, 2))):
            run.change(name, number)
        run.rest(0.5)
        late = run.server.log_events("step_timed_out") if transport == MIRROR_WITH_ADMIN else []

    assert run.failures() == []
    # Envoy's page shows that it has taken each step.
    assert late == []
    assert run.load.record.requests.total() > 1000


@pytest.mark.parametrize("transport", ["rest", "delta", MIRROR_WITH_ADMIN])
def test_a_listener_comes_when_its_port_is_free(transport: str, tmp_path: Path) -> None:
    """Envoy rejects a listener, gets the rest of that edit, and is offered the listener again; so it is with the next edit."""
    with running(tmp_path, transport, 600, ["--linger", "600s", "--max-removal", "off"]) as run:
        for number in (1, 2):
            freed_port(run, transport, number)

    assert run.failures() == []


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_without_rollouts_a_change_loses_requests(transport: str, tmp_path: Path) -> None:
    """The same load has failures where a change is served at once: connections of a listener that drains need its cluster."""
    with running(tmp_path, transport, 600, ["--rollout", "off"]) as run:
        for number in range(3):
            run.change("inline routes", number)

    assert any("cluster_not_found" in failure for failure in run.failures())
