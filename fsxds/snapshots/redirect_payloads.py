"""Reads redirects in documents: a `Resource` with a locator in place of content.

| form | source |
| --- | --- |
| `name`, and as `resource` an `xds.core.v3.ResourceLocator` or an `xds.core.v3.ResourceName` | xRFC TP1, "Redirects" |
| `name`, and as `resource` a locator as text, in YAML and JSON | |
| `name` and `resource_name: {name: ...}` without `resource`: a locator as text, or a plain name of its type | |
"""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.api.catalogue import DynamicMessage
from fsxds.api.locator_messages import RESOURCE_LOCATOR, locator_of
from fsxds.model.resource_names import (
    FileName,
    Locator,
    MalformedName,
    ResourceName,
    is_locator,
    parse_or_none,
)
from fsxds.model.resource_types import BY_MESSAGE_TYPE, BY_SHORT_NAME, ResourceType
from fsxds.model.resources import Origin, Reference, Resource, version_of_body
from fsxds.model.values import Fault, FieldPath, PlainValue, Severity

RESOURCE_NAME = "xds.core.v3.ResourceName"

PAYLOADS = frozenset({RESOURCE_LOCATOR, RESOURCE_NAME})
"""Redirects in place of a resource."""

COLLECTION = "Collection"
"""The suffix of list collections' types, after the type of their entries."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect's type and locator."""

    row: ResourceType
    locator: Locator

    def as_resource(self, name: str, aliases: tuple[str, ...], ttl_s: float | None, origin: Origin) -> Resource:
        """The version is the digest of the locator."""
        type_url, locator = self.row.type_url, str(self.locator)
        version = version_of_body(type_url, locator.encode())
        names = [choice.target for choice in self.locator.choices() if isinstance(choice.target, ResourceName)]
        keys = [(name.type_url, text) for name in names for text in (str(name), "" if name.context else name.path)]
        references = tuple(Reference(of, text, (), Severity.NOTE) for of, text in dict.fromkeys(keys) if text)
        return Resource(type_url, name, b"", version, origin, aliases, ttl_s, references, locator)


def is_named_in(wrapper: dict[str, PlainValue]) -> bool:
    """Whether a `Resource` without content names a target."""
    return bool(wrapper.get("resource_name") or wrapper.get("resourceName"))


def locator_in(message: DynamicMessage, authority: str) -> Locator:
    """Return a payload's locator. Raises MalformedName."""
    if message.DESCRIPTOR.full_name == RESOURCE_LOCATOR:
        return locator_of(message, authority)
    context = tuple(sorted(message.context.params.items()))
    name = ResourceName(message.authority or authority, message.resource_type, message.id, context)
    # A name's message must not contain what its text must not.
    return Locator.parse(str(name), authority)


def read_redirect(
    name: str, locator: Locator, expected: ResourceType | None, field_path: FieldPath
) -> Redirect | Fault:
    """`expected` is the type of file or envelope."""
    if not name:
        return Fault("missing-name", "a redirect has no name", "write `name: …` beside `resource`", field_path)
    types = list(filter(None, map(_type_of_choice, locator.choices())))
    # Names of virtual hosts begin with the name of their route configuration, not with their type.
    if BY_SHORT_NAME["vhds"].message_type not in types and (own_type := _type_of_name(name)):
        types.insert(0, own_type)
    message_type = types[0] if types else expected.message_type if expected is not None else ""
    row = BY_MESSAGE_TYPE.get(message_type)
    if row is None:
        fact = f"{message_type} is not a type that xDS serves" if message_type else "this redirect has no type"
        return Fault("malformed-redirect", fact, "write the structured name of a resource", field_path)
    others = [other for other in types if other != message_type]
    if others:
        fact = f"a redirect of the type {message_type} leads to one of {others[0]}"
        return Fault("malformed-redirect", fact, "name resources of one type", field_path)
    if any(choice.target.is_glob for choice in locator.choices()):
        fact = "a redirect leads to a collection"
        return Fault("malformed-redirect", fact, "name one resource, or an entry of a list by #entry=", field_path)
    return Redirect(row, locator)


def locator_of_text(text: str, name: str, expected: ResourceType | None, authority: str) -> Locator:
    """A plain name is of the redirect's type. Raises MalformedName."""
    if is_locator(text):
        return Locator.parse(text, authority)
    message_type = _type_of_name(name) or (expected.message_type if expected is not None else "")
    return Locator.parse(str(ResourceName(authority, message_type, text)), authority)


def _type_of_name(name: str) -> str:
    structured = parse_or_none(name)
    return "" if structured is None else structured.message_type


def _type_of_choice(choice: Locator) -> str:
    if isinstance(choice.target, FileName):
        return ""
    message_type = choice.target.message_type
    return message_type.removesuffix(COLLECTION) if choice.entry else message_type


def malformed(error: MalformedName, field_path: FieldPath) -> Fault:
    """Return the fault of a malformed locator."""
    return Fault("malformed-redirect", f"the locator {error.fact}", error.remedy, field_path)
