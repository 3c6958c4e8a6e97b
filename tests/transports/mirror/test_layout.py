"""Which files a snapshot makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from fsxds.events.file_events import Remark
from fsxds.model.resources import Snapshot
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.transports.mirror.files import FileOnDisk, Layout, MirrorFile
from fsxds.transports.mirror.layout import LayoutMaker, MirrorConfigSources
from tests.support.reachable import reachable
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import (
    Plain,
    assignment,
    by_eds,
    by_rds,
    listener,
    message,
    routes,
    snapshot,
    static,
    url,
)

OUT = PurePosixPath("/out")
EMPTY_BUNDLES = {"cds.pb", "lds.pb", "srds.pb"}


def lay_out(made: Snapshot, before: Layout | None = None, *, suffix: str = ".pb", rewrite: bool = False) -> Layout:
    """Lay out a snapshot over what another layout has left."""
    return over(made, hold(before) if before else {}, suffix=suffix, rewrite=rewrite)


def over(
    made: Snapshot, held: dict[PurePosixPath, FileOnDisk], *, suffix: str = ".pb", rewrite: bool = False
) -> Layout:
    """Lay out a snapshot over files."""
    return LayoutMaker(suffix, MirrorConfigSources(this_envoy()), OUT if rewrite else None).lay_out(made, held)


def hold(layout: Layout) -> dict[PurePosixPath, FileOnDisk]:
    """Hold the files of a layout."""
    return {path: FileOnDisk(file.type_url, file.names, file, file.is_stand_in) for path, file in layout.files.items()}


def forget(held: dict[PurePosixPath, FileOnDisk]) -> dict[PurePosixPath, FileOnDisk]:
    """Hold files without knowing what is in them."""
    return {path: replace(file, content=None) for path, file in held.items()}


def paths(layout: Layout) -> set[str]:
    return {str(path) for path in layout.files}


def file(layout: Layout, path: str) -> MirrorFile:
    return layout.files[PurePosixPath(path)]


def subjects(remarks: tuple[Remark, ...]) -> list[str]:
    return [remark.subject for remark in remarks]


def test_each_type_has_its_files() -> None:
    """Clusters, listeners and scopes are bundles; everything else has a file per resource; VHDS has none."""
    made = snapshot(
        cds=[static("a"), static("b")],
        eds=[assignment("a/b", 1)],
        rds=[routes("r", "a")],
        sds=[{"name": "s"}],
        rtds=[{"name": "live"}],
        ecds=[{"name": "f"}],
        vhds=[{"name": "v", "domains": ["*"]}],
    )

    layout = lay_out(made)
    singles = {"eds/a%2Fb.pb", "rds/r.pb", "sds/s.pb", "rtds/live.pb", "ecds/f.pb"}
    assert paths(layout) == EMPTY_BUNDLES | singles
    assert file(layout, "cds.pb").names == ("a", "b")
    assert file(layout, "eds/a%2Fb.pb").names == ("a/b",)


def test_versions_are_those_of_the_selection() -> None:
    """A bundle has the version of its type, a single file that of a subscription to just its name."""
    made = snapshot(cds=[static("a")], eds=[assignment("x", 1), assignment("y", 1)])

    layout = lay_out(made)
    assert file(layout, "cds.pb").version == made.versions[url("cds")]
    assert file(layout, "eds/x.pb").version == version_of(made, Subscription.for_request(url("eds"), ["x"]))


def test_authored_versions_are_served_where_they_are_wanted() -> None:
    """Then every file of the type has it."""
    made = replace(
        snapshot(cds=[static("a")], eds=[assignment("x", 1)]),
        authored=MappingProxyType({url("cds"): "c7", url("eds"): "e7"}),
    )

    layout = lay_out(made)
    assert file(layout, "cds.pb").version == "c7"
    assert file(layout, "eds/x.pb").version == "e7"


def test_nothing_is_written_of_a_withheld_type() -> None:
    """There is no file for it, and what is there stays as it is."""
    marks = {"withheld": ["cds", "eds"], "incomplete": ["cds", "eds"]}
    before = lay_out(snapshot(cds=[static("a")], eds=[assignment("x", 1)]))

    assert paths(lay_out(snapshot(unsure=marks))) == {"lds.pb", "srds.pb"}
    after = lay_out(snapshot(unsure=marks), before)
    assert paths(after) == {"lds.pb", "srds.pb"}
    assert after.kept == {PurePosixPath("cds.pb"), PurePosixPath("eds/x.pb")}
    assert subjects(after.kept_resources) == ["cds.pb", "eds/x.pb"]


def test_an_incomplete_type_loses_nothing() -> None:
    """What is missing stays beside what is new, under a version that is nobody's."""
    before = lay_out(snapshot(cds=[static("a"), static("b")], eds=[assignment("x", 1), assignment("y", 1)]))
    made = snapshot(cds=[static("b", 7), static("c")], eds=[assignment("y", 2)], unsure={"incomplete": ["cds", "eds"]})

    after = lay_out(made, before)
    assert file(after, "cds.pb").names == ("a", "b", "c")
    assert file(after, "cds.pb").version not in {made.versions[url("cds")], file(before, "cds.pb").version}
    assert after.kept == {PurePosixPath("eds/x.pb")}
    assert subjects(after.kept_resources) == ["cds.pb", "eds/x.pb"]
    assert "'a' kept: a file that may define clusters was never good" in after.kept_resources[0].reason


