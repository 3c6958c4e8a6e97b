"""Renaming: everywhere, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.editor.renaming import UncertainRenameError, edited, rename, renameable
from tests.editor.test_navigation import ALL, ENDPOINTS_FILE, LISTENER, NAMING, STRUCTURED, WRAPPED, C
from tests.editor.trees import CLUSTERS, FILES, ROUTES, Workbench, workbench


def renamed(bench: Workbench, place: tuple[PurePosixPath, int], new_name: str) -> dict[str, str]:
    """Return the files that are edited, as they are then."""
    found = renameable(bench.navigator, *place)
    edits = rename(bench.navigator, found, new_name, bench.tree.problems_with)
    return {str(path): edited(bench.navigator.text(path), parts) for path, parts in edits.items()}


def test_a_cluster(tmp_path: Path, catalogue: Catalogue) -> None:
    """A cluster is renamed where it is defined and where routes name it, and nowhere else."""
    bench = workbench(tmp_path, catalogue, ALL)

    assert renamed(bench, bench.at("routes.yaml", "cluster: web", 10), "site") == {
        "clusters.yaml": CLUSTERS.replace("web", "site"),
        "routes.yaml": ROUTES.replace("cluster: web", "cluster: site"),
    }


def test_a_cluster_with_endpoints(tmp_path: Path, catalogue: Catalogue) -> None:
    """The endpoints of a cluster that asks for them by its own name are renamed with it, from either side."""
    bench = workbench(tmp_path, catalogue, ALL)
    from_cluster = renamed(bench, bench.at("pool.cds.yaml", "name: pool", 7), "crew")

    assert from_cluster == renamed(bench, bench.at("eds.json", '"pool"', 2), "crew")
    assert from_cluster["eds.json"] == ENDPOINTS_FILE.replace("pool", "crew")
    assert from_cluster["pool.cds.yaml"].startswith("- name: crew\n")


def test_a_route_configuration(tmp_path: Path, catalogue: Catalogue) -> None:
    """A route configuration is renamed in the listeners that ask for it."""
    bench = workbench(tmp_path, catalogue, ALL)

    assert renamed(bench, bench.at("routes.yaml", "name: main", 7), "other") == {
        "routes.yaml": ROUTES.replace("name: main", "name: other"),
        "lds.yaml": LISTENER.replace("route_config_name: main", "route_config_name: other"),
    }


@pytest.mark.parametrize(
    ("new_name", "written"),
    [("true", '"true"'), ("a: b", '"a: b"'), ("1.0", '"1.0"'), ("é", '"é"'), ("a/b.c-d", "a/b.c-d"), ("#x", '"#x"')],
)
def test_quotes(tmp_path: Path, catalogue: Catalogue, new_name: str, written: str) -> None:
    """A name that YAML would take for something else is quoted."""
    bench = workbench(tmp_path, catalogue, FILES)
    texts = renamed(bench, bench.at("clusters.yaml", "name: web", 7), new_name)

    assert f"- name: {written}\n" in texts["clusters.yaml"]
    assert f"        cluster: {written}\n" in texts["routes.yaml"]


LUA = """\
- name: luas
  virtual_hosts:
  - name: all
    domains: [a]
    routes: [{match: {prefix: /}, route: {cluster: api}}]
    typed_per_filter_config:
      lua:
        "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute
        source_code: {inline_string: "-- api\\nhandle:httpCall('api')"}
