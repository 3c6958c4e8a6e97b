"""The settings `authority`, `context_params` and `collections`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from fsxds.model.resource_names import MalformedName, ResourceName, is_structured
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.settings.forms import SWITCH, OptionForm, Schema
from fsxds.settings.structured import SettingPart, is_folder, object_schema, structured

_AUTHORITY = re.compile(r"[A-Za-z0-9!$&'()*+,;=:@\[\]_.~-]*")
_MARKED = re.compile(r"[\x00-\x1f\x7f]")
_RESERVED = "constraint:"


@dataclass(frozen=True, slots=True)
class ContextRule:
    """The context parameters of a folder and its subfolders.

    Attributes:
        params: sorted. Those in a resource's own name take precedence.
    """

    folder: str
    params: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NamingRules:
    """Additions to structured names; `authority` is for names without one."""

    authority: str = ""
    contexts: tuple[ContextRule, ...] = ()

    def context_of(self, path: PurePosixPath) -> tuple[tuple[str, str], ...]:
        """Return a file's parameters; the innermost folder wins."""
        if not self.contexts:
            return ()
        folders = {str(folder) for folder in path.parents}
        found = sorted(
            (rule for rule in self.contexts if rule.folder in folders), key=lambda rule: rule.folder.count("/")
        )
        return tuple(sorted({name: value for rule in found for name, value in rule.params}.items()))


NO_RULES = NamingRules()


def _read_authority(written: object) -> str:
    if not isinstance(written, str) or not _AUTHORITY.fullmatch(written):
        raise ValueError(written)
    return written


def _read_contexts(part: SettingPart) -> tuple[ContextRule, ...]:
    rules: list[ContextRule] = []
    for each in part.list_members():
        members = each.members(("folder", "params"), ("folder", "params"))
        rule = ContextRule(
            read_folder(members["folder"]) if "folder" in members else "",
            tuple(sorted(_read_params(members["params"]))) if "params" in members else (),
        )
        if rule.folder and rule.folder in [other.folder for other in rules]:
            each.reject(f"{rule.folder} is there already; write all of its params in one place")
        rules.append(rule)
    return tuple(rules)


def read_folder(part: SettingPart) -> str:
    """Return a folder of the tree, or reject it."""
    folder = part.text()
    if folder and not is_folder(folder):
        part.reject(f"{folder!r} is no folder of the tree; write its path from there, such as edge or nodes/a")
    return folder


def _read_params(part: SettingPart) -> list[tuple[str, str]]:
    params: list[tuple[str, str]] = []
    for name, member in part.any_members().items():
        value = "" if member.written == "" else member.scalar()
        if not name or _MARKED.search(name) or _MARKED.search(value):
            member.reject("a parameter has a name, and no control characters; write such as {env: prod}")
        elif value.startswith(_RESERVED):
            member.reject(f"a value that begins with {_RESERVED} is reserved; write another one")
        params.append((name, value))
    if isinstance(part.written, dict) and not params:
        part.reject("is empty; give a parameter, or remove the folder")
    return params


_PARAM: Schema = {"type": ["string", "number", "boolean"]}
_CONTEXT = object_schema(
    {
        "folder": {"type": "string", "minLength": 1, "description": "A folder of the tree, with all that is in it."},
        "params": {
            "type": "object",
            "additionalProperties": _PARAM,
            "minProperties": 1,
            "description": "The context parameters that the structured names of its resources get.",
        },
    },
    ("folder", "params"),
)

AUTHORITY = OptionForm(
    "AUTHORITY",
    "the authority of names (write xds.example.com)",
    _read_authority,
    {"type": "string", "pattern": f"^{_AUTHORITY.pattern}$"},
)
CONTEXTS = structured(_read_contexts, {"type": "array", "items": _CONTEXT, "minItems": 1})


MESSAGE_TYPE = BY_SHORT_NAME["lcds"].message_type


@dataclass(frozen=True, slots=True)
class CollectionRule:
    """A list collection of the listeners in a folder and below.

    Attributes:
        name: the settings may add an authority.
        is_inline: entries contain listeners, not locators.
    """

    name: ResourceName
    folder: str
    is_inline: bool = True


def _read_collections(part: SettingPart) -> tuple[CollectionRule, ...]:
    rules: list[CollectionRule] = []
    for each in part.list_members():
        members = each.members(("name", "folder", "inline"), ("name", "folder"))
        name = _read_name(members["name"]) if "name" in members else None
        folder = read_folder(members["folder"]) if "folder" in members else ""
        inline = members["inline"].of_form(SWITCH) if "inline" in members else None
        rule = None if name is None else CollectionRule(name, folder, inline is not False)
        if rule is None:
            continue
        if rule.name in [other.name for other in rules]:
            each.reject(f"{rule.name} is there already; give each collection a name of its own")
        rules.append(rule)
    return tuple(rules)


def _read_name(part: SettingPart) -> ResourceName | None:
    text = part.text()
    if not text:
        return None
    try:
        name = ResourceName.parse(text if is_structured(text) else f"xdstp:///{MESSAGE_TYPE}/{quote(text)}")
    except MalformedName as error:
        part.reject(f"{text!r} {error.fact}; {error.remedy}")
        return None
    if name.message_type != MESSAGE_TYPE:
        remedy = f"write xdstp://<authority>/{MESSAGE_TYPE}/<path>; clients ask for the globs of other types"
        part.reject(f"{text!r} is no list of listeners, of which alone there are list collections; {remedy}")
        return None
    if name.is_glob:
        part.reject(f"{text!r} is a glob, and is made of names alone; write a name without *")
        return None
    return name


_COLLECTION = object_schema(
    {
        "name": {
            "type": "string",
            "minLength": 1,
            "description": "Path of the collection, such as edge, or its whole name, xdstp://…; the authority defaults to yours.",
        },
        "folder": {"type": "string", "minLength": 1, "description": "Folder of the tree that holds the listeners."},
        "inline": {
            **SWITCH.schema,
            "description": "Whether entries hold the listeners inline (default), or locate them by URL.",
        },
    },
    ("name", "folder"),
)

COLLECTIONS = structured(_read_collections, {"type": "array", "items": _COLLECTION, "minItems": 1})
