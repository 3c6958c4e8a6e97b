"""What clients rejected, as problems of the files in which it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fsxds.api.secrets import mask_reason
from fsxds.observe.log_lines import type_name
from fsxds.resources import Resource, Snapshot
from fsxds.rollout import Client, Rejection
from fsxds.rollout.step import named_in
from fsxds.values import Problem

# A client may reject a response of ten thousand resources because of one of them.
MOST_RESOURCES = 20
NO_REASON = "it gave no reason; see its own log"
RULE = "rejected-by-client"


def rejection_problems(
    rejections: Sequence[tuple[Client, Rejection]], names: Mapping[Client, str], target: Snapshot | None
) -> tuple[Problem, ...]:
    """Return a problem for each resource of the tree that the first client rejected.

    Args:
        rejections: who rejected what.
        names: what the clients are called.
        target: what the tree asked for, None for nothing.
    """
    if not rejections or target is None:
        return ()
    client, rejection = rejections[0]
    others = len({names[one] for one, _ in rejections}) - 1
    who = f"{names[client]}{f' and {others} more' if others else ''}"
    reason = mask_reason(rejection.reason or NO_REASON)
    return tuple(_problem(resource, who, reason) for resource in _meant(rejection, target))


def _meant(rejection: Rejection, target: Snapshot) -> Iterator[Resource]:
    """Yield the resources that a rejection is about: those of all that were sent that its reason names, or all."""
    rows = target.resources(rejection.type_url)
    sent = sorted(rows.among(rejection.names))
    yield from (rows[name] for name in (named_in(rejection.reason or "", sent) or sent)[:MOST_RESOURCES])


def _problem(resource: Resource, who: str, reason: str) -> Problem:
    fact = f"{who} rejected {type_name(resource.type_url)} {resource.name}: {reason}"
    if not resource.origin.line:
        remedy = "correct it where it was written; what was good last is served until the upstream sends something else"
        return Problem.of_file(resource.origin.path, RULE, fact, remedy)
    remedy = "correct it; what was good last is served until the tree changes"
    return Problem(resource.origin.path, resource.origin.line, 1, "", RULE, fact, remedy)
