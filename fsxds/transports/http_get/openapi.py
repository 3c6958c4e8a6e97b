"""The OpenAPI 3.1 description of the REST address, made from the table of types: polls by POST, and HTTP GET. Pure.

It says what can be relied on: paths, parameters, headers, statuses and the form of bodies. What a resource holds is the API
of Envoy, which `fsxds schema` writes as a JSON Schema, and each type links to its page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fsxds.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.transports.http_get.representations import (
    HTML_CONTENT,
    OF_INDEX,
    OF_LISTS,
    OF_RESOURCES,
    PROTOBUF_CONTENT,
    ContentFormat,
)
from fsxds.values import PlainValue

OPENAPI_PATH = "/openapi.json"
CLIENT_STATUS = "/v3/discovery:client_status"
_POLLS = "/v3/discovery:"
_DOCS = "https://www.envoyproxy.io/docs/envoy/latest/api-v3"
_PAGE = "https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol"

Plain = dict[str, PlainValue]

# What each error status means, and which headers it has.
_ERRORS: Mapping[int, str] = {
    400: "The request cannot be read, or has a field, name or parameter that does not exist.",
    401: "Credentials are missing, or not known.",
    403: "These credentials may not ask for this, or a secret would be sent in clear.",
    404: "There is no such path or resource.",
    406: "None of the formats of `Accept` can be written.",
    408: "The body did not arrive within 30 s.",
    412: "What there is has none of the tags of `If-Match`.",
    413: "The body is larger than `--max-body-bytes`.",
    415: "The content type is not JSON, or the content encoding is not `gzip` or `deflate`.",
    417: "An `expect` header other than `100-continue`.",
    429: "This peer asks too often; `Retry-After` says when to come back.",
    500: "An error of fsxds, whose log has its traceback.",
    503: "Nothing good was loaded yet, too much is held, or the server stops; `Retry-After` says when to come back.",
    508: "The poll came from this relay itself, through others.",
}
_OF_ALL = (400, 401, 403, 404, 417, 429, 500, 503)
_OF_POLLS = (*_OF_ALL, 408, 413, 415, 508)
_OF_GETS = (*_OF_ALL, 406, 412)


def openapi_document(version: str) -> Plain:
    """Return the description, in plain values, of the REST address of fsxds in this version."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fsxds",
            "version": version,
            "summary": "xDS over HTTP: long polls by POST, and resources by GET.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "externalDocs": {"description": "The xDS protocol", "url": _PAGE},
        "tags": [
            {"name": "GET", "description": "Resources and lists of them, for any HTTP client, proxy or CDN."},
            {
                "name": "POST",
                "description": "Discovery requests in proto JSON: the REST form of xDS, which Envoy uses.",
            },
        ],
        # Without tokens and client certificates in the settings nobody needs any.
        "security": [{}, {"token": []}, {"certificate": []}],
        "paths": {
            "/": {"get": _overview(), "head": _head("readOverviewHead")},
            OPENAPI_PATH: {"get": _description(), "head": _head("readDescriptionHead")},
            **{path: methods for row in RESOURCE_TYPES for path, methods in _paths_of(row)},
            CLIENT_STATUS: {"post": _client_status()},
        },
        "components": {
            "schemas": _schemas(),
            "parameters": _parameters(),
            "headers": _headers(),
            "responses": _responses(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of `--tokens`."},
                "certificate": {"type": "mutualTLS", "description": "A certificate that `--client-ca` signed."},
            },
        },
    }


def _paths_of(row: ResourceType) -> Iterable[tuple[str, Plain]]:
    list_path, path = f"/{row.message_type}/", f"/{row.message_type}/{{name}}"
    word = _camel(row.noun)
    yield list_path, {"get": _list(row, word), "head": _head(f"list{word}Head")}
    yield path, {"parameters": [_name(row)], "get": _resource(row, word), "head": _head(f"read{word}Head", _READING)}
    if row.rest_path is not None:
        yield _POLLS + row.rest_path, {"post": _poll(row, word)}


def _camel(noun: str) -> str:
    return "".join(part.capitalize() for part in noun.split("-"))


# -- GET

_READING = ("context", "wait", "prefer", "ifNoneMatch")


def _overview() -> Plain:
    return {
        "operationId": "readOverview",
        "tags": ["GET"],
        "summary": "Types, names and versions of what there is; a page for people where `Accept` asks for HTML.",
        "parameters": _refs("parameters", _READING),
        "responses": {
            "200": _answer(
                "What there is.",
                _contents(OF_INDEX, "Overview"),
            ),
            "304": _ref("responses", "notModified"),
            **_errors(_OF_GETS),
        },
    }


def _description() -> Plain:
    content: Plain = {"application/json": {"schema": {"type": "object", "required": ["openapi", "info", "paths"]}}}
    return {
        "operationId": "readDescription",
        "tags": ["GET"],
        "summary": "This description.",
        "parameters": _refs("parameters", ("ifNoneMatch",)),
        "responses": {
            "200": _answer("This description.", content),
            "304": _ref("responses", "notModified"),
            **_errors(_OF_ALL),
        },
    }


