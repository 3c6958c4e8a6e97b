"""The setting `mirrors`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fsxds.model.values import FieldPath
from fsxds.settings.forms import ADDRESS, DURATION, MIRROR_FORMAT, MIRROR_LAYOUT, PATH, SWITCH, Address
from fsxds.settings.structured import SettingPart, object_schema, structured
from fsxds.settings.view_rules import SCALAR, attributes_schema, no_such_view, read_attributes


@dataclass(frozen=True, slots=True)
class MirrorRule:
    """One mirror directory; None means the setting `mirror_NAME`.

    Attributes:
        node: attributes of its reader, or empty.
        admin: of the Envoy that reads it.
    """

    directory: Path
    view: str | None = None
    node: tuple[tuple[str, str], ...] = ()
    format: str | None = None
    layout: str | None = None
    config_sources: bool | None = None
    pause_s: float | None = None
    durable: bool | None = None
    admin: Address | None = None

    @property
    def attributes(self) -> tuple[tuple[str, str], ...]:
        """The node's attributes, or the view's name as `view`."""
        return self.node if self.view is None else (("view", self.view),)

    def seen_from(self, directory: Path) -> MirrorRule:
        """Return the rule relative to a directory."""
        return replace(self, directory=directory / self.directory)


_KEYS = ("directory", "view", "node", "format", "layout", "config_sources", "pause", "durable", "admin")


def _read_mirrors(part: SettingPart) -> tuple[MirrorRule, ...]:
    rules: list[MirrorRule] = []
    for each in part.list_members():
        rule = _read_mirror(each)
        if rule.directory != Path() and rule.directory in [other.directory for other in rules]:
            each.reject(f"{rule.directory} has another mirror already; give each a directory of its own")
        rules.append(rule)
    return tuple(rules)


def _read_mirror(part: SettingPart) -> MirrorRule:
    members = part.members(_KEYS, ("directory",))
    if "view" in members and "node" in members:
        members["view"].reject("there is a node too; give one of them")
    directory = members["directory"].of_form(PATH) if "directory" in members else None
    return MirrorRule(
        directory or Path(),
        members["view"].text() if "view" in members else None,
        tuple(read_attributes(members["node"], SettingPart.scalar)) if "node" in members else (),
        members["format"].of_form(MIRROR_FORMAT) if "format" in members else None,
        members["layout"].of_form(MIRROR_LAYOUT) if "layout" in members else None,
        members["config_sources"].of_form(SWITCH) if "config_sources" in members else None,
        members["pause"].of_form(DURATION) if "pause" in members else None,
        members["durable"].of_form(SWITCH) if "durable" in members else None,
        members["admin"].of_form(ADDRESS) if "admin" in members else None,
    )


def unknown_views(mirrors: Iterable[MirrorRule], names: Collection[str]) -> Iterator[tuple[FieldPath, str]]:
    """Yield mistakes: mirrors with an unknown view, or without one if there are views."""
    for index, mirror in enumerate(mirrors):
        if mirror.view is not None and mirror.view not in names:
            yield (index, "view"), no_such_view(mirror.view, names)
        elif names and mirror.view is None and not mirror.node:
            yield (index,), "has no view; name one by `view`, or the node that reads the files by `node`"


_MIRROR = object_schema(
    {
        "directory": {**PATH.schema, "description": "Directory of the mirrored files; relative to this file."},
        "view": {"type": "string", "minLength": 1, "description": "The view to mirror."},
        "node": {**attributes_schema(SCALAR), "description": "Instead of view: the node that reads the files."},
        "format": {**MIRROR_FORMAT.schema, "description": "Overrides mirror_format."},
        "layout": {**MIRROR_LAYOUT.schema, "description": "Overrides mirror_layout."},
        "config_sources": {**SWITCH.schema, "description": "In place of mirror_config_sources."},
        "pause": {**DURATION.schema, "description": "In place of mirror_pause."},
        "durable": {**SWITCH.schema, "description": "In place of mirror_durable."},
        "admin": {**ADDRESS.schema, "description": "The admin page of the Envoy that reads them."},
    },
    ("directory",),
)

MIRRORS = structured(_read_mirrors, {"type": "array", "items": _MIRROR, "minItems": 1})
