"""More than one fsxds: what a client is sent when it hops from one replica to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.replicas import NGINX, Counts, Plan, run
from tests.support.etcd import ETCD, MISSING

pytestmark = pytest.mark.skipif(NGINX is None, reason="needs nginx: apt-get install nginx-light")


async def test_nothing_is_sent_again_while_commits_arrive_and_replicas_die(tmp_path: Path) -> None:
    """Clients of REST and Delta, and real Envoys, end on the last commit, and no answer has what its client had."""
    done = await run(Plan(commits=4, lag_s=0.3, kill_every=2, clients=3), tmp_path)

    assert (0, 0, 2) == (done.rest.again, done.delta.again, done.kills)
    assert {name for name, changes in done.changes.items() if changes >= 4} == {"REST", "Delta"}


async def test_clients_that_stay_at_their_replica_never_go_back(tmp_path: Path) -> None:
    """Each commit is sent once to each client, whenever its replica gets it."""
    done = await run(Plan(commits=4, lag_s=0.3, kill_every=0, clients=3, with_envoys=False), tmp_path)

    assert (Counts(answers=15), 0, 0) == (done.rest, done.delta.again, done.delta.back)


async def test_alternating_between_equal_replicas_costs_nothing(tmp_path: Path) -> None:
    """Versions are those of content: where all replicas have a commit, it makes no difference which one answers."""
    done = await run(Plan(commits=0, kill_every=0, clients=6, is_sticky=False, with_envoys=False), tmp_path)

    assert (Counts(answers=6), Counts(answers=6)) == (done.rest, done.delta)


@pytest.mark.skipif(ETCD is None, reason=MISSING)
async def test_no_client_of_a_fleet_goes_back(tmp_path: Path) -> None:
    """Each poll goes to the next replica, each copy gets commits when it may, and replicas and members of etcd die."""
    plan = Plan(commits=6, lag_s=0.5, kill_every=2, clients=4, is_sticky=False, is_fleet=True)
    done = await run(plan, tmp_path)

    assert (0, 0, 3) == (done.rest.back, done.delta.back, done.kills)
    assert (0, 0) == (done.rest.again, done.delta.again)
