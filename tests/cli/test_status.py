"""`fsxds status` against an admin address that shows what a test wants."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from fsxds.cli.main import main
from fsxds.events.event import duration
from fsxds.model.errors import ProtocolError
from fsxds.settings.forms import Address, TcpAddress
from fsxds.transports.admin.admin_api import AdminApi
from fsxds.transports.admin.admin_reports import (
    ClientCount,
    ClientDetail,
    ClientList,
    ClientReport,
    FileCounts,
    FileList,
    FileReport,
    FleetServerReport,
    HeldType,
    ListedNames,
    ListenerReport,
    NodeReport,
    ProblemReport,
    RowQuery,
    ServerReport,
    TypeDetail,
    TypeReport,
    UpstreamReport,
)
from fsxds.transports.admin.status_paths import status_paths
from fsxds.transports.rest.http_server import ListenerOptions, listening
from tests.support.admin import BUSY, PINNED, QUIET, REJECTED
from tests.support.admin import HELD as REMOVAL_WAITS
from tests.support.fsxds_process import run_fsxds, start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

Run = pytest.CaptureFixture[str]
PAGE = Path(__file__).parents[2] / "fsxds" / "cli" / "README.md"

GOOD = TypeReport("cds", "SYNCED", 1, 40, "0123456789ab", "0123456789ab", None, "0123456789ab", None, 300.0)
LISTENERS = replace(
    GOOD, type="lds", state="NACK", resources=2, sent="fedcba987654", nacked="fedcba987654", acked="00112233",
    current="fedcba987654", reason="Error adding/updating listener(s) web: cannot bind '0.0.0.0:80': Address already in use",
    since_s=12.0,
)  # fmt: skip
WELL = ClientReport("envoy-1", "edge", "gRPC", "StreamAggregatedResources", "10.0.0.7", "edge", 7200.0, "SYNCED",
                    (GOOD, replace(GOOD, type="lds", resources=2)))  # fmt: skip
ILL = replace(WELL, node="envoy-2", state="NACK", types=(GOOD, LISTENERS))
MIRROR = ClientReport("/run/envoy", "", "mirror", "mirror", "", "edge", 7200.0, "SYNCED", (GOOD,))
PROBLEM = ProblemReport(
    "edge/rds.yaml", 7, 5, "error", "unknown-field", 'there is no field "prefx"', 'did you mean "prefix"?', "held", 3.0
)
SERVER = ServerReport(
    version="1.0", pid=7, uptime_s=7300.0, directory="config/xds", state=None, generation=7,
    listeners=(ListenerReport("gRPC", "0.0.0.0:18000", tls=True), ListenerReport("admin", "127.0.0.1:18002", tls=False)),
    is_ready=True, waits_for="", degraded=(), files=FileCounts(40, 0, 0), problems=(), problem_count=0, views=(),
    view_count=1, clients=(ClientCount("gRPC", "SYNCED", 2),), rollouts=(QUIET,), rollout_count=1, upstreams=(),
)  # fmt: skip
UPSTREAM = UpstreamReport(
    name="eu", servers=("10.0.0.1:18000", "10.0.0.2:18000"), server="10.0.0.1:18000", wire="Delta ADS", state="connected",
    since_s=60.0, trouble="", resources=(HeldType("cds", 3), HeldType("eds", 40)), pending=(), age_s=7200.0, rejected=(),
)  # fmt: skip
AWAY = replace(UPSTREAM, state="away", server="", wire="", since_s=300.0, trouble="cannot connect: Connection refused")
HELD = replace(SERVER, files=FileCounts(39, 1, 0), problems=(PROBLEM,), problem_count=1)
FILES = FileList(40, (FileReport("edge/rds.yaml", "held", 3.0, 4, 1), FileReport("a.yaml", "good", 3.0, 4, 0)))


@dataclass
class KeptStatus:
    """A status that a test sets: a `StatusFacts`."""

    server: ServerReport = SERVER
    listed: tuple[ClientReport, ...] = (WELL,)
    details: tuple[ClientDetail, ...] = ()
    query: RowQuery | None = None

    async def report(self) -> ServerReport:
        """Return the status."""
        return self.server

    async def clients(self, query: RowQuery) -> ClientList:
        """Return the clients."""
        self.query = query
        return ClientList(len(self.listed), self.listed[: query.limit])

    async def node(self, name: str) -> NodeReport:
        """Return the details."""
        found = tuple(each for each in self.details if each.node == name)
        if not found:
            raise ProtocolError(f"no client with the node id {name[:80]!r} is connected", "NOT_FOUND")
        return NodeReport(found)

    async def files(self, query: RowQuery) -> FileList:
        """Return the files."""
        return replace(FILES, files=FILES.files[: query.limit])


@contextmanager
def admin_of(kept: KeptStatus, address: Address | None = None) -> Iterator[str]:
    """Run an admin address beside this thread."""
    bound: Future[str] = Future()
    ends: list[Callable[[], object]] = []

    async def run() -> None:
        ending, where = asyncio.Event(), address or TcpAddress("127.0.0.1", 0)
        application = AdminApi(status_paths(kept), where, lambda _: None).application()
        async with listening(application, where, grace_s=0.1, options=ListenerOptions("admin")) as there:
            loop = asyncio.get_running_loop()
            ends.append(lambda: loop.call_soon_threadsafe(ending.set))
            bound.set_result(str(there))
            await ending.wait()

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(lambda: asyncio.run(run()))
        try:
            yield bound.result(PATIENCE_S)
        finally:
            ends[0]()
            running.result(PATIENCE_S)


@pytest.fixture
def kept() -> KeptStatus:
    """All is good."""
    return KeptStatus()


@pytest.fixture
def admin(kept: KeptStatus, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address, which the command takes from the environment."""
    with admin_of(kept) as address:
        monkeypatch.setenv("FSXDS_ADMIN", address)
        yield address


