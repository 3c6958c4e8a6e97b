"""The OpenAPI 3.1 description of the REST address: `openapi.json`, with the version and the table of types. Pure.

It says what can be relied on: paths, parameters, headers, statuses and the form of bodies. What a resource holds is the API
of Envoy, which `fsxds schema` writes as a JSON Schema, and each type links to its page. Without tokens and client
certificates in the settings nobody needs any.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from string import Template
from typing import cast

from fsxds.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.values import PlainValue

OPENAPI_PATH = "/openapi.json"

Plain = dict[str, PlainValue]


def openapi_document(version: str) -> Plain:
    """Return the description, in plain values, of the REST address of fsxds in this version.

    In the file, `$version` and `$short_names` stand for themselves; a path with a `$` is there once for each type.
    """
    text = (files("fsxds") / "transports" / "http_get" / "openapi.json").read_text(encoding="utf-8")
    short_names = '", "'.join(row.short_name for row in RESOURCE_TYPES)
    # `$ref` stays.
    document: Plain = json.loads(Template(text).safe_substitute(version=version, short_names=short_names))
    document["paths"] = dict(_paths(cast("Plain", document["paths"])))
    return document


def _paths(written: Plain) -> Iterator[tuple[str, PlainValue]]:
    for path, operations in written.items():
        if "$" not in path:
            yield path, operations
            continue
        template = Template(json.dumps([path, operations]))
        for row in RESOURCE_TYPES:
            if row.rest_path is not None or "$rest_path" not in path:
                path_of_type, operations_of_type = json.loads(template.safe_substitute(_words_of(row)))
                yield path_of_type, operations_of_type


def _words_of(row: ResourceType) -> dict[str, str]:
    """Return what is different in the operations of each type; `Noun` is for the names of operations."""
    return {
        "message_type": row.message_type,
        "type_url": row.type_url,
        "rest_path": row.rest_path or "",
        "noun": row.noun,
        "Noun": "".join(part.capitalize() for part in row.noun.split("-")),
        "fact": "The secret, with `Cache-Control: no-store`." if row.is_secret else "The resource.",
    }
