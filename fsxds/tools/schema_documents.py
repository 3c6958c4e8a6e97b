"""JSON Schema of the files that fsxds reads.

It is shortened: a definition with one use is inlined, a repeated part becomes a definition, and equal definitions are
merged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count as count_from

from fsxds.api.catalogue import Catalogue
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.snapshots.layer_documents import DELETE, KIND, PATCH
from fsxds.tools.json_schema import MessageSchemas, Schema, Spelling, reference_of, shared
from fsxds.tools.packed_places import PackedTypes, ends_of, packable_types

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_WRAPPER = "envoy.service.discovery.v3.Resource"
_RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"
# Above this size, extensions that are work in progress are open: editors read a schema again at each start.
_LIMIT_BYTES = 320_000
_WRAPPED: Schema = {"if": {"required": ["resource"]}, "then": shared("wrapper"), "else": shared("resource")}
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
    own = [schemas.message(row.message_type, types.place_of_discovered()) for row in known]
    definitions = {
        "document": {
            "if": {"type": "array"},
            "then": {"type": "array", "items": shared("element")},
            "else": {"if": _IS_LAYER, "then": shared("layer"), "else": shared("element")},
        },
        "layer": _layer(),
        "element": {
            "if": {"required": ["resources"]},
            "then": shared("response"),
            "else": _WRAPPED,
        },
        "response": _with(schemas, catalogue, _RESPONSE, {
            "resources": {"anyOf": [{"type": "array", "items": _WRAPPED}, _WRAPPED]},
            # A plain `1.0` is the text "1.0" to Envoy.
            "version_info": {"type": ["string", "number"]},
        }),
        "wrapper": _with(schemas, catalogue, _WRAPPER, {"resource": shared("resource")}),
        "resource": _resource(own, known),
    }  # fmt: skip
    nouns = ", ".join(row.noun for row in known)
    return {
        "$schema": DIALECT,
        "title": f"xDS resources: {nouns}",
        **shared("document"),
        "$defs": compact(definitions | schemas.finish(), "document"),
    }


def schema_text(schema: Schema) -> str:
    """Return a line per definition; equal schemas give equal text."""
    rows = [f'"{key}":{_text(value)}' for key, value in schema.items() if key != "$defs"]
    definitions = [f"{json.dumps(name)}:{_text(value)}" for name, value in schema.get("$defs", {}).items()]
    if definitions:
        rows.append('"$defs":{\n' + ",\n".join(definitions) + "\n}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


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


def _resource(own: list[Schema], rows: Collection[ResourceType]) -> Schema:
    """The type is in "@type", or else in the file's name."""
    patterns = [_pattern(row.message_type) for row in rows]
    choices = [
        {"if": {"properties": {"@type": {"type": "string", "pattern": pattern}}, "required": ["@type"]}, "then": schema}
        for pattern, schema in zip(patterns, own, strict=True)
    ]
    pattern = "|".join(patterns)
    url = {"anyOf": [{"enum": [row.type_url for row in rows]}, {"type": "string", "pattern": pattern}]}
    return {
        "type": "object",
        "properties": {"@type": url},
        "if": {"required": ["@type"]},
        "then": {"allOf": choices},
        "else": own[0] if len(own) == 1 else {"anyOf": own},
    }


def _pattern(message_type: str) -> str:
    return f"/{message_type}$".replace(".", r"\.")


def _with(schemas: MessageSchemas, catalogue: Catalogue, message_type: str, own: Mapping[str, Schema]) -> Schema:
    fields = catalogue.pool.FindMessageTypeByName(message_type).fields_by_name
    replaced = {name: schema for field, schema in own.items() for name in schemas.spellings(fields[field])}
    definition = schemas.definitions[reference_of(schemas.message(message_type)) or ""]
    typed = {"@type": {"type": "string", "pattern": _pattern(message_type)}}
    return definition | {"properties": {**typed, **definition["properties"], **replaced}}


# The keywords that hold schemas: one, a list of them, or a map from names.
_ONE = ("items", "additionalProperties", "if", "then", "else", "not")
_LISTS = ("anyOf", "oneOf", "allOf")
_MAPS = ("properties", "patternProperties")

# Keywords that mean the same beside a reference and within its target.
_WORDS = {"description", "deprecated"}
# The length of a reference without the name, and about the cost of a definition beside its content and name.
_REFERENCE_COST = len('{"$ref":"#/$defs/"}')

_LONGEST_LABEL = 16

_Definitions = Mapping[str, Schema]


def compact(definitions: _Definitions, root: str) -> dict[str, Schema]:
    """Return shorter definitions, sorted by new names; `root` keeps its name."""
    needed = {name: definitions[name] for name in _needed(definitions, root)}
    inlined = {name: _without_implied(schema) for name, schema in _with_inlined(_without_equal(needed), root).items()}
    names = _short_names(inlined, root)
    renamed = {names[name]: _renamed(schema, names) for name, schema in inlined.items()}
    return dict(sorted(_without_repetitions(renamed).items()))


