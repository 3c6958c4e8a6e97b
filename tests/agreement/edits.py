"""The four ways in which a mutation changes a value."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from tests.agreement.places import Path


@dataclass(frozen=True, slots=True)
class Put:
    """Another value stands in the place."""

    value: Any


@dataclass(frozen=True, slots=True)
class Drop:
    """The place is gone."""


@dataclass(frozen=True, slots=True)
class Rename:
    """The value stands under another key."""

    key: str


@dataclass(frozen=True, slots=True)
class Add:
    """The object in the place has another key, besides those that it has."""

    key: str
    value: Any


Edit = Put | Drop | Rename | Add


def shown(edit: Edit) -> str:
    """Say in a few words what an edit does."""
    match edit:
        case Put(value):
            text = f"is {value!r}"
        case Drop():
            text = "is gone"
        case Rename(key):
            text = f"is called {key!r}"
        case Add(key, value):
            text = f"has {key}: {value!r}"
    return text if len(text) <= 120 else f"{text[:60]} … {text[-55:]}"


def edited(resource: Any, path: Path, edit: Edit) -> Any:
    """Return a copy with the edit done."""
    if not path and isinstance(edit, Put):
        return edit.value
    top = copy.deepcopy(resource)
    holder = top
    for step in path[:-1]:
        holder = holder[step]
    last = path[-1] if path else None
    match edit:
        case Put(value):
            holder[last] = copy.deepcopy(value)
        case Drop():
            del holder[last]
        case Rename(key):
            members = [(key if name == last else name, member) for name, member in holder.items()]
            holder.clear()
            holder.update(members)
        case Add(key, value):
            target = holder[last] if path else top
            target[key] = copy.deepcopy(value)
    return top