def lines(capsys: Run) -> list[str]:
    """Return what was printed, each line with single blanks."""
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("admin")
def test_all_is_good(capsys: Run) -> None:
    """One row for a client whose types are in the same state, and the status 0."""
    assert main(["status"]) == 0
    assert lines(capsys) == [
        "config/xds: 40 files good; fsxds 1.0 for 2 h",
        "gRPC 0.0.0.0:18000 (TLS), admin 127.0.0.1:18002",
        "2 clients: 2 SYNCED",
        "NODE VIA VIEW STATE TYPES SINCE",
        "envoy-1 gRPC edge SYNCED cds lds 5 min",
    ]


@pytest.mark.usefixtures("admin")
def test_what_is_wrong(kept: KeptStatus, capsys: Run) -> None:
    """A NACK with its reason, a file that is held with the place of its first problem, and a rollout at work, as on the page."""
    kept.server, kept.listed = replace(HELD, rollouts=(BUSY, QUIET)), (ILL, WELL, MIRROR)

    assert main(["status"]) == 1
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "\n".join(shown) in PAGE.read_text(encoding="utf-8")
    out = [" ".join(line.split()) for line in shown]
    assert "envoy-2 gRPC edge NACK lds 12 s" in out
    assert "envoy-2 gRPC edge SYNCED cds 5 min" in out
    assert any(line.startswith("envoy-2 rejects lds fedcba98: Error adding/updating listener(s) web") for line in out)
    assert 'edge/rds.yaml:7:5 held 3 s there is no field "prefx"; did you mean "prefix"?' in out
    assert "edge, canary: grow waits for envoy-1 (gRPC) for 1.2 s, and 3.8 s more at most" in out


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(
    ("server", "listed", "status"),
    [
        (SERVER, (WELL,), 0),
        (SERVER, (replace(WELL, state="NOT SENT"),), 0),
        (SERVER, (), 0),
        (SERVER, (replace(WELL, state="STALE"),), 1),
        (SERVER, (ILL,), 1),
        (replace(SERVER, files=FileCounts(40, 0, 1)), (WELL,), 1),
        (replace(SERVER, degraded=("watcher",)), (WELL,), 1),
        (replace(SERVER, is_ready=False, waits_for="the first file"), (WELL,), 1),
        (replace(SERVER, upstreams=(UPSTREAM,)), (WELL,), 0),
        (replace(SERVER, upstreams=(UPSTREAM, AWAY)), (WELL,), 1),
        (replace(SERVER, upstreams=(replace(UPSTREAM, rejected=("cds web: no",)),)), (WELL,), 1),
        (replace(SERVER, rollouts=(replace(QUIET, held=(REJECTED,)),)), (WELL,), 1),
        (replace(SERVER, rollouts=(REMOVAL_WAITS,)), (WELL,), 1),
        (replace(SERVER, rollouts=(PINNED,)), (WELL,), 1),
    ],
)
def test_exit_status(kept: KeptStatus, server: ServerReport, listed: tuple[ClientReport, ...], status: int) -> None:
    """It is 1 when something is held back, rolled back, rejected, stale, degraded, away or not there yet."""
    kept.server, kept.listed = server, listed

    assert main(["status"]) == status


