from __future__ import annotations

import json
from typing import Any

import pytest

from fsxds.model.errors import ProtocolError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import Nonce, Version
from fsxds.protocol.messages import Node
from fsxds.protocol.poll import PollRequest
from fsxds.protocol.subscription import Subscription
from fsxds.transports.rest import poll_requests
from fsxds.transports.rest.poll_requests import RestRequestReader, patience_of, strict_loads
from tests.support.polls import REAL_REQUEST, envoy_catalogue

CDS, EDS = BY_SHORT_NAME["cds"], BY_SHORT_NAME["eds"]
CATALOGUE = envoy_catalogue()


def parse(**fields: object) -> PollRequest:
    return RestRequestReader(CATALOGUE).read(json.dumps(fields).encode(), EDS, "10.0.0.1", from_envoy=False)


@pytest.fixture(params=["orjson", "json"], autouse=True)
def loads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fact holds with orjson and without it."""
    if request.param == "json":
        monkeypatch.setattr(poll_requests, "_loads", strict_loads)


def test_an_empty_object_asks_for_everything() -> None:
    """Every field is optional, the node included."""
    expected = PollRequest(Node("", "", "10.0.0.1"), Subscription(EDS.type_url))

    assert parse() == expected


def test_structured_names() -> None:
    """Names have their canonical form; a poll with a name of another type, or with none, is rejected."""
    name = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment"

    assert parse(resource_names=["web", f"{name}/a b"]).subscription.names == {"web", f"{name}/a%20b"}
    for wrong in ("xdstp://x/envoy.config.cluster.v3.Cluster/a", "xdstp:", f"{name}/a#entry=b"):
        with pytest.raises(ProtocolError, match=r"^resource_names: '.*; (?:write|remove)"):
            parse(resource_names=["web", wrong])


@pytest.mark.parametrize(
    "fields",
    [
        {
            "version_info": "7",
            "node": {
                "id": "n",
                "cluster": "c",
                "locality": {"region": "r", "sub_zone": "s"},
                "metadata": {"labels": {"tier": "gold"}},
                "user_agent_name": "curl",
                "user_agent_version": "8",
            },
            "resource_names": ["b", "a"],
            "type_url": EDS.type_url,
            "response_nonce": "9",
            "error_detail": {"code": 3, "message": "no", "details": [{"@type": "x"}]},
        },
        {
            "versionInfo": "7",
            "node": {
                "id": "n",
                "cluster": "c",
                "locality": {"region": "r", "subZone": "s"},
                "metadata": {"labels": {"tier": "gold"}},
                "userAgentName": "curl",
                "userAgentVersion": "8",
                "clientFeatures": ["f"],
            },
            "resourceNames": ["a", "b", "a"],
            "typeUrl": EDS.type_url,
            "responseNonce": "9",
            "errorDetail": {"message": "no"},
            "resourceLocators": [{"name": "a", "dynamicParameters": {"b": "c"}}],
        },
    ],
    ids=["snake_case", "camelCase"],
)
def test_all_fields_in_both_spellings(fields: dict[str, Any]) -> None:
    """Those of the node, of locators and of errors included."""
    subscription = Subscription(EDS.type_url, frozenset("ab"), wildcard=False)
    attributes = (
        ("locality.region", "r"),
        ("locality.sub_zone", "s"),
        ("metadata.labels.tier", "gold"),
        ("user_agent_version", "8"),
    )
    node = Node("n", "c", "10.0.0.1", agent="curl", attributes=attributes)
    expected = PollRequest(node, subscription, Version("7"), Nonce("9"), "no")

    assert parse(**fields) == expected


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"resource_namez": ["a"]},
            'resource_namez: envoy.service.discovery.v3.DiscoveryRequest has no field "resource',
        ),
        ({"resourceNamez": ["a"]}, 'did you mean "resourceNames"?'),
        ({"node": {"ID": "a"}}, 'node.ID: envoy.config.core.v3.Node has no field "ID"; did you mean "id"?'),
        ({"node": {"locality": {"zon": "a"}}}, 'did you mean "zone"?'),
        ({"resource_locators": [{"nam": "a"}]}, "resource_locators[0].nam: "),
        ({"resource_locators": 7}, "resource_locators: "),
        ({"error_detail": {"code": "many"}}, "error_detail.code: "),
        ({"node": {"client_features": [7]}}, "node.client_features[0]: "),
        ({"node": {"user_agent_name": 7}}, "node.user_agent_name: "),
        ({"unknown": {"deep": [1, 2.5, None, True]}}, "DiscoveryRequest has no such field; remove it"),
    ],
)
def test_a_misspelt_field_is_named(fields: dict[str, Any], said: str) -> None:
    """With what was probably meant; ignored, it could ask for everything."""
    with pytest.raises(ProtocolError) as caught:
        parse(**fields)

    assert said in str(caught.value)
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("spelling", ["user_agent_name", "userAgentName"])
def test_an_envoy_may_send_what_nobody_knows(spelling: str) -> None:
    """Its version may have fields that this one lacks."""
    fields = {"unknown": {"deep": [1]}, "node": {"id": "n", spelling: "envoy-mobile", "unknown": 1}}

    assert parse(**fields).node.id == "n"


def test_null_and_empty_mean_absent() -> None:
    """As proto3 JSON has it."""
    names = "version_info", "node", "resource_names", "type_url", "response_nonce", "error_detail"

    assert parse(**dict.fromkeys(names)) == parse()
    assert parse(version_info="", type_url="", response_nonce="", resource_names=[], node={}) == parse()


def test_an_error_without_words_is_an_error() -> None:
    """Its presence is what counts."""
    assert parse(error_detail={}).error_detail == ""
    assert parse(error_detail={"message": "no: goo.gle/debugproto secret: S3CR3T"}).error_detail == "no"
    assert parse().error_detail is None


def test_a_star_means_everything() -> None:
    """Whatever else is named."""
    assert parse(resource_names=["a", "*"]).subscription == Subscription(EDS.type_url)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"version_info": 7}, "version_info: is a number; send a string"),
        ({"version_info": True}, "version_info: is a boolean; send a string"),
        ({"versionInfo": ["7"]}, "version_info: is a list; send a string"),
        ({"version_info": "7", "versionInfo": "7"}, "version_info: is duplicated, also as versionInfo"),
        ({"node": "n"}, "node: is a string; send an object"),
        ({"node": {"id": {}}}, "node.id: is an object; send a string"),
        ({"node": {"cluster": 1.5}}, "node.cluster: is a number; send a string"),
        ({"resource_names": {"a": 1}}, "resource_names: is an object; send a list of strings"),
        ({"resource_names": ["a", 1]}, "resource_names[1]: is a number; send a string"),
        ({"type_url": CDS.type_url}, f"type_url: is {CDS.type_url}, but this path serves {EDS.type_url}; send that"),
        ({"response_nonce": 1}, "response_nonce: is a number; send a string"),
        ({"error_detail": "no"}, "error_detail: is a string; send an object"),
        ({"error_detail": {"message": 1}}, "error_detail.message: is a number; send a string"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], said: str) -> None:
    """With the fact and the remedy."""
    with pytest.raises(ProtocolError) as caught:
        parse(**fields)

    assert str(caught.value).startswith(said)
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"node": {"id": "a"}, "node": {"id": "b"}}', "node: is there twice in one object; send it once"),
        (b'{"node": {"id": "a", "id": "a"}}', "id: is there twice"),
        (b'{"node": {"metadata": {"s3cret-9": 1, "s3cret-9": 2}}}', "a key: is there twice"),
    ],
)
def test_a_key_that_is_there_twice_is_named(body: bytes, said: str) -> None:
    """Readers of JSON take either value: who signed for one may have meant the other."""
    with pytest.raises(ProtocolError) as caught:
        RestRequestReader(CATALOGUE).read(body, EDS, "", from_envoy=False)

    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"{}{}",
        b"null",
        b"1",
        b"'{}'",
        b"\xff",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b'{"a": NaN}',
        b'{"a": ' + b"1" * 5000 + b"x}",
        b"[" * 200_000,
        b'{"version_info": "\\ud800"}',
        b'{"resource_names": ["\\udfff"]}',
    ],
)
def test_what_is_no_request(body: bytes) -> None:
    """It is the client's mistake, whatever it is."""
    with pytest.raises(ProtocolError):
        RestRequestReader(CATALOGUE).read(body, CDS, "", from_envoy=False)


