"""Snapshots on disk, whatever is there already."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fsxds.events.file_events import FilesWritten
from fsxds.model.errors import UsageError
from fsxds.model.resources import Snapshot
from fsxds.transports.mirror.writer import Mirror, MirrorOptions
from tests.support.patience import PATIENCE_S
from tests.support.this_envoy import this_envoy
from tests.transports.mirror.test_directory import full_disk
from tests.transports.mirroring import assignment, by_eds, by_rds, files_in, read, routes, snapshot, static

BUNDLES = {"cds.pb", "lds.pb", "srds.pb"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "out"


def mirror(root: Path, **options: Any) -> Mirror:
    return Mirror(root, this_envoy(), MirrorOptions(**{"pause_s": 0.0, **options}))


def write(root: Path, made: Snapshot, **options: Any) -> FilesWritten:
    """Write a snapshot as a process of its own would that ends then."""
    with mirror(root, **options) as ours:
        return ours.write(made)


def written(report: FilesWritten) -> list[str]:
    return [str(path) for path in report.written]


FIRST = snapshot(1, cds=[by_eds("web")], eds=[assignment("web", 1), assignment("x", 1)], sds=[{"name": "s"}])


def test_a_snapshot_becomes_files(root: Path) -> None:
    """All are written, in order, and hold what the snapshot holds."""
    report = write(root, FIRST)

    assert files_in(root) == {*BUNDLES, "eds/web.pb", "eds/x.pb", "sds/s.pb"}
    assert written(report) == ["sds/s.pb", "eds/web.pb", "eds/x.pb", "cds.pb", "srds.pb", "lds.pb"]
    assert (report.generation, report.unchanged, report.removed, report.blocked) == (1, 0, (), ())
    assert list(read(root, "cds.pb").resources) == list(FIRST.resources(read(root, "cds.pb").type_url).values())


def test_equal_bytes_are_not_rewritten(root: Path) -> None:
    """Neither by the process that wrote them nor by the next: files keep their inodes, so Envoy hears nothing."""
    with mirror(root) as ours:
        ours.write(FIRST)
        inodes = {path: (root / path).stat().st_ino for path in files_in(root)}
        again = ours.write(FIRST)
    restarted = write(root, FIRST)

    assert (again.written, again.unchanged) == ((), 6)
    assert (restarted.written, restarted.unchanged) == ((), 6)
    assert {path: (root / path).stat().st_ino for path in files_in(root)} == inodes


def test_what_is_removed_goes(root: Path) -> None:
    """Also when it was written by an earlier process."""
    write(root, FIRST)
    report = write(root, snapshot(2, cds=[static("a")]))

    assert files_in(root) == BUNDLES
    assert [str(path) for path in report.removed] == ["eds/web.pb", "eds/x.pb", "sds/s.pb"]


def test_each_file_is_written_once_also_after_a_restart(root: Path) -> None:
    """What is there is read back from the files, in every form: clusters change before routes."""
    for form in ("pb", "json", "yaml", "pb_text"):
        out = root / form
        write(out, snapshot(1, cds=[static("old")], rds=[routes("r", "old")]), form=form)
        report = write(out, snapshot(2, cds=[static("new")], rds=[routes("r", "new")]), form=form)

        assert written(report) == [f"cds.{form}", f"rds/r.{form}"]


def test_a_kept_bundle_is_kept_after_a_restart(root: Path) -> None:
    """A file that was never good since the start takes nothing away that an earlier process wrote."""
    write(root, snapshot(1, cds=[static("a"), static("b")], eds=[assignment("x", 1)]))
    marks = {"incomplete": ["cds", "eds"]}
    report = write(root, snapshot(1, cds=[static("b", 7)], unsure=marks))

    assert read(root, "cds.pb").names == ("a", "b")
    assert [remark.subject for remark in report.kept] == ["cds.pb", "eds/x.pb"]
    assert "eds/x.pb" in files_in(root)


def test_a_file_that_was_changed_behind_our_back_is_rewritten(root: Path) -> None:
    """Torn, removed, or with another mode: the next snapshot puts it right."""
    with mirror(root) as ours:
        ours.write(FIRST)
        before = (root / "cds.pb").read_bytes()
        (root / "cds.pb").write_bytes(before[:20])
        (root / "eds" / "web.pb").unlink()
        (root / "sds" / "s.pb").chmod(0o644)
        report = ours.write(FIRST)

    assert written(report) == ["sds/s.pb", "eds/web.pb", "cds.pb"]
    assert (root / "cds.pb").read_bytes() == before
    assert (root / "sds" / "s.pb").stat().st_mode & 0o777 == 0o600


KEY: dict[str, Any] = {
    "name": "envoy.transport_sockets.tls",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {"tls_certificates": [{"private_key": {"inline_string": "hush"}}]},
    },
}


def test_a_file_with_a_credential_is_private(root: Path) -> None:
    """An inline key of a cluster is as secret as a secret; where it was in a file that all read, and until it is gone."""

    def mode(path: str) -> int:
        return (root / path).stat().st_mode & 0o777

    keyed = static("web") | {"transport_socket": KEY}
    with mirror(root) as ours:
        modes = []
        for number, cluster in enumerate((static("web"), keyed, static("web")), 1):
            ours.write(snapshot(number, cds=[cluster]))
            modes.append(mode("cds.pb"))
        ours.write(snapshot(4, cds=[keyed]))
        (root / "cds.pb").chmod(0o644)
        ours.write(snapshot(4, cds=[keyed]))
        modes.append(mode("cds.pb"))

    assert modes == [0o644, 0o600, 0o644, 0o600]


def test_what_shares_a_folder_with_a_credential_is_readable(root: Path) -> None:
    """Its folder is no folder of secrets alone."""
    keyed = static("a") | {"transport_socket": KEY}
    with mirror(root, layout="resources") as ours:
        ours.write(snapshot(1, cds=[keyed, static("b")]))
    files = {path.name.partition(".")[0]: path for path in root.rglob("*.pb")}

    assert [files[name].stat().st_mode & 0o777 for name in ("a", "b")] == [0o600, 0o644]
    assert files["a"].parent.stat().st_mode & 0o777 == 0o755


def test_files_of_others_are_never_touched(root: Path) -> None:
    """One that stands where ours is due is refused with a remedy, and the rest goes on."""
    (root / "eds").mkdir(parents=True)
    (root / "eds" / "web.pb").write_text("mine")
    (root / "notes.txt").write_text("mine")
    (root / "lds.pb").symlink_to("notes.txt")
    report = write(root, FIRST)

    assert [remark.subject for remark in report.blocked] == ["eds/web.pb", "lds.pb"]
    assert "move it away" in report.blocked[0].reason
    assert (root / "eds" / "web.pb").read_text() == (root / "notes.txt").read_text() == "mine"
    assert (root / "lds.pb").is_symlink()
    assert {"cds.pb", "eds/x.pb"} <= files_in(root)
    (root / "eds" / "web.pb").unlink()
    assert written(write(root, FIRST)) == ["eds/web.pb"]


def test_a_folder_in_the_place_of_ours_is_refused(root: Path) -> None:
    """Even of one that is in the manifest."""
    write(root, FIRST)
    (root / "cds.pb").unlink()
    (root / "cds.pb").mkdir()
    report = write(root, FIRST)

    assert [remark.subject for remark in report.blocked] == ["cds.pb"]
    assert (root / "cds.pb").is_dir()


def test_a_file_that_somebody_made_his_own_is_not_removed(root: Path) -> None:
    """It was ours, was changed, and is not wanted any more: it stays, and is told."""
    with mirror(root) as ours:
        ours.write(FIRST)
        (root / "eds" / "x.pb").write_text("mine now")
        report = ours.write(snapshot(2, cds=[by_eds("web")], eds=[assignment("web", 1)], sds=[{"name": "s"}]))

    assert report.removed == ()
    assert [remark.subject for remark in report.kept] == ["eds/x.pb"]
    assert (root / "eds" / "x.pb").read_text() == "mine now"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"layout":1,"files":[{"path":"../x"}]}'])
def test_a_damaged_manifest_costs_nothing_but_caution(root: Path, damage: bytes) -> None:
    """Equal files are taken over; what differs is not known to be ours, and is refused until it is moved away."""
    write(root, FIRST)
    (root / ".fsxds" / "manifest.json").write_bytes(damage)
    changed = snapshot(2, cds=[by_eds("web")], eds=[assignment("web", 2), assignment("x", 1)], sds=[{"name": "s"}])
    report = write(root, changed)

    assert [remark.subject for remark in report.blocked] == ["eds/web.pb"]
    assert report.unchanged == 5
    (root / "eds" / "web.pb").unlink()
    assert written(write(root, changed)) == ["eds/web.pb"]
    assert [str(path) for path in write(root, snapshot(3)).removed] == ["eds/web.pb", "eds/x.pb", "sds/s.pb"]


def test_a_directory_that_is_removed_is_written_again(root: Path) -> None:
    """All of it, with the next snapshot."""
    with mirror(root) as ours:
        ours.write(FIRST)
        root.rename(root.with_name("gone"))
        report = ours.write(FIRST)

    assert len(report.written) == 6
    assert files_in(root) == files_in(root.with_name("gone"))


def test_a_full_disk_is_told_and_what_was_begun_goes_on(root: Path) -> None:
    """What was written stays known as ours, and the next call does the rest only."""
    many = snapshot(2, cds=[static(f"c{number}") for number in range(50)], eds=[assignment("web", 1)])
    with mirror(root) as ours:
        ours.write(snapshot(1))
        with full_disk(), pytest.raises(OSError, match="File too large"):
            ours.write(many)
        assert read(root, "cds.pb").names == ()
        report = ours.write(many)

    assert written(report) == ["cds.pb"]
    assert write(root, many).written == ()


def test_two_processes_do_not_share_a_directory(root: Path) -> None:
    """The second is refused at once."""
    with mirror(root), pytest.raises(UsageError, match="another fsxds"), mirror(root):
        pass


def test_the_directory_is_given_back_when_a_write_has_ended(root: Path) -> None:
    """Leaving ends and waits for the write in the other thread, so nobody else writes meanwhile."""
    before, after = (snapshot(n, cds=[static(f"c{n}")], rds=[routes("r", f"c{n}")]) for n in (1, 2))
    with mirror(root, pause_s=0.1) as ours:
        ours.write(before)
        thread = threading.Thread(target=ours.write, args=(after,))
        thread.start()
        while read(root, "cds.pb").names == ("c1",):
            pass
    report = write(root, after)
    thread.join()

    assert written(report) == ["rds/r.pb"]


def test_rewritten_sources_are_absolute(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Envoy reads a relative path from its own working directory, so none is written."""
    monkeypatch.chdir(root.parent)
    write(Path("out"), snapshot(cds=[by_eds("web")], lds=[by_rds("l", 1, "r")]), rewrite_config_sources=True)

    assert f"{root}/eds/web.pb".encode() in (root / "cds.pb").read_bytes()