@pytest.mark.usefixtures("admin")
def test_upstreams(kept: KeptStatus, capsys: Run) -> None:
    """A row for each: which server is asked, what is held, and how old it is; what is wrong with it is below."""
    late = replace(UPSTREAM, name="us", pending=("rds",), age_s=None, resources=(), rejected=("cds web: no message",))
    refused = replace(AWAY, name="asia", state="refused", resources=(), age_s=None, trouble="a loop")
    kept.server = replace(SERVER, directory="", files=FileCounts(0, 0, 0), upstreams=(AWAY, late, refused))

    assert main(["status"]) == 1
    assert lines(capsys)[:9] == [
        "no directory, upstreams alone; fsxds 1.0 for 2 h",
        "gRPC 0.0.0.0:18000 (TLS), admin 127.0.0.1:18002",
        "2 clients: 2 SYNCED",
        "UPSTREAM SERVER STATE SINCE RESOURCES AGE",
        "eu 10.0.0.1:18000, 10.0.0.2:18000 away 5 min cds 3 eds 40 2 h",
        "us 10.0.0.1:18000 (Delta ADS) connected 1 min none",
        "asia 10.0.0.1:18000, 10.0.0.2:18000 refused 5 min none",
        "eu: cannot connect: Connection refused; its last resources are served",
        "us has not responded yet for rds",
    ]


@pytest.mark.usefixtures("admin")
def test_the_servers_of_a_fleet(kept: KeptStatus, capsys: Run) -> None:
    """Each with what it serves, and how many clients; which one publishes, and which is behind."""
    servers = (
        FleetServerReport("a-1f", is_publisher=True, publication="3.17", is_behind=False, clients=4),
        FleetServerReport("b-2e", is_publisher=False, publication="3.16", is_behind=True, clients=1200),
    )
    kept.server = replace(SERVER, fleet=servers)

    assert main(["status"]) == 0
    assert lines(capsys)[3:6] == [
        "FLEET PUBLICATION STATE CLIENTS",
        "a-1f 3.17 publishes 4",
        "b-2e 3.16 behind 1200",
    ]


@pytest.mark.usefixtures("admin")
def test_some_clients(kept: KeptStatus, capsys: Run) -> None:
    """A view and a text choose; what is not listed is counted."""
    kept.listed = tuple(replace(WELL, node=f"envoy-{number:03}") for number in range(130))

    assert main(["status", "--view", "edge", "--search", "envoy"]) == 0
    assert kept.query is not None
    assert (kept.query.view, kept.query.search) == ("edge", "envoy")
    assert "and 30 more clients; fsxds status --search TEXT finds some" in lines(capsys)


