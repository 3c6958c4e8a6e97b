"""JSON Schema of the files that fsxds reads."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

from fsxds.api.catalogue import Catalogue
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.snapshots.layer_documents import DELETE, KIND, PATCH
from fsxds.tools.json_schema import MessageSchemas, Spelling
from fsxds.tools.packed_places import PackedTypes, packable_types
from fsxds.tools.schema_sharing import compact
from fsxds.tools.value_schemas import Schema, reference_of, shared

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_WRAPPER = "envoy.service.discovery.v3.Resource"
_RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"
# Above this size, extensions that are work in progress are open: editors read a schema again at each start.
_LIMIT_BYTES = 320_000
_TYPED = {"required": ["@type"]}
_IS_LAYER = {"properties": {"kind": {"const": KIND}}, "required": ["kind"]}


def documents_schema(
    catalogue: Catalogue,
    rows: Collection[ResourceType] = (),
    packed: Collection[str] = (),
    spelling: Spelling = "snake",
) -> Schema:
    """Return the schema of files.

    Without `rows`, files have all types. `packed` are the only types in an Any, by full name or last part; without,
    Envoy's for each place.

    Raises:
        UsageError: a name in `packed` is no message type.
    """
    types = PackedTypes(catalogue, _chosen(packed, packable_types(catalogue)))
    schemas = MessageSchemas(catalogue, types, spelling)
    whole = _documents_schema(catalogue, rows, types, schemas)
    if len(schema_text(whole)) <= _LIMIT_BYTES:
        return whole
    return _documents_schema(catalogue, rows, types, MessageSchemas(catalogue, types, spelling, has_drafts=False))


def _documents_schema(
    catalogue: Catalogue, rows: Collection[ResourceType], types: PackedTypes, schemas: MessageSchemas
) -> Schema:
    known = [row for row in rows or RESOURCE_TYPES if catalogue.knows(row.message_type)]
    own = [_own(schemas, row, types) for row in known]
    definitions = {
        "document": {
            "if": {"type": "array"},
            "then": {"type": "array", "items": shared("element")},
            "else": {"if": _IS_LAYER, "then": shared("layer"), "else": shared("element")},
        },
        "layer": _layer(),
        "element": _element(),
        "response": _response(schemas, catalogue),
        "wrapper": _wrapper(schemas, catalogue),
        "resource": _resource(own, known),
    }
    nouns = ", ".join(row.noun for row in known)
    return {
        "$schema": DIALECT,
        "title": f"xDS resources: {nouns}",
        **shared("document"),
        "$defs": compact(definitions | schemas.finish(), "document"),
    }


def _own(schemas: MessageSchemas, row: ResourceType, types: PackedTypes) -> Schema:
    """A served extension may only be a filter."""
    return schemas.message(row.message_type, types.place_of_discovered())


def schema_text(schema: Schema) -> str:
    """Return text with one line per definition; equal schemas give equal text."""
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


def _chosen(wanted: Collection[str], known: Collection[str]) -> list[str]:
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


def _layer() -> Schema:
    """In patches any field may be missing or null."""
    names: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    patches: Schema = {"type": "object", "additionalProperties": {"type": "object"}}
    words = sorted(word for row in RESOURCE_TYPES for word in row.words)
    types: Schema = {"anyOf": [{"enum": words}, {"pattern": r"^(type\.googleapis\.com/)?envoy\."}]}
    return {
        "type": "object",
        "properties": {
            "kind": {"const": KIND},
            DELETE: {"type": "object", "propertyNames": types, "additionalProperties": names},
            PATCH: {"type": "object", "propertyNames": types, "additionalProperties": patches},
        },
        "additionalProperties": False,
    }


def _element() -> Schema:
    return {
        "if": {"required": ["resources"]},
        "then": shared("response"),
        "else": {"if": {"required": ["resource"]}, "then": shared("wrapper"), "else": shared("resource")},
    }


def _resource(own: list[Schema], rows: Collection[ResourceType]) -> Schema:
    """The type is in "@type", or else in the file's name."""
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


def _response(schemas: MessageSchemas, catalogue: Catalogue) -> Schema:
    element: Schema = {"if": {"required": ["resource"]}, "then": shared("wrapper"), "else": shared("resource")}
    # A plain `1.0` is the text "1.0" to Envoy.
    own: dict[str, Schema] = {
        "resources": {"anyOf": [{"type": "array", "items": element}, element]},
        "version_info": {"type": ["string", "number"]},
    }
    return _with(schemas, catalogue, _RESPONSE, own)


def _wrapper(schemas: MessageSchemas, catalogue: Catalogue) -> Schema:
    return _with(schemas, catalogue, _WRAPPER, {"resource": shared("resource")})


def _with(schemas: MessageSchemas, catalogue: Catalogue, message_type: str, own: Mapping[str, Schema]) -> Schema:
    fields = catalogue.pool.FindMessageTypeByName(message_type).fields_by_name
    replaced = {name: schema for field, schema in own.items() for name in schemas.spellings(fields[field])}
    definition = schemas.definitions[reference_of(schemas.message(message_type)) or ""]
    pattern = f"/{message_type}$".replace(".", r"\.")
    typed = {"@type": {"type": "string", "pattern": pattern}}
    return definition | {"properties": {**typed, **definition["properties"], **replaced}}