def test_a_directory_that_cannot_be_made_yet_is_no_error_until_it_is_written(root: Path) -> None:
    """A volume may be mounted late: entering does not fail, writing does, and then does not."""
    root.write_text("not mounted yet")
    with mirror(root / "out") as ours:
        with pytest.raises(NotADirectoryError):
            ours.write(FIRST)
        root.unlink()
        report = ours.write(FIRST)

    assert len(report.written) == 6


def test_an_interrupted_write_is_taken_up_again(root: Path) -> None:
    """It ends after its present file, here in the pause after the clusters, and the next process does the rest."""
    made = snapshot(1, cds=[static("a")], rds=[routes("r", "a")])
    with mirror(root, pause_s=60.0) as ours:
        thread = threading.Thread(target=ours.write, args=(made,))
        thread.start()
        while not (root / "cds.pb").exists():
            pass
        ours.interrupt()
        thread.join(PATIENCE_S)

    assert files_in(root) == {"cds.pb"}
    assert written(write(root, made)) == ["rds/r.pb", "srds.pb", "lds.pb"]


def test_a_crash_in_the_middle_leaves_only_files_that_are_known(root: Path) -> None:
    """What a process is about to write is written down before, so the next one may overwrite and remove it."""
    write(root, snapshot(1, cds=[static("a")], eds=[assignment("x", 1)]))
    with mirror(root, pause_s=60.0) as ours:
        made = snapshot(2, cds=[static("b")], eds=[assignment("x", 2), assignment("y", 2)], rds=[routes("r", "b")])
        thread = threading.Thread(target=ours.write, args=(made,))
        thread.start()
        while read(root, "cds.pb").names != ("b",):
            pass
        crashed = Path(shutil.copytree(root, root.with_name("crashed")))
        ours.interrupt()
        thread.join(PATIENCE_S)

    assert files_in(crashed) == {*BUNDLES, "eds/x.pb", "eds/y.pb"}
    report = write(crashed, snapshot(3, cds=[static("b")], eds=[assignment("y", 3)]))
    assert (report.blocked, report.kept) == ((), ())
    assert files_in(crashed) == {*BUNDLES, "eds/y.pb"}


