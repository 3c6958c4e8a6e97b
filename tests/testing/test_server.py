from __future__ import annotations

import asyncio
import doctest
import json
import threading
from pathlib import Path
from urllib.request import Request, urlopen

import aiohttp
import grpc
import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.service.discovery.v3 import discovery_pb2

import fsxds.testing
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.observe.problem_reports import ProblemReports
from fsxds.settings.options import Settings
from fsxds.testing import server
from fsxds.testing.server import serve
from tests.cli.trees import CLUSTERS, TYPO
from tests.support.patience import PATIENCE_S

CLUSTER = "[{name: web, type: STATIC, connect_timeout: 1s}]"


def names_polled(http: str, path: str = "clusters") -> list[str]:
    """Return the names that a client gets."""
    request = Request(f"{http}/v3/discovery:{path}", b"{}", {"content-type": "application/json"})
    with urlopen(request, timeout=30) as response:
        return [resource["name"] for resource in json.load(response)["resources"]]


def test_a_running_server() -> None:
    """The server answers polls at its address, and is gone after its context."""
    with serve({"cds.yaml": CLUSTER}) as running:
        assert ["web"] == names_polled(running.http)
        assert (f"http://127.0.0.1:{running.port}", ("web",)) == (running.http, running.names("cds"))
        assert running.directory.exists()

    assert not running.directory.exists()
    with pytest.raises(OSError, match="refused"):
        names_polled(running.http)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fsxds server")]


def clusters_streamed(address: str) -> list[str]:
    """Return the names that a gRPC client gets."""
    request = discovery_pb2.DiscoveryRequest(type_url=BY_SHORT_NAME["cds"].type_url)
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream("/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters")
        body = next(call(iter([request.SerializeToString()]), timeout=PATIENCE_S))
    resources = discovery_pb2.DiscoveryResponse.FromString(body).resources
    return [cluster_pb2.Cluster.FromString(resource.value).name for resource in resources]


def test_grpc_clients_find_the_same() -> None:
    """Streams are served beside REST, at an address of their own; `off` switches them off."""
    with serve({"cds.yaml": CLUSTER}) as running:
        assert ["web"] == clusters_streamed(running.grpc)
    with serve({"cds.yaml": CLUSTER}, grpc="off") as running:
        assert (["web"], "") == (names_polled(running.http), running.grpc)


def test_a_write_is_served_when_it_returns() -> None:
    """After each write, the next poll has what was written: nobody has to wait or to try again."""
    with serve({"cds.yaml": CLUSTER}) as running:
        for number in range(20):
            running.write("cds.yaml", CLUSTER.replace("web", f"web-{number}"))
            assert [f"web-{number}"] == names_polled(running.http)
        running.write("deep/more.cds.yaml", CLUSTER.encode())
        assert ["web", "web-19"] == names_polled(running.http)
        running.remove("cds.yaml")
        assert ["web"] == names_polled(running.http)


def test_a_mistake() -> None:
    """A file with a mistake is taken in as well: its problems are there, and what it held last is served."""
    with serve({"cds.yaml": CLUSTER}) as running:
        version = running.versions["cds"]
        running.write("cds.yaml", TYPO)

        assert ["unknown-field"] == [problem.rule for problem in running.problems]
        assert (("web",), {"cds": version}) == (running.names("cds"), running.versions)
        assert "cds.yaml:3:3: error: " in running.wait_log("conect_timeout")


def test_the_last_file() -> None:
    """A tree that loses its last file is lost: what was served stays, and the next write is served."""
    with serve({"cds.yaml": CLUSTER}) as running:
        running.remove("cds.yaml")
        assert ("web",) == running.names("cds")
        running.write("cds.yaml", CLUSTER.replace("web", "api"))
        assert ("api",) == running.names("cds")


def test_an_empty_tree() -> None:
    """A server may begin with nothing; it has no versions then."""
    with serve({}) as running:
        assert {} == running.versions
        running.write("cds.yaml", "resources: []")
        assert {"cds"} == running.versions.keys()


