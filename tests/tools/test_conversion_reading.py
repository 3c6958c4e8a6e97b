from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.formats import format_of
from fsxds.model.resource_types import type_from_path
from fsxds.model.values import SourceFile
from fsxds.tools.conversion import ConversionReader, Input

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
TYPED = f'"@type": "{CLUSTER}"'


def read(catalogue: Catalogue, name: str, content: str | bytes) -> Input:
    """Read a file."""
    path = PurePosixPath(name)
    row = format_of(path)
    assert row is not None
    file = SourceFile.of(path, content.encode() if isinstance(content, str) else content)
    return ConversionReader(catalogue).read(file, row, type_from_path(path))


def outline(found: Input) -> list[list[str] | str]:
    """Return the messages' short names by documents: a list for a list."""
    parts = ([str(message.DESCRIPTOR.name) for message in part.messages] for part in found.parts)
    return [names if part.is_list else names[0] for names, part in zip(parts, found.parts, strict=True)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cds.yaml", "name: a", ["Cluster"]),
        ("x.yaml", f"{{{TYPED}, name: a}}", ["Cluster"]),
        (
            "cds.yaml",
            "- name: a\n- resource: {name: b}\n- resources: []",
            [["Cluster", "Resource", "DiscoveryResponse"]],
        ),
        ("cds.yaml", "resources: [{name: a}]\n---\nname: b", ["DiscoveryResponse", "Cluster"]),
        ("x.json", f'{{"resource": {{{TYPED}}}, "ttl": "5s"}}', ["Resource"]),
        ("cds.json", "[]", [[]]),
        ("x.textproto", f"resources {{ [{CLUSTER}] {{}} }}", ["DiscoveryResponse"]),
        ("x.yaml", '"@type": type.googleapis.com/envoy.config.bootstrap.v3.Bootstrap', ["Bootstrap"]),
        ("x.pb", b"\x0a\x011", ["DiscoveryResponse"]),
    ],
)
def test_shapes(catalogue: Catalogue, name: str, text: str | bytes, expected: list[list[str] | str]) -> None:
    """Documents keep their shape: responses, wrappers, single messages, lists."""
    found = read(catalogue, name, text)

    assert () == found.problems
    assert expected == outline(found)


def test_an_envelope_keeps_all_fields(catalogue: Catalogue) -> None:
    """Version, nonce and the rest stay; the type of a resource comes from the envelope, before the file's name."""
    text = f"{{version_info: '7', nonce: n1, typeUrl: {CLUSTER}, control_plane: {{identifier: x}}, resources: [{{name: a}}]}}"
    (part,) = read(catalogue, "eds.yaml", text).parts
    response: Any = part.messages[0]

    assert ("7", "n1", CLUSTER, "x") == (
        response.version_info,
        response.nonce,
        response.type_url,
        response.control_plane.identifier,
    )
    assert CLUSTER == response.resources[0].type_url


def test_a_wrapper_keeps_all_fields(catalogue: Catalogue) -> None:
    """TTL, aliases and version of a wrapper stay, also in a list of resources."""
    wrapper = "{name: a, version: v, ttl: 5s, aliases: [b], resource: {name: a}}"
    (part,) = read(catalogue, "cds.yaml", f"resources: [{wrapper}]").parts
    response: Any = part.messages[0]
    wrapped: Any = catalogue.message_class("envoy.service.discovery.v3.Resource").FromString(
        response.resources[0].value
    )

    assert ("a", "v", 5, ["b"]) == (wrapped.name, wrapped.version, wrapped.ttl.seconds, list(wrapped.aliases))
    assert CLUSTER == wrapped.resource.type_url


def test_an_empty_response_keeps_its_type(catalogue: Catalogue) -> None:
    """That there is none of a type is said by the file's name, and then by the response."""
    (part,) = read(catalogue, "cds.yaml", "resources: []").parts
    response: Any = part.messages[0]

    assert CLUSTER == response.type_url


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cds.yaml", "name: a\nconect_timeout: 1s", "cds.yaml:2:1 unknown-field conect_timeout"),
        ("cds.yaml", "resources:\n- name: a\n- name: [b]", "cds.yaml:3:3 wrong-value resources[1].name"),
        ("cds.yaml", "resources:\n- resource:\n    name: 5", "cds.yaml:3:5 wrong-value resources[0].resource.name"),
        ("x.yaml", "name: a", "x.yaml:1:1 missing-type "),
        ("x.yaml", "- [a]", "x.yaml:1:3 wrong-value [0]"),
        ("cds.yaml", "a: [", "cds.yaml:1:5 bad-syntax "),
        ("cds.yaml", "", "cds.yaml:1:1 empty-file "),
        ("cds.yaml", "resources:", "cds.yaml:1:1 no-resources "),
        ("cds.json", '{"name": "a",\n "x": 1}', "cds.json:2:2 unknown-field […]"),
        ("cds.textproto", "name: 'a'\nx: 1", "cds.textproto:2:1 unknown-field "),
        ("x.pb", b"\xff", "x.pb:1:1 bad-syntax "),
        ("x.pb", b"\x12\x05\x0a\x03a/b", "x.pb:1:1 unknown-type resources[0]"),
    ],
)
def test_problems(catalogue: Catalogue, name: str, text: str | bytes, expected: str) -> None:
    """A mistake is told with its place, as `check` tells it."""
    first = read(catalogue, name, text).problems[0]

    assert expected == f"{first.path}:{first.line}:{first.column} {first.rule} {first.pointer}"
