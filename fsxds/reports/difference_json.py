"""A difference for programs."""

from __future__ import annotations

import json

from fsxds.api.secrets import mask_text
from fsxds.comparison.changes import FieldChange, ResourceChange, TypeDifference
from fsxds.reports.difference_words import Compared, Side, unknown_of
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Resource
from fsxds.values import PlainValue


def json_text(compared: Compared) -> str:
    """Write a difference as one JSON object; equal differences are written alike."""
    types: dict[str, PlainValue] = {
        BY_TYPE_URL[row.type_url].short_name: _type(row, compared) for row in compared.difference.types
    }
    content = {
        "same": None if compared.unread and compared.are_same else compared.are_same,
        "unread": [{"place": unread.place, "reason": mask_text(unread.reason)} for unread in compared.unread],
        "before": compared.before.label,
        "after": compared.after.label,
        "types": types,
    }
    return json.dumps(content, indent=2)


def _type(difference: TypeDifference, compared: Compared) -> PlainValue:
    return {
        "added": [_resource(resource, compared.after) for resource in difference.added],
        "removed": [_resource(resource, compared.before) for resource in difference.removed],
        "changed": [_change(change, compared) for change in difference.changed],
        "unknown": [_resource(one, side) for one, side in unknown_of(difference, compared)],
    }


def _resource(resource: Resource, side: Side) -> PlainValue:
    return {"name": resource.name, "version": resource.version, "from": side.place(resource) or None}


def _change(change: ResourceChange, compared: Compared) -> PlainValue:
    return {
        "name": change.after.name,
        "before": {"version": change.before.version, "from": compared.before.place(change.before) or None},
        "after": {"version": change.after.version, "from": compared.after.place(change.after) or None},
        "fields": [field_content(field) for field in change.fields],
    }


def field_content(field: FieldChange) -> PlainValue:
    """Return what became of one field, secrets hidden."""
    if field.is_hidden:
        return {"path": field.path, "act": field.act.value, "hidden": True}
    return {
        "path": field.path,
        "act": field.act.value,
        "before": field.before,
        "after": field.after,
    }
