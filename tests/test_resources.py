from __future__ import annotations

import dataclasses
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.resources import Origin, Snapshot, TypeChange, version_of_body, version_of_set
from fsxds.values import TypeUrl
from tests.support.snapshots import resource

TYPE = TypeUrl("type.googleapis.com/my.Type")
OTHER_TYPE = TypeUrl("type.googleapis.com/my.OtherType")
PATH = PurePosixPath("edge/routes.yaml")


def test_origin_prints_as_a_place() -> None:
    """An origin is printed so that editors can follow it."""
    assert str(Origin(PATH, 12)) == "edge/routes.yaml:12"


def test_resource_is_the_same_wherever_it_was_written() -> None:
    """A resource that moved to another file is equal to what it was."""
    assert resource("CDS", "a", path="a.yaml", line=1) == resource("CDS", "a", path="b.yaml", line=7)
    assert resource("CDS", "a") != resource("CDS", "a", "2")


def test_values_cannot_be_changed() -> None:
    """Values are frozen."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        resource("CDS", "a").name = "b"  # type: ignore[misc]


def test_snapshot_without_a_type_has_no_resources_of_it() -> None:
    """A type that is not in a snapshot is as one without resources."""
    snapshot = Snapshot(1, {TYPE: {"a": resource("CDS", "a")}}, {})

    assert list(snapshot.resources(TYPE)) == ["a"]
    assert snapshot.resources(OTHER_TYPE) == {}
    assert snapshot.authored == {}
    assert snapshot.changes == {}


def test_change_is_empty_by_default() -> None:
    """A change that says nothing has no names and no files."""
    assert TypeChange(1) == TypeChange(1, (), (), (), ())


def test_versions_do_not_change_between_releases() -> None:
    """Versions are what replicas and restarted servers agree on: these values must never change."""
    assert version_of_body(TYPE, b"body") == "3da020d1fb6896fa9a5b117fd96abd42"
    assert version_of_set(TYPE, [("a", "1"), ("b", "")]) == "d8cd127d54deadf84495dffd833de8b0"


@given(st.lists(st.tuples(st.sampled_from([TYPE, OTHER_TYPE]), st.binary(max_size=4)), min_size=2, max_size=2))
def test_version_of_a_body_is_that_of_type_and_body(bodies: list[tuple[TypeUrl, bytes]]) -> None:
    """Two resources have one version when, and only when, type and body are equal."""
    one, other = bodies

    assert (one == other) == (version_of_body(*one) == version_of_body(*other))


MEMBERS = st.dictionaries(st.text("ab", max_size=3), st.text("01", max_size=2), max_size=3).map(
    lambda members: tuple(sorted(members.items()))
)


@given(MEMBERS, MEMBERS, st.sampled_from([TYPE, OTHER_TYPE]))
def test_version_of_a_set_is_that_of_type_names_and_versions(
    one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...], type_url: TypeUrl
) -> None:
    """Two sets have one version when, and only when, types, names and versions are equal."""
    assert ((TYPE, one) == (type_url, other)) == (version_of_set(TYPE, one) == version_of_set(type_url, other))


def test_version_is_short_enough_to_read() -> None:
    """A version has 32 hex digits."""
    for version in (version_of_body(TYPE, b""), version_of_set(TYPE, ())):
        assert len(version) == 32
        assert int(version, 16)