def test_envoys_own_request_is_understood() -> None:
    """The 77 kB of a real Envoy 1.40."""
    poll = RestRequestReader(CATALOGUE).read(REAL_REQUEST.read_bytes(), CDS, "", from_envoy=True)
    attributes = (
        ("locality.region", "r"),
        ("locality.zone", "z"),
        ("metadata.n", "1"),
        ("metadata.role", "edge"),
        ("user_agent_version", "1.40.0"),
    )
    node = Node("n1", "c1", agent="envoy", attributes=attributes)
    expected = PollRequest(node, Subscription(CDS.type_url), Version("v1"), from_envoy=True)

    assert poll == expected


def test_a_repeated_body_is_parsed_once() -> None:
    """The value is the same one; another peer, path or way of asking is another request."""
    reader = RestRequestReader(CATALOGUE)
    body = REAL_REQUEST.read_bytes().replace(
        b'"type_url":"type.googleapis.com/envoy.config.cluster.v3.Cluster"', b'"x":1'
    )
    first = reader.read(body, CDS, "10.0.0.1", from_envoy=True)

    assert reader.read(bytes(bytearray(body)), CDS, "10.0.0.1", from_envoy=True) is first
    assert reader.parsed == 1
    assert reader.read(body, CDS, "10.0.0.2", from_envoy=True).node.peer == "10.0.0.2"
    assert reader.read(body, EDS, "10.0.0.1", from_envoy=True).subscription.type_url == EDS.type_url
    assert not reader.read(body, CDS, "10.0.0.1", from_envoy=False).from_envoy
    assert reader.parsed == 4