def test_an_incomplete_bundle_that_cannot_be_read_is_left_alone() -> None:
    """Where it is not known what would be lost, nothing is written."""
    before = forget(hold(lay_out(snapshot(cds=[static("a"), static("b")]))))
    made = snapshot(cds=[static("b", 7)], unsure={"incomplete": ["cds"]})

    after = over(made, before)
    assert "cds.pb" not in paths(after)
    assert PurePosixPath("cds.pb") in after.kept


def test_an_incomplete_bundle_that_lacks_nothing_is_written() -> None:
    """A broken file elsewhere does not stop what can only gain."""
    before = forget(hold(lay_out(snapshot(cds=[static("a")]))))
    made = snapshot(cds=[static("a", 7), static("b")], unsure={"incomplete": ["cds"]})

    after = over(made, before)
    assert file(after, "cds.pb").names == ("a", "b")
    assert file(after, "cds.pb").version == made.versions[url("cds")]
    assert after.kept_resources == ()


def test_an_undeclared_type_gets_an_empty_bundle_but_never_empties_one() -> None:
    """An Envoy can start without listeners, and a wrong directory does not take them from a running one."""
    made = snapshot(unsure={"undeclared": ["cds", "lds", "srds", "eds"]})
    before = lay_out(snapshot(cds=[static("a")], eds=[assignment("x", 1)]))

    assert file(lay_out(made), "cds.pb").resources == ()
    after = lay_out(made, before)
    assert file(after, "cds.pb") == file(before, "cds.pb")
    assert after.kept == {PurePosixPath("eds/x.pb")}
    assert "no document defines clusters; write an empty list" in after.kept_resources[0].reason


def test_a_declared_empty_type_is_emptied() -> None:
    """An author who writes an empty list means it."""
    before = lay_out(snapshot(cds=[static("a")], eds=[assignment("x", 1)]))

    after = lay_out(snapshot(), before)
    assert file(after, "cds.pb").resources == ()
    assert paths(after) == EMPTY_BUNDLES
    assert after.kept == frozenset()


def test_a_removed_assignment_that_a_cluster_names_is_emptied() -> None:
    """Its file stays, with the name and no endpoints; one that no cluster names goes."""
    clusters = [by_eds("web", "web-service")]
    before = lay_out(snapshot(cds=clusters, eds=[assignment("web-service", 1), assignment("unused", 1)]))

    after = lay_out(snapshot(cds=clusters), before)
    emptied = file(after, "eds/web-service.pb")
    assert paths(after) == {*EMPTY_BUNDLES, "eds/web-service.pb"}
    assert emptied.is_stand_in
    assert message("eds", emptied.resources[0].body) == message("eds", b"\n\x0bweb-service")
    assert emptied.version != file(before, "eds/web-service.pb").version


def test_clusters_that_are_only_in_the_file_name_assignments_too() -> None:
    """Clusters that are kept from before still need their endpoints' files."""
    before = lay_out(snapshot(cds=[by_eds("web")], eds=[assignment("web", 1)]))

    for marks in ({"incomplete": ["cds"]}, {"incomplete": ["cds"], "withheld": ["cds"]}, {"undeclared": ["cds"]}):
        assert file(lay_out(snapshot(unsure=marks), before), "eds/web.pb").is_stand_in


