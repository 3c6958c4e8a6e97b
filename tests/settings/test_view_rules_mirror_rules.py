from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from fsxds.model.errors import UsageError
from fsxds.settings.forms import TcpAddress
from fsxds.settings.options import BY_NAME
from fsxds.settings.reading import read_settings
from fsxds.settings.rollout_forms import Canary
from fsxds.settings.view_rules import MirrorRule
from tests.support.settings_files import complaints_of, read_file

SAMPLE = """\
mirrors:
- directory: /run/envoy-edge
  node: {id: edge-1, cluster: edge, metadata: {tier: gold}, locality: {region: eu}}
  format: json
  config_sources: true
  pause: 20ms
  durable: false
  admin: 127.0.0.1:9901
- directory: out
  view: everyone
views: [{name: everyone, layers: [common]}]
"""


def test_mirrors_are_read(tmp_path: Path) -> None:
    """A mirror has a directory, relative to the settings file, what it holds, and options of its own."""
    node = (("id", "edge-1"), ("cluster", "edge"), ("metadata.tier", "gold"), ("locality.region", "eu"))
    edge = MirrorRule(
        Path("/run/envoy-edge"),
        node=node,
        format="json",
        config_sources=True,
        pause_s=0.02,
        durable=False,
        admin=TcpAddress("127.0.0.1", 9901),
    )

    assert (edge, MirrorRule(tmp_path / "out", "everyone")) == read_file(tmp_path, SAMPLE).mirrors
    assert [] == list(
        Draft202012Validator(BY_NAME["mirrors"].form.schema).iter_errors(yaml.safe_load(SAMPLE)["mirrors"])
    )


def test_mistakes_of_mirrors(tmp_path: Path) -> None:
    """All mistakes come in one go, each at its line, with what to do."""
    text = """\
mirrors:
- directry: x
- {directory: a, view: everone}
- {directory: b, view: everyone, node: {idd: x}}
- {directory: b}
- {directory: 5, format: xml, config_sources: perhaps, pause: soon, durable: 7, admin: nowhere}
- a
views: [{name: everyone, layers: [common]}]
"""
    address = "an address (write 127.0.0.1:9901, [::1]:9901, :9901 or unix:/run/envoy.sock)"

    assert complaints_of(tmp_path, text) == [
        "fsxds.yaml:2:3: mirrors[0].directry: there is no such key; did you mean directory?",
        "fsxds.yaml:2:3: mirrors[0]: has no directory; add it",
        "fsxds.yaml:4:18: mirrors[2].view: there is a node too; give one of them",
        "fsxds.yaml:4:41: mirrors[2].node.idd: there is no such key; did you mean id?",
        "fsxds.yaml:5:3: mirrors[3]: b has another mirror already; give each a directory of its own",
        "fsxds.yaml:6:4: mirrors[4].directory: 5 is not a path",
        "fsxds.yaml:6:18: mirrors[4].format: 'xml' is not one of pb, json, yaml, pb_text",
        "fsxds.yaml:6:31: mirrors[4].config_sources: 'perhaps' is not true or false",
        "fsxds.yaml:6:56: mirrors[4].pause: 'soon' is not a duration (write 50ms, 2s, 1m or a number of seconds)",
        "fsxds.yaml:6:69: mirrors[4].durable: 7 is not true or false",
        f"fsxds.yaml:6:81: mirrors[4].admin: 'nowhere' is not {address}",
        "fsxds.yaml:7:3: mirrors[5]: is a text; write a mapping",
    ]


def test_mirrors_name_views_that_exist(tmp_path: Path) -> None:
    """A mirror of a view that does not exist is a mistake; where there are views, each mirror says which it holds."""
    views = "views: [{name: everyone, layers: [common]}]\n"

    assert complaints_of(tmp_path, views + "mirrors: [{directory: a, view: everone}, {directory: b}]") == [
        "fsxds.yaml:2:26: mirrors[0].view: there is no view everone; did you mean everyone?",
        "fsxds.yaml:2:42: mirrors[1]: has no view; name one by `view`, or the node that reads the files by `node`",
    ]
    assert complaints_of(tmp_path, "mirrors: [{directory: a, view: x}]") == [
        "fsxds.yaml:1:26: mirrors[0].view: there is no view x; there is none: give `views`"
    ]
    assert (MirrorRule(tmp_path / "a"),) == read_file(tmp_path, "mirrors: [{directory: a}]").mirrors


def test_canaries_name_a_view_that_exists(tmp_path: Path) -> None:
    """A view that gets changes first has to be there, wherever it is named."""
    views = "views: [{name: everyone, layers: [common]}]\n"
    path = tmp_path / "other.yaml"
    path.write_text(views)

    assert complaints_of(tmp_path, f"{views}canary: {{view: everone}}\n") == [
        "fsxds.yaml:2:1: canary: there is no view everone; did you mean everyone?"
    ]
    with pytest.raises(UsageError, match=r"^canary: there is no view x; there is everyone"):
        read_settings({"settings": path, "canary": Canary(view="x")}, {})
    assert Canary(view="everyone") == read_settings({"settings": path, "canary": Canary(view="everyone")}, {}).canary