def test_the_memory_is_bounded() -> None:
    """Whoever was not heard of for longest is forgotten; a body with very many names is not remembered."""
    reader = RestRequestReader(CATALOGUE, most_remembered=2)
    bodies = [json.dumps({"node": {"id": f"n{number}"}}).encode() for number in range(3)]
    for number in (0, 1, 0, 2, 0, 1):
        reader.read(bodies[number], CDS, "", from_envoy=False)
    assert reader.parsed == 4

    many = json.dumps({"resource_names": [f"name-{number}" for number in range(1000)]}).encode()
    for _ in range(2):
        reader.read(many, EDS, "", from_envoy=False)
    assert reader.parsed == 6


def test_a_bad_request_is_not_remembered() -> None:
    """It is refused each time."""
    reader = RestRequestReader(CATALOGUE)
    for _ in range(2):
        with pytest.raises(ProtocolError):
            reader.read(b"{", CDS, "", from_envoy=False)

    assert reader.parsed == 0


@pytest.mark.parametrize(
    ("deadline", "timeout", "expected"),
    [
        (None, None, 60),
        ("1000", None, 0.9),
        ("30000", "5", 28.5),
        ("1000.5", None, 0.9005),
        (" 400 ", None, 0.3),
        ("299", None, 0),
        ("0", None, 0),
        (None, "5", 5),
        (None, "2.5s", 2.5),
        (None, "500ms", 0.5),
        (None, "900", 60),
    ],
)
def test_patience(deadline: str | None, timeout: str | None, expected: float) -> None:
    """The header goes before the parameter, and `max_hold_s` caps both."""
    assert patience_of(deadline, timeout, 60) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("deadline", "timeout"),
    [("1s", None), ("", None), ("-5", None), ("nan", None), ("1e3", None), ("9" * 20, None), (None, "5m"), (None, "s")],
)
def test_no_patience(deadline: str | None, timeout: str | None) -> None:
    """What cannot be read is refused, by its name."""
    with pytest.raises(ProtocolError, match=r"^(x-envoy-expected-rq-timeout-ms|timeout): "):
        patience_of(deadline, timeout, 60)
