"""How many resources a view may have: a file that brings more is held back, and what was served stays."""

from __future__ import annotations

from fsxds.resources import Resource
from fsxds.snapshots.check_protocol import Conflicts
from fsxds.snapshots.proposals import FileChange, Proposals
from fsxds.values import Problem

# At some 1.6 kB for each resource, this takes as many GB as a server of configuration is given.
MOST_RESOURCES = 1_000_000


class ResourceLimit:
    """Holds back files with which there would be too many resources, the least trusted first.

    A file that has no more resources than are served of it is never held back by this.

    Args:
        most: as many resources of all types a view may have.
    """

    def __init__(self, most: int) -> None:
        self._most = most

    def __call__(self, proposals: Proposals) -> Conflicts:
        """Return the files to hold back, each at the first resource that is too many."""
        snapshot = proposals.served.snapshot
        count = 0 if snapshot is None else sum(map(len, snapshot.by_type.values()))
        if count + len(proposals.added) <= self._most:
            return {}
        count += sum(map(_growth, proposals.changes))
        held = {}
        for proposal in reversed(tuple(proposals)):
            change = proposals.changes_by_path[proposal.path]
            if proposal.is_on_trial:
                change = proposals.served.change_to(proposal.path, proposal.parsed)
            total = count + _growth(change) if proposal.is_on_trial else count
            if total > self._most and _growth(change) > 0:
                surplus = min(total - self._most, len(change.added))
                held[proposal.path] = (self._problem(change.added[-surplus]),)
                count -= 0 if proposal.is_on_trial else _growth(change)
        return held

    def _problem(self, resource: Resource) -> Problem:
        fact = f"with this the view would have more than {self._most} resources"
        remedy = "leave some out, divide the tree into views, or raise --max-resources"
        return Problem(resource.origin.path, resource.origin.line, 1, "", "too-many-resources", fact, remedy)


def _growth(change: FileChange) -> int:
    return len(change.added) - len(change.lost)
