"""`fsxds rollout` and `rollback` against an admin address, and against what is none."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsxds.cli.main import main
from fsxds.transports.admin.admin_reports import WaitingReport
from tests.support.admin import BUSY, HELD, PINNED, QUIET, REJECTED, KeptRollouts, admin_in_thread
from tests.support.ports import free_address
from tests.support.server import Server

Run = pytest.CaptureFixture[str]


@pytest.fixture
def rollouts() -> KeptRollouts:
    """A canary at work in `edge`, and a removal that waits for approval in `everyone`."""
    return KeptRollouts()


@pytest.fixture
def admin(rollouts: KeptRollouts, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address, which the commands take from the environment."""
    with admin_in_thread(rollouts) as address:
        monkeypatch.setenv("FSXDS_ADMIN", address)
        yield address


PAGE = Path(__file__).parents[2] / "fsxds" / "cli" / "README.md"


@pytest.mark.usefixtures("admin")
def test_status(capsys: Run) -> None:
    """A line for each channel, and one for each thing that an operator may want to know or to decide, as on the page."""
    assert main(["rollout", "status"]) == 1
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    out = [" ".join(line.split()) for line in shown]

    assert "\n".join(shown) in PAGE.read_text(encoding="utf-8")

    assert out == [
        "VIEW LAYERS COHORT CLIENTS SERVED TREE STATE",
        "edge common+edge canary 2 0123456789ab ba9876543210 grow for 1.2 s",
        "everyone common main 40 0123456789ab ba9876543210 waits for approval",
        "edge, canary: grow waits for envoy-1 (gRPC) for 1.2 s, and 3.8 s more at most",
        f"edge, canary: edge/lds.yaml:3: {REJECTED.message}, for 42 s; {REJECTED.remedy}",
        "edge, canary: keeps clusters old for open connections of listeners web, for 598 s more at most",
        "everyone: keeps 6 of 10 clusters that the tree removed: cds old; let them go by: fsxds rollout approve 9b8c7d6e5f4a",
    ]


def test_status_of_what_is_done(admin: str, rollouts: KeptRollouts, capsys: Run) -> None:
    """It is 0 once every channel serves what the tree asks for, so that a script can wait for that."""
    rollouts.reports = [QUIET]

    assert main(["rollout", "status", "--admin", admin]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-1] == "done"


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(
    ("channel", "state", "line"),
    [
        (
            replace(BUSY, step=None, baking_s=12.5),
            "bakes",
            "follows the canary in 12 s; at once by: fsxds rollout promote",
        ),
        (
            replace(BUSY, step=None, waits_for_canary=True),
            "waits for the canary",
            "waits for canaries that have not taken the change, or are not there; without them: fsxds rollout promote",
        ),
        (replace(BUSY, step=None, held=()), "in progress", ""),
        (
            replace(BUSY, step=None),
            "held back",
            "edge/lds.yaml:3: envoy-1 rejects listener web: cannot bind, for 42 s;",
        ),
        (
            replace(QUIET, cohort="rejecting", held=(replace(REJECTED, since_s=None),)),
            "held back",
            "cannot bind; correct",
        ),
        (
            PINNED,
            "rolled back",
            "1 resource rolled back for 300 s: cds web; each until it changes in the tree, or: fsxds",
        ),
        (HELD, "waits for approval", "let them go by: fsxds rollout approve 9b8c7d6e5f4a"),
        (replace(QUIET, views=("",), layers=()), "done", "whole tree"),
    ],
)
def test_states(rollouts: KeptRollouts, channel: object, state: str, line: str, capsys: Run) -> None:
    """Each has its word in the table, and its remedy below."""
    rollouts.reports = [channel]  # type: ignore[list-item]

    assert main(["rollout", "status"]) == (state != "done")
    out = capsys.readouterr().out
    assert any(row.rstrip().endswith(f" {state}") for row in out.splitlines())
    assert line in out