def _list(row: ResourceType, word: str) -> Plain:
    return {
        "operationId": f"list{word}",
        "tags": ["GET"],
        "summary": f"All {row.noun} of the node: their URLs and versions.",
        "description": f"`/{row.message_type}/some/folder/*` lists those whose names are in that folder.",
        "parameters": _refs("parameters", _READING),
        "responses": {
            "200": _answer("The list.", _contents(OF_LISTS, "List")),
            "304": _ref("responses", "notModified"),
            **_errors(_OF_GETS),
        },
    }


def _resource(row: ResourceType, word: str) -> Plain:
    fact = "The secret, with `Cache-Control: no-store`." if row.is_secret else "The resource."
    return {
        "operationId": f"read{word}",
        "tags": ["GET"],
        "summary": f"One of the {row.noun}: a message `{row.message_type}`, without `@type`.",
        "externalDocs": {"url": _DOCS},
        "parameters": _refs("parameters", _READING),
        "responses": {
            "200": _answer(f"{fact} A list where the name ends with `/*`.", _contents(OF_RESOURCES, "Resource")),
            "302": _ref("responses", "redirect"),
            "304": _ref("responses", "notModified"),
            **_errors(_OF_GETS),
        },
    }


def _name(row: ResourceType) -> Plain:
    return {
        "name": "name",
        "in": "path",
        "required": True,
        "description": (
            f"The path of a structured name, `xdstp://authority/{row.message_type}/PATH`, or a plain name. Slashes may stand as "
            "they are, or as `%2F`."
        ),
        "schema": {"type": "string", "minLength": 1},
    }


def _head(operation: str, parameters: Iterable[str] = ("ifNoneMatch",)) -> Plain:
    return {
        "operationId": operation,
        "tags": ["GET"],
        "summary": "The same without the body.",
        "parameters": _refs("parameters", parameters),
        "responses": {
            "200": {"description": "It is there.", "headers": _refs_by_name("headers", _ANSWERED)},
            "default": {"description": "As GET is answered, without the body."},
        },
    }


# -- POST


def _poll(row: ResourceType, word: str) -> Plain:
    return {
        "operationId": f"poll{word}",
        "tags": ["POST"],
        "summary": f"Poll for {row.noun}; held while nothing is newer than `version_info`.",
        "parameters": _refs("parameters", ("deadline", "timeout")),
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _ref("schemas", "DiscoveryRequest")}},
        },
        "responses": {
            "200": {
                "description": "What the client asks for has another version.",
                "content": {
                    "application/json": {
                        "schema": {
                            "allOf": [
                                _ref("schemas", "DiscoveryResponse"),
                                {"properties": {"type_url": {"const": row.type_url}}},
                            ]
                        }
                    }
                },
            },
            "304": {"description": "Nothing is newer; poll again."},
            **_errors(_OF_POLLS),
        },
    }