def test_an_assignment_that_never_was_is_not_made_up() -> None:
    """Without rewriting, nobody reads a file for it."""
    assert paths(lay_out(snapshot(cds=[by_eds("web")]))) == EMPTY_BUNDLES


def test_files_of_another_form_give_way() -> None:
    """After a change of form, what was kept moves to the new bundle and no old file is held back."""
    before = lay_out(snapshot(cds=[static("a")], eds=[assignment("x", 1)]), suffix=".json")

    after = lay_out(snapshot(cds=[static("b")], eds=[assignment("x", 1)], unsure={"incomplete": ["cds"]}), before)
    assert paths(after) == {*EMPTY_BUNDLES, "eds/x.pb"}
    assert file(after, "cds.pb").names == ("a", "b")
    assert after.kept == frozenset()


# -- rewriting of config sources


def path_in(layout: Layout, name: str = "web") -> str:
    """The path that a cluster of the layout reads its endpoints from, empty for none."""
    body = next(one.body for one in file(layout, "cds.pb").resources if one.name == name)
    return str(message("cds", body).eds_cluster_config.eds_config.path_config_source.path)


def manager(layout: Layout, name: str) -> Any:
    """The HttpConnectionManager of a listener of the layout."""
    body = next(one.body for one in file(layout, "lds.pb").resources if one.name == name)
    packed = message("lds", body).filter_chains[0].filters[0].typed_config
    return this_envoy().message_class(packed.type_url.rpartition("/")[2]).FromString(packed.value)


def test_config_sources_stay_unless_asked_for() -> None:
    """By default a resource is written with the bytes that every transport serves."""
    made = snapshot(cds=[by_eds("web")], eds=[assignment("web", 1)])

    assert file(lay_out(made), "cds.pb").resources[0] is made.resources(url("cds"))["web"]


def test_clusters_point_at_their_endpoints() -> None:
    """By an absolute path, to the safe name."""
    made = snapshot(cds=[by_eds("web", "a/b")], eds=[assignment("a/b", 1)])

    layout = lay_out(made, rewrite=True)
    assert path_in(layout) == "/out/eds/a%2Fb.pb"
    assert file(layout, "cds.pb").version == made.versions[url("cds")]


def test_a_path_that_would_not_exist_is_made_to() -> None:
    """Envoy refuses a cluster whose file does not exist (ENVOY.md E25), so it gets an empty one."""
    layout = lay_out(snapshot(cds=[by_eds("web")]), rewrite=True)

    assert path_in(layout) == "/out/eds/web.pb"
    assert file(layout, "eds/web.pb").is_stand_in


def test_a_filter_finds_a_file_without_its_configuration() -> None:
    """Then it takes its default at once (ENVOY.md E87)."""
    kind = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"
    discovery: Plain = {"config_source": {"ads": {}}, "type_urls": [kind], "default_config": {"@type": kind}}
    front = listener("front", 1, filters=[{"name": "f", "config_discovery": discovery}], route_config=routes("r", "c"))
    layout = lay_out(snapshot(lds=[front]), rewrite=True)
    source = manager(layout, "front").http_filters[0].config_discovery.config_source

    assert source.path_config_source.path == "/out/ecds/f.pb"
    assert (file(layout, "ecds/f.pb").names, file(layout, "ecds/f.pb").is_stand_in) == ((), True)


def test_no_empty_file_is_made_for_what_a_broken_file_may_define() -> None:
    """Then the source stays, until the endpoints are known."""
    marks = {"incomplete": ["eds"]}
    layout = lay_out(snapshot(cds=[by_eds("web")], unsure=marks), rewrite=True)

    assert path_in(layout) == ""
    assert "eds/web.pb" not in paths(layout)
    assert layout.left_sources == (
        Remark("cds web", "config source for endpoints left as written: there is no one file for 'web'"),
    )
    before = lay_out(snapshot(cds=[by_eds("web")], eds=[assignment("web", 1)]), rewrite=True)
    assert path_in(lay_out(snapshot(cds=[by_eds("web")], unsure=marks), before, rewrite=True)) == "/out/eds/web.pb"