"""


@pytest.mark.parametrize(
    ("files", "new_name", "reason"),
    [
        ({}, "web", "taken"),
        ({}, "", "printable"),
        ({}, "a\nb", "printable"),
        ({}, " a", "blanks"),
        ({}, "*", "no name"),
        ({"broken.yaml": "a: ["}, "x", "broken.yaml:1 has an error"),
        ({"more.cds.yaml": "- name: other\n  type: STATIC\n  nonsense: 1\n"}, "x", "has an error"),
        ({"anchors.rds.yaml": ROUTES.replace("name: main", "name: other").replace("cluster: api", "cluster: &a api").replace("cluster: web", "cluster: *a")}, "x", "alias"),
        ({"lua.rds.yaml": LUA}, "x", "in code"),
        ({"folded.rds.yaml": ROUTES.replace("name: main", "name: other").replace("cluster: web", "cluster: >-\n          api")}, "x", "cannot be found"),
        ({"text.rds.textproto": 'name: "t" virtual_hosts { name: "v" domains: "b" routes { match { prefix: "/" } route { cluster: "api" } } }'}, "x", "text.rds.textproto"),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_not_done(
    tmp_path: Path, catalogue: Catalogue, files: Mapping[str, str], new_name: str, reason: str
) -> None:
    """Where it is not certain that all places are found, or all stays well, the reason is given."""
    bench = workbench(tmp_path, catalogue, {**FILES, **files})

    with pytest.raises(UncertainRenameError, match=reason):
        renamed(bench, bench.at("clusters.yaml", "name: api", 7), new_name)


def test_static_clusters(tmp_path: Path, catalogue: Catalogue) -> None:
    """What the bootstrap defines is not renamed."""
    bench = workbench(tmp_path, catalogue, FILES, static_clusters=("api",))

    with pytest.raises(UncertainRenameError, match="bootstrap"):
        renamed(bench, bench.at("routes.yaml", "{cluster: api}", 12), "x")


@pytest.mark.parametrize(("name", "words"), [("routes.yaml", "prefix"), ("lds.yaml", "name: front")])
def test_what_is_no_name_that_can_change(tmp_path: Path, catalogue: Catalogue, name: str, words: str) -> None:
    """Listeners and other words cannot be renamed."""
    bench = workbench(tmp_path, catalogue, ALL)

    with pytest.raises(UncertainRenameError):
        renameable(bench.navigator, *bench.at(name, words, 7))


def test_a_rename_that_breaks_something(tmp_path: Path, catalogue: Catalogue) -> None:
    """What was found is tried: a problem that the tree did not have is the reason."""
    bench = workbench(tmp_path, catalogue, FILES)
    found = renameable(bench.navigator, *bench.at("clusters.yaml", "name: api", 7))
    broken = bench.tree.problems_with({PurePosixPath("clusters.yaml"): "a: ["})

    with pytest.raises(UncertainRenameError, match=r"clusters.yaml:1 would be wrong: bad-syntax"):
        rename(bench.navigator, found, "x", lambda _: broken)


def test_a_wrapped_cluster(tmp_path: Path, catalogue: Catalogue) -> None:
    """A resource with a wrapper has its name twice, and both are changed."""
    routes = ROUTES.replace("cluster: web", "cluster: wrapped")
    bench = workbench(tmp_path, catalogue, {**FILES, "routes.yaml": routes, "more.yaml": WRAPPED})

    assert renamed(bench, bench.at("routes.yaml", "cluster: wrapped", 10), "other") == {
        "routes.yaml": ROUTES.replace("cluster: web", "cluster: other"),
        "more.yaml": WRAPPED.replace("name: wrapped", "name: other"),
    }


def test_structured_names(tmp_path: Path, catalogue: Catalogue) -> None:
    """A structured name is renamed in every spelling; what mentions it gets the parameters of its folder."""
    files = {**STRUCTURED, "routes.yaml": STRUCTURED["routes.yaml"].rpartition("    - match")[0]}
    bench = workbench(tmp_path, catalogue, files, **NAMING)
    place = bench.at("edge/clusters.yaml", f"xdstp:///{C}/web", 3)

    assert renamed(bench, place, f"xdstp:///{C}/site") == {
        "edge/clusters.yaml": files["edge/clusters.yaml"].replace("web\n", "site\n"),
        "routes.yaml": files["routes.yaml"].replace("w%65b", "site"),
    }
    renamed(bench, bench.at("routes.yaml", "xdstp://own", 3), f"xdstp://own/{C}/site?env=prod")
    for wrong, why in (
        (f"xdstp:///{C}/%zz", "begins no code"),
        ("xdstp:///envoy.config.route.v3.RouteConfiguration/x", "one resource of"),
        (f"xdstp:///{C}/*", "one resource of"),
        (f"udpa:///{C}/web2", "taken"),
    ):
        with pytest.raises(UncertainRenameError, match=why):
            renamed(bench, place, wrong)


def test_parts_of_references_are_not_renamed(tmp_path: Path, catalogue: Catalogue) -> None:
    """A name that is an alternative in a reference is written with others in one text: that is left to the author."""
    bench = workbench(tmp_path, catalogue, STRUCTURED, **NAMING)

    with pytest.raises(UncertainRenameError, match="cannot be found"):
        renamed(bench, bench.at("edge/clusters.yaml", f"xdstp:///{C}/web", 3), f"xdstp:///{C}/site")
