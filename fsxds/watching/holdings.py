"""What a client holds, update by update, as far as the wire tells what is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from fsxds.resources import Resource, Snapshot, version_of_body
from fsxds.values import TypeUrl
from fsxds.watching.updates import Update


@dataclass(frozen=True, slots=True)
class Step:
    """What an update made of what the client holds of its type.

    Attributes:
        update: the update.
        before: what was held, by name.
        after: what is held.
        is_first: nothing was told of this type before.
        absent: names that were told as removed, or as not there, and were not held.
    """

    update: Update
    before: Mapping[str, Resource]
    after: Mapping[str, Resource]
    is_first: bool
    absent: tuple[str, ...]

    @property
    def snapshots(self) -> tuple[Snapshot, Snapshot]:
        """What was held and what is held, to be compared."""
        type_url = self.update.type_url
        return Snapshot(0, {type_url: self.before}, {}), Snapshot(1, {type_url: self.after}, {})


class Holdings:
    """Takes in updates as an accepting client does."""

    def __init__(self) -> None:
        self._rows: dict[TypeUrl, Mapping[str, Resource]] = {}

    def of(self, type_url: TypeUrl) -> Mapping[str, Resource]:
        """Return what is held of a type by name."""
        return self._rows.get(type_url, MappingProxyType({}))

    def take(self, update: Update) -> Step:
        """Take in an update, and tell what it changed."""
        before = self.of(update.type_url)
        is_first = update.type_url not in self._rows
        told = {name: _by_content(resource) for name, resource in update.resources.items()}
        kept = {} if update.is_full else dict(before)
        gone = (*update.removed, *update.unpopulated)
        for name in gone:
            kept.pop(name, None)
        after = MappingProxyType(kept | told)
        self._rows[update.type_url] = after
        return Step(update, before, after, is_first, tuple(name for name in gone if name not in before))


def _by_content(resource: Resource) -> Resource:
    """Give a resource the version of its content: servers may give other versions to what is the same."""
    return replace(resource, version=version_of_body(resource.type_url, resource.body))
