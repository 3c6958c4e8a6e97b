"""Collections in what `fsxds bootstrap` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_bootstrap import refusal, values
from tests.support.settings_files import file_flags

LIST = "envoy.config.listener.v3.ListenerCollection"
GLOB = "xdstp://a/envoy.config.cluster.v3.Cluster/foo/*"
FILES = ("--transport", "files", "--mirror", "build/out")


def test_a_list_is_read_from_its_mirrored_file(capfd: pytest.CaptureFixture[str]) -> None:
    """The locator is the absolute path of the file, in place of the listeners; clusters are read as ever."""
    for name, path in (
        ("edge", "lcds/x.org/edge.pb"),
        (f"xdstp:///{LIST}/edge", "lcds/x.org/edge.pb"),
        (f"xdstp://b/{LIST}/edge%20b?k=v", "lcds/b/edge%252520b%253Fk%253Dv.pb"),
    ):
        dynamic = values(capfd, *FILES, *file_flags(authority="x.org"), "--collection", name)["dynamic_resources"]
        assert dynamic.keys() == {"cds_config", "lds_resources_locator"}
        assert dynamic["lds_resources_locator"] == f"file://{Path('build/out').absolute()}/{path}"


@pytest.mark.parametrize("transport", ["ads", "delta"])
def test_globs_are_asked_for_on_a_stream(transport: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Their locators go beside the source of their type."""
    listeners = "xdstp://a/envoy.config.listener.v3.Listener/*"
    arguments = ("--transport", transport, "--collection", GLOB, "--collection", listeners)
    dynamic = values(capfd, *arguments)["dynamic_resources"]

    assert dynamic["cds_resources_locator"] == GLOB
    assert dynamic["lds_resources_locator"] == listeners
    assert dynamic["cds_config"] == dynamic["lds_config"]
    assert "ads" in dynamic["cds_config"]


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ((*FILES, "--collection", "a/../b"), "has a part that is . or .."),
        ((*FILES, "--collection", GLOB), "Envoy reads one list of listeners, and no globs"),
        ((*FILES, "--collection", "a", "--collection", "b"), "Envoy reads one list of listeners"),
        ((*FILES, "--collection", f"xdstp://a/{LIST}/*"), "is no collection that Envoy asks for"),
        ((*FILES, "--collection", GLOB.removesuffix("*") + "x"), "is no collection that Envoy asks for"),
        (("--transport", "delta", "--collection", "edge"), "Envoy reads lists of listeners from files alone"),
        (("--transport", "ads", "--collection", GLOB, "--collection", GLOB), "one collection of clusters"),
        (("--collection", GLOB), "Envoy has no collections over REST"),
    ],
)
def test_what_envoy_cannot_have(arguments: tuple[str, ...], fact: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A collection that this Envoy cannot ask for so is said in one line, with what would do."""
    error = refusal(capfd, *arguments)
    assert fact in error
    assert error.count("\n") == 1
