"""A fleet in which all parts die by turns carries its traffic; ten minutes of it: `python -m tests.end_to_end.fleet_run`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.fleet_run import Course, run
from tests.end_to_end.replicas import NGINX
from tests.support.etcd import ETCD, MISSING

pytestmark = [
    pytest.mark.skipif(NGINX is None, reason="needs nginx: apt-get install nginx-light"),
    pytest.mark.skipif(ETCD is None, reason=MISSING),
]


async def test_a_minute_of_edits_and_kills(tmp_path: Path) -> None:
    """No request through three Envoys fails, no client goes back or is sent the same again, and all end on the last edit."""
    done = await run(Course(seconds=60.0, clients=6), tmp_path)

    assert done.failures == []
    assert (0, 0) == (done.rest.back, done.delta.back)
    assert (0, 0) == (done.rest.again, done.delta.again)
    assert done.requests > 500
    assert done.nacks > 0
    assert sum(done.kills.values()) >= 4
