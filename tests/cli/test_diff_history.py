"""`fsxds diff` between snapshots of a history, in a state directory that a server writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import fsxds
from fsxds.cli.main import main
from fsxds.history.state import State
from tests.cli.trees import CLUSTERS, SECRETS, write_tree
from tests.support.admin import COMMON, EDGE, KeptRollouts, admin_in_thread

Run = pytest.CaptureFixture[str]

CHANGED = CLUSTERS.replace("connect_timeout: 1s", "connect_timeout: 2s")
OTHER_SECRETS = SECRETS.replace("S3CR3T", "0TH3R")


def tree(folder: Path, **files: str) -> Path:
    """Write a tree into a new folder."""
    folder.mkdir()
    return write_tree(folder, **files)


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """Two trees, of which a cluster and a secret differ."""
    return (
        tree(tmp_path / "a", cds=CLUSTERS, sds=SECRETS),
        tree(tmp_path / "b", cds=CHANGED, sds=OTHER_SECRETS),
    )


@pytest.fixture
def state(trees: tuple[Path, Path], tmp_path: Path) -> Iterator[State]:
    """A state directory that is held, with the first tree as @1 and the second as @2, of the same nodes."""
    state = State.open(tmp_path / "state", lambda _: None)
    for number, folder in enumerate(trees, 1):
        assert number == state.record(EDGE, fsxds.load(folder).snapshot, None, 0.0)
    yield state
    state.close()


def test_two_snapshots(state: State, capsys: Run) -> None:
    """What differs is printed with its file, and secrets are hidden."""
    assert main(["diff", "@1", "@2", "--state", str(state.path)]) == 1
    out, err = capsys.readouterr()

    assert "~ web  @2:cds.yaml:" in out
    assert "~ connect_timeout: 1s → 2s" in out
    assert err.splitlines()[-1].startswith("@1 → @2: 2 changed")
    assert "inline_string" in out
    assert "S3CR3T" not in out
    assert "0TH3R" not in out


@pytest.mark.parametrize("output_format", ["json", "markdown"])
def test_no_format_shows_secrets(state: State, output_format: str, capsys: Run) -> None:
    """As between trees."""
    assert main(["diff", "@1", "@2", "--state", str(state.path), "--format", output_format]) == 1
    out = capsys.readouterr().out

    assert "web" in out
    assert "S3CR3T" not in out
    assert "0TH3R" not in out


def test_now_is_the_newest_of_the_same_nodes(state: State, trees: tuple[Path, Path], capsys: Run) -> None:
    """Snapshots of other nodes do not count; the state directory is that of the running server."""
    state.record(COMMON, fsxds.load(trees[0]).snapshot, None, 0.0)
    with admin_in_thread(KeptRollouts(state_directory=state.path)) as address:
        assert main(["diff", "@2", "@now", "--admin", address]) == 0
        assert main(["diff", "@1", "@now", "--admin", address]) == 1
        assert "connect_timeout: 1s → 2s" in capsys.readouterr().out
        assert main(["diff", "@3", "@now", "--admin", address]) == 0


def test_a_snapshot_and_a_tree(state: State, trees: tuple[Path, Path], capsys: Run) -> None:
    """What an edit would change of what is served."""
    assert main(["diff", "@now", str(trees[1]), "--state", str(state.path)]) == 0
    assert main(["diff", str(trees[0]), "@now", "--state", str(state.path)]) == 1
    assert "connect_timeout: 1s → 2s" in capsys.readouterr().out


@pytest.mark.usefixtures("state")
def test_the_settings_file_names_the_directory(tmp_path: Path) -> None:
    """The server and the command read one file, whose paths are relative to it."""
    file = tmp_path / "fsxds.yaml"
    file.write_text("state: state\n")

    assert main(["diff", "@1", "@1", "--settings", str(file)]) == 0


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (["@1", "@9"], "@9: the history in "),
        (["@now", "@9"], "@9: the history in "),
        (["@1"], "or @N and @now of its history"),
        (["@1", "@0"], "@0: there is no such directory"),
    ],
)
def test_mistakes(state: State, sides: list[str], words: str, capsys: Run) -> None:
    """Each is named with its remedy."""
    assert main(["diff", *sides, "--state", str(state.path)]) == 2
    assert words in capsys.readouterr().err


def test_now_of_several_histories(state: State, trees: tuple[Path, Path], capsys: Run) -> None:
    """Where nodes have different layers, the newest of each are named."""
    state.record(COMMON, fsxds.load(trees[0]).snapshot, None, 0.0)

    assert main(["diff", "@now", str(trees[0]), "--state", str(state.path)]) == 2
    assert "the newest snapshots are @3 of common, @2 of common+edge" in capsys.readouterr().err


def test_no_history(tmp_path: Path, capsys: Run) -> None:
    """A server without one, no server, a directory that has none, and one without a snapshot."""
    with admin_in_thread(KeptRollouts(state_directory=None)) as address:
        assert main(["diff", "@1", "@now", "--admin", address]) == 2
        assert "fsxds keeps no history there; start it with --state DIR" in capsys.readouterr().err
    assert main(["diff", "@1", "@now", "--admin", f"unix:{tmp_path}/none"]) == 2
    assert "To compare without it, give its --state DIR" in capsys.readouterr().err
    assert main(["diff", "@1", "@now", "--state", str(tmp_path)]) == 2
    assert "no history is in this directory" in capsys.readouterr().err
    state = State.open(tmp_path / "state", lambda _: None)
    state.entries()
    assert main(["diff", "@now", "@now", "--state", str(state.path)]) == 2
    assert "has no snapshot yet" in capsys.readouterr().err
    state.close()


def test_the_answer_is_json_of_two_sides(state: State, capsys: Run) -> None:
    """For programs, the sides are called as they were given."""
    main(["diff", "@1", "@now", "--state", str(state.path), "--format", "json"])
    content = json.loads(capsys.readouterr().out)

    assert ("@1", "@now") == (content["before"], content["after"])
