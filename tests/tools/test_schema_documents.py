"""The schema of files: what fsxds reads is taken, and mistakes are refused."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fsxds.api.catalogue import Catalogue
from fsxds.formats import format_of
from fsxds.formats.decoded import PlainDocument
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES, ResourceType, type_from_path
from fsxds.tools.json_schema import Spelling
from fsxds.tools.schema_documents import documents_schema, schema_text
from tests.support.validation import Validator
from tests.tools.conftest import SchemaOf, ValidatorOf

TOP = Path(__file__).parents[2]
SMALL = ("UpstreamTlsContext", "HttpProtocolOptions")
CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


@pytest.fixture(scope="session")
def clusters(validator_of: ValidatorOf) -> Validator:
    """Validates files of clusters, with few packed types, because that is fast."""
    return validator_of("cds", packed=SMALL, spelling="both")


WEB = {"name": "web", "connect_timeout": "1s"}


@pytest.mark.parametrize(
    "value",
    [
        WEB,
        {"@type": CLUSTER, **WEB},
        [WEB, {"@type": CLUSTER, **WEB}],
        {"resources": []},
        {"resources": WEB},
        {"version_info": 1.5, "resources": [WEB], "type_url": CLUSTER, "nonce": "n"},
        {"versionInfo": "1", "resources": [{"name": "web", "resource": WEB, "ttl": "5s", "aliases": ["x"]}]},
        {"@type": "type.googleapis.com/envoy.service.discovery.v3.DiscoveryResponse", "resources": [WEB]},
        [{"resource": WEB}, {"resources": [WEB]}],
        {"kind": "Layer", "delete": {"clusters": ["web"], "rds": "main"}},
        {"kind": "Layer", "patch": {"envoy.config.cluster.v3.Cluster": {"web": {"connect_timeout": None}}}},
    ],
)
def test_shapes_that_are_read(value: Any, clusters: Validator) -> None:
    """Responses, wrappers, single resources, and lists of them."""
    assert clusters.is_valid(value)


@pytest.mark.parametrize(
    "value",
    [
        {"name": "web", "conect_timeout": "1s"},
        {"resources": [{"name": "web", "conect_timeout": "1s"}]},
        {"resources": [{"resource": {"nam": "web"}}]},
        {"resources": [WEB], "version": "1"},
        {"resources": 5},
        {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "web"},
        {"@type": "envoy.config.cluster.v3.Cluster", "name": "web"},
        {"name": "web", "connect_timeout": "1"},
        "web",
        {"kind": "Layer", "delete": ["web"]},
        {"kind": "Layer", "patch": {"cluster": {}}},
        {"kind": "Layer", "patch": {"clusters": {"web": None}}},
    ],
)
def test_mistakes_are_refused(value: Any, clusters: Validator) -> None:
    """Typing errors, other types, and what is no resource."""
    assert not clusters.is_valid(value)


@pytest.mark.parametrize(
    ("packed", "taken"),
    [
        ({"@type": TLS, "sni": "x"}, True),
        ({"@type": "example.com/" + TLS.rpartition("/")[2]}, True),
        ({}, True),
        ({"@type": TLS, "snii": "x"}, False),
        ({"sni": "x"}, False),
        ({"@type": TLS + "s"}, False),
    ],
)
def test_packed_messages(packed: Any, *, taken: bool, clusters: Validator) -> None:
    """Their "@type" leads to their schema; a host is free, and an empty Any is none."""
    value = {**WEB, "transport_socket": {"name": "tls", "typed_config": packed}}

    assert taken == clusters.is_valid(value)


def test_only_the_chosen_types_may_be_packed(validator_of: ValidatorOf) -> None:
    """A small schema refuses what it was not made for."""
    packed = {"transport_socket": {"name": "tls", "typed_config": {"@type": TLS}}}
    other = validator_of("cds", packed=("RawBuffer",))

    assert not other.is_valid({**WEB, **packed})


def test_types_that_there_are_not(catalogue: Catalogue) -> None:
    """They are told of, with what to write."""
    with pytest.raises(UsageError, match="there is no message type Ruter; give its full name"):
        documents_schema(catalogue, [BY_SHORT_NAME["cds"]], ["Ruter"])


def test_several_types_in_one_file(validator_of: ValidatorOf) -> None:
    """Without an "@type", a resource is of any of them."""
    both = validator_of("cds", "eds", packed=SMALL)

    assert both.is_valid([WEB, {"cluster_name": "web"}, {"@type": CLUSTER, **WEB}])
    assert not both.is_valid([{"@type": CLUSTER, "cluster_name": "web"}])
    assert not both.is_valid([{"route": "web"}])


def test_schema_is_one_itself(catalogue: Catalogue) -> None:
    """It obeys the schema of schemas."""
    Draft202012Validator.check_schema(documents_schema(catalogue, [BY_SHORT_NAME["eds"]], ["StringMatcher"]))


def test_every_reference_has_its_definition(schema_of: SchemaOf) -> None:
    """Nothing is missing, and nothing is there that is not needed."""
    schema = schema_of()
    text = schema_text(schema)

    assert [] == [name for name in schema["$defs"] if f'"#/$defs/{name}"' not in text]
    assert {part.partition('"')[0] for part in text.split('"#/$defs/')[1:]} == set(schema["$defs"])


def test_text_is_the_same_each_time(catalogue: Catalogue, schema_of: SchemaOf) -> None:
    """Equal bytes for equal questions; a definition a line."""
    text = schema_text(schema_of())

    assert text == schema_text(documents_schema(Catalogue.of(catalogue.serialized, "again", catalogue.features)))
    assert json.loads(text) == documents_schema(catalogue)
    assert text.count("\n") > len(json.loads(text)["$defs"])


@pytest.mark.parametrize("spelling", ["snake", "camel"])
@pytest.mark.parametrize("row", RESOURCE_TYPES, ids=lambda row: row.short_name)
def test_schemas_of_one_type_are_short(row: ResourceType, spelling: Spelling, schema_of: SchemaOf) -> None:
    """Editors read them at each start; they hold what can stand in such files, and no other types."""
    assert len(schema_text(schema_of(row.short_name, spelling=spelling))) <= 330_000


def test_extensions_in_progress_are_open_where_a_schema_is_long(validator_of: ValidatorOf) -> None:
    """In that of clusters they are checked, in that of listeners they may have any field."""
    key_auth = "type.googleapis.com/envoy.extensions.filters.http.connect_grpc_bridge.v3.FilterConfig"
    clusters, listeners = (validator_of(name) for name in ("rds", "lds"))
    route = {"name": "r", "virtual_hosts": [{"name": "v", "domains": ["*"], "typed_per_filter_config": {
        "x": {"@type": key_auth, "what": 1}}}]}  # fmt: skip
    http = {"name": "http", "typed_config": {"@type": HCM, "stat_prefix": "s", "route_config": route}}

    assert not clusters.is_valid(route)
    assert listeners.is_valid({"name": "l", "filter_chains": [{"filters": [http]}]})


@pytest.mark.parametrize(
    ("row", "field", "type_url", "taken"),
    [
        ("cds", "transport_socket", TLS, True),
        ("cds", "transport_socket", TLS.replace("Upstream", "Downstream"), False),
        ("lds", "access_log", "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog", True),
        ("lds", "access_log", TLS, False),
        ("lds", "access_log", "type.googleapis.com/xds.type.v3.TypedStruct", True),
        ("lds", "access_log", "type.googleapis.com/envoy.extensions.access_loggers.mine.v3alpha.Log", True),
    ],
)
def test_extensions_stand_where_envoy_takes_them(
    row: str, field: str, type_url: str, *, taken: bool, validator_of: ValidatorOf
) -> None:
    """A type that is no extension of the category of a place is a mistake; some may stand everywhere."""
    fields = {"path": "/dev/null"} if "File" in type_url else {}
    held = {"name": "x", "typed_config": {"@type": type_url, **fields}}

    assert taken == validator_of(row).is_valid({"name": "x", field: [held] if field == "access_log" else held})


def test_resources_that_are_extensions(validator_of: ValidatorOf) -> None:
    """Of what is served on its own, only filters are known."""
    discovered = validator_of("ecds")

    assert discovered.is_valid({"name": "x", "typed_config": {"@type": HCM, "stat_prefix": "s", "rds": {}}})
    assert not discovered.is_valid({"name": "x", "typed_config": {"@type": TLS}})


@pytest.mark.parametrize("spelling", ["snake", "camel", "both"])
def test_envelopes_are_spelled_as_their_content(spelling: Spelling, validator_of: ValidatorOf) -> None:
    """The fields of responses too."""
    validator = validator_of("eds", spelling=spelling)

    assert (spelling != "camel") == validator.is_valid({"version_info": "1", "resources": [{"cluster_name": "a"}]})
    assert (spelling != "snake") == validator.is_valid({"versionInfo": "1", "resources": [{"clusterName": "a"}]})


def test_schema_without_definitions_is_text_as_well() -> None:
    """Other schemas are written in the same way."""
    assert schema_text({"title": "x", "type": "object"}) == '{\n"title":"x",\n"type":"object"\n}\n'


SAMPLE = sorted(path.relative_to(TOP / "config/xds") for path in (TOP / "config/xds").rglob("*.*"))


@pytest.mark.parametrize("path", SAMPLE, ids=str)
def test_sample_tree_is_valid(path: Path, catalogue: Catalogue, validator_of: ValidatorOf) -> None:
    """Every file that people copy obeys the schema of its type; one with a typing error does not."""
    row, file_format = type_from_path(PurePosixPath(path)), format_of(PurePosixPath(path))
    assert row is not None
    assert file_format is not None
    content = (TOP / "config/xds" / path).read_bytes()
    documents = file_format.decode(content, catalogue, row.message_type).documents
    validator = validator_of(row.short_name)

    assert documents
    for document in documents:
        assert isinstance(document, PlainDocument)
        assert [] == validator.messages(document.value)
        assert not validator.is_valid(_with_typing_error(document.value))


def _with_typing_error(value: Any) -> Any:
    """Return a document in which the name of a resource is misspelled."""
    if isinstance(value, list):
        return [_with_typing_error(value[0]), *value[1:]]
    if "resources" in value:
        return {**value, "resources": _with_typing_error(value["resources"])}
    return {f"{key}e" if key in {"name", "cluster_name"} else key: part for key, part in value.items()}
