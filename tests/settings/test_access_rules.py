from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from fsxds.settings.access_rules import AccessRule
from fsxds.settings.options import BY_NAME
from tests.support.settings_files import complaints_of, read_file

SAMPLE = """\
access:
- token: edge
  nodes: [edge-*, "re:gate-[0-9]+"]
  clusters: edge
  views: [edge]
- name: spiffe://acme/edge/*
  dns: ["*.edge.acme"]
  admin: true
views: [{name: edge, layers: [common]}]
"""


def test_rules_are_read(tmp_path: Path) -> None:
    """A rule says who, and what they may ask for; the schema takes it."""
    token = AccessRule("edge", nodes=("edge-*", "re:gate-[0-9]+"), clusters=("edge",), views=("edge",))
    names = AccessRule(name=("spiffe://acme/edge/*",), dns=("*.edge.acme",), admin=True)

    assert (token, names) == read_file(tmp_path, SAMPLE).access
    assert not token.is_for_all_nodes
    assert names.is_for_all_nodes
    assert [] == list(Draft202012Validator(BY_NAME["access"].form.schema).iter_errors(yaml.safe_load(SAMPLE)["access"]))


def test_mistakes_of_rules(tmp_path: Path) -> None:
    """All mistakes come in one go, each at its line, with what to do. What may be a token is not repeated."""
    text = """\
access:
- nodes: [a]
- tokn: edge
- token: "c2VjcmV0LXRva2Vu/123"
- token: edge
  nodes:
- {token: edge, views: [everone], admin: perhaps}
- {name: "spiffe://acme*/x", dns: "re:("}
- {name: acme}
- a
- {name: spiffe://acme/edge/../batch}
views: [{name: everyone, layers: [common]}]
"""
    complaints = complaints_of(tmp_path, text)

    places = "2:3 3:3 3:3 4:3 6:3 7:35 8:4 8:30 9:4 10:3 11:4"
    assert [complaint.split(": ")[0] for complaint in complaints] == [f"fsxds.yaml:{each}" for each in places.split()]
    assert "access[0]: names no client; add a token, a name or dns" in complaints[0]
    assert "c2Vj" not in str(complaints)
    assert "access[3].nodes: is empty" in complaints[4]
    assert "access[8].name: 'spiffe://acme/edge/../batch' has a dot segment" in complaints[-1]


def test_views_have_to_exist(tmp_path: Path) -> None:
    """A rule for a view that there is none of would let nobody in."""
    [complaint] = complaints_of(tmp_path, SAMPLE.replace("views: [edge]", "views: [edeg]"))

    assert complaint == "fsxds.yaml:5:3: access[0].views: there is no view edeg; did you mean edge?"


@pytest.mark.parametrize("text", ["access:", "access: []", "access: ~", "access: {}", "access: [~]", "access: [{}]"])
def test_an_empty_setting_lets_nobody_in_by_mistake(tmp_path: Path, text: str) -> None:
    """What looks like a restriction and is none is a mistake."""
    assert complaints_of(tmp_path, text)
