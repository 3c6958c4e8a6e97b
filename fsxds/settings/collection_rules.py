"""The setting `collections`: list collections that are made of the listeners in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from fsxds.resource_names import MalformedName, ResourceName, is_structured
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.settings.forms import SWITCH
from fsxds.settings.naming_rules import read_folder
from fsxds.settings.structured import SettingPart, object_schema, structured

MESSAGE_TYPE = BY_SHORT_NAME["lcds"].message_type


@dataclass(frozen=True, slots=True)
class CollectionRule:
    """A list collection of all listeners in a folder.

    Attributes:
        name: its name; one without an authority gets that of the settings.
        folder: the path of the folder in the tree; what is deeper counts too.
        is_inline: its entries hold the listeners; else they are locators of them.
    """

    name: ResourceName
    folder: str
    is_inline: bool = True


def _read_collections(part: SettingPart) -> tuple[CollectionRule, ...]:
    rules: list[CollectionRule] = []
    for each in part.list_members():
        rule = _read_collection(each)
        if rule is None:
            continue
        if rule.name in [other.name for other in rules]:
            each.reject(f"{rule.name} is there already; give each collection a name of its own")
        rules.append(rule)
    return tuple(rules)


def _read_collection(part: SettingPart) -> CollectionRule | None:
    members = part.members(("name", "folder", "inline"), ("name", "folder"))
    name = _read_name(members["name"]) if "name" in members else None
    folder = read_folder(members["folder"]) if "folder" in members else ""
    inline = members["inline"].of_form(SWITCH) if "inline" in members else None
    return None if name is None else CollectionRule(name, folder, inline is not False)


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
            "description": "Its path, such as edge, or its whole name, xdstp://…; one without authority gets yours.",
        },
        "folder": {"type": "string", "minLength": 1, "description": "The folder of the tree with its listeners."},
        "inline": {**SWITCH.schema, "description": "Its entries hold the listeners (default), or say where they are."},
    },
    ("name", "folder"),
)

COLLECTIONS = structured(_read_collections, {"type": "array", "items": _COLLECTION, "minItems": 1})
