"""Files that Envoy subscribes to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fsxds.tools.doctor.facts import FileFacts
from tests.tools.doctor.examples import Doctor, file_source, none_there

CDS = "dynamic_resources.cds_config"


def rules(doctor: Doctor, path: str, facts: FileFacts, watched: str | None = None) -> list[str]:
    """Return the rules that a path breaks, of which these are the facts."""
    return doctor.rules(
        lambda value: value["dynamic_resources"].update(cds_config=file_source(path, watched)),
        {},
        lambda looked: facts if looked == path else FileFacts(exists=True),
    )


def head(text: bytes) -> FileFacts:
    return FileFacts(exists=True, head=text)


def test_missing_files(doctor: Doctor) -> None:
    """Envoy does not start without a file, nor without the directory that it watches."""
    edit = lambda value: value["dynamic_resources"].update(cds_config=file_source("/a/cds.pb", "/a"))  # noqa: E731
    source = f"{CDS}.path_config_source"

    assert [f"missing-file {source}", f"missing-file {source}.watched_directory"] == doctor.rules(edit, {}, none_there)


def test_old_spelling_of_a_path(doctor: Doctor) -> None:
    """The field `path` is looked at as well."""
    edit = lambda value: value["dynamic_resources"].update(cds_config={"path": "/a/cds.pb"})  # noqa: E731

    assert [f"missing-file {CDS}.path"] == doctor.rules(edit, {}, none_there)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/a/cds.textproto", b'version_info: "1"'),
        ("/a/cds.TXTPB", b""),
        ("/a/cds.pb", b'{"resources": []}'),
        ("/a/cds.pb", b"\nresources:\n"),
        ("/a/cds.json", b"resources: []"),
        ("/a/cds.conf", b"resources: []"),
        ("/a/cds", b"resources: []"),
    ],
)
def test_suffixes_that_mislead(path: str, text: bytes, doctor: Doctor) -> None:
    """ENVOY.md E22: what is neither YAML nor pb nor pb_text by its suffix is read as JSON."""
    assert [f"misread-file {CDS}.path_config_source"] == rules(doctor, path, head(text))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/a/cds.yaml", b"resources: []"),
        ("/a/cds.yml", b'{"resources": []}'),
        ("/a/cds.json", b' {"resources": []}'),
        ("/a/cds", b"{}"),
        ("/a/cds", b""),
        ("/a/cds.pb_text", b'version_info: "1"'),
        ("/a/cds.pb", b"\n\x011"),
        ("/a/cds.pb", b""),
    ],
)
def test_suffixes_that_fit(path: str, text: bytes, doctor: Doctor) -> None:
    """What Envoy reads as it is meant is not told of."""
    assert [] == rules(doctor, path, head(text))


CONFIG_MAP = FileFacts(exists=True, swapped_in="/etc/envoy", is_config_map=True)
GENERATIONS = FileFacts(exists=True, swapped_in="/srv")


@pytest.mark.parametrize("facts", [CONFIG_MAP, GENERATIONS])
def test_links_that_are_swapped_need_a_watch(facts: FileFacts, doctor: Doctor) -> None:
    """ENVOY.md E24: without watched_directory Envoy does not notice the swap."""
    assert [f"unwatched-directory {CDS}.path_config_source"] == rules(doctor, "/etc/envoy/cds.yaml", facts)


@pytest.mark.parametrize(("watched", "is_well"), [("/srv", True), ("/srv/", True), ("/srv/current", False)])
def test_the_watched_directory_holds_the_link(watched: str, *, is_well: bool, doctor: Doctor) -> None:
    """To watch the directory that the link leads to is no help."""
    found = rules(doctor, "/srv/current/cds.yaml", GENERATIONS, watched)

    assert ([] if is_well else [f"unwatched-directory {CDS}.path_config_source.watched_directory"]) == found


def test_words_name_the_directory(doctor: Doctor) -> None:
    """The remedy can be pasted."""
    edit = lambda value: value["dynamic_resources"].update(cds_config=file_source("/etc/envoy/cds.yaml"))  # noqa: E731
    look: Callable[[str], FileFacts] = lambda _: CONFIG_MAP  # noqa: E731
    (fault,) = doctor.faults(edit, {}, look)

    assert "a ConfigMap or Secret volume" in fault.message
    assert fault.remedy == "add watched_directory: {path: /etc/envoy} beside the path"
