"""BootstrapFindings of resources, put to the files that they were written in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from fsxds.api.catalogue import Catalogue
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Origin, Resource
from fsxds.model.values import Fault, Version
from fsxds.tools.doctor.facts import one_of_each, resource_problems
from tests.tools.doctor.examples import Doctor

FAULT = Fault("r", "fact", "remedy", ("connect_timeout",))


def places(doctor: Doctor, files: Mapping[str, str], found: Fault = FAULT) -> list[str]:
    """Return the places of a fault that every resource has."""
    snapshot = doctor.snapshot(files)
    findings = [(one, found) for rows in snapshot.by_type.values() for one in rows.values()]
    sources = {PurePosixPath(path): text.encode() for path, text in files.items()}
    problems = resource_problems(findings, doctor.catalogue, sources)
    return sorted(f"{p.path}:{p.line}:{p.column} {p.pointer}: {p.message}" for p in problems)


def test_files_and_documents(doctor: Doctor) -> None:
    """Each document of each file has its own places, in the author's spelling."""
    files = {
        "a.cds.yaml": "name: a\ntype: STATIC\nconnectTimeout: 1s\n---\nresources:\n- {name: b, connect_timeout: 1s}\n",
        "cds.json": '{"resource": {\n "name": "c", "connectTimeout": "1s"}}',
    }

    assert [
        "a.cds.yaml:3:1 connectTimeout: fact",
        "a.cds.yaml:6:13 resources[0].connect_timeout: fact",
        "cds.json:2:15 resource.connectTimeout: fact",
    ] == places(doctor, files)


def test_text_format(doctor: Doctor) -> None:
    """Text format has places as well."""
    files = {"cds.textproto": 'name: "a"\nconnect_timeout {\n  seconds: 1\n}\n'}

    assert ["cds.textproto:2:1 connect_timeout: fact"] == places(doctor, files)


def test_binary_files_have_their_first_line(catalogue: Catalogue) -> None:
    """Of a file that cannot be shown, the line of the resource is told."""
    origin = Origin(PurePosixPath("cds.pb"), 1, 0, ("resources", 3))
    resource = Resource(BY_SHORT_NAME["cds"].type_url, "a", b"", Version(""), origin)
    (problem,) = resource_problems([(resource, FAULT)], catalogue, {})

    assert ("resources[3].connect_timeout", 1, 1) == (problem.pointer, problem.line, problem.column)


def test_repetition_is_counted(doctor: Doctor) -> None:
    """A generated file has one problem where it repeats itself."""
    files = {"cds.yaml": "- {name: a, connect_timeout: 1s}\n- {name: b, connect_timeout: 1s}\n"}

    assert ["cds.yaml:1:13 [0].connect_timeout: fact (and 1 more like this here)"] == places(doctor, files)


def test_different_facts_are_told() -> None:
    """Only what is said in the same words is counted."""
    faults = [Fault("r", "one", ""), Fault("r", "two", ""), Fault("s", "one", "")]

    assert faults == list(one_of_each(faults))


def test_a_file_that_changed_meanwhile(doctor: Doctor) -> None:
    """A path that leads nowhere any more has the place of what is left of it."""
    snapshot = doctor.snapshot({"cds.yaml": "resources:\n- {name: a, connect_timeout: 1s}\n"})
    findings = [(one, FAULT) for rows in snapshot.by_type.values() for one in rows.values()]
    problems = resource_problems(findings, doctor.catalogue, {PurePosixPath("cds.yaml"): b"\nresources: []\n"})

    assert [(2, 1)] == [(problem.line, problem.column) for problem in problems]
