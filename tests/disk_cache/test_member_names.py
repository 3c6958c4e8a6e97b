"""Names of members that one process writes, and the next one reads."""

from __future__ import annotations

import asyncio
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from fsxds.disk_cache.member_names import MemberNames
from fsxds.events.process_events import MembersNotWritten, StateIgnored
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import Layers
from fsxds.protocol.absence import with_removed
from fsxds.rollout.machine import RolloutState
from fsxds.runtime.channels import ChannelKey
from fsxds.settings.forms import FleetRule
from fsxds.settings.options import Settings
from tests.support.errors import Recorder
from tests.support.polls import named, snapshot_of

CDS = BY_SHORT_NAME["cds"].type_url
FOLDER = "xdstp://fleet/envoy.config.cluster.v3.Cluster/web"


@pytest.fixture
def recorder() -> Recorder:
    """Receives what fails."""
    return Recorder()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where names are kept; it is not there yet."""
    return tmp_path / "fsxds" / "members"


def state_of(*names: str) -> RolloutState:
    """Return the place of a rollout that serves clusters of these names."""
    snapshot = snapshot_of(1, *(named("cds", name) for name in names))
    return RolloutState(snapshot, snapshot)


def member(letter: str) -> str:
    """Return the name of a member."""
    return f"{FOLDER}/{letter}"


def files_in(directory: Path) -> list[Path]:
    """Return the files that were written."""
    return list(directory.iterdir()) if directory.exists() else []


async def keep(kept: MemberNames, *names: str, layers: Layers = ()) -> None:
    """Have names written that are served in a view, as at the end of a process."""
    kept.save(ChannelKey(layers), lambda: state_of(*names))
    writing = asyncio.create_task(kept.keep_written())
    await asyncio.sleep(0)
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing


def found(kept: MemberNames) -> dict[Layers, set[str]]:
    """Return the last letters of the names that are restored, by view."""
    views = kept.restored_members()
    return {layers: {name[-1] for names in noted.values() for name in names} for layers, noted in views.items()}


async def test_the_next_process_knows_what_is_served_and_what_was_removed(directory: Path, recorder: Recorder) -> None:
    """Of each view, the members of collections; other names are nobody's business."""
    first = MemberNames(directory, ["tree"], recorder)
    first.read_members = lambda: {("base", "eu"): with_removed({}, [(CDS, member("r"))])}
    await keep(first, member("a"), member("b"), "plain", layers=("base", "eu"))
    await keep(first, member("c"))

    assert found(MemberNames(directory, ["tree"], recorder)) == {("base", "eu"): set("abr"), (): {"c"}}
    assert found(MemberNames(directory, ["another tree"], recorder)) == {}
    assert first.restored() == {}
    assert recorder.events == []


async def test_processes_of_one_tree_add_their_names(directory: Path, recorder: Recorder) -> None:
    """Neither takes away what the other wrote: clients of both may come to either."""
    first, second = (MemberNames(directory, ["tree"], recorder) for _ in range(2))
    await keep(first, member("a"))
    await keep(second, member("b"))

    assert found(second) == {(): set("ab")}


async def test_the_files_are_their_users_alone(directory: Path, recorder: Recorder) -> None:
    """Names tell what a tree has."""
    await keep(MemberNames(directory, ["tree"], recorder), member("a"))
    (path,) = files_in(directory)

    assert [stat.S_IMODE(each.stat().st_mode) for each in (directory, path)] == [0o700, 0o600]


async def test_without_members_nothing_is_written(directory: Path, recorder: Recorder) -> None:
    """A tree without structured names leaves no trace."""
    await keep(MemberNames(directory, ["tree"], recorder), "plain")

    assert files_in(directory) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'[[[], [["type"]]]]', b"\xff"])
async def test_a_damaged_file_is_left_and_written_anew(directory: Path, recorder: Recorder, content: bytes) -> None:
    """What cannot be read is reported, and no reason not to start."""
    kept = MemberNames(directory, ["tree"], recorder)
    await keep(kept, member("a"))
    (path,) = files_in(directory)
    path.write_bytes(content)
    again = MemberNames(directory, ["tree"], recorder)

    assert found(again) == {}
    assert [type(event) for event in recorder.events] == [StateIgnored]
    await keep(again, member("b"))
    assert found(kept) == {(): {"b"}}


def test_a_directory_that_cannot_be_looked_at_is_no_reason_not_to_start(tmp_path: Path, recorder: Recorder) -> None:
    """As with one that others may not enter, the error is reported."""
    kept = MemberNames(tmp_path / ("x" * 300), ["tree"], recorder)

    assert kept.restored_members() == {}
    assert [type(event) for event in recorder.events] == [StateIgnored]


async def test_a_directory_that_cannot_be_written_is_said_once(directory: Path, recorder: Recorder) -> None:
    """Until it can be written again."""
    kept = MemberNames(directory, ["tree"], recorder)
    directory.parent.write_text("no directory")
    await keep(kept, member("a"))
    await keep(kept, member("b"))
    assert [type(event) for event in recorder.events] == [MembersNotWritten]

    directory.parent.unlink()
    await keep(kept, member("b"))
    assert found(kept) == {(): {"b"}}


async def test_an_edit_without_a_new_member_is_not_written(directory: Path, recorder: Recorder) -> None:
    """The cost of an edit does not follow the number of members."""
    kept = MemberNames(directory, ["tree"], recorder)
    await keep(kept, member("a"), member("b"))
    (path,) = files_in(directory)
    path.unlink()
    await keep(kept, member("a"), "plain")
    assert files_in(directory) == []

    await keep(kept, member("a"), member("c"))
    assert found(kept) == {(): set("ac")}
    path.unlink()
    kept.read_members = lambda: {(): with_removed({}, [(CDS, member("b"))])}
    await keep(kept, member("a"), member("c"))
    assert found(kept) == {(): set("abc")}


async def test_workers_find_their_names_again(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket of their store has another path in each run; their addresses are the same."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    runs = [
        MemberNames.of(None, Settings(http="127.0.0.1:1", fleet=FleetRule((f"unix:/tmp/{run}/fleet",))), recorder)
        for run in ("first", "second")
    ]
    other = MemberNames.of(None, Settings(http="127.0.0.1:2", fleet=FleetRule(("unix:/tmp/third/fleet",))), recorder)
    first, second = runs
    assert first is not None
    assert second is not None
    assert other is not None
    await keep(first, member("a"))

    assert found(second) == {(): {"a"}}
    assert found(other) == {}
