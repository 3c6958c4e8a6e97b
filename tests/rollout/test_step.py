"""What a client rejects."""

from __future__ import annotations

import pytest

from fsxds.rollout.step import Rejection
from fsxds.values import Version
from tests.support.rollouts import tree_snapshot
from tests.support.snapshots import type_url

LDS = type_url("LDS")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Error adding/updating listener(s) old: cannot bind", True),
        ("Error adding/updating listener(s) old: cannot bind\nnew: cannot bind\n", False),
        ("Error adding/updating listener(s) old: cannot bind, older: cannot bind", True),
        ("Error adding/updating listener(s) old: the one that new has", False),
        ("Error adding/updating scoped route(s) old: no", True),
        ("Error adding/updating listener(s) unknown: cannot bind", False),
        ("Error adding/updating listener(s) ", False),
        ("old: cannot bind", False),
        ("", False),
        (None, False),
    ],
)
def test_what_a_rejection_is_about(reason: str | None, expected: bool) -> None:
    """Envoy names what it rejects; another client, and one that says nothing, may mean anything."""
    rows = tree_snapshot({"LDS": {"old": "1", "older": "1", "new": "1"}}).resources(LDS)

    assert expected is Rejection(LDS, Version("v"), frozenset(("new",)), reason).is_about_others(rows)
