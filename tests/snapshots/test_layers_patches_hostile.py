"""Layer documents of any content, over any others, in any steps: problems, and never an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import Linter
from fsxds.model.values import Severity
from fsxds.snapshots.layers import Patching
from fsxds.snapshots.load import Acceptance
from fsxds.snapshots.parse import FileParser
from tests.support.views import ViewStory

KEYS = st.sampled_from(
    [
        "web",
        "api",
        "name",
        "type",
        "filter_chains",
        "filters",
        "typed_config",
        "@type",
        "$patch",
        "cluster",
        "metadata",
        "",
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["web", "delete", "STATIC"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
TYPES = st.sampled_from(
    ["clusters", "lds", "routes", "secrets", "vhds", "leds", "envoy.config.cluster.v3.Cluster", "x"]
)
NAMES = st.sampled_from(["web", "api", "l", "r/v", ""])
LAYERS = st.fixed_dictionaries(
    {"kind": st.just("Layer")},
    optional={
        "delete": st.one_of(VALUES, st.dictionaries(TYPES, st.one_of(VALUES, st.lists(NAMES, max_size=3)), max_size=3)),
        "patch": st.one_of(VALUES, st.dictionaries(TYPES, st.dictionaries(NAMES, VALUES, max_size=3), max_size=3)),
    },
)
TCP = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
BASES: list[list[dict[str, Any]]] = [
    [{"name": "web", "type": "STATIC", "metadata": {"filter_metadata": {"a": {"b": [1, {"c": None}]}}}}],
    [{"name": "api"}, {"name": "web", "resource": {"name": "web"}, "ttl": "5s", "aliases": ["x"]}],
    [{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l", "address": {"pipe": {"path": "/x"}},
      "filter_chains": [{"name": "c", "filters": [{"name": "t", "typed_config": {"@type": TCP, "cluster": "web", "stat_prefix": "s"}}]}]}],
    [{"@type": "type.googleapis.com/envoy.config.route.v3.VirtualHost", "name": "r/v", "domains": ["a.b"]}],
]  # fmt: skip
CONTENTS = st.one_of(st.none(), st.just("["), st.sampled_from(BASES).map(json.dumps), LAYERS.map(json.dumps))
PATHS = st.sampled_from(
    ["common/cds.json", "common/more.cds.json", "edge/cds.json", "nodes/a/cds.json", "nodes/a/x.json"]
)
VIEWS = (("common",), ("common", "edge", "nodes/a"), ("edge", "common"))


@pytest.fixture(scope="module")
def acceptance(catalogue: Catalogue) -> Acceptance:
    """What accepts files, and patches."""
    check = Linter()
    return Acceptance(check=check, patching=Patching(catalogue, Severity.ERROR, check))


@given(steps=st.lists(st.dictionaries(PATHS, CONTENTS, max_size=3), min_size=1, max_size=4))
def test_any_layers(acceptance: Acceptance, parser: FileParser, steps: list[dict[str, str | None]]) -> None:
    """Whatever layers say, there is a snapshot of each view, and loading it anew gives the same where nothing is held."""
    story = ViewStory(*VIEWS, acceptance=acceptance, parse=parser.parse)
    for edits in steps:
        views = story.step(edits)
        anew = story.anew()
        for view, loaded in views.by_layers.items():
            if not loaded.held and not anew.by_layers[view].held:
                assert dict(loaded.snapshot.versions) == dict(anew.by_layers[view].snapshot.versions)
                assert loaded.problems == anew.by_layers[view].problems