def test_a_directory(tmp_path: Path) -> None:
    """A directory is served where it is; it is its owner's to change, and `settle` waits for that."""
    (tmp_path / "cds.yaml").write_text(CLUSTERS)
    with serve(tmp_path) as running:
        (tmp_path / "cds.yaml").write_text(CLUSTERS.replace("web", "api"))
        running.settle()
        assert ["api"] == list(running.snapshot.resources(BY_SHORT_NAME["cds"].type_url))
        with pytest.raises(UsageError, match="the directory is yours"):
            running.write("cds.yaml", "")
    assert (tmp_path / "cds.yaml").exists()


def test_settings_and_addresses(tmp_path: Path) -> None:
    """Settings are those of `fsxds serve`, but for the address."""
    settings = Settings(unknown_fields="warn", versions="authored", settle_s=0.01)
    with serve({"cds.yaml": "version_info: '7'\n" + TYPO}, settings=settings, http=f"unix:{tmp_path}/s") as running:
        assert (f"unix:{tmp_path}/s", {"cds": "7"}, ("api",)) == (running.http, running.versions, running.names("cds"))


@pytest.mark.parametrize("path", ["../x.yaml", "/tmp/x.yaml", "a/../../x.yaml", ""])
def test_paths_stay_within(path: str) -> None:
    """A path cannot lead out of the tree."""
    with pytest.raises(UsageError, match="is no path within the tree"), serve({path: "x"}):
        pass


def test_what_cannot_start(tmp_path: Path) -> None:
    """What keeps a server from starting is raised where it was asked for, and leaves no thread behind."""
    for tree, http in ((tmp_path / "nosuch", "127.0.0.1:0"), (tmp_path, "nonsense"), (tmp_path, "unix:/no/such/s")):
        with pytest.raises(UsageError), serve(tree, http=http):
            pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fsxds server")]


def test_what_does_not_run() -> None:
    """A server that was not entered says so."""
    with pytest.raises(RuntimeError, match="does not run yet"):
        serve({}).names("cds")


def test_waiting_in_vain() -> None:
    """Waits have an end, and say what was waited for."""
    with serve({"cds.yaml": CLUSTER}) as running:
        with pytest.raises(TimeoutError, match="the log had no line with 'NACK' within"):
            running.wait_log("NACK", 0.01)
        with pytest.raises(TimeoutError, match="did not load"):
            running.settle(0)


async def test_within_a_coroutine() -> None:
    """With `async with`, a held poll of the same loop is woken by a write."""
    async with serve({"cds.yaml": CLUSTER}) as running, aiohttp.ClientSession() as session:
        url = f"{running.http}/v3/discovery:clusters"
        async with asyncio.TaskGroup() as tasks:
            held = tasks.create_task(_poll(session, url, running.versions["cds"]))
            await asyncio.to_thread(running.write, "cds.yaml", CLUSTER.replace("web", "api"))
        assert ["api"] == [resource["name"] for resource in held.result()["resources"]]


async def _poll(session: aiohttp.ClientSession, url: str, version: str) -> dict[str, list[dict[str, str]]]:
    async with session.post(url, json={"version_info": version}) as response:
        content: dict[str, list[dict[str, str]]] = await response.json()
        return content


def test_a_server_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of fsxds itself is logged and counted; the edit is taken in nevertheless, and the server goes on."""
    with serve({"cds.yaml": CLUSTER}) as running:
        with monkeypatch.context() as broken:
            broken.setattr(ProblemReports, "update", lambda *_: 1 / 0)
            (running.directory / "cds.yaml").write_text("resources: []")
            running.wait_log("degraded: reload")
            assert names_polled(running.http) == []
        running.write("cds.yaml", CLUSTER.replace("web", "api"))

        assert names_polled(running.http) == ["api"]
        assert [line for line in running.log if "internal error in reload: ZeroDivisionError" in line]


@pytest.mark.parametrize("module", [fsxds.testing, server])
def test_examples(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of the docstrings do what they say."""
    monkeypatch.chdir(Path(__file__).parent.parent.parent)
    results = doctest.testmod(module)  # type: ignore[arg-type]  # modules are objects

    assert (0, True) == (results.failed, results.attempted > 0)
