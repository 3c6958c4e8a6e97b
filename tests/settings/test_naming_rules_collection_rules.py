"""The setting `collections`."""

from __future__ import annotations

from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

from fsxds.model.resource_names import ResourceName
from fsxds.settings.naming_rules import MESSAGE_TYPE, CollectionRule
from fsxds.settings.options import BY_NAME
from tests.support.settings_files import complaints_of, read_file

SAMPLE = f"""\
collections:
- {{name: edge/a b, folder: edge}}
- {{name: "xdstp://other.com/{MESSAGE_TYPE}/x?env=prod", folder: edge/blue, inline: false}}
"""


def test_collections_are_named(tmp_path: Path) -> None:
    """A collection has a path, or a whole name, a folder, and is inline unless it says otherwise."""
    settings = read_file(tmp_path, SAMPLE)

    other = ResourceName("other.com", MESSAGE_TYPE, "x", (("env", "prod"),))
    edge = ResourceName("", MESSAGE_TYPE, "edge/a b")
    assert settings.collections == (CollectionRule(edge, "edge"), CollectionRule(other, "edge/blue", is_inline=False))
    schema = Draft202012Validator(BY_NAME["collections"].form.schema)
    assert [] == list(schema.iter_errors(yaml.safe_load(SAMPLE)["collections"]))


def test_mistakes_are_told(tmp_path: Path) -> None:
    """All mistakes come in one go, each at its line, with what to do."""
    text = """\
collections:
- {name: ../x, folder: edge}
- {name: "xdstp:///envoy.config.cluster.v3.ClusterCollection/x", folder: edge}
- {name: "a/*", folder: edge}
- {name: a, folder: /etc}
- {name: a, folder: edge, inline: perhaps}
- {name: a, folder: ""}
- {folder: edge}
"""
    remedy = f"write xdstp://<authority>/{MESSAGE_TYPE}/<path>; clients ask for the globs of other types"
    of_clusters = "'xdstp:///envoy.config.cluster.v3.ClusterCollection/x'"
    complaints = [one.partition(": ")[2] for one in complaints_of(tmp_path, text)]

    assert complaints[:4] == [
        "collections[0].name: '../x' has a part that is . or ..; write the path without it",
        f"collections[1].name: {of_clusters} is no list of listeners, of which alone there are list collections; {remedy}",
        "collections[2].name: 'a/*' is a glob, and is made of names alone; write a name without *",
        "collections[3].folder: '/etc' is no folder of the tree; write its path from there, such as edge or nodes/a",
    ]
    assert [one.partition(":")[0] for one in complaints[4:]] == [
        "collections[4]",
        "collections[4].inline",
        "collections[5]",
        "collections[5].folder",
        "collections[6]",
    ]
