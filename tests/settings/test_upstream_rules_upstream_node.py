"""The setting `upstream_node`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fsxds.model.values import PlainValue
from fsxds.settings.structured import DEEPEST, MistakesFound
from fsxds.settings.upstream_rules import UPSTREAM_NODE, UpstreamNode
from tests.support.settings_files import complaints_of


def test_a_node_has_what_upstreams_look_at() -> None:
    """Metadata is any JSON, as control planes expect it; an id may look like a number."""
    metadata: dict[str, PlainValue] = {"LABELS": {"app": "web", "ports": [1, 2.5, None, True]}, "EMPTY": {}, "NONE": []}
    written = {"id": 7, "cluster": "edge", "locality": {"region": "eu", "sub_zone": "b"}, "metadata": metadata}

    assert UpstreamNode("7", "edge", "eu", "", "b", metadata) == UPSTREAM_NODE.read(written)
    assert UpstreamNode() == UPSTREAM_NODE.read({})
    assert [] == list(Draft202012Validator(UPSTREAM_NODE.schema).iter_errors(written))


def test_metadata_is_not_shown() -> None:
    """It may hold what others are not to read."""
    assert "hunter2" not in repr(UPSTREAM_NODE.read({"metadata": {"password": "hunter2"}}))


def test_mistakes_have_their_places(tmp_path: Path) -> None:
    """All mistakes come in one go."""
    text = """\
upstream_node:
  ID: a
  cluster: []
  locality: {regon: eu}
  metadata: {since: 2020-01-01}
"""
    assert complaints_of(tmp_path, text) == [
        "fsxds.yaml:2:3: upstream_node.ID: there is no such key; the keys are id, cluster, metadata, locality",
        "fsxds.yaml:3:3: upstream_node.cluster: is a list; write a text",
        "fsxds.yaml:4:14: upstream_node.locality.regon: there is no such key; did you mean region?",
        "fsxds.yaml:5:14: upstream_node.metadata.since: is no value of JSON; write it in quotes",
    ]


def test_endless_metadata_is_rejected() -> None:
    """An alias of YAML may lead back to what it is in."""
    endless: dict[str, Any] = {}
    endless["a"] = endless

    with pytest.raises(MistakesFound, match=f"is nested more than {DEEPEST} deep"):
        UPSTREAM_NODE.read({"metadata": endless})