@pytest.mark.usefixtures("admin")
def test_a_thousand_views_are_a_few_rows(rollouts: KeptRollouts, capsys: Run) -> None:
    """Those in one state are one row, and what is true of several is one line."""
    quiet = [replace(QUIET, views=(f"v{number:03}",), layers=("common", f"v{number:03}")) for number in range(1000)]
    pinned = [replace(PINNED, views=each.views, layers=each.layers, pinned_for_s=300.0) for each in quiet[:300]]
    rollouts.reports = [*pinned, *quiet[300:], BUSY]

    assert main(["rollout", "status"]) == 1
    out = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert out[1:4] == [
        "edge common+edge canary 2 0123456789ab ba9876543210 grow for 1.2 s",
        "v300 and 699 more common+v300 and 699 more main 28000 ba9876543210 ba9876543210 done",
        "v000 and 299 more common+v000 and 299 more main 12000 ba9876543210 ba9876543210 rolled back",
    ]
    rolled_back = "1 resource rolled back for 300 s: cds web; each until it changes in the tree"
    assert f"v000, v001, v002 and 297 more: {rolled_back}, or: fsxds rollout resume" in out
    assert len(out) < 10

    rollouts.reports = [replace(each, pinned=number + 1) for number, each in enumerate(pinned)]
    assert main(["rollout", "status"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "and 280 more; fsxds rollout status --view NAME shows those of one view"
    assert len(out) < 25


@pytest.mark.usefixtures("admin")
def test_many_clients_are_counted(rollouts: KeptRollouts, capsys: Run) -> None:
    """Twenty of those that are waited for are named."""
    assert BUSY.step is not None
    waiting = tuple(WaitingReport(f"envoy-{number}", "REST", 1.0) for number in range(1000))
    rollouts.reports = [replace(BUSY, step=replace(BUSY.step, waits_for=waiting))]
    main(["rollout", "status"])

    assert "envoy-19 (REST), 980 more for 1.0 s, and 3.8 s more at most" in capsys.readouterr().out


@pytest.mark.usefixtures("admin")
def test_names_cannot_write_to_the_terminal(rollouts: KeptRollouts, capsys: Run) -> None:
    """A node id is any text that a client sends."""
    assert BUSY.step is not None
    rollouts.reports = [replace(BUSY, step=replace(BUSY.step, waits_for=(WaitingReport("\x1b[2J", "REST", 1.0),)))]
    main(["rollout", "status"])

    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.usefixtures("admin")
def test_status_of_one_view(capsys: Run) -> None:
    """`--view` and `--node-id` choose."""
    main(["rollout", "status", "--view", "everyone", "--format", "json"])
    of_view = json.loads(capsys.readouterr().out)
    main(["rollout", "status", "--node-id", "envoy-1", "--format", "json"])
    of_node = json.loads(capsys.readouterr().out)

    assert [["everyone"], ["edge"]] == [content["channels"][0]["views"] for content in (of_view, of_node)]
    assert [1, 1] == [len(content["channels"]) for content in (of_view, of_node)]


@pytest.mark.usefixtures("admin")
def test_decisions(rollouts: KeptRollouts, capsys: Run) -> None:
    """Each is done once; when there is nothing left to do, the status is 1."""
    assert main(["rollout", "approve", "9b8c7d6e5f4a"]) == 0
    assert main(["rollout", "abort", "--view", "edge"]) == 0
    assert capsys.readouterr().out == "approved in 1 channel\naborted in 1 channel\n"
    assert [each.step or each.approval for each in rollouts.reports] == [None, None]

    assert main(["rollout", "approve", "9b8c7d6e5f4a"]) == 1
    assert "9b8c7d6e5f4a: no such removal waits for approval; no removal is waiting" in capsys.readouterr().err
    assert main(["rollout", "promote"]) == 1
    assert "no change waits for a canary" in capsys.readouterr().err


@pytest.mark.usefixtures("admin")
def test_retry(rollouts: KeptRollouts, capsys: Run) -> None:
    """What nodes reject is offered to all again: one name, or all."""
    rollouts.reports = [replace(BUSY, held=(REJECTED, replace(REJECTED, name="admin"), replace(REJECTED, type="rds")))]

    assert main(["rollout", "retry", "web"]) == 0
    assert capsys.readouterr().out == "2 versions that nodes reject: offered to all nodes again\n"
    assert main(["rollout", "retry", "web"]) == 1
    assert "no node rejects a resource 'web'; fsxds rollout status shows rejected" in capsys.readouterr().err
    assert main(["rollout", "retry", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"versions": 1}
    assert main(["rollout", "retry"]) == 1
    assert "no node rejects a resource" in capsys.readouterr().err
    assert rollouts.reports[0].held == ()


@pytest.mark.usefixtures("admin")
def test_rollback_and_resume(rollouts: KeptRollouts, capsys: Run) -> None:
    """A snapshot is served in place of what differs from it, until `fsxds rollout resume`."""
    assert main(["rollback", "@1"]) == 0
    assert capsys.readouterr().out == (
        "serving @1 in 1 channel, each resource until it changes in the tree; fsxds rollout resume ends that for all\n"
    )
    assert [each.pinned for each in rollouts.reports] == [1, 0]
    assert main(["rollout", "resume", "--view", "everyone"]) == 1
    assert "no resource is rolled back: all follow the tree already" in capsys.readouterr().err
    assert main(["rollout", "resume", "--view", "edge"]) == 0
    assert capsys.readouterr().out == "the tree is followed again, in 1 channel\n"
    assert main(["rollout", "resume"]) == 1


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(
    ("time", "channels"),
    [("1970-01-01T00:50:00Z", 2), ("1970-01-01T00:50", 2), ("1970-01-01T01:50+01:00", 2), ("2500.5", 2), ("1000", 1)],
)
def test_rollback_of_all_views(rollouts: KeptRollouts, time: str, channels: int, capsys: Run) -> None:
    """Each view has what was served there at a time, which is UTC if it does not say."""
    assert main(["rollback", "--all-views", time]) == 0
    served = f"serving the content of {time} in {channels} channel{'s' if channels > 1 else ''}, each resource until"
    assert capsys.readouterr().out.startswith(served)
    assert sum(each.pinned for each in rollouts.reports) == channels


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["rollback", "@99"], 1, "@99: the history has no such snapshot"),
        (["rollback", "@x"], 2, "'@x' is no number of a snapshot"),
        (["rollback", "@1", "--view", "edge"], 2, "leave --view and --node-id out"),
        (["rollout", "abort", "--view", "nowhere"], 1, "there is no 'nowhere'; there is edge, everyone"),
        (["rollout", "abort", "--node-id", "nobody"], 1, "no client with the id 'nobody' is connected"),
        (["rollout", "approve"], 2, "takes the ID that `fsxds rollout status` shows"),
        (["rollout", "promote", "--view", "edge"], 2, "promote is for all nodes; leave --view and --node-id out"),
        (["rollout", "retry", "--view", "edge"], 2, "retry is for all nodes; leave --view and --node-id out"),
        (["rollout", "abort", "abc"], 2, "abort takes no argument"),
        (["rollout", "resume", "abc"], 2, "resume takes no argument"),
        (["rollback"], 2, "give the number of a snapshot, such as @3, or --all-views TIME"),
        (
            ["rollback", "@1", "--all-views", "1000"],
            2,
            "give the number of a snapshot, such as @3, or --all-views TIME",
        ),
        (["rollback", "--all-views", "1000", "--view", "edge"], 2, "leave --view and --node-id out"),
        (["rollback", "--all-views", "yesterday"], 2, "'yesterday' is no time; write 2026-01-31T14:05:00Z"),
        (["rollback", "--all-views", "nan"], 2, "'nan' is no time"),
        (["rollback", "--all-views", "0"], 1, "the content of that time is served already"),
        (["rollout", "status", "--admin", "off"], 2, "the admin address is off"),
        (["rollout", "status", "--admin", "127.0.0.1:0"], 2, "the port is chosen when fsxds starts"),
        (["rollout", "status", "--admin", "nonsense"], 2, "is no address"),
    ],
)
@pytest.mark.usefixtures("admin")
def test_mistakes(arguments: list[str], status: int, words: str, capsys: Run) -> None:
    """Each ends with the fact and the remedy: 1 where there is no such thing, 2 where the command is wrong."""
    assert main(arguments) == status
    assert words in capsys.readouterr().err