def _client_status() -> Plain:
    return {
        "operationId": "readClientStatus",
        "tags": ["POST"],
        "summary": "What each client was sent, and whether it took it (CSDS). Secrets are hidden.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
        "responses": {
            "200": {
                "description": "A `ClientStatusResponse`.",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            **_errors(_OF_POLLS),
        },
    }


# -- components


_TEXT: Plain = {"type": "string"}
_URL: Plain = {"type": "string", "format": "uri-reference"}


def _schemas() -> Plain:
    return {**_schemas_of_get(), **_schemas_of_post(), "Error": _error()}


def _schemas_of_get() -> Plain:
    inlined = _object({"name": _TEXT, "version": _TEXT, "contents": {"type": "object"}}, ("contents",))
    row = _object({"name": _TEXT, "version": _TEXT, "url": _URL}, ("name", "url"))
    types = _object(
        {
            "type": _TEXT,
            "short_name": {"enum": [row.short_name for row in RESOURCE_TYPES]},
            "version": _TEXT,
            "count": {"type": "integer", "minimum": 0},
            "url": _URL,
            "resources": {"type": "array", "items": row},
        },
        ("type", "short_name", "count", "url", "resources"),
    )
    return {
        "Resource": {
            "type": ["object", "array"],
            "description": "A message in proto JSON, with the names of fields as Envoy's API has them; or a list.",
        },
        "List": {"type": "array", "items": {"oneOf": [_ref("schemas", "Listed"), _ref("schemas", "Inlined")]}},
        "Listed": {
            "description": "One that has a URL of its own. Secrets have no version here.",
            **_object({"name": _URL, "version": _TEXT}, ("name",)),
        },
        "Inlined": {"description": "An inline entry of a list collection.", **_object({"value": inlined}, ("value",))},
        "Overview": _object({"authority": _TEXT, "types": {"type": "array", "items": types}}, ("authority", "types")),
    }


def _schemas_of_post() -> Plain:
    node = _object({"id": _TEXT, "cluster": _TEXT, "metadata": {"type": "object"}})
    request = _object(
        {
            "version_info": {**_TEXT, "description": "The version of the last response that was accepted."},
            "response_nonce": _TEXT,
            "resource_names": {"type": "array", "items": _TEXT},
            "type_url": _TEXT,
            "node": node,
            "error_detail": {"description": "Why that response was rejected.", **_object({"message": _TEXT})},
        }
    )
    response = _object(
        {
            "version_info": _TEXT,
            "nonce": _TEXT,
            "type_url": _TEXT,
            "resources": {"type": "array", "items": _object({"@type": _TEXT}, ("@type",))},
        },
        ("version_info", "resources", "type_url", "nonce"),
    )
    description = (
        "In snake_case or camelCase. Without `version_info` it is answered at once, without names with everything."
    )
    return {"DiscoveryRequest": {"description": description, **request}, "DiscoveryResponse": response}


def _error() -> Plain:
    code: Plain = {"type": "integer", "minimum": 1, "maximum": 16, "description": "The gRPC code."}
    message: Plain = {**_TEXT, "description": "The fact, and the remedy."}
    properties: Plain = {"code": code, "message": message, "details": {"type": "array"}}
    return {"description": "As gateways to gRPC write it.", **_object(properties, ("code", "message", "details"))}


def _parameters() -> Plain:
    context: Plain = {
        "name": "context",
        "in": "query",
        "style": "form",
        "explode": True,
        "description": (
            "Context parameters of the name. Those that begin with `xds.node.` say which node asks: `xds.node.id`, "
            "`xds.node.cluster`, `xds.node.metadata.KEY`."
        ),
        "schema": {"type": "object", "additionalProperties": {"type": "string"}},
        "example": {"xds.node.id": "edge-1", "xds.node.cluster": "edge"},
    }
    until = "Hold the answer for up to so many seconds, while the tag is one of those in `If-None-Match`."
    deadline = "The deadline of the client in milliseconds, as Envoy sends it."
    timeout = "How long the poll may be held where that header is absent: `30`, `30s` or `500ms`."
    # As `patience_of` of poll_requests.py reads them.
    time: Plain = {"type": "string", "pattern": r"^[0-9]{1,15}(\.[0-9]{1,9})?(ms|s)?$"}
    milliseconds: Plain = {"type": "string", "pattern": r"^[0-9]{1,15}(\.[0-9]{1,9})?$"}
    return {
        "context": context,
        "wait": _parameter("wait", "query", until, time),
        "prefer": _parameter("Prefer", "header", "`wait=SECONDS` (RFC 7240): the same as the parameter `wait`.", _TEXT),
        "ifNoneMatch": _parameter("If-None-Match", "header", "The tags of what the client has.", _TEXT),
        "deadline": _parameter("x-envoy-expected-rq-timeout-ms", "header", deadline, milliseconds),
        "timeout": _parameter("timeout", "query", timeout, time),
    }


def _parameter(name: str, place: str, description: str, schema: Plain) -> Plain:
    return {"name": name, "in": place, "description": description, "schema": schema}


_ANSWERED = ("ETag", "Cache-Control", "Vary")


def _headers() -> Plain:
    text: Plain = {"schema": {"type": "string"}}
    return {
        "ETag": {
            "description": "The strong tag of this representation; it changes with the content.",
            "required": True,
            **text,
        },
        "Cache-Control": {"description": "`max-age` of a resource with a time to live, else `no-cache`.", **text},
        "Vary": {"description": "What the representation depends on.", **text},
        "Preference-Applied": {"description": "Which preference was followed.", **text},
        "Location": {"description": "Where the resource is.", "schema": {"type": "string", "format": "uri-reference"}},
    }


def _responses() -> Plain:
    return {
        "notModified": {
            "description": "It still has one of the tags of `If-None-Match`.",
            "headers": _refs_by_name("headers", _ANSWERED),
        },
        "redirect": {
            "description": "The name stands for another one.",
            "headers": _refs_by_name("headers", ("Location",)),
        },
        **{
            f"error{status}": {
                "description": text,
                "content": {"application/json": {"schema": _ref("schemas", "Error")}},
            }
            for status, text in _ERRORS.items()
        },
    }


def _contents(formats: Iterable[ContentFormat], schema: str) -> Plain:
    texts: Mapping[ContentFormat, Plain] = {HTML_CONTENT: _TEXT, PROTOBUF_CONTENT: {}}
    return {
        each.content_type.partition(";")[0]: {"schema": texts.get(each, _ref("schemas", schema))} for each in formats
    }


def _answer(description: str, content: Plain) -> Plain:
    headers = _refs_by_name("headers", (*_ANSWERED, "Preference-Applied"))
    return {"description": description, "headers": headers, "content": content}


def _errors(statuses: Iterable[int]) -> Plain:
    return {str(status): _ref("responses", f"error{status}") for status in sorted(statuses)}


def _object(properties: Plain, required: Iterable[str] = ()) -> Plain:
    return {"type": "object", "properties": properties, **({"required": [*required]} if required else {})}


def _ref(section: str, name: str) -> Plain:
    return {"$ref": f"#/components/{section}/{name}"}


def _refs(section: str, names: Iterable[str]) -> list[PlainValue]:
    return [_ref(section, name) for name in names]


def _refs_by_name(section: str, names: Iterable[str]) -> Plain:
    return {name: _ref(section, name) for name in names}
