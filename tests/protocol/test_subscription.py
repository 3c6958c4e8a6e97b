from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.name_table import version_of_set
from fsxds.model.resources import Resource, Rows, Snapshot, TypeChange
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.subscription import SharedMemory, Subscription, files_of, names_without, select, version_of
from tests.support.costs import cost_s
from tests.support.snapshots import resource, snapshot, type_url

EDS = type_url("EDS")


def everything(short_name: str = "EDS") -> Subscription:
    return Subscription.for_request(type_url(short_name), ())


def named(*names: str) -> Subscription:
    return Subscription.for_request(EDS, names)


@pytest.mark.parametrize("names", [(), ("*",), ("a", "*"), ("*", "*")])
def test_no_names_or_a_star_mean_everything(names: Sequence[str]) -> None:
    """An empty list is the legacy wildcard, and `*` beside names takes them in."""
    assert Subscription(EDS) == Subscription.for_request(EDS, names)
    assert Subscription(EDS).wildcard


def test_names_are_a_set() -> None:
    """Neither the order of names nor a name given twice makes another subscription."""
    expected = Subscription(EDS, frozenset({"a", "b"}), wildcard=False)

    assert expected == named("b", "a", "b")


def test_wildcard_selects_everything_sorted() -> None:
    """A wildcard gets all resources of its type, and the version of the whole row."""
    current = snapshot({"EDS": {"b": "1", "a": "1"}, "CDS": {"c": "1"}})

    selection = select(current, everything())

    assert [resource("EDS", "a"), resource("EDS", "b")] == list(selection.resources)
    assert current.versions[EDS] == selection.version
    assert selection.missing == ()


def test_names_select_what_exists_and_tell_what_does_not() -> None:
    """Named resources come sorted, and so do the names that do not exist."""
    selection = select(snapshot({"EDS": {"b": "1", "a": "1", "c": "1"}}), named("z", "c", "b", "x"))

    assert [resource("EDS", "b"), resource("EDS", "c")] == list(selection.resources)
    assert selection.missing == ("x", "z")


def test_version_of_names_is_that_of_names_and_contents() -> None:
    """The version of a named selection is the digest of its names, with nothing for those that do not exist."""
    current = snapshot({"EDS": {"a": "1"}})

    expected = version_of_set(EDS, [("a", resource("EDS", "a").version), ("b", "")])

    assert expected == version_of(current, named("b", "a"))


def test_versions_of_different_selections_differ() -> None:
    """Everything, one name, and a name that is missing have different versions, though they hold the same."""
    current = snapshot({"EDS": {"a": "1"}})

    versions = {version_of(current, wanted) for wanted in (named("a"), named("a", "b"), named("b"), everything("CDS"))}

    assert len(versions) == 4


def test_type_that_is_not_served_is_empty() -> None:
    """A snapshot without a row for a type serves nothing of it, under the version of nothing."""
    unknown = TypeUrl("type.googleapis.com/unknown")

    selection = select(Snapshot(1, {}), Subscription(unknown))

    assert list(selection.resources) == []
    assert version_of_set(unknown, ()) == selection.version


def test_authored_version_is_sent_for_every_selection() -> None:
    """Where the author's version is served, it is that of everything and of each name."""
    current = snapshot({"EDS": {"a": "1"}}, authored={"EDS": "7"})

    assert {"7"} == {version_of(current, wanted) for wanted in (everything(), named("a"), named("b"))}


CONTENTS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"))


@given(before=CONTENTS, after=CONTENTS, names=st.sets(st.sampled_from("abc")))
def test_version_changes_exactly_when_the_selection_does(
    before: dict[str, str], after: dict[str, str], names: set[str]
) -> None:
    """Two snapshots have one version for a subscription when, and only when, it selects the same of both."""
    wanted = named(*names)
    old, new = (select(snapshot({"EDS": contents}), wanted) for contents in (before, after))

    same_content = list(old.resources) == list(new.resources)

    assert same_content == (old.version == new.version)


def _written_apart() -> Snapshot:
    """Return three resources from three files, one of which changed last."""
    current = snapshot({"EDS": dict.fromkeys("abc", "1")})
    rows = Rows(EDS, {name: resource("EDS", name, path=f"{name}.yaml") for name in "abc"})
    change = TypeChange(1, changed=("b",), files=(PurePosixPath("b.yaml"),))
    return replace(current, by_type={**current.by_type, EDS: rows}, changes={EDS: change})


@pytest.mark.parametrize(
    ("subscription", "files"),
    [(everything(), ["b.yaml"]), (named("a", "b"), ["b.yaml"]), (named("a", "c"), ["a.yaml", "c.yaml"])],
)
def test_files_of_a_version(subscription: Subscription, files: list[str]) -> None:
    """A version came from the file of what changed last, where that was asked for, and else from those of all of it.

    It is the version of what was asked for, or of the whole type. A version of something else came from nowhere.
    """
    current = _written_apart()

    for version in (version_of(current, subscription), version_of(current, everything())):
        assert files == list(map(str, files_of(subscription, version, current)))
    assert () == files_of(subscription, Version("other"), current)


def test_versions_that_were_sent_are_known() -> None:
    """A version is known after it was sent."""
    memory, version = SharedMemory(), version_of(snapshot({"EDS": {"a": "1"}}), Subscription(EDS))
    assert not memory.is_known(version)
    memory.know(version)

    assert memory.is_known(version)


def _find_often(rows: Mapping[str, Resource], names: frozenset[str]) -> None:
    for _ in range(500):
        names_without(rows, names)


def test_names_that_rows_lack_are_found_without_walking_over_the_rows() -> None:
    """A request for one name among a hundred thousand costs what the name costs."""
    one, names = resource("EDS", "a"), frozenset(("7", "none"))
    few, many = ({str(number): one for number in range(count)} for count in (100, 100_000))

    assert names_without(many, names) == {"none"}
    few_s, many_s = (cost_s(partial(_find_often, rows, names)) for rows in (few, many))
    # To walk over the rows costs a thousand times as much.
    assert many_s < 20 * few_s
