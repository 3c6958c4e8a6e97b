from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from fsxds import __version__
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.testing import serve
from fsxds.testing.server import Server
from fsxds.transports.http_get.get_handler import openapi_document
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


def test_each_type_has_its_words() -> None:
    """Its short name is in the overview, its URL in polls; its nouns are in the names of operations, and nothing is left to fill in."""
    paths, schemas = DOCUMENT["paths"], DOCUMENT["components"]["schemas"]
    overview = schemas["Overview"]["properties"]["types"]["items"]["properties"]
    assert overview["short_name"]["enum"] == [row.short_name for row in RESOURCE_TYPES]
    for path, row in ROWS.items():
        _, narrowed = paths[path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]["allOf"]
        assert narrowed["properties"]["type_url"]["enum"] == [row.type_url]
    for row in RESOURCE_TYPES:
        one = paths[f"/{row.message_type}/{{name}}"]
        assert row.message_type in one["parameters"][0]["description"]
        assert ("no-store" in one["get"]["responses"]["200"]["description"]) == row.is_secret
        assert one["get"]["operationId"].lower() == "read" + row.noun.replace("-", "")
        assert row.noun in one["get"]["summary"]
    assert DOCUMENT["info"]["version"] == __version__
    assert set(re.findall(r"\$[^\"]?", json.dumps(DOCUMENT).replace('"$ref"', ""))) == {"$"}, "patterns end with it"


def test_generators_of_clients_understand_all_schemas() -> None:
    """Each array says what its items are, and what narrows a property repeats its type: else openapi-python-client drops both."""
    schemas = [each for each in parts_of(DOCUMENT) if "array" in each.get("type", ())]
    assert schemas
    assert [each for each in schemas if "items" not in each] == []
    narrowed = [each for part in parts_of(DOCUMENT) for each in part.get("allOf", ()) if "properties" in each]
    assert narrowed
    assert {each.get("type") for part in narrowed for each in part["properties"].values()} == {"string"}
    assert [part for part in parts_of(DOCUMENT) if "const" in part] == []


@pytest.mark.parametrize(("operation", "path"), [("/", "/"), (LISTED, LISTED), (ONE, f"/{CLUSTER}/web")])
def test_it_has_all_formats(server: Server, operation: str, path: str) -> None:
    """Those that the server says it can write are those of the document, and it writes each."""
    with pytest.raises(HTTPError) as caught:
        urlopen(Request(server.http + path, headers={"accept": "image/png"}))
    with caught.value as answer:
        _, _, offered = json.load(answer)["message"].partition("ask for one of ")
    written = DOCUMENT["paths"][operation]["get"]["responses"]["200"]["content"]

    assert [*written] == [each.partition(";")[0] for each in offered.split(", ")]
    for media_type in written:
        with urlopen(Request(server.http + path, headers={"accept": media_type})) as answer:
            assert answer.headers.get_content_type() == media_type


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


def parts_of(part: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of the document."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from parts_of(inner)


def resolved(part: Any) -> Any:
    """Follow a reference of the document."""
    while "$ref" in part:
        section, name = part["$ref"].removeprefix("#/components/").split("/")
        part = DOCUMENT["components"][section][name]
    return part


def validator_of(schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})
