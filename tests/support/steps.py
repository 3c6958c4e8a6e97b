"""Steps of a rollout, made of two snapshots."""

from __future__ import annotations

from collections.abc import Collection

from fsxds.model.resources import Snapshot
from fsxds.rollout import Step
from fsxds.rollout.step import StepKind


def step_between(before: Snapshot, after: Snapshot, endpoints: Collection[str] = ()) -> Step:
    """Return the one step from a snapshot to another."""
    changes = {url: rows.changes_since(before.resources(url)) for url, rows in after.by_type.items()}
    changed = {url: change for url, change in changes.items() if change}
    return Step(StepKind.WHOLE, after, changed, frozenset(endpoints))
