"""Bootstraps as files for people."""

from __future__ import annotations

import json
from pathlib import PurePath

import pytest
import yaml

from fsxds.envoy.bootstrap_text import bootstrap_text
from fsxds.envoy.envoy_bootstrap import BootstrapRequest, Section, ads_bootstrap, mirror_bootstrap, rest_bootstrap

WANTED = BootstrapRequest(clusters=True, listeners=True, runtime_names=("a", "b"))
BOOTSTRAPS: dict[str, Section] = {
    "rest": rest_bootstrap("xds.example.com:18001", WANTED),
    "ads": ads_bootstrap("127.0.0.1:18000", WANTED),
    "delta": ads_bootstrap("127.0.0.1:18000", WANTED, delta=True),
    "files": mirror_bootstrap(lambda *names: PurePath("/mirror", *filter(None, names)), WANTED),
}


@pytest.mark.parametrize("transport", BOOTSTRAPS)
def test_values_are_those_of_the_bootstrap(transport: str) -> None:
    """The text holds what the bootstrap holds, and nothing else."""
    bootstrap = BOOTSTRAPS[transport]

    assert json.loads(json.dumps(bootstrap)) == yaml.safe_load(bootstrap_text(bootstrap, transport, ()))


@pytest.mark.parametrize("transport", BOOTSTRAPS)
def test_lines_are_short_and_usage_comes_first(transport: str) -> None:
    """The head tells what the file is for and which commands go with it."""
    lines = bootstrap_text(BOOTSTRAPS[transport], transport, ("fsxds serve DIR", "envoy -c x")).splitlines()

    assert lines[1:4] == ["#", "#   fsxds serve DIR", "#   envoy -c x"]
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(
    ("transport", "fact"),
    [
        ("rest", "makes Envoy 1.40 crash"),
        ("rest", "Envoy's own default is 1s"),
        ("files", "must exist before Envoy starts"),
        ("files", "watched_directory"),
        ("ads", "more than once in five minutes"),
        ("delta", "carries 61 kB"),
    ],
)
def test_values_are_explained(transport: str, fact: str) -> None:
    """Who edits the file reads there what happens."""
    assert fact in bootstrap_text(BOOTSTRAPS[transport], transport, ())
