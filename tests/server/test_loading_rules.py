"""What the settings say about loading."""

from __future__ import annotations

from pathlib import Path

from fsxds.lint.linter import Linter
from fsxds.server.loading_rules import LoadingRules
from fsxds.settings.options import Settings
from fsxds.settings.view_rules import ViewRule
from tests.support.this_envoy import this_envoy


def test_without_a_directory_no_layer_is_lost(tmp_path: Path) -> None:
    """What upstreams alone serve has no folders, and views that name some are as good."""
    settings = Settings(views=(ViewRule("all", (), ("common",)),))
    lost = [LoadingRules.of(settings, this_envoy(), Linter(), directory).view_rules for directory in (None, tmp_path)]

    assert [0, 1] == [len(one.lost_layers((), ())) for one in lost if one is not None]
