"""Names: which one is at a place, where it leads, and the symbols of files."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.editor.edited_tree import NOTHING_READ
from fsxds.editor.navigation import Navigator, TextPlace
from fsxds.settings.naming_rules import ContextRule
from fsxds.snapshots.references import CLUSTER, ENDPOINTS, NAMING_FIELDS
from tests.editor.trees import FILES, Workbench, workbench

HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
EDS = """\
- name: pool
  type: EDS
  eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}
"""
ENDPOINTS_FILE = '{"resources": [{"cluster_name": "pool", "endpoints": []}]}'
LISTENER = f"""\
- name: front
  address: {{socket_address: {{address: 0.0.0.0, port_value: 80}}}}
  filter_chains:
  - filters:
    - name: hcm
      typed_config:
        "@type": {HCM}
        stat_prefix: x
        rds: {{route_config_name: main, config_source: {{ads: {{}}, resource_api_version: V3}}}}
        http_filters:
        - name: router
          typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
"""
ALL = {**FILES, "eds.json": ENDPOINTS_FILE, "pool.cds.yaml": EDS, "lds.yaml": LISTENER}


@pytest.fixture
def bench(tmp_path: Path, catalogue: Catalogue) -> Workbench:
    """A tree with references of most types."""
    return workbench(tmp_path, catalogue, ALL)


def words(bench: Workbench, place: TextPlace) -> tuple[str, str]:
    """Return the file of a place, and the text there."""
    return str(place.path), bench.navigator.text(place.path)[slice(*place.span)]


@pytest.mark.parametrize(
    ("name", "at", "offset", "definitions", "mentions"),
    [
        ("routes.yaml", "cluster: web", 10, [("clusters.yaml", "web")], [("routes.yaml", "web")]),
        ("routes.yaml", "{cluster: api}", 12, [("clusters.yaml", "api")], [("routes.yaml", "api")]),
        ("clusters.yaml", "name: api", 8, [("clusters.yaml", "api")], [("routes.yaml", "api")]),
        ("lds.yaml", "route_config_name: main", 20, [("routes.yaml", "main")], [("lds.yaml", "main")]),
        ("routes.yaml", "name: main", 7, [("routes.yaml", "main")], [("lds.yaml", "main")]),
        ("eds.json", '"pool"', 2, [("eds.json", '"pool"')], [("pool.cds.yaml", "pool")]),
        (
            "pool.cds.yaml",
            "name: pool",
            7,
            [("pool.cds.yaml", "pool"), ("eds.json", '"pool"')],
            [("pool.cds.yaml", "pool")],
        ),
    ],
)
def test_names_lead_somewhere(
    bench: Workbench,
    *,
    name: str,
    at: str,
    offset: int,
    definitions: list[tuple[str, str]],
    mentions: list[tuple[str, str]],
) -> None:
    """A name leads to its definition and its mentions, across files and formats."""
    found = bench.navigator.name_at(*bench.at(name, at, offset))

    assert found is not None
    assert [words(bench, one) for key in found.keys for one in bench.navigator.definitions(key)] == definitions
    assert [words(bench, one) for key in found.keys for one in bench.navigator.mentions(key)] == mentions


@pytest.mark.parametrize(
    ("name", "at"), [("routes.yaml", "domains"), ("routes.yaml", "/api"), ("lds.yaml", "stat_pre")]
)
def test_other_words_lead_nowhere(bench: Workbench, name: str, at: str) -> None:
    """What is no name of a resource is none."""
    assert bench.navigator.name_at(*bench.at(name, at)) is None


def test_broken_files_keep_their_names(bench: Workbench, catalogue: Catalogue) -> None:
    """While a file cannot be read, its names are those that it had; and names in it still lead on."""
    text = FILES["routes.yaml"] + "  x: [\n"
    view = bench.tree.load({PurePosixPath("routes.yaml"): text}, is_disk_read=False)
    navigator = Navigator(view, catalogue)
    found = navigator.name_at(PurePosixPath("routes.yaml"), text.index("cluster: web") + 10)

    assert found is not None
    assert found.keys == ((CLUSTER, "web"),)
    assert len(navigator.definitions((CLUSTER, "web"))) == 1
    assert navigator.names_of(found.keys[0][0]) == ["api", "pool", "web"]


def test_symbols(bench: Workbench) -> None:
    """The symbols of a file are its resources, with their named parts."""
    (listener,) = bench.navigator.symbols(PurePosixPath("lds.yaml"))
    (hcm,) = listener.parts

    assert (listener.name, listener.noun, hcm.name) == ("front", "listeners", "hcm")
    assert [part.name for part in hcm.parts] == ["router"]
    assert [one.name for one in bench.navigator.symbols(PurePosixPath("eds.json"))] == ["pool"]


def test_symbols_of_the_tree(bench: Workbench) -> None:
    """The symbols of the tree are its resources by name, in the order of the types."""
    found = bench.navigator.tree_symbols("P")

    assert [(one.name, one.noun) for one in found] == [("api", "clusters"), ("pool", "clusters"), ("pool", "endpoints")]


def test_an_unread_tree(catalogue: Catalogue) -> None:
    """Before the first load nothing is known, and nothing fails."""
    navigator = Navigator(NOTHING_READ, catalogue)

    assert navigator.tree_symbols("") == []
    assert navigator.name_at(PurePosixPath("a.yaml"), 0) is None
    assert navigator.symbols(PurePosixPath("a.yaml")) == []


def test_naming_fields_exist(bench: Workbench, catalogue: Catalogue) -> None:
    """The fields that name resources are fields of the API, and hold the mentions that loading collects."""
    unknown = [name for name in NAMING_FIELDS if not catalogue.knows(name.rpartition(".")[0])]
    fields = [
        name
        for name in NAMING_FIELDS
        if name not in unknown
        and name.rpartition(".")[2] not in catalogue.pool.FindMessageTypeByName(name.rpartition(".")[0]).fields_by_name
    ]

    assert fields == []
    assert len(unknown) < 5
    assert (ENDPOINTS, "pool") in bench.navigator.view.names.mentions


WRAPPED = """\
resources:
- name: wrapped
  resource:
    "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: wrapped
    type: STATIC
