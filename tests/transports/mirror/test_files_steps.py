"""In which order files change."""

from __future__ import annotations

from pathlib import PurePosixPath

from fsxds.model.resources import Snapshot
from fsxds.transports.mirror.files import FileOnDisk, FileStep, Layout, Pause, Remove, Write, steps_to
from fsxds.transports.mirror.layout import LayoutMaker, MirrorConfigSources
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import Plain, assignment, by_eds, by_rds, routes, snapshot, static


def layout_of(made: Snapshot, before: Layout | None = None) -> Layout:
    return LayoutMaker(".pb", MirrorConfigSources(this_envoy()), None).lay_out(made, hold(before))


def hold(layout: Layout | None) -> dict[PurePosixPath, FileOnDisk]:
    files = layout.files if layout else {}
    return {path: FileOnDisk(file.type_url, file.names, file, file.is_stand_in) for path, file in files.items()}


def story(steps: tuple[FileStep, ...]) -> list[str]:
    """Tell steps in words; a bundle with the names in it."""
    words = []
    for step in steps:
        match step:
            case Write(file):
                words.append(
                    f"{file.path.stem} {'+'.join(file.names)}" if len(file.path.parts) == 1 else str(file.path)
                )
            case Remove(path):
                words.append(f"remove {path}")
            case Pause():
                words.append("pause")
    return words


def steps_between(before: Snapshot | None, after: Snapshot) -> list[str]:
    """Tell the steps from one snapshot to another."""
    first = layout_of(before) if before else None
    return story(steps_to(layout_of(after, first), hold(first)))


def test_leaves_come_before_clusters_and_these_before_listeners() -> None:
    """A whole tree at once: what is referred to always exists, and Envoy has a while to read the clusters."""
    made = snapshot(
        cds=[by_eds("c")],
        lds=[by_rds("l", 1, "r")],
        srds=[{"name": "s", "route_configuration_name": "r", "key": {"fragments": [{"string_key": "k"}]}}],
        eds=[assignment("c", 1)],
        rds=[routes("r", "c")],
        sds=[{"name": "s"}],
        rtds=[{"name": "live"}],
        ecds=[{"name": "f"}],
    )

    assert steps_between(None, made) == [
        "rtds/live.pb",
        "sds/s.pb",
        "eds/c.pb",
        "ecds/f.pb",
        "cds c",
        "pause",
        "rds/r.pb",
        "srds s",
        "lds l",
    ]


def test_nothing_to_do_is_no_steps() -> None:
    """Equal snapshots need nothing, not even a pause."""
    made = snapshot(cds=[static("a")], lds=[by_rds("l", 1, "r")], rds=[routes("r", "a")])

    assert steps_between(made, made) == []


def test_only_what_changed_is_written() -> None:
    """One edited resource is one file."""
    before = snapshot(cds=[by_eds("a"), by_eds("b")], eds=[assignment("a", 1), assignment("b", 1)])
    after = snapshot(cds=[by_eds("a"), by_eds("b")], eds=[assignment("a", 1), assignment("b", 2)])

    assert steps_between(before, after) == ["eds/b.pb"]


def test_each_file_is_written_once() -> None:
    """Clusters change before the routes that use them, and the file of endpoints that are gone is removed last.

    That nothing is removed while it is used is for the steps of a rollout, each of which is a snapshot.
    """
    before = snapshot(cds=[by_eds("old")], eds=[assignment("old", 1)], rds=[routes("r", "old")])
    after = snapshot(cds=[by_eds("new")], eds=[assignment("new", 1)], rds=[routes("r", "new")])

    assert steps_between(before, after) == [
        "eds/new.pb",
        "cds new",
        "pause",
        "rds/r.pb",
        "pause",
        "remove eds/old.pb",
    ]


def test_a_cluster_that_nobody_moves_away_from_goes_at_once() -> None:
    """Without a change of routes or listeners there is nothing to wait for."""
    before = snapshot(cds=[static("a"), static("b")])

    assert steps_between(before, snapshot(cds=[static("a")])) == ["cds a"]
    assert steps_between(before, snapshot(cds=[static("a"), static("c")])) == ["cds a+c"]


def test_a_changed_cluster_is_no_removed_one() -> None:
    """It is written once."""
    before = snapshot(cds=[static("a")], rds=[routes("r", "a")])
    after = snapshot(cds=[static("a", 7)], rds=[routes("r2", "a")])

    assert steps_between(before, after) == ["cds a", "pause", "rds/r2.pb", "pause", "remove rds/r.pb"]


def test_endpoints_are_taken_away_late() -> None:
    """A removed assignment that a cluster still names is emptied once routes have changed."""
    before = snapshot(cds=[by_eds("a"), by_eds("b")], eds=[assignment("a", 1)], rds=[routes("r", "a")])
    after = snapshot(cds=[by_eds("a"), by_eds("b")], eds=[assignment("b", 1)], rds=[routes("r", "b")])

    assert steps_between(before, after) == ["eds/b.pb", "pause", "rds/r.pb", "pause", "eds/a.pb"]


def test_discovered_filters_that_are_in_use_change_after_clusters() -> None:
    """They may come to name a new cluster; one that nobody reads yet must exist before a cluster may name it."""
    lua = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
    new: Plain = {"name": "f", "typed_config": {"@type": lua}}

    before = snapshot(ecds=[{"name": "f"}])
    after = snapshot(cds=[static("a")], ecds=[new, {"name": "g"}])
    assert steps_between(before, after) == ["ecds/g.pb", "cds a", "pause", "ecds/f.pb"]


def test_removals_are_last_and_users_go_first() -> None:
    """Files go in the reverse of the order in which they came."""
    before = snapshot(
        eds=[assignment("c", 1)],
        rds=[routes("r", "c")],
        sds=[{"name": "s"}],
        rtds=[{"name": "live"}],
        ecds=[{"name": "f"}],
    )

    assert steps_between(before, snapshot(rtds=[{"name": "new"}])) == [
        "rtds/new.pb",
        "pause",
        "remove rds/r.pb",
        "remove ecds/f.pb",
        "remove eds/c.pb",
        "remove sds/s.pb",
        "remove rtds/live.pb",
    ]


def test_what_is_not_known_is_written() -> None:
    """A file whose content nobody knows may be anything."""
    layout = layout_of(snapshot(eds=[assignment("a", 1)]))
    held = {path: FileOnDisk(file.type_url, file.names, None) for path, file in layout.files.items()}

    assert story(steps_to(layout, held)) == ["eds/a.pb", "cds ", "pause", "srds ", "lds "]


def test_a_half_done_change_goes_on_where_it_stopped() -> None:
    """With the clusters in place, only the routes are left to change."""
    before = snapshot(cds=[static("old")], rds=[routes("r", "old")])
    after = snapshot(cds=[static("new")], rds=[routes("r", "new")])
    layout = layout_of(after, layout_of(before))
    steps = steps_to(layout, hold(layout_of(before)))

    held = hold(layout_of(before))
    for done, expected in ((1, ["rds/r.pb"]), (3, [])):
        for step in steps[:done]:
            if isinstance(step, Write):
                held[step.file.path] = FileOnDisk(step.file.type_url, step.file.names, step.file)

        assert story(steps_to(layout_of(after), held)) == expected
