from __future__ import annotations

import pytest

from fsxds.lint.linter import static_names
from fsxds.lint.tree_names import StaticNames
from fsxds.model.values import PlainValue


@pytest.mark.parametrize("key", ["static_resources", "staticResources"])
def test_names_of_a_bootstrap(key: str) -> None:
    """The static clusters and secrets of a bootstrap are known by their names."""
    bootstrap: PlainValue = {key: {"clusters": [{"name": "xds"}, {"name": "b"}], "secrets": {"name": "ca"}}}

    assert StaticNames(frozenset({"xds", "b"}), frozenset({"ca"})) == static_names(bootstrap)


@pytest.mark.parametrize(
    "bootstrap", [{}, None, [], "x", {"static_resources": None}, {"static_resources": {"clusters": 5}}]
)
def test_bootstrap_without_static_resources(bootstrap: PlainValue) -> None:
    """What has none defines no name, which is something else than not being known."""
    assert StaticNames(frozenset(), frozenset()) == static_names(bootstrap)


def test_resource_without_a_name() -> None:
    """A resource whose name is no text defines nothing."""
    assert frozenset() == static_names({"static_resources": {"clusters": [{"name": 5}, {}]}}).clusters
