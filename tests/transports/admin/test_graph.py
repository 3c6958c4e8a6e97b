from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from fsxds.model.resources import Key, Reference, Resource, Rows, Snapshot
from fsxds.model.values import Severity
from fsxds.transports.admin.graph import Graph, GraphRequest, SnapshotUses, graph_of, key_of_id
from tests.support.snapshots import resource, snapshot, type_url

Uses = dict[str, list[str]]
"""By `CDS/web`, what it uses: the same of others, with `?` before it where that need not be there."""


def reference(written: str) -> Reference:
    """Make a reference of its type and name."""
    short, _, name = written.removeprefix("?").partition("/")
    return Reference(type_url(short), name, ("f",), Severity.NOTE if written[0] == "?" else Severity.WARNING)


def made(uses: Uses, declared: Iterable[str] = ("CDS", "EDS", "SDS", "RDS", "SRDS", "LDS")) -> Snapshot:
    """Make a snapshot."""
    found: dict[str, dict[str, Resource]] = {}
    for written, used in uses.items():
        short, _, name = written.partition("/")
        found.setdefault(short, {})[name] = replace(resource(short, name), references=tuple(map(reference, used)))
    plain = snapshot({short: dict.fromkeys(rows, "1") for short, rows in found.items()}, declared=tuple(declared))
    rows = {type_url(short): Rows(type_url(short), {n: each[n] for n in sorted(each)}) for short, each in found.items()}
    return replace(plain, by_type={**plain.by_type, **rows})


def asked(uses: Uses | Snapshot, static: Iterable[Key] = (), **request: object) -> Graph:
    """Return a part of a graph."""
    shown = uses if isinstance(uses, Snapshot) else made(uses)
    if isinstance(around := request.get("around"), str):
        request["around"] = key_of_id(around)
    return graph_of(SnapshotUses(shown, lambda key: key in set(static)), GraphRequest(**request))  # type: ignore[arg-type]


def states(graph: Graph) -> dict[str, str]:
    """Return the states of nodes by id."""
    return {node.id: node.state for node in graph.nodes}


WEB: Uses = {
    "LDS/front": ["RDS/r", "SDS/cert"],
    "RDS/r": ["CDS/web", "CDS/gone"],
    "CDS/web": ["EDS/web"],
    "EDS/web": [],
    "SDS/cert": [],
    "CDS/alone": [],
}


def test_what_uses_what() -> None:
    """A listener leads to its routes and secrets, routes to clusters, a cluster to its endpoints."""
    graph = asked(WEB)

    assert set(graph.edges) == {
        ("lds/front", "rds/r"),
        ("lds/front", "sds/cert"),
        ("rds/r", "cds/web"),
        ("rds/r", "cds/gone"),
        ("cds/web", "eds/web"),
    }
    assert (graph.total, graph.missing) == (7, 1)
    assert [node.place for node in graph.nodes if node.id == "cds/web"] == ["a.yaml:1"]


def test_missing_names_are_there_whatever_the_limit() -> None:
    """They come first, with what uses them."""
    graph = asked({f"CDS/{number:03}": [] for number in range(300)} | WEB, limit=4)

    assert states(graph) == {"cds/gone": "missing", "rds/r": "served", "lds/front": "served", "sds/cert": "served"}


def test_half_of_the_room_is_not_for_missing_names() -> None:
    """Hundreds of missing names leave room for what is served."""
    graph = asked({f"CDS/{number:03}": [f"EDS/{number:03}"] for number in range(300)} | WEB, limit=20)

    assert len([state for state in states(graph).values() if state == "missing"]) < 20
    assert graph.missing == 301


def test_what_need_not_be_there_is_not_missing() -> None:
    """It is drawn where it is served, and nowhere else."""
    graph = asked({"LDS/l": ["?RDS/r", "?RDS/absent"], "RDS/r": []})

    assert states(graph) == {"lds/l": "served", "rds/r": "served"}


def test_what_comes_from_elsewhere_is_not_missing() -> None:
    """That is what the bootstrap defines, and what is of a type that the tree says nothing about."""
    graph = asked(
        made({"RDS/r": ["CDS/static", "CDS/gone", "SDS/cert"]}, ("RDS", "CDS")), [(type_url("CDS"), "static")]
    )

    assert states(graph) == {
        "rds/r": "served",
        "cds/static": "outside",
        "cds/gone": "missing",
        "sds/cert": "outside",
    }