@pytest.mark.usefixtures("admin")
def test_json(kept: KeptStatus, capsys: Run) -> None:
    """It is the JSON of the admin address."""
    kept.server, kept.listed = HELD, (ILL,)

    assert main(["status", "--format", "json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["status"]["problems"][0]["rule"] == "unknown-field"
    assert (shown["total"], shown["clients"][0]["types"][1]["state"]) == (1, "NACK")


NOTHING = ListedNames(0, ())
DETAIL = ClientDetail(**{
    **{each.name: getattr(ILL, each.name) for each in fields(ILL)},
    "types": (
        TypeDetail(
            **{each.name: getattr(LISTENERS, each.name) for each in fields(LISTENERS)},
            lacks=NOTHING,
            outdated=ListedNames(1, ("web",)),
            surplus=ListedNames(300, tuple(f"r{number:02}" for number in range(100))),
            missing=ListedNames(1, ("nope",)),
        ),
    ),
})  # fmt: skip


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize("node", ["envoy-2", "a/b?c#d%2F", "10.0.0.7:80", "\x1b[2Jü", "x" * 3000])
def test_node(kept: KeptStatus, node: str, capsys: Run) -> None:
    """The details of one node, whatever its id is, with what it has against what is current."""
    kept.details = (replace(DETAIL, node=node),)

    assert main(["status", "--node", node]) == 1
    captured = capsys.readouterr().out
    out = [" ".join(line.split()) for line in captured.splitlines()]
    assert "\x1b" not in captured
    assert "lds NACK 12 s 2 fedcba98 00112233 fedcba98" in out
    assert "lds: may have an older version of web" in out
    assert out[-2].endswith("r19 and 280 more")
    assert out[-1] == "lds: asked for, and no file has nope"
    assert max(map(len, out)) < 700


@pytest.mark.usefixtures("admin")
def test_a_node_that_is_not_connected(capsys: Run) -> None:
    """It is no wrong use; the server says who is asked for."""
    assert main(["status", "envoy-9"]) == 1
    assert "no client with the node id 'envoy-9' is connected" in capsys.readouterr().err


@pytest.mark.usefixtures("admin")
def test_names_cannot_write_to_the_terminal(kept: KeptStatus, capsys: Run) -> None:
    """A node id is any text that a client sends, and so is a reason."""
    bad = replace(LISTENERS, reason="\x1b[31m\r\nx" * 500)
    kept.listed = (replace(ILL, node="\x1b[2J\x07" + "ü" * 5000, view="\x1b]0;x", types=(bad,)),) * 2
    main(["status"])

    captured = capsys.readouterr()
    assert "\x1b" not in captured.out
    assert "\x07" not in captured.out
    assert max(map(len, captured.out.splitlines())) < 1200


@pytest.mark.parametrize("arguments", [["envoy-1", "--node", "envoy-2"], ["envoy-1", "--view", "edge"]])
def test_wrong_use(arguments: list[str], capsys: Run) -> None:
    """Two answers to one question are none."""
    assert main(["status", *arguments]) == 2
    assert "fsxds status" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["127.0.0.1:1"],
        ["--admin", "off"],
        ["unix:/nowhere/a.sock"],
        ["http://127.0.0.1:1/"],
        ["https://127.0.0.1:1"],
        ["127.0.0.1:1", "--watch"],
    ],
)
def test_nobody_answers(arguments: list[str], capsys: Run) -> None:
    """One line, and 2; --watch waits for nobody who was never there."""
    assert main(["status", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("time_s", "shown"), [(0.2, "0 s"), (59.9, "59 s"), (61, "1 min"), (7300, "2 h"), (200000, "2 d")]
)
def test_duration(time_s: float, shown: str) -> None:
    """A time is in its largest unit."""
    assert duration(time_s) == shown


def read_until(descriptor: int, wanted: Callable[[str], bool], text: str = "") -> str:
    """Read from a terminal until what it showed is what is wanted."""
    deadline = time.monotonic() + PATIENCE_S
    while not wanted(text):
        assert time.monotonic() < deadline, text
        text += os.read(descriptor, 65536).decode(errors="replace")
    return text


def test_watch_on_a_terminal_outlives_the_server(kept: KeptStatus) -> None:
    """It refreshes in place on 80 columns, says that the server went away, and shows it again; Ctrl-C ends it with 130."""
    address, (ours, theirs) = TcpAddress("127.0.0.1", free_port()), pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    with admin_of(kept, address):
        arguments = ["status", str(address), "--watch"]
        process = start_fsxds(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        try:
            shown = read_until(ours, lambda text: "SYNCED" in text)
            kept.listed = (ILL,)
            shown = read_until(ours, lambda text: "NACK" in text)
        except BaseException:
            process.kill()
            raise
    read_until(ours, lambda text: "asked again each second" in text)
    kept.listed = (replace(WELL, node="back"),)
    with admin_of(kept, address):
        read_until(ours, lambda text: "back" in text.rpartition("again each second")[2])
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    os.close(ours)
    assert "\x1b[1A" in shown  # up again, and not down the page
    assert "Traceback" not in shown


def test_watch_elsewhere_prints_what_changed(kept: KeptStatus, tmp_path: Path) -> None:
    """A block when something changed, and none for ages alone; JSON is one object in a line each second."""
    with admin_of(kept) as address, (tmp_path / "out").open("wb") as out:
        command = [sys.executable, "-m", "fsxds", "status", address, "--watch"]
        process = subprocess.Popen(command, stdout=out, stderr=out)
        as_json = subprocess.Popen([*command, "--format", "json"], stdout=subprocess.PIPE, text=True)
        assert as_json.stdout is not None
        try:
            objects = [json.loads(as_json.stdout.readline()) for _ in range(2)]
            kept.listed, kept.server = (replace(ILL, node="changed"),), replace(SERVER, uptime_s=7400.0)
            deadline = time.monotonic() + PATIENCE_S
            while "changed" not in (tmp_path / "out").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            for each in (process, as_json):
                each.send_signal(signal.SIGINT)
            as_json.stdout.close()
            statuses = [each.wait(PATIENCE_S) for each in (process, as_json)]
    assert statuses == [130, 130]
    assert [each["total"] for each in objects] == [1, 1]
    assert (tmp_path / "out").read_text().count("config/xds: ") == 2


def test_help() -> None:
    """The exit status is documented."""
    done = run_fsxds(["status", "--help"])

    assert "130 Ctrl-C" in " ".join(done.stdout.split())
