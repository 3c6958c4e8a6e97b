"""The settings `views`, `variables` and `mirrors`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from fsxds.model.values import FieldPath
from fsxds.settings.forms import ADDRESS, DURATION, MIRROR_FORMAT, MIRROR_LAYOUT, PATH, SWITCH, Address, Schema
from fsxds.settings.structured import DEEPEST, SettingPart, is_folder, object_schema, structured

Found = TypeVar("Found")

REGEX = "re:"
"""Marks a regular expression; all other patterns are globs."""

# RE2 takes seconds to compile an expression of a megabyte.
LONGEST_PATTERN = 4096

_LOCALITY = ("region", "zone", "sub_zone")
_TEXTS = ("id", "cluster", "user_agent_name", "user_agent_version")
ATTRIBUTES = (*_TEXTS, *(f"locality.{name}" for name in _LOCALITY))
"""The attributes in rules and templates; besides `metadata.NAME`, at any depth."""

TEMPLATE = re.compile(r"\{node\.([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Variables:
    """The values for `${NAME}`.

    Attributes:
        texts: may be secrets, and are not shown.
        unset: names without a value in the environment.
    """

    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    unset: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def over(self, others: Variables) -> Variables:
        """Return the union; these take precedence."""
        return Variables(
            MappingProxyType({**_without(others.texts, self.unset), **self.texts}),
            MappingProxyType({**_without(others.unset, self.texts), **self.unset}),
        )

    def found_in(self, environment: Mapping[str, str]) -> Variables:
        """Add values in the environment."""
        found = {name: environment[key] for name, key in self.unset.items() if key in environment}
        unset = _without(self.unset, found)
        return Variables(MappingProxyType({**self.texts, **found}), MappingProxyType(unset))


def _without(values: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    left_out = set(names)
    return {name: value for name, value in values.items() if name not in left_out}


@dataclass(frozen=True, slots=True)
class ViewRule:
    """A view's nodes and layers.

    Attributes:
        match: patterns by attribute (see `ATTRIBUTES`); one per attribute has to match. Empty for every node.
        layers: folders, with templates such as `{node.id}`; later ones win.
        variables: take precedence over the setting.
    """

    name: str
    match: tuple[tuple[str, tuple[str, ...]], ...]
    layers: tuple[str, ...]
    variables: Variables = field(default_factory=Variables)

    def found_in(self, environment: Mapping[str, str]) -> ViewRule:
        """Add its variables' values in the environment."""
        return replace(self, variables=self.variables.found_in(environment))


def no_such_view(name: str, names: Collection[str]) -> str:
    """Return an unknown view's fact and remedy."""
    near = get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(names) or 'none: give `views`'}"
    return f"there is no view {name}; {hint}"


def _read_views(part: SettingPart) -> tuple[ViewRule, ...]:
    rules: list[ViewRule] = []
    for each in part.list_members():
        before = len(part.mistakes)
        members = each.members(("name", "match", "layers", "variables"), ("name", "layers"))
        rule = ViewRule(
            _read_name(members["name"]) if "name" in members else "",
            tuple(read_attributes(members["match"], read_patterns)) if "match" in members else (),
            _read_layers(members["layers"]) if "layers" in members else (),
            _read_variables(members["variables"]) if "variables" in members else Variables(),
        )
        if len(part.mistakes) == before:
            _reject_unreachable(each, rule, rules)
        rules.append(rule)
    return tuple(rules)


def _reject_unreachable(part: SettingPart, rule: ViewRule, before: Iterable[ViewRule]) -> None:
    for other in before:
        if other.name == rule.name:
            part.reject(f"there are two views {rule.name}; give each a name of its own")
        if not other.match or set(other.match) == set(rule.match):
            fact = f"no node reaches {rule.name}: {other.name} stands before it and matches the same nodes"
            part.reject(f"{fact}; move the more specific one up")
            return


def _read_name(part: SettingPart) -> str:
    name = part.text()
    if name and not _NAME.fullmatch(name):
        part.reject(f"{name!r} has other characters than letters, digits, `-`, `_` and `.`; write a name such as edge")
    return name


def read_attributes(part: SettingPart, read: Callable[[SettingPart], Found]) -> list[tuple[str, Found]]:
    """Return values by attribute, such as `metadata.labels.tier`."""
    found: list[tuple[str, Found]] = []
    for key, member in part.members((*_TEXTS, "locality", "metadata")).items():
        if key == "locality":
            found += [(f"locality.{name}", read(each)) for name, each in member.members(_LOCALITY).items()]
        elif key == "metadata":
            found += _read_metadata(member, "metadata", read)
        else:
            found.append((key, read(member)))
    return found


def _read_metadata(
    part: SettingPart, attribute: str, read: Callable[[SettingPart], Found]
) -> Iterator[tuple[str, Found]]:
    if len(part.path) > DEEPEST:
        part.reject("is too deep; name a value that is less deep")
        return
    for key, member in part.any_members().items():
        if isinstance(member.written, dict):
            yield from _read_metadata(member, f"{attribute}.{key}", read)
        else:
            yield f"{attribute}.{key}", read(member)


def read_patterns(part: SettingPart) -> tuple[str, ...]:
    """Return one or several patterns."""
    return tuple(map(_read_pattern, part.one_or_more()))


