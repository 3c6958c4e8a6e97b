"""JSON Schema of the files that fsxds reads: responses, wrappers, single resources and lists of these."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator

from fsxds.api.catalogue import Catalogue
from fsxds.errors import UsageError
from fsxds.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.tools.json_schema import MessageSchemas, Schema, packable_types, shared

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_WRAPPER = "envoy.service.discovery.v3.Resource"
_RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"
_TYPED = {"required": ["@type"]}


def documents_schema(catalogue: Catalogue, rows: Collection[ResourceType] = (), packed: Collection[str] = ()) -> Schema:
    """Return the schema of files.

    Args:
        catalogue: the message types that exist.
        rows: the types of resources that the files hold; all of them where none is given.
        packed: full names, or their last parts, of the message types that may stand in an Any; all where none is given.

    Raises:
        UsageError: a name in `packed` is that of no message type.
    """
    known = [row for row in rows or RESOURCE_TYPES if catalogue.knows(row.message_type)]
    chosen = {row.message_type for row in known} | set(_chosen(packed, packable_types(catalogue)))
    schemas = MessageSchemas(catalogue, chosen)
    own = {row.message_type: schemas.message(row.message_type) for row in known}
    if packed:
        schemas.message("google.protobuf.Any")
    definitions = {
        "document": {
            "if": {"type": "array"},
            "then": {"type": "array", "items": shared("element")},
            "else": shared("element"),
        },
        "element": _element(),
        "response": _response(schemas),
        "wrapper": _wrapper(schemas),
        "resource": _resource(list(own.values()), known),
    }
    definitions |= dict(sorted(schemas.definitions.items()))
    nouns = ", ".join(row.noun for row in known)
    return {
        "$schema": DIALECT,
        "title": f"xDS resources: {nouns}",
        "$ref": "#/$defs/document",
        "$defs": {name: definitions[name] for name in sorted(_needed(definitions))},
    }


def schema_text(schema: Schema) -> str:
    """Write a schema with one line for each definition, so that its changes can be read; equal schemas give equal text."""
    return "".join(_lines(schema))


def _lines(schema: Schema) -> Iterator[str]:
    yield "{\n"
    rows = [(key, value) for key, value in schema.items() if key != "$defs"]
    definitions = schema.get("$defs", {})
    for number, (key, value) in enumerate(rows, 1):
        yield f'"{key}":{_compact(value)}{"," if number < len(rows) or definitions else ""}\n'
    if definitions:
        yield '"$defs":{\n'
        yield ",\n".join(f"{json.dumps(name)}:{_compact(value)}" for name, value in definitions.items())
        yield "\n}\n"
    yield "}\n"


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _chosen(wanted: Collection[str], known: Collection[str]) -> Iterable[str]:
    if not wanted:
        return known
    chosen: list[str] = []
    for name in wanted:
        full = name.rpartition("/")[2]
        found = [one for one in known if one == full or one.endswith(f".{full}")]
        if not found:
            raise UsageError(
                f"there is no message type {name}; give its full name or the last part of it, such as Router"
            )
        chosen += found
    return chosen


def _element() -> Schema:
    """Return the schema of one element, which tells responses, wrappers and resources apart as `fsxds serve` does."""
    return {
        "if": {"required": ["resources"]},
        "then": shared("response"),
        "else": {"if": {"required": ["resource"]}, "then": shared("wrapper"), "else": shared("resource")},
    }


def _resource(own: list[Schema], rows: Collection[ResourceType]) -> Schema:
    """Return the schema of a resource; its "@type" says which, or, without one, the name of its file."""
    untyped: Schema = own[0] if len(own) == 1 else {"anyOf": own}
    choices = [
        {
            "if": {"properties": {"@type": {"type": "string", "pattern": _pattern(row)}}, "required": ["@type"]},
            "then": schema,
        }
        for row, schema in zip(rows, own, strict=True)
    ]
    pattern = "|".join(_pattern(row) for row in rows)
    url = {"anyOf": [{"enum": [row.type_url for row in rows]}, {"type": "string", "pattern": pattern}]}
    return {
        "type": "object",
        "properties": {"@type": url},
        "if": _TYPED,
        "then": {"allOf": choices},
        "else": untyped,
    }


def _pattern(row: ResourceType) -> str:
    return f"/{row.message_type}$".replace(".", r"\.")


def _response(schemas: MessageSchemas) -> Schema:
    element: Schema = {"if": {"required": ["resource"]}, "then": shared("wrapper"), "else": shared("resource")}
    schema = _with(schemas, _RESPONSE)
    schema["properties"] |= {"resources": {"anyOf": [{"type": "array", "items": element}, element]}}
    # A plain `1.0` is the text "1.0" to Envoy.
    version: Schema = {"type": ["string", "number"]}
    schema["properties"] |= {"version_info": version, "versionInfo": version}
    return schema


def _wrapper(schemas: MessageSchemas) -> Schema:
    schema = _with(schemas, _WRAPPER)
    schema["properties"] |= {"resource": shared("resource")}
    return schema


def _with(schemas: MessageSchemas, message_type: str) -> Schema:
    """Return a copy of a message's definition, which may name its own type."""
    schemas.message(message_type)
    schema = schemas.definitions[message_type]
    pattern = f"/{message_type}$".replace(".", r"\.")
    return schema | {"properties": {"@type": {"type": "string", "pattern": pattern}, **schema["properties"]}}


def _needed(definitions: dict[str, Schema]) -> set[str]:
    """Return the names of the definitions that the document leads to."""
    needed: set[str] = set()
    waiting = ["document"]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += _references(definitions[name])
    return needed


def _references(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for element in value:
            yield from _references(element)
    elif isinstance(value, dict):
        for key, element in value.items():
            if key == "$ref" and isinstance(element, str):
                yield element.removeprefix("#/$defs/")
            else:
                yield from _references(element)
