"""What subscriptions with globs select."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.resource_names import glob_of
from fsxds.model.resources import Rows, RowsChange
from fsxds.protocol.subscription import Subscription, is_empty, members_of, missing_names, select, version_of
from tests.support.snapshots import resource, snapshot, type_url

EDS = type_url("EDS")
NAMES = (
    *("xdstp://x/t/a", "xdstp://x/t/d/a", "xdstp://x/t/d/b", "xdstp://x/t/d/b?p=1", "xdstp://x/t/d/b?p=1&q=2"),
    *("xdstp://x/t/d/e/a", "xdstp://x/t/dd/a", "xdstp://y/t/d/a", "xdstp:", "d/a", "zeta"),
)
GLOBS = ("xdstp://x/t/*", "xdstp://x/t/d/*", "xdstp://x/t/d/*?p=1", "xdstp://x/t/d/e/*", "xdstp://z/t/*")
CONTENTS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from("12"))
WANTED = st.frozensets(st.sampled_from((*NAMES, *GLOBS)), min_size=1)


@given(CONTENTS, WANTED)
def test_a_selection_has_all_members(contents: dict[str, str], wanted: frozenset[str]) -> None:
    """What is selected has a name that was asked for, or is a member of a glob that was."""
    current, subscription = snapshot({"EDS": contents}), Subscription.for_request(EDS, wanted)
    expected = {
        name for name in contents if name in wanted or (name.startswith("xdstp://") and glob_of(name) in wanted)
    }
    selection = select(current, subscription)

    assert selection.resources.names == expected
    assert [each.name for each in selection.resources] == sorted(expected)
    has_members = {glob_of(name) for name in expected if name.startswith("xdstp://")}
    assert set(selection.missing) == wanted - expected - (has_members & set(GLOBS))
    assert selection.missing == missing_names(current.resources(EDS), subscription)


@given(CONTENTS, CONTENTS, WANTED)
def test_versions_follow_selections(before: dict[str, str], after: dict[str, str], wanted: frozenset[str]) -> None:
    """A version changes when what is selected does, and not otherwise, whatever else changes."""
    subscription = Subscription.for_request(EDS, wanted)
    old, new = (select(snapshot({"EDS": contents}), subscription) for contents in (before, after))

    is_same = [(one.name, one.version) for one in old.resources] == [(one.name, one.version) for one in new.resources]
    assert (old.version == new.version) == is_same


@given(CONTENTS, CONTENTS, WANTED)
def test_changes_that_concern_a_subscription(
    before: dict[str, str], after: dict[str, str], wanted: frozenset[str]
) -> None:
    """A change concerns a subscription where it selects any of the names in it."""
    old, new = (snapshot({"EDS": contents}).resources(EDS) for contents in (before, after))
    change, subscription = (
        new.changes_since(old) if old else RowsChange(frozenset(new)),
        Subscription.for_request(EDS, wanted),
    )
    either = Rows(EDS, {**dict(old), **dict(new)})
    selected = select(snapshot({"EDS": dict.fromkeys(either, "1")}), subscription).resources.names

    assert subscription.among(change.names) == selected & change.names
    assert subscription.selects_any(change) == bool(selected & (change.names - change.moved))


def test_selections_of_plain_names_are_what_they_were() -> None:
    """Where no resource has a structured name, names are not looked at, and versions are those of before there were globs."""
    current = snapshot({"EDS": {"a": "1", "b": "1"}})
    names = frozenset(("a", "xdstp://x/t/d/*", "none"))

    assert version_of(current, Subscription.for_request(EDS, names)) == current.resources(EDS).version_of(names)
    assert select(current, Subscription.for_request(EDS, names)).missing == ("none", "xdstp://x/t/d/*")


def test_members_are_found_once() -> None:
    """Equal selections are one object for all clients."""
    current = snapshot({"EDS": {"xdstp://x/t/d/a": "1", "b": "1"}})
    first, second = (select(current, Subscription.for_request(EDS, ["b", "xdstp://x/t/d/*"])) for _ in range(2))

    assert first.resources is second.resources
    rows = current.resources(EDS)
    assert list(members_of(rows, "xdstp://x/t/d/*")) == ["xdstp://x/t/d/a"]
    assert is_empty(rows, "xdstp://x/t/*")
    assert resource("EDS", "xdstp://x/t/d/a") in first.resources
