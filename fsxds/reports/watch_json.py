"""What a watched server tells, for programs: one JSON object on a line for each update."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fsxds.api.secrets import Masker
from fsxds.comparison.changes import Difference, TypeDifference
from fsxds.reports.difference_json import field_content
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Resource
from fsxds.values import PlainValue
from fsxds.watching.holdings import Step


def step_json(step: Step, difference: Difference, masker: Masker) -> str:
    """Write one step on one line; secrets are hidden."""
    update = step.update
    row = BY_TYPE_URL.get(update.type_url)
    found = difference.types[0] if difference.types else TypeDifference(update.type_url)
    content: dict[str, PlainValue] = {
        "type": row.short_name if row else update.type_url,
        "version": update.version,
        "nonce": update.nonce,
        "is_full": update.is_full,
        "added": [_resource(resource, step, masker) for resource in found.added],
        "changed": [
            {**_resource(change.after, step, masker), "fields": [field_content(field) for field in change.fields]}
            for change in found.changed
        ],
        "removed": [resource.name for resource in found.removed],
        "absent": [*step.absent],
        "unchanged": [*_unchanged(step, found)],
        "heartbeats": [*update.heartbeats],
    }
    return json.dumps(content)


def _unchanged(step: Step, found: TypeDifference) -> Iterator[str]:
    news = {resource.name for resource in found.added} | {change.after.name for change in found.changed}
    return (name for name in step.update.resources if name not in news)


def _resource(resource: Resource, step: Step, masker: Masker) -> dict[str, PlainValue]:
    return {
        "name": resource.name,
        "version": step.update.resources.get(resource.name, resource).version,
        **({"aliases": [*resource.aliases]} if resource.aliases else {}),
        **({"ttl_s": resource.ttl_s} if resource.ttl_s is not None else {}),
        "resource": masker.shown(resource.type_url, resource.body),
    }
