from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fsxds.settings.options import BY_NAME, OPTIONS, Settings
from fsxds.settings.reading import SettingsChange, read_settings
from fsxds.settings.view_rules import Variables, ViewRule
from tests.support.settings_files import complaints_of, read_file

SAMPLE = """\
views:
- name: edge
  match:
    id: edge-*
    cluster: [edge, "re:gold-[0-9]+"]
    metadata: {tier: gold, labels: {canary: true, weight: 3}}
    locality: {region: eu-*}
    user_agent_version: 1.40.*
  layers: [common, edge, "nodes/{node.id}", "x-{node.metadata.labels.app}"]
  variables: {DOMAIN: example.com, PORT: 80, HOST: {environment: HOSTNAME}, NONE: {environment: UNSET}, EMPTY: ""}
- name: everyone
  layers: [common]
variables: {REGION: eu}
"""


def test_rules_are_read(tmp_path: Path) -> None:
    """A rule has a name, patterns by attribute, layers and variables."""
    path = tmp_path / "fsxds.yaml"
    path.write_text(SAMPLE)
    settings = read_settings({"settings": path}, {"HOSTNAME": "h"})
    match = (
        ("id", ("edge-*",)),
        ("cluster", ("edge", "re:gold-[0-9]+")),
        ("metadata.tier", ("gold",)),
        ("metadata.labels.canary", ("true",)),
        ("metadata.labels.weight", ("3",)),
        ("locality.region", ("eu-*",)),
        ("user_agent_version", ("1.40.*",)),
    )
    layers = ("common", "edge", "nodes/{node.id}", "x-{node.metadata.labels.app}")
    variables = Variables({"DOMAIN": "example.com", "PORT": "80", "HOST": "h", "EMPTY": ""}, {"NONE": "UNSET"})

    assert (ViewRule("edge", match, layers, variables), ViewRule("everyone", (), ("common",))) == settings.views
    assert Variables({"REGION": "eu"}) == settings.variables


def test_the_sample_is_allowed_by_the_schema() -> None:
    """What can be read is valid by the schema of the settings file."""
    for name, value in yaml.safe_load(SAMPLE).items():
        assert [] == list(Draft202012Validator(BY_NAME[name].form.schema).iter_errors(value))


MISTAKES = """\
views:
- nam: edge
  match: {cluser: edge, locality: {regoin: eu}, metadata: gold}
  layers: [/etc, ../x, a/../b, "{node.idd}", "{id}", "nodes/{node.metadata}", x/, 5, ""]
- name: a b
  match: {cluster: "re:(", id: [], user_agent_name: {a: b}, metadata: {since: 2024-01-01, list: [[1]]}}
  layers: []
- name: c
  layers: [common, common]
  variables: {1x: y, B: [1], C: {env: X}, D: {environment: ""}, E: "\\0"}
- 7
- name: d
  name: d
  layers: edge
variables: [1]
mirorrs: []
"""

COMPLAINTS = """\
2:3: views[0].nam: there is no such key; did you mean name?
2:3: views[0]: has no name; add it
3:11: views[0].match.cluser: there is no such key; did you mean cluster?
3:36: views[0].match.locality.regoin: there is no such key; did you mean region?
3:49: views[0].match.metadata: is a text; write a mapping
4:12: views[0].layers[0]: '/etc' is no folder of the tree; write its path from there, such as common or nodes/a
4:18: views[0].layers[1]: '../x' is no folder of the tree; write its path from there, such as common or nodes/a
4:24: views[0].layers[2]: 'a/../b' is no folder of the tree; write its path from there, such as common or nodes/a
4:32: views[0].layers[3]: nodes have no idd; did you mean id?
4:46: views[0].layers[4]: '{id}' has a brace that is no template; write {node.id}, or a folder without braces
4:54: views[0].layers[5]: nodes have no metadata; there are id, cluster, user_agent_name, user_agent_version, \
locality.region, locality.zone, locality.sub_zone and metadata.NAME
4:79: views[0].layers[6]: 'x/' is no folder of the tree; write its path from there, such as common or nodes/a
4:83: views[0].layers[7]: is a number; write a text, in quotes
4:86: views[0].layers[8]: is empty, or has a NUL character; write a text
5:3: views[1].name: 'a b' has other characters than letters, digits, `-`, `_` and `.`; write a name such as edge
6:11: views[1].match.cluster: missing ): (; write a regular expression of RE2, or a pattern such as edge-*
6:28: views[1].match.id: is empty; give a value, or remove the key
6:36: views[1].match.user_agent_name: is a mapping; write a text
6:72: views[1].match.metadata.since: is of another type; write a text, in quotes
6:98: views[1].match.metadata.list[0]: is a list; write a text
7:3: views[1].layers: is empty; give a value, or remove the key
9:20: views[2].layers[1]: common is there already; the last one would win, keep that
10:15: views[2].variables.1x: '1x' is no name of a variable; write letters, digits and `_`, and no digit first
10:22: views[2].variables.B: is a list; write a text
10:30: views[2].variables.C: has no environment; add it
10:34: views[2].variables.C.env: there is no such key; the keys are environment
10:47: views[2].variables.D.environment: is empty, or has a NUL character; write a text
10:65: views[2].variables.E: is empty, or has a NUL character; write a text
11:3: views[3]: is a number; write a mapping
13:3: views[4].name: is set twice; keep one of them
14:3: views[4].layers: is a text; write a list
15:1: variables: is a list; write a mapping
16:1: mirorrs: there is no such setting; did you mean mirrors?
"""


