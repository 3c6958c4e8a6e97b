"""Bootstraps as files: their mistakes and their places."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from fsxds.lint.linter import make_field_rules
from fsxds.model.values import Fault
from fsxds.tools.doctor.facts import BOOTSTRAP, BootstrapFile, read_bootstrap
from tests.tools.doctor.examples import HEALTHY, Doctor


def read(doctor: Doctor, text: str | bytes, name: str = "envoy.yaml") -> BootstrapFile:
    """Read a bootstrap."""
    content = text.encode() if isinstance(text, str) else text
    return read_bootstrap(PurePosixPath(name), content, doctor.catalogue, make_field_rules(doctor.catalogue))


def told(file: BootstrapFile) -> list[str]:
    """Return the places and rules of what is wrong."""
    return [f"{problem.path}:{problem.line}:{problem.column} {problem.rule}" for problem in file.problems]


@pytest.mark.parametrize("name", ["envoy.yaml", "envoy.conf", "envoy"])
def test_healthy_bootstrap(name: str, doctor: Doctor) -> None:
    """It has no problems, whatever it is called."""
    file = read(doctor, HEALTHY, name)

    assert file.message is not None
    assert () == file.problems


def test_unknown_fields(doctor: Doctor) -> None:
    """Envoy refuses unknown fields in a bootstrap."""
    file = read(doctor, "node: {id: a, cluster: b}\nadmin: {addres: {}}\n")

    assert ["envoy.yaml:2:9 unknown-field"] == told(file)
    assert file.message is None


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("envoy.yaml", "staticResources:\n  clusters:\n  - {name: a}\n  - {name: ''}\n", "envoy.yaml:4:6"),
        ("envoy.json", '{"static_resources": {"clusters":\n [{"name": ""}]}}', "envoy.json:2:4"),
        ("envoy.pb_text", 'static_resources {\n  clusters {\n    name: ""\n  }\n}\n', "envoy.pb_text:3:5"),
    ],
)
def test_rules_of_fields(name: str, text: str, place: str, doctor: Doctor) -> None:
    """A cluster without a name is told at its place, in each format."""
    assert [f"{place} wrong-length"] == told(read(doctor, text, name))


def test_rules_of_sources(doctor: Doctor) -> None:
    """What crashes Envoy is among the rules."""
    text = HEALTHY.replace("refresh_delay: 0.05s", "refresh_delay: 0s").replace("  lds_config: *rest\n", "")

    assert ["envoy.yaml:16:73 short-refresh-delay"] == told(read(doctor, text))


@pytest.mark.parametrize(
    ("text", "rule"), [("", "empty-file"), ("# nothing", "empty-file"), ("a: [", "bad-syntax"), ("- a", "wrong-value")]
)
def test_files_that_are_no_bootstrap(text: str, rule: str, doctor: Doctor) -> None:
    """They are told of, and there is no message."""
    file = read(doctor, text)

    assert [rule] == [problem.rule for problem in file.problems]
    assert file.message is None


def test_binary(doctor: Doctor) -> None:
    """A serialized bootstrap is read; all of it stands in line 1."""
    content = doctor.catalogue.message_class(BOOTSTRAP)(static_resources={"clusters": [{"name": ""}]})
    file = read(doctor, content.SerializeToString(), "envoy.pb")

    assert ["envoy.pb:1:1 wrong-length"] == told(file)
    assert ["envoy.pb:1:1 broken-message"] == told(read(doctor, b"\xff", "envoy.pb"))


def test_places_of_later_findings(doctor: Doctor) -> None:
    """A path of the API finds what the author spelled in another way; a list may be one object."""
    file = read(doctor, "staticResources:\n  clusters: {name: a}\n")
    fault = Fault("r", "fact", "remedy", ("static_resources", "clusters", 0, "name"))
    (problem,) = file.problems_of([fault])

    assert ("staticResources.clusters.name", 2, 14) == (problem.pointer, problem.line, problem.column)
