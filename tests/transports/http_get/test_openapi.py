from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from fsxds import __version__
from fsxds.resource_types import RESOURCE_TYPES
from fsxds.testing import serve
from fsxds.testing.server import Server
from fsxds.transports.http_get.openapi import openapi_document
from fsxds.transports.rest.application import ROWS

DOCUMENT: dict[str, Any] = openapi_document(__version__)
CLUSTER = "envoy.config.cluster.v3.Cluster"
SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"
LISTED = f"/{CLUSTER}/"
ONE = f"/{CLUSTER}/{{name}}"
POLL = "/v3/discovery:clusters"
JSON = {"content-type": "application/json"}
TREE = {
    "cds.yaml": "[{name: web, connect_timeout: 1s}, {name: edge/api, connect_timeout: 1s}]",
    "sds.yaml": "[{name: key, generic_secret: {secret: {inline_string: x}}}]",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve(TREE) as served:
        yield served


def test_the_document_is_valid() -> None:
    """By the specification of OpenAPI 3.1; operations have names of their own."""
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_it_has_all_paths() -> None:
    """Those of polls are those that are answered; each type has a list and resources."""
    paths = DOCUMENT["paths"]

    assert {path for path in paths if path.startswith("/v3/")} == {*ROWS, "/v3/discovery:client_status"}
    assert {path for path in paths if not path.startswith("/v3/")} == {
        "/",
        "/openapi.json",
        *(f"/{row.message_type}/" for row in RESOURCE_TYPES),
        *(f"/{row.message_type}/{{name}}" for row in RESOURCE_TYPES),
    }


def test_it_is_served(server: Server) -> None:
    """At its path, with a tag, and compressed where that is asked for."""
    with urlopen(f"{server.http}/openapi.json") as answer:
        tag = answer.headers["etag"]
        assert json.load(answer) == DOCUMENT
    with pytest.raises(HTTPError) as caught:
        urlopen(Request(f"{server.http}/openapi.json", headers={"if-none-match": tag}))
    with caught.value as answer:
        assert (answer.status, answer.headers["etag"]) == (304, tag)
    with urlopen(Request(f"{server.http}/openapi.json", headers={"accept-encoding": "gzip"})) as answer:
        assert (answer.headers["content-encoding"], answer.headers["etag"] == tag) == ("gzip", False)


@pytest.mark.parametrize(
    ("paths", "status", "headers", "body"),
    [
        (("/", "/"), 200, {}, None),
        (("/", "/"), 200, {"accept": "application/yaml"}, None),
        (("/", "/"), 200, {"accept": "text/html"}, None),
        (("/", "/?wait=0"), 304, {"if-none-match": "*"}, None),
        (("/", "/?tier=gold"), 400, {}, None),
        (("/", "/"), 406, {"accept": "image/png"}, None),
        (("/openapi.json", "/openapi.json"), 200, {}, None),
        (("/openapi.json", "/openapi.json"), 304, {"if-none-match": "*"}, None),
        ((LISTED, LISTED), 200, {}, None),
        ((LISTED, LISTED), 200, {"accept": "text/yaml"}, None),
        ((LISTED, LISTED), 304, {"if-none-match": "*"}, None),
        ((f"/{SECRET}/", f"/{SECRET}/"), 200, {}, None),
        ((ONE, f"/{CLUSTER}/web"), 200, {}, None),
        ((ONE, f"/{CLUSTER}/web?xds.node.id=a"), 200, {"prefer": "wait=1"}, None),
        ((ONE, f"/{CLUSTER}/edge%2Fapi"), 200, {}, None),
        ((ONE, f"/{CLUSTER}/edge/*"), 200, {}, None),
        ((ONE, f"/{CLUSTER}/web"), 200, {"accept": "application/yaml"}, None),
        ((ONE, f"/{CLUSTER}/web"), 200, {"accept": "application/x-protobuf"}, None),
        ((ONE, f"/{CLUSTER}/web"), 304, {"if-none-match": "*"}, None),
        ((ONE, f"/{CLUSTER}/%zz"), 400, {}, None),
        ((ONE, f"/{CLUSTER}/web?wait=soon"), 400, {}, None),
        ((ONE, f"/{CLUSTER}/nothing"), 404, {}, None),
        ((ONE, f"/{CLUSTER}/no%0Athing"), 404, {}, None),
        ((ONE, f"/{CLUSTER}/web"), 406, {"accept": "image/png"}, None),
        ((ONE, f"/{CLUSTER}/web"), 412, {"if-match": '"x"'}, None),
        ((ONE, f"/{CLUSTER}/web"), 417, {"expect": "miracles"}, None),
        ((f"/{SECRET}/{{name}}", f"/{SECRET}/key"), 200, {}, None),
        ((POLL, POLL), 200, JSON, b"{}"),
        ((POLL, POLL), 400, JSON, b"{"),
        ((POLL, POLL), 400, JSON, b'{"resourcenames": []}'),
        ((POLL, POLL), 413, JSON, b"x" * (1024 * 1024 + 1)),
        ((POLL, POLL), 415, {"content-type": "text/plain"}, b"{}"),
        (("/v3/discovery:client_status", "/v3/discovery:client_status"), 200, JSON, b"{}"),
    ],
)
def test_answers_are_as_it_says(
    server: Server, paths: tuple[str, str], status: int, headers: dict[str, str], body: bytes | None
) -> None:
    """Each status, content type, header and body of a real answer is what the document has for the operation."""
    operation, path = paths
    check_answer("get" if body is None else "post", operation, Request(server.http + path, body, headers), status)


def test_a_poll_that_has_everything_is_answered_as_it_says(server: Server) -> None:
    """With 304 and without a body."""
    with urlopen(Request(server.http + POLL, b"{}", JSON)) as answer:
        version = json.load(answer)["version_info"]
    body = json.dumps({"version_info": version}).encode()
    check_answer("post", POLL, Request(f"{server.http}{POLL}?timeout=0", body, JSON), 304)


def check_answer(method: str, operation: str, request: Request, status: int) -> None:
    try:
        answer = urlopen(request)
    except HTTPError as error:
        answer = error
    with answer:
        assert answer.status == status, answer.read()
        check_response(DOCUMENT["paths"][operation][method]["responses"][str(status)], answer.headers, answer.read())


def check_response(response: Any, headers: Mapping[str, str], content: bytes) -> None:
    response = resolved(response)
    for name, header in ((name, resolved(part)) for name, part in response.get("headers", {}).items()):
        assert name in headers or not header.get("required"), name
        if name in headers:
            validator_of(header["schema"]).validate(headers[name])
    if "content" not in response:
        assert content == b""
        return
    media_type = headers["content-type"].partition(";")[0]
    schema = response["content"][media_type]["schema"]
    if media_type == "application/json":
        validator_of(schema).validate(json.loads(content))


def resolved(part: Any) -> Any:
    """Follow a reference of the document."""
    while "$ref" in part:
        section, name = part["$ref"].removeprefix("#/components/").split("/")
        part = DOCUMENT["components"][section][name]
    return part


def validator_of(schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})