def test_a_pattern_stands_for_all_that_begin_so() -> None:
    """Scoped routes are used by `*`, virtual hosts of a route configuration by `r/*`."""
    graph = asked({"LDS/l": ["SRDS/*"], "SRDS/a": [], "RDS/r": ["?VHDS/r/*"], "VHDS/r/x": [], "VHDS/s/x": []})

    assert set(graph.edges) == {("lds/l", "srds/a"), ("rds/r", "vhds/r/x")}
    assert ("lds/l", "srds/a") in asked({"LDS/l": ["SRDS/*"], "SRDS/a": []}, around="srds/a").edges


def test_a_pattern_for_nothing_is_missing() -> None:
    """A listener that needs scoped routes has none."""
    assert states(asked({"LDS/l": ["SRDS/*"]})) == {"lds/l": "served", "srds/*": "missing"}


def test_an_alias_stands_for_its_resource() -> None:
    """What is used by an alias is not missing."""
    shown = made({"RDS/r": ["CDS/alias"], "CDS/web": []})
    clusters = Rows(type_url("CDS"), {"web": replace(resource("CDS", "web"), aliases=("alias",))})
    graph = asked(replace(shown, by_type={**shown.by_type, type_url("CDS"): clusters}))

    assert set(graph.edges) == {("rds/r", "cds/web")}
    assert graph.missing == 0


def test_around_is_what_hangs_together() -> None:
    """What uses a resource, and what it uses; not what else these are used for."""
    graph = asked(WEB | {"RDS/other": ["CDS/web", "CDS/alone"]}, around="cds/web")

    assert set(states(graph)) == {"cds/web", "rds/r", "rds/other", "lds/front", "eds/web"}


def test_around_a_missing_name() -> None:
    """What uses it can be found."""
    assert list(states(asked(WEB, around="cds/gone"))) == ["cds/gone", "rds/r", "lds/front"]


def test_around_nothing_is_nothing() -> None:
    """A name that no resource has, and that none uses, is not said to be missing."""
    assert asked(WEB, around="cds/unknown").nodes == ()


def test_search_finds_parts_of_names_in_any_case() -> None:
    """Missing names come first; what hangs together with those that were found comes as well."""
    graph = asked(WEB, search="WEB")

    assert graph.total == 2
    assert {"cds/web", "eds/web", "rds/r"} <= states(graph).keys()
    assert asked(WEB, search="gone").nodes[0].id == "cds/gone"


def test_cycles_end() -> None:
    """Clusters may lead to each other."""
    graph = asked({"CDS/a": ["CDS/b"], "CDS/b": ["CDS/a"]}, around="cds/a")

    assert set(graph.edges) == {("cds/a", "cds/b"), ("cds/b", "cds/a")}


def test_no_part_is_larger_than_its_limit() -> None:
    """Not even of a route configuration that uses ten thousand clusters."""
    names = [f"CDS/{number:05}" for number in range(10_000)]
    shown = made({"RDS/r": names, **{name: [] for name in names}})

    assert len(asked(shown, limit=100).nodes) == 100
    assert len(asked(shown, search="0", limit=100).nodes) == 100
    assert len(asked(shown, around="rds/r", limit=100).nodes) == 100


@pytest.mark.parametrize("node_id", ["", "cds", "cds/", "nope/web", "/web"])
def test_ids_have_a_type_and_a_name(node_id: str) -> None:
    """Anything else is none."""
    assert key_of_id(node_id) is None


def test_a_redirect_says_where_it_leads() -> None:
    """Its place is followed by its locator; what it leads to is what it uses."""
    whole = made({"CDS/web": [], "CDS/one": ["?CDS/web"]})
    rows = whole.resources(type_url("CDS"))
    rows = rows.with_changes([replace(rows["one"], redirect="xdstp:///c/web")], ())
    graph = asked(replace(whole, by_type={**whole.by_type, type_url("CDS"): rows}))

    assert {node.id: node.place for node in graph.nodes} == {
        "cds/one": "a.yaml:1, redirects to xdstp:///c/web",
        "cds/web": "a.yaml:1",
    }
    assert graph.edges == (("cds/one", "cds/web"),)