def test_a_stand_in_stays_without_a_word_while_it_is_needed() -> None:
    """It is not something that an author could miss."""
    made = snapshot(cds=[by_eds("web")], unsure={"undeclared": ["eds"]})
    before = lay_out(made, rewrite=True)

    after = over(made, forget(hold(before)), rewrite=True)
    assert after.kept_resources == ()
    assert path_in(after) == "/out/eds/web.pb"
    assert PurePosixPath("eds/web.pb") in {*after.kept, *after.files}


def test_listeners_point_at_routes_that_exist() -> None:
    """A route table that does not exist leaves its listener as it was written, and says so."""
    made = snapshot(lds=[by_rds("front", 1, "r"), by_rds("other", 2, "nowhere")], rds=[routes("r", "c")])

    layout = lay_out(made, rewrite=True)
    assert manager(layout, "front").rds.config_source.path_config_source.path == "/out/rds/r.pb"
    assert manager(layout, "other").rds.config_source.HasField("ads")
    assert subjects(layout.left_sources) == ["lds other"]


def scoped(name: str) -> Plain:
    key: Plain = {"fragments": [{"header_value_extractor": {"name": "h", "element_separator": ";"}}]}
    ads: Plain = {"resource_api_version": "V3", "ads": {}}
    return listener(
        name,
        1,
        scoped_routes={
            "name": "s",
            "scope_key_builder": key,
            "rds_config_source": ads,
            "scoped_rds": {"scoped_rds_config_source": ads},
        },
    )


def scope(name: str, route: str) -> Plain:
    return {"name": name, "route_configuration_name": route, "key": {"fragments": [{"string_key": name}]}}


def test_scopes_of_one_table_are_served_by_files() -> None:
    """Scopes come from the bundle, and their one route table from its file."""
    made = snapshot(lds=[scoped("front")], srds=[scope("a", "r"), scope("b", "r")], rds=[routes("r", "c")])

    routing = manager(lay_out(made, rewrite=True), "front").scoped_routes
    assert routing.scoped_rds.scoped_rds_config_source.path_config_source.path == "/out/srds.pb"
    assert routing.rds_config_source.path_config_source.path == "/out/rds/r.pb"


def test_scopes_of_two_tables_cannot_be() -> None:
    """One path holds one table (ENVOY.md E28): the source stays, and it is told."""
    tables = [routes("r1", "c"), routes("r2", "c")]
    made = snapshot(lds=[scoped("front")], srds=[scope("a", "r1"), scope("b", "r2")], rds=tables)

    layout = lay_out(made, rewrite=True)
    assert manager(layout, "front").scoped_routes.rds_config_source.HasField("ads")
    assert layout.left_sources == (
        Remark("lds front", "config source for routes left as written: there is no one file for those of its scopes"),
    )


def test_a_listener_is_rewritten_when_its_routes_come() -> None:
    """Work is kept from one snapshot to the next, and done again where a path has come to be."""
    maker = LayoutMaker(".pb", MirrorConfigSources(this_envoy()), OUT)
    first = snapshot(1, lds=[by_rds("front", 1, "r")])
    second = replace(snapshot(2, lds=[], rds=[routes("r", "c")]), generation=2)
    rows = dict(second.by_type) | {url("lds"): first.by_type[url("lds")]}
    second = replace(second, by_type=MappingProxyType(rows))

    before = maker.lay_out(first, {})
    after = maker.lay_out(second, hold(before))
    assert manager(before, "front").rds.config_source.HasField("ads")
    assert manager(after, "front").rds.config_source.path_config_source.path == "/out/rds/r.pb"
    assert maker.lay_out(second, hold(after)).files == after.files


def test_paths_of_what_is_gone_are_forgotten() -> None:
    """Names that change all the time leave no paths behind: kept are those of what is laid out, and once more as many."""
    maker = LayoutMaker(".pb", MirrorConfigSources(this_envoy()), OUT)
    held: dict[PurePosixPath, FileOnDisk] = {}
    for generation in range(8):
        names = [f"c-{generation}-{number}" for number in range(500)]
        layout = maker.lay_out(snapshot(cds=list(map(by_eds, names)), eds=list(map(assignment, names))), held)
        held = hold(layout)

    assert {f"eds/{name}.pb" for name in names} | EMPTY_BUNDLES == paths(layout)
    made = sum(isinstance(each, PurePosixPath) for each in reachable(maker.paths))
    assert made < 4 * len(layout.files) + 2 * 1000 + 10, "relative and absolute paths"