def test_no_state(capsys: Run) -> None:
    """A server without `--state` has no history, and says what would make one."""
    with admin_in_thread(KeptRollouts([HELD], snapshots=None)) as address:
        assert main(["rollback", "@1", "--admin", address]) == 1
        assert "start fsxds with --state DIR" in capsys.readouterr().err


def test_the_settings_file_names_the_address(admin: str, tmp_path: Path) -> None:
    """The commands and the server read one file."""
    file = tmp_path / "fsxds.yaml"
    file.write_text(f"admin: {admin}\n")

    assert main(["rollout", "abort", "--settings", str(file)]) == 0


def test_nobody_listens(tmp_path: Path, capsys: Run) -> None:
    """What connects to nobody says so, and names the option."""
    assert main(["rollout", "status", "--admin", free_address()]) == 2
    tcp = capsys.readouterr().err
    assert main(["rollout", "status", "--admin", f"unix:{tmp_path}/none"]) == 2
    unix = capsys.readouterr().err

    assert "Connection refused; is fsxds running, and is that its --admin address?" in tcp
    assert "No such file or directory; is fsxds running" in unix


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "answered with status 200, and no JSON of fsxds"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n[]", "answered with status 404, and no JSON of fsxds"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"channels": 1}', "otherwise than this fsxds reads them"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"channels":[{}]}', "otherwise than this fsxds reads them"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "otherwise than this fsxds reads them"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", "request failed"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "request failed"),
    ],
)
def test_somebody_else_listens(answer: bytes, words: str, capsys: Run) -> None:
    """What is no fsxds, or another version, is named as such."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert main(["rollout", "status", "--admin", f"127.0.0.1:{listener.getsockname()[1]}"]) == 2
        thread.join()

    assert words in capsys.readouterr().err


def test_the_address_of_rest_is_none(tmp_path: Path, capsys: Run) -> None:
    """Nor is that of streams."""
    with Server(tmp_path, tmp_path) as server:
        for address in (server.ready["http"], server.ready["grpc"]):
            assert main(["rollout", "status", "--admin", address]) == 2
            assert "is that its --admin address?" in capsys.readouterr().err
