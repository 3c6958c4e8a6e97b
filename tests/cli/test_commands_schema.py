"""What `fsxds schema` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from fsxds.cli.main import main
from fsxds.settings.reading import settings_schema

CONFIG = Path(__file__).parents[2] / "config"


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Return the schema that the command prints."""
    assert main(["schema", *arguments]) == 0
    return json.loads(capfd.readouterr().out)


def test_schema_of_a_type(capfd: pytest.CaptureFixture[str]) -> None:
    """`--type` may be given more than once; `--any` makes it small."""
    schema = printed(capfd, "--type", "cds", "--type", "eds", "--type", "cds", "--any", "UpstreamTlsContext")

    assert schema["title"] == "xDS resources: clusters, endpoints"
    assert len(schema["$defs"]) < 500
    assert Draft202012Validator(schema).is_valid({"cluster_name": "a"})


def test_schema_of_all(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a type, files hold resources of any."""
    schema = printed(capfd)

    assert {"Listener", "Cluster", "RouteConfiguration"} < set(schema["$defs"])


@pytest.mark.parametrize(
    ("flags", "taken"),
    [
        ((), ["cluster_name"]),
        (("--spelling", "camel"), ["clusterName"]),
        (("--spelling", "both"), ["cluster_name", "clusterName"]),
    ],
)
def test_spellings(flags: tuple[str, ...], taken: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """The default is that of Envoy's documentation."""
    validator = Draft202012Validator(printed(capfd, "--type", "eds", *flags))

    assert taken == [name for name in ("cluster_name", "clusterName") if validator.is_valid({name: "a"})]


def test_schema_of_settings(capfd: pytest.CaptureFixture[str]) -> None:
    """It is the one by which settings files are read, and the sample's obeys it."""
    schema = printed(capfd, "--settings")

    assert settings_schema() == schema
    assert Draft202012Validator(schema).is_valid(yaml.safe_load((CONFIG / "fsxds.yaml").read_text()))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--settings", "--type", "cds"), "leave them out"),
        (("--any", "Ruter"), "there is no message type Ruter"),
        (("--type", "clusters"), "is not one of"),
        (("--spelling", "kebab"), "is not one of"),
    ],
)
def test_wrong_words(arguments: tuple[str, ...], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What cannot be is refused in a line."""
    assert main(["schema", *arguments]) == 2
    assert words in capfd.readouterr().err
