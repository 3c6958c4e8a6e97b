"""`fsxds history` against an admin address."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

import pytest

from fsxds.cli.main import main
from tests.support.admin import KeptRollouts, admin_in_thread

Run = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with admin_in_thread(KeptRollouts()) as address:
        monkeypatch.setenv("FSXDS_ADMIN", address)
        yield


def local_time(time_s: float) -> str:
    """Return a time as people here read it."""
    return datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="seconds")


def test_list(capsys: Run) -> None:
    """The newest comes first, with its commit and the counts of what it changed."""
    assert main(["history"]) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    assert rows == [
        "NUMBER TIME LAYERS VERSION COMMIT CHANGES",
        f"@3 {local_time(3000)} common+edge 333333333333 c0ffee0c0ffe +70 ~1 clusters, -1 routes",
        f"@2 {local_time(2000)} common 222222222222",
        f"@1 {local_time(1000)} common+edge 111111111111",
    ]


def test_of_one_view(capsys: Run) -> None:
    """`--view` and `--node-id` choose."""
    assert main(["history", "--view", "everyone", "--format", "json"]) == 0
    [kept] = json.loads(capsys.readouterr().out)["snapshots"]

    assert (kept["number"], kept["layers"], kept["time_s"]) == (2, ["common"], 2000.0)


def test_one_snapshot(capsys: Run) -> None:
    """`@N` shows the names; of many, those that are kept."""
    assert main(["history", "@3"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        f"@3 333333333333 of {local_time(3000)}, commit c0ffee0c0ffee0",
        "+ clusters a",
        "+ clusters b",
        "+ clusters: 68 more",
        "~ clusters c",
        "- routes gone",
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["@99"], 1, "@99: the history has no such snapshot"),
        (["x"], 2, "'x' is no number of a snapshot"),
        (["../rollout"], 2, "is no number of a snapshot"),
        (["@1", "--view", "edge"], 2, "leave --view and --node-id out"),
        (["--view", "nowhere"], 1, "there is no 'nowhere'; there is edge, everyone"),
    ],
)
def test_mistakes(arguments: list[str], status: int, words: str, capsys: Run) -> None:
    """Each ends with the fact and the remedy."""
    assert main(["history", *arguments]) == status
    assert words in capsys.readouterr().err


def test_no_state(capsys: Run) -> None:
    """A server without `--state` has none, and says so."""
    with admin_in_thread(KeptRollouts(snapshots=None)) as address:
        assert main(["history", "--admin", address]) == 1
        assert "start fsxds with --state DIR" in capsys.readouterr().err
