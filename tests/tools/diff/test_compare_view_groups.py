from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fsxds.api.catalogue import Catalogue
from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.tools.diff.compare import (
    ChangeAction,
    ComparedView,
    Comparer,
    Difference,
    FieldChange,
    ResourceChange,
    TypeDifference,
    ViewGroup,
    grouped,
)
from tests.support.polls import named, snapshot_of
from tests.tools.diff.differences import CDS, SDS, resource


def view(*layers: str, name: str = "") -> ComparedView:
    """Return a view that is called as its last layer."""
    return ComparedView((name or layers[-1],), layers)


def groups(differences: Mapping[Layers, Difference]) -> dict[str, list[str]]:
    """Return the headings of groups, and what changed in each."""
    found = grouped({view(*layers): difference for layers, difference in differences.items()})
    return {group.heading: written(group) for group in found}


def written(group: ViewGroup) -> list[str]:
    """Return what changed, with its sign."""
    return [
        text
        for row in group.difference.types
        for text in (
            *(f"+{one.name}" for one in row.added),
            *(f"-{one.name}" for one in row.removed),
            *(f"~{one.after.name}" for one in row.changed),
            *(f"?{one.name}" for one in (*row.maybe_added, *row.maybe_removed)),
        )
    ]


def changed(name: str, timeout: str, body: bytes = b"x") -> ResourceChange:
    """Return a cluster with another timeout; what else it has is in the body."""
    fields = (FieldChange("connect_timeout", ChangeAction.CHANGED, "1s", timeout),)
    return ResourceChange(resource(name, body=body), resource(name, body=body + timeout.encode()), fields)


def test_each_change_is_under_the_views_that_it_shows_in() -> None:
    """What all have comes first; of a type each part, in the order of the types and names."""
    everywhere = TypeDifference(CDS, added=(resource("new"),), changed=(changed("web", "2s"),))
    edge = replace(everywhere, removed=(resource("b"), resource("a")), maybe_added=(resource("c"),))
    secret = TypeDifference(SDS, added=(replace(resource("key"), type_url=SDS),))

    assert groups(
        {
            ("common",): Difference((everywhere,)),
            ("common", "edge"): Difference((edge, secret)),
            ("common", "zone"): Difference((everywhere,)),
        }
    ) == {"in all 3 views": ["+new", "~web"], "in 1 of 3 views: edge (common + edge)": ["+key", "-a", "-b", "?c"]}


def test_equal_changes_of_different_resources_are_one() -> None:
    """The same fields changed in a resource that differs otherwise, as by a patch; other values are another change."""
    found: dict[Layers, Difference] = {
        ("a",): Difference((TypeDifference(CDS, changed=(changed("web", "2s"),)),)),
        ("b",): Difference((TypeDifference(CDS, changed=(changed("web", "2s", b"y"),)),)),
        ("c",): Difference((TypeDifference(CDS, changed=(changed("web", "3s"),)),)),
        ("d",): Difference((TypeDifference(CDS, changed=(replace(changed("web", "3s"), fields=()),)),)),
    }

    assert list(groups(found)) == [
        "in 2 of 4 views: a (a), b (b)",
        "in 1 of 4 views: c (c)",
        "in 1 of 4 views: d (d)",
    ]


def test_many_views_are_named_by_their_layer() -> None:
    """The last one that they alone have; without one the first views are named. So a thousand take one line."""
    one, other = (Difference((TypeDifference(CDS, added=(resource(name),)),)) for name in ("one", "other"))
    many: dict[Layers, Difference] = {("common", "edge", f"nodes/{number}"): one for number in range(1000)}
    many |= {("common", f"zones/{number}"): other for number in range(5)}

    assert groups({**many, ("common",): Difference(())}) == {
        "in 1000 of 1006 views: all with the layer edge": ["+one"],
        "in 5 of 1006 views: zones/0 (common + zones/0), zones/1 (common + zones/1), zones/2 (common + zones/2) and 2 more": [
            "+other"
        ],
    }


def test_names_of_a_view() -> None:
    """All views of the settings with these layers are named, and whose variables hold."""
    (group,) = grouped(
        {
            ComparedView(("blue", "green"), ("common",)): Difference((TypeDifference(CDS, added=(resource("a"),)),)),
            ComparedView(("staging",), ("common", "/staging")): Difference(()),
        }
    )

    assert group.heading == "in 1 of 2 views: blue, green (common)"
    assert str(ComparedView(("staging",), ("common", "/staging"))) == ("staging (common with the variables of staging)")


def test_no_difference() -> None:
    """Where nothing differs there is no group."""
    assert grouped({view("a"): Difference(()), view("b"): Difference(())}) == ()


NAMES = st.sampled_from("abcdef")
TREES = st.dictionaries(NAMES, st.integers(1, 2), max_size=5)


@given(common=st.tuples(TREES, TREES), own=st.lists(st.tuples(TREES, TREES), min_size=1, max_size=4))
def test_views_are_compared_as_each_by_itself(
    catalogue: Catalogue,
    common: tuple[dict[str, int], dict[str, int]],
    own: list[tuple[dict[str, int], dict[str, int]]],
) -> None:
    """The comparison of views that share their rows with the first ones finds what any other one finds."""

    def snapshot(clusters: dict[str, int]) -> Snapshot:
        return snapshot_of(1, *(named("cds", name, alt_stat_name=f"{one}") for name, one in clusters.items()))

    bases = [snapshot(clusters) for clusters in common]
    comparer = Comparer(catalogue, of_views=True)

    def over(base: Snapshot, clusters: dict[str, int]) -> Snapshot:
        rows = base.resources(CDS).with_changes(snapshot(clusters).resources(CDS).values(), ())
        return replace(base, by_type={**base.by_type, CDS: rows})

    for earlier, later in (({}, {}), *own):
        before, after = over(bases[0], earlier), over(bases[1], later)
        assert comparer.compare(before, after) == Comparer(catalogue).compare(before, after)
