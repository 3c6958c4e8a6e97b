from __future__ import annotations

import gzip
import json

import brotli
import pytest
import yaml
import zstandard
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from hypothesis import given
from hypothesis import strategies as st

from fsxds.api.printing import Printer
from fsxds.transports.http_get.get_requests import (
    CODINGS,
    HTML_CONTENT,
    JSON_CONTENT,
    OF_INDEX,
    OF_LISTS,
    OF_RESOURCES,
    PROTOBUF_CONTENT,
    YAML_CONTENT,
    ContentFormat,
    Representation,
    chosen_coding,
    chosen_format,
    compressed,
    content_of,
)
from fsxds.transports.rest.poll_responses import MOST_CHOICES
from tests.support.polls import envoy_catalogue, named

CLUSTER = "envoy.config.cluster.v3.Cluster"
CHROMIUM = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", JSON_CONTENT),
        ("*/*", JSON_CONTENT),
        ("application/json", JSON_CONTENT),
        ("application/*", JSON_CONTENT),
        ("APPLICATION/YAML", YAML_CONTENT),
        ("text/yaml", YAML_CONTENT),
        ("application/x-yaml;charset=utf-8", YAML_CONTENT),
        ("application/x-protobuf", PROTOBUF_CONTENT),
        ("application/octet-stream", PROTOBUF_CONTENT),
        ("application/json;q=0.5, application/yaml", YAML_CONTENT),
        ("application/json;q=0.5, application/yaml;q=0.4", JSON_CONTENT),
        ("*/*, application/yaml", YAML_CONTENT),
        ("application/json;q=0, */*;q=0.1", YAML_CONTENT),
        ("application/yaml , application/json", JSON_CONTENT),
        (CHROMIUM, JSON_CONTENT),
        ("text/plain", None),
        ("application/json;q=0", None),
        ("*/*;q=0", None),
        ("application/json;q=2", None),
        ("text/html", None),
    ],
)
def test_the_format_is_the_one_that_a_client_takes_best(accept: str, expected: ContentFormat | None) -> None:
    """By quality, then by how specifically it is named, then in our order; None where none is taken."""
    assert chosen_format(accept, OF_RESOURCES) is expected


def test_what_is_offered_differs() -> None:
    """A list has no serialized message, and a page for browsers is offered for the index alone."""
    assert chosen_format(CHROMIUM, OF_INDEX) is HTML_CONTENT
    assert chosen_format("application/x-protobuf", OF_LISTS) is None


@pytest.mark.parametrize(
    ("accept_encoding", "expected"),
    [
        ("", ""),
        ("identity", ""),
        ("gzip", "gzip"),
        ("x-gzip", "gzip"),
        ("GZIP;q=1.0", "gzip"),
        ("br", "br"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1, br;q=0.5", "gzip"),
        ("gzip;q=0", ""),
        ("*", "zstd"),
        ("*;q=0.5, zstd;q=0", "br"),
        ("identity, gzip;q=0.5", ""),
        ("deflate", ""),
        ("gzip;q=nonsense", ""),
    ],
)
def test_the_coding_is_the_one_that_a_client_takes_best(accept_encoding: str, expected: str) -> None:
    """None is used that it does not name, by its name or `*`."""
    assert chosen_coding(accept_encoding) == expected


@given(st.text(max_size=300))
def test_any_header_is_read(header: str) -> None:
    """Whatever a client sends, something is chosen."""
    assert chosen_format(header, OF_RESOURCES) in {*OF_RESOURCES, None}
    assert chosen_coding(header) in {"", *CODINGS}


def test_a_long_header_is_not_read_to_its_end() -> None:
    """What comes after a hundred choices makes no difference."""
    many = ", ".join(["a/b"] * MOST_CHOICES)

    assert chosen_format(f"{many}, application/json", OF_RESOURCES) is None
    assert chosen_coding(f"{many}, gzip") == ""


def test_each_representation_has_a_tag_of_its_own() -> None:
    """Plain JSON has the version alone."""
    tags = {
        Representation(each, coding).tag_of("1") for each in {*OF_RESOURCES, *OF_INDEX} for coding in ("", *CODINGS)
    }

    assert Representation(JSON_CONTENT).tag_of("1") == '"1"'
    assert Representation(YAML_CONTENT, "gzip").tag_of("1") == '"1.yaml.gzip"'
    assert len(tags) == 16


def test_a_resource_is_written_in_each_format() -> None:
    """JSON and YAML are of the same values, without the type; protobuf is the message."""
    resource, printer = named("cds", "web", alt_stat_name="x: y"), Printer(envoy_catalogue())
    expected = {"name": "web", "alt_stat_name": "x: y"}

    assert json.loads(content_of(resource, JSON_CONTENT, printer)) == expected
    assert yaml.safe_load(content_of(resource, YAML_CONTENT, printer)) == expected
    assert Cluster.FromString(content_of(resource, PROTOBUF_CONTENT, printer)).alt_stat_name == "x: y"


def test_codings_are_what_they_are_called() -> None:
    """Each coding is read by its library, and equal content gives equal bytes."""
    content = b"fsxds " * 1000
    read = {"gzip": gzip.decompress, "br": brotli.decompress, "zstd": zstandard.decompress}

    assert set(CODINGS) == set(read)
    for coding, decompress in read.items():
        assert decompress(compressed(content, coding)) == content
        assert compressed(content, coding) == compressed(content, coding)
    assert compressed(content, "") == content