def parts_of(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield direct parts, each with its property or keyword."""
    for keyword, value in schema.items():
        if keyword in _ONE and isinstance(value, dict):
            yield keyword, value
        elif keyword in _LISTS:
            yield from ((keyword, one) for one in value)
        elif keyword in _MAPS:
            yield from ((name, one) for name, one in value.items() if isinstance(one, dict))


def _mapped(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:

    def changed(keyword: str, value: object) -> object:
        if keyword in _ONE and isinstance(value, dict):
            return change(value)
        if keyword in _LISTS and isinstance(value, list):
            return [change(one) for one in value]
        if keyword in _MAPS and isinstance(value, dict):
            return {name: change(one) if isinstance(one, dict) else one for name, one in value.items()}
        return value

    return {keyword: changed(keyword, value) for keyword, value in schema.items()}


def _references(schema: Schema) -> Iterator[str]:
    name = reference_of(schema)
    if name is not None:
        yield name
    for _, part in parts_of(schema):
        yield from _references(part)


def _needed(definitions: _Definitions, root: str) -> list[str]:
    needed: dict[str, None] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop(0)
        if name not in needed:
            needed[name] = None
            waiting += _references(definitions[name])
    return list(needed)


def _renamed(schema: Schema, names: Mapping[str, str]) -> Schema:
    name = reference_of(schema)
    reference = {} if name is None else shared(names.get(name, name))
    return _mapped(schema, lambda part: _renamed(part, names)) | reference


def _without_equal(definitions: _Definitions) -> dict[str, Schema]:
    """A merge makes others equal, too."""
    found = dict(definitions)
    while True:
        first: dict[str, str] = {}
        same = {}
        for name in sorted(found, key=lambda name: (len(name.rpartition(".")[2]), name)):
            known = first.setdefault(_text(found[name]), name)
            if known != name:
                same[name] = known
        if not same:
            return found
        found = {name: _renamed(schema, same) for name, schema in found.items() if name not in same}


def _with_inlined(definitions: _Definitions, root: str) -> dict[str, Schema]:
    uses = Counter(name for schema in definitions.values() for name in _references(schema))
    short: set[str] = set()
    for name, schema in definitions.items():
        length, reference = len(_text(schema)), _REFERENCE_COST + len(name.rpartition(".")[2])
        is_shorter = uses[name] * length <= length + reference + uses[name] * reference
        if name != root and (uses[name] == 1 or is_shorter):
            short.add(name)

    def expanded(schema: Schema, outer: frozenset[str]) -> Schema:
        name = reference_of(schema)
        beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        if name not in short or name in outer or not beside.keys() <= _WORDS:
            return _mapped(schema, lambda part: expanded(part, outer))
        return expanded(definitions[name], outer | {name}) | beside

    found: dict[str, Schema] = {}
    waiting = [name for name in definitions if name not in short]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = expanded(definitions[name], frozenset((name,)))
            waiting += _references(found[name])
    return found


def _without_implied(schema: Schema, implied: object = None) -> Schema:
    """Drop types that the enclosing schema demands."""
    demanded = schema.get("type", implied)
    others = dict(schema)
    if implied is not None and others.get("type") == implied:
        del others["type"]
    for keyword in ("then", "else"):
        if keyword in others:
            others[keyword] = _without_implied(others[keyword], demanded)
    if "allOf" in others:
        others["allOf"] = [_without_implied(part, demanded) for part in others["allOf"]]
    return others


def _without_repetitions(definitions: _Definitions) -> dict[str, Schema]:
    counts: Counter[str] = Counter()
    labels: dict[str, Counter[str]] = {}

    def count(schema: Schema) -> None:
        for label, part in parts_of(schema):
            text = _text(part)
            counts[text] += 1
            labels.setdefault(text, Counter())[label] += 1
            if counts[text] == 1:  # the parts of a repeated schema are then written once
                count(part)

    for schema in definitions.values():
        count(schema)
    worthy: set[str] = set()
    for text, uses in counts.items():
        reference = _REFERENCE_COST + len(_label(labels[text]))
        if uses * len(text) > len(text) + reference + uses * reference:
            worthy.add(text)
    names = {_text(schema): name for name, schema in definitions.items()}
    found: dict[str, Schema] = {}

    def replaced(schema: Schema) -> Schema:
        text = _text(schema)
        if text not in worthy and text not in names:
            return _mapped(schema, replaced)
        if text not in names:
            label, taken = _label(labels[text]), definitions.keys() | found.keys()
            numbered = (f"{label}{number if number > 1 else ''}" for number in count_from(1))
            name = names[text] = next(name for name in numbered if name not in taken)
            found[name] = {}
            found[name] |= _mapped(schema, replaced)
        return shared(names[text])

    return {name: _mapped(schema, replaced) for name, schema in definitions.items()} | found


def _label(found: Counter[str]) -> str:
    return min(found, key=lambda label: (len(label) > _LONGEST_LABEL, -found[label], label))


def _short_names(definitions: _Definitions, root: str) -> dict[str, str]:
    """The shortest dot-separated suffixes that no more used definition has."""
    uses = Counter(name for schema in definitions.values() for name in _references(schema))
    names = {root: root}
    taken = {root}
    for name in sorted(definitions.keys() - {root}, key=lambda name: (-uses[name], name)):
        full, colon, rest = name.partition(":")
        ends = (end + colon + rest for end in ends_of(full))
        names[name] = next(end for end in ends if end not in taken)
        taken.add(names[name])
    return names


def _text(schema: object) -> str:
    return json.dumps(schema, separators=(",", ":"))