def test_mistakes_everywhere(tmp_path: Path) -> None:
    """All mistakes of all rules come in one go, each at its line, with what to do."""
    assert COMPLAINTS.splitlines() == [line.removeprefix("fsxds.yaml:") for line in complaints_of(tmp_path, MISTAKES)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("views: []", "1:1: views: is empty; give a value, or remove the key"),
        ("views: edge", "1:1: views: is a text; write a list"),
        ("views: [{name: a, layers: }]", "1:9: views[0]: has no layers; add it"),
        ("views: &a [*a]", "1:8: views[0]: is a list; write a mapping"),
        ("views: [{name: a, match: {id: " + "x" * 5000 + "}, layers: [a]}]", "is longer than 4096 characters"),
        (
            "views: [{name: a, match: {metadata: &a {b: *a}}, layers: [a]}]",
            "is too deep; name a value that is less deep",
        ),
        (
            "views: [{name: a, match: {id: x}, layers: [a]}, {name: a, layers: [b]}]",
            "1:49: views[1]: there are two views a; give each a name of its own",
        ),
        (
            "views:\n- {name: a, layers: [a]}\n- {name: b, match: {id: x}, layers: [b]}",
            "3:3: views[1]: no node reaches b: a stands before it and matches the same nodes; move the more specific one up",
        ),
        (
            "views:\n- {name: a, match: {id: x}, layers: [a]}\n- {name: b, match: {id: x}, layers: [b]}",
            "3:3: views[1]: no node reaches b: a stands before it and matches the same nodes; move the more specific one up",
        ),
    ],
)
def test_mistakes(tmp_path: Path, text: str, complaint: str) -> None:
    """A rule that cannot be, or that no node reaches, is a mistake with its place."""
    (line,) = complaints_of(tmp_path, text)

    assert complaint in line


@given(st.data())
def test_schema_and_reading_agree(data: st.DataObject) -> None:
    """What the schema rejects cannot be read either, wherever the sample is changed."""
    value = copy.deepcopy(yaml.safe_load(SAMPLE)["views"])
    holder: Any = value
    while True:
        steps = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        step = data.draw(st.sampled_from(steps))
        if not isinstance(holder[step], dict | list) or not holder[step] or data.draw(st.booleans()):
            break
        holder = holder[step]
    holder[step] = data.draw(st.sampled_from(["", "x", 5, True, [], ["x"], {}, {"x": "y"}, [["x"]], {"x": []}]))
    is_valid = Draft202012Validator(BY_NAME["views"].form.schema).is_valid(value)
    try:
        BY_NAME["views"].form.read(value)
        was_read = True
    except ValueError:
        was_read = False

    assert is_valid or not was_read


def test_a_thousand_rules_are_read(tmp_path: Path) -> None:
    """As many rules as a fleet has teams are no problem."""
    rules = "".join(
        f"- {{name: r{n}, match: {{cluster: 're:team{n}-.*'}}, layers: [common, r{n}]}}\n" for n in range(1000)
    )

    assert 1000 == len(read_file(tmp_path, f"views:\n{rules}").views or ())


def test_views_can_change_while_fsxds_runs() -> None:
    """SIGHUP applies other rules and variables."""
    before = Settings()
    after = Settings(views=(ViewRule("a", (), ("common",)),), variables=Variables({"A": "b"}))

    assert ("views", "variables") == SettingsChange.between(before, after, "serve").changed
    assert () == SettingsChange.between(after, after, "serve").changed


def test_values_of_variables_are_not_shown() -> None:
    """The value of a variable may be a secret: no settings and no rule are shown with it."""
    hidden = Variables({"TOKEN": "hush"})

    assert "hush" not in repr(Settings(views=(ViewRule("a", (), ("c",), hidden),), variables=hidden))


def test_lists_and_mappings_have_no_flag_and_no_variable() -> None:
    """A setting that is a list or a mapping stands in a settings file alone: the environment does not set it."""
    structured = [row for row in OPTIONS if row.form.in_file_only]

    assert {"views", "variables"} <= {row.name for row in structured}
    assert Settings() == read_settings({}, {row.variable: "x" for row in structured})