def test_there_is_no_pause_where_nothing_was_written(root: Path) -> None:
    """A restart over equal files, whose content is not known yet, takes no time."""
    write(root, FIRST)
    report = write(root, FIRST, pause_s=600.0)

    assert report.written == ()


def test_an_unchanged_file_after_a_changed_one_does_not_end_the_need_to_pause(root: Path) -> None:
    """What was written before the pause gets its time, although the last file before it was as it should be."""
    write(root, snapshot(1, cds=[by_eds("web")], eds=[assignment("web", 1)], lds=[by_rds("l", 1, "r")]))
    after = snapshot(2, cds=[by_eds("web")], eds=[assignment("web", 2)], lds=[by_rds("l", 2, "r")])
    report = write(root, after, pause_s=0.2)

    assert written(report) == ["eds/web.pb", "lds.pb"]
    assert report.duration_s >= 0.2


@pytest.fixture
def calls(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record what reaches the disk, and in which order."""
    recorded: list[str] = []

    def of(path: str) -> str:
        return path.removeprefix(f"{root}/").replace(str(root), ".")

    def record(name: str) -> None:
        function = getattr(os, name)

        def call(first: str | Path | int, *rest: Any) -> None:
            path = Path(f"/proc/self/fd/{first}").readlink() if isinstance(first, int) else first
            path = rest[0] if name == "replace" else path
            recorded.append(f"{name} {of(str(path))}")
            function(first, *rest)

        monkeypatch.setattr(os, name, call)

    for name in ("fdatasync", "fsync", "replace", "unlink", "mkdir"):
        record(name)
    return recorded


def test_what_is_written_survives_a_power_failure(root: Path, calls: list[str]) -> None:
    """Each file is synced before it is renamed, each folder after it, and the manifest before any file and at the end."""
    with mirror(root) as ours:
        ours.write(snapshot(1, cds=[static("a")], eds=[assignment("x", 1)]))
        first = [call for call in calls if not call.startswith(("unlink", "mkdir .", "mkdir /"))]
        calls.clear()
        ours.write(snapshot(2, cds=[static("a")]))
        second = [call for call in calls if "next.tmp" not in call]

    manifest = ["fdatasync .fsxds/next.tmp", "replace .fsxds/manifest.json", "fsync .fsxds"]
    files = [
        each
        for path in ("eds/x.pb", "cds.pb", "srds.pb", "lds.pb")
        for each in ("fdatasync .fsxds/next.tmp", f"replace {path}")
    ]
    assert first[: len(manifest)] == manifest
    assert [call for call in first[len(manifest) : -len(manifest)] if not call.startswith("fsync")] == [
        "mkdir eds",
        *files,
    ]
    assert sorted(first[-len(manifest) - 2 : -len(manifest)]) == ["fsync .", "fsync eds"]
    assert first[-len(manifest) :] == manifest
    with mirror(root) as ours:
        calls.clear()
        ours.write(snapshot(3, cds=[static("a")], rds=[routes("r", "a")]))
    assert {"mkdir rds", "fsync rds", "fsync ."} <= set(calls)
    assert second == ["unlink eds/x.pb", "fsync eds", "replace .fsxds/manifest.json", "fsync .fsxds"]


def test_nothing_is_synced_where_it_need_not_be_durable(root: Path, calls: list[str]) -> None:
    """Then no call waits for the disk."""
    write(root, FIRST, durable=False)

    assert [call for call in calls if "sync" in call] == []
    assert "replace cds.pb" in calls


def test_a_damaged_bundle_is_written_again(root: Path) -> None:
    """What it held before is gone, so there is nothing to keep of it."""
    write(root, snapshot(1, cds=[static("a")]))
    (root / "cds.pb").write_bytes(b"\xff")

    assert written(write(root, snapshot(2, cds=[static("b")]))) == ["cds.pb"]
    assert read(root, "cds.pb").names == ("b",)


def test_files_need_not_be_durable(root: Path) -> None:
    """Without syncing, the same files come to be."""
    write(root, FIRST, durable=False)

    assert files_in(root) == {*BUNDLES, "eds/web.pb", "eds/x.pb", "sds/s.pb"}


CRASHING = """
import itertools, sys
from pathlib import Path
from tests.transports.mirroring import *
from fsxds.transports.mirror.writer import Mirror, MirrorOptions
states = [
    snapshot(1, cds=[by_eds(n)], eds=[assignment(n, 1)], rds=[routes("r" + n, n)], lds=[by_rds("l", 1, "r" + n)])
    for n in ("a", "b")
]
with Mirror(Path(sys.argv[1]), this_envoy(), MirrorOptions(pause_s=0.0)) as mirror:
    for state in itertools.cycle(states):
        mirror.write(state)
        print(flush=True)
"""


def test_a_crash_leaves_whole_files_and_nothing_unknown(root: Path) -> None:
    """Killed at any moment: what is there is whole, and the next process knows every file as its own."""
    last = snapshot(9, cds=[static("z")])
    for rounds in (1, 3, 6):
        command = [sys.executable, "-c", CRASHING, str(root)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(rounds):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        for path in files_in(root):
            assert read(root, path).names or path == "srds.pb"
        report = write(root, last)

        assert report.blocked == ()
        assert files_in(root) == BUNDLES