def _read_pattern(part: SettingPart) -> str:
    pattern = part.scalar()
    if len(pattern) > LONGEST_PATTERN:
        part.reject(f"is longer than {LONGEST_PATTERN} characters; write a shorter pattern")
    elif pattern.startswith(REGEX) and (fault := _regex_fault(pattern.removeprefix(REGEX))):
        part.reject(f"{fault}; write a regular expression of RE2, or a pattern such as edge-*")
    return pattern


def _regex_fault(regex: str) -> str:
    # `--help` and most settings do not need it.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return ""


def _read_layers(part: SettingPart) -> tuple[str, ...]:
    layers: list[str] = []
    for each in part.list_members():
        layer = each.text()
        if fault := layer and _layer_fault(layer):
            each.reject(fault)
        elif layer and layer in layers:
            each.reject(f"{layer} is there already; the last one would win, keep that")
        layers.append(layer)
    return tuple(layers)


def _layer_fault(layer: str) -> str:
    if not is_folder(layer):
        return f"{layer!r} is no folder of the tree; write its path from there, such as common or nodes/a"
    for attribute in TEMPLATE.findall(layer):
        if attribute not in ATTRIBUTES and not re.fullmatch(r"metadata(\.[^.]+)+", attribute):
            near = get_close_matches(attribute, ATTRIBUTES, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(ATTRIBUTES)} and metadata.NAME"
            return f"nodes have no {attribute or 'attribute without a name'}; {hint}"
    if set("{}") & set(TEMPLATE.sub("", layer)):
        return f"{layer!r} has a brace that is no template; write {{node.id}}, or a folder without braces"
    return ""


def _read_variables(part: SettingPart) -> Variables:
    texts: dict[str, str] = {}
    unset: dict[str, str] = {}
    for name, member in part.any_members().items():
        if not _VARIABLE.fullmatch(name):
            member.reject(f"{name!r} is no name of a variable; write letters, digits and `_`, and no digit first")
        elif isinstance(member.written, dict):
            source = member.members(("environment",), ("environment",))
            unset[name] = source["environment"].text() if "environment" in source else ""
        elif member.written == "":
            # The value may be empty on purpose.
            texts[name] = ""
        else:
            texts[name] = member.scalar()
    return Variables(MappingProxyType(texts), MappingProxyType(unset))


SCALAR: Schema = {"type": ["string", "number", "boolean"]}
PATTERNS: Schema = {
    "description": "A glob such as edge-*, or re: and a regular expression; of a list, one has to match.",
    "anyOf": [SCALAR, {"type": "array", "items": SCALAR, "minItems": 1}],
}


def attributes_schema(leaf: Schema) -> Schema:
    """Return the attributes' JSON Schema."""
    metadata = {"type": "object", "additionalProperties": {"anyOf": [leaf, {"type": "object"}]}}
    locality = object_schema(dict.fromkeys(_LOCALITY, leaf))
    return object_schema({**dict.fromkeys(_TEXTS, leaf), "locality": locality, "metadata": metadata})


_VARIABLES: Schema = {
    "type": "object",
    "propertyNames": {"pattern": f"^{_VARIABLE.pattern}$"},
    "additionalProperties": {
        "anyOf": [SCALAR, object_schema({"environment": {"type": "string", "minLength": 1}}, ("environment",))]
    },
}
_RULE = object_schema(
    {
        "name": {"type": "string", "pattern": f"^{_NAME.pattern}$", "description": "The name of the view."},
        "match": {
            **attributes_schema(PATTERNS),
            "description": "The nodes that have this view: all attributes have to match.",
        },
        "layers": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "description": "Folders of the tree; later ones win. {node.id} and the like stand for attributes of the node.",
        },
        "variables": {**_VARIABLES, "description": "Values of ${NAME} in this view."},
    },
    ("name", "layers"),
)

VIEWS = structured(_read_views, {"type": "array", "items": _RULE, "minItems": 1})
VARIABLES = structured(_read_variables, _VARIABLES)


@dataclass(frozen=True, slots=True)
class MirrorRule:
    """One mirror directory; None means the setting `mirror_NAME`.

    Attributes:
        node: its reader's attributes, or empty.
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
        """Resolve paths from a directory."""
        return replace(self, directory=directory / self.directory)


_KEYS = ("directory", "view", "node", "format", "layout", "config_sources", "pause", "durable", "admin")


def _read_mirrors(part: SettingPart) -> tuple[MirrorRule, ...]:
    rules: list[MirrorRule] = []
    for each in part.list_members():
        members = each.members(_KEYS, ("directory",))
        if "view" in members and "node" in members:
            members["view"].reject("there is a node too; give one of them")
        directory = members["directory"].of_form(PATH) if "directory" in members else None
        rule = MirrorRule(
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
        if rule.directory != Path() and rule.directory in [other.directory for other in rules]:
            each.reject(f"{rule.directory} has another mirror already; give each a directory of its own")
        rules.append(rule)
    return tuple(rules)


def unknown_views(mirrors: Iterable[MirrorRule], names: Collection[str]) -> Iterator[tuple[FieldPath, str]]:
    """Yield mirrors' mistakes: an unknown view, or none if there are views."""
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