"""


def test_wrapped_resources(tmp_path: Path, catalogue: Catalogue) -> None:
    """The name of a wrapper is that of the resource in it."""
    routes = FILES["routes.yaml"].replace("cluster: web", "cluster: wrapped")
    bench = workbench(tmp_path, catalogue, {**FILES, "routes.yaml": routes, "more.yaml": WRAPPED})
    mention = bench.navigator.name_at(*bench.at("routes.yaml", "cluster: wrapped", 10))
    around = bench.navigator.name_at(*bench.at("more.yaml", "- name: wrapped", 9))

    assert mention is not None
    assert around is not None
    assert around.keys == mention.keys == ((CLUSTER, "wrapped"),)
    assert [words(bench, one) for one in bench.navigator.definitions(mention.keys[0])] == [("more.yaml", "wrapped")]
    assert [one.name for one in bench.navigator.symbols(PurePosixPath("more.yaml"))] == ["wrapped"]


C = "envoy.config.cluster.v3.Cluster"
STRUCTURED = {
    "edge/clusters.yaml": f"- name: xdstp:///{C}/web\n  type: STATIC\n- name: udpa:///{C}/w%65b2\n  type: STATIC\n",
    "routes.yaml": (
        "- name: main\n  virtual_hosts:\n  - name: all\n    domains: ['*']\n    routes:\n"
        f"    - match: {{prefix: /a}}\n      route: {{cluster: 'xdstp://own/{C}/w%65b?env=prod'}}\n"
        f"    - match: {{prefix: /b}}\n      route: {{cluster: 'udpa:///{C}/web2?env=prod#alt=xdstp:///{C}/web?env=prod'}}\n"
    ),
}
NAMING = {"authority": "own", "context_params": (ContextRule("edge", (("env", "prod"),)),)}


def test_structured_names_lead_somewhere(tmp_path: Path, catalogue: Catalogue) -> None:
    """However a structured name is written, it leads to its resource and to what mentions that, alternatives too."""
    bench = workbench(tmp_path, catalogue, STRUCTURED, **NAMING)

    def keys(name: str, at: str) -> list[str]:
        found = bench.navigator.name_at(*bench.at(name, at, 3))
        assert found is not None
        return [name for _, name in found.keys]

    web, second = (f"xdstp://own/{C}/{name}?env=prod" for name in ("web", "web2"))
    assert keys("edge/clusters.yaml", f"xdstp:///{C}/web") == [web]
    assert keys("routes.yaml", "xdstp://own") == [web]
    assert keys("routes.yaml", "udpa:") == [second, web]
    mentions = [words(bench, place) for place in bench.navigator.mentions((CLUSTER, web))]
    assert [file for file, _ in mentions] == ["routes.yaml", "routes.yaml"]
    assert [words(bench, place) for place in bench.navigator.definitions((CLUSTER, second))] == [
        ("edge/clusters.yaml", f"udpa:///{C}/w%65b2")
    ]
    assert bench.navigator.names_of(CLUSTER) == [second, web]
