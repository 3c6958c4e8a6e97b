from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
import yaml
from jsonschema import Draft202012Validator

from fsxds.model.errors import UsageError
from fsxds.settings.naming_rules import ContextRule, NamingRules
from fsxds.settings.options import BY_NAME
from fsxds.settings.reading import read_settings
from tests.support.settings_files import complaints_of, read_file

SAMPLE = """\
authority: xds.example.com:8443
context_params:
- {folder: edge, params: {env: prod, shard: 3}}
- {folder: edge/blue, params: {env: blue, empty: ""}}
"""


def test_names_have_settings(tmp_path: Path) -> None:
    """Names get an authority, and parameters by their folders; values are texts."""
    settings = read_file(tmp_path, SAMPLE)

    assert settings.authority == "xds.example.com:8443"
    edge = ContextRule("edge", (("env", "prod"), ("shard", "3")))
    assert settings.context_params == (edge, ContextRule("edge/blue", (("empty", ""), ("env", "blue"))))
    for name in ("authority", "context_params"):
        schema = Draft202012Validator(BY_NAME[name].form.schema)
        assert [] == list(schema.iter_errors(yaml.safe_load(SAMPLE)[name]))


def test_mistakes_are_told(tmp_path: Path) -> None:
    """All mistakes come in one go, each at its line, with what to do."""
    text = """\
context_params:
- {folder: /edge, params: {a: b}}
- {folder: a/../b, params: {a: "constraint:x", "": c, d: "\\u0001"}}
- {folder: edge, params: {}}
- {folder: edge, params: {a: b}}
- {params: 5, foldr: x}
"""

    assert complaints_of(tmp_path, text) == [
        "fsxds.yaml:2:4: context_params[0].folder: '/edge' is no folder of the tree; write its path from there, such as edge or nodes/a",
        "fsxds.yaml:3:4: context_params[1].folder: 'a/../b' is no folder of the tree; write its path from there, such as edge or nodes/a",
        "fsxds.yaml:3:29: context_params[1].params.a: a value that begins with constraint: is reserved; write another one",
        "fsxds.yaml:3:48: context_params[1].params.: a parameter has a name, and no control characters; write such as {env: prod}",
        "fsxds.yaml:3:55: context_params[1].params.d: a parameter has a name, and no control characters; write such as {env: prod}",
        "fsxds.yaml:4:18: context_params[2].params: is empty; give a parameter, or remove the folder",
        "fsxds.yaml:5:3: context_params[3]: edge is there already; write all of its params in one place",
        "fsxds.yaml:6:3: context_params[4]: has no folder; add it",
        "fsxds.yaml:6:4: context_params[4].params: is a number; write a mapping",
        "fsxds.yaml:6:15: context_params[4].foldr: there is no such key; did you mean folder?",
    ]


@pytest.mark.parametrize("text", ["a/b", "a b", "a?b", "a#b", "%41", "ä", "a\n"])
def test_authority_is_one(text: str) -> None:
    """What would end an authority within a name, or is encoded there, is none."""
    with pytest.raises(UsageError, match="AUTHORITY"):
        read_settings({}, {"FSXDS_AUTHORITY": text})


def test_the_innermost_folder_decides() -> None:
    """A folder's parameters hold in folders below it, which add their own; other folders have none of it."""
    deep = ContextRule("edge/blue", (("env", "blue"),))
    rules = NamingRules("", (deep, ContextRule("edge", (("env", "prod"), ("shard", "3")))))

    assert rules.context_of(PurePosixPath("edge/cds.yaml")) == (("env", "prod"), ("shard", "3"))
    assert rules.context_of(PurePosixPath("edge/blue/a/cds.yaml")) == (("env", "blue"), ("shard", "3"))
    assert rules.context_of(PurePosixPath("edgeless/cds.yaml")) == ()
    assert rules.context_of(PurePosixPath("edge")) == ()
