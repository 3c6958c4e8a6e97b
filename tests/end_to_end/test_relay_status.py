"""What real relays say of themselves: status, metrics, readiness, log, client status and the page, while upstreams come and go."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fsxds.cli.main import main
from tests.end_to_end.test_relay_state import kept_in
from tests.end_to_end.test_status import AT_ONCE, ask, clusters, poll
from tests.end_to_end.test_status_page import browser, watched
from tests.support.ports import free_port
from tests.support.server import Server, write_file
from tests.support.settings_files import file_flags

__all__ = ["browser"]

TOKEN = "hunter2hunter2hunter2"


def answer_of(url: str, content: object = None) -> tuple[int, str]:
    """Return status and body of a GET; with content, of a POST."""
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def upstream_of(relay: Server) -> Any:
    """Return how the only upstream of a relay stands."""
    (report,) = ask(relay, "status")["upstreams"]
    return report


def client_configs(relay: Server) -> dict[str, Any]:
    """Return the client status of a relay, by what is said of each client."""
    _, body = answer_of(f"http://127.0.0.1:{relay.port}/v3/discovery:client_status", {})
    return {config["client_scope"]: config for config in json.loads(body)["config"]}


def exit_status(relay: Server) -> int:
    """Return how `fsxds status` ends; in a thread, since a browser has an event loop in this one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(main, ["status", relay.admin]).result(60)


def metric(relay: Server, name: str) -> dict[str, float]:
    """Return the values of a metric, by its labels."""
    _, text = answer_of(f"http://{relay.admin}/metrics")
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith(f"{name}{{")]
    return {labels.removeprefix(name): float(value) for labels, _, value in lines}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make folders."""
    return tmp_path_factory.mktemp


@pytest.fixture(scope="module")
def top(folders: Callable[[str], Path]) -> Iterator[Server]:
    """Serve two clusters; what is rejected stays, so that a test can look at it."""
    tree = folders("tree")
    write_file(tree / "cds.yaml", clusters("web", "api"))
    with Server(tree, folders("top"), *AT_ONCE, grpc=f"127.0.0.1:{free_port()}") as server:
        server.tree = tree  # type: ignore[attr-defined]
        yield server


@pytest.fixture(scope="module")
def relay(top: Server, folders: Callable[[str], Path]) -> Iterator[Server]:
    """Relay them, with a token that the upstream does not ask for."""
    folder = folders("relay")
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    address = f"127.0.0.1:{top.grpc_port}"
    # With the verdict of clients, the upstream takes back what they reject.
    options = file_flags(upstream_token=str(folder / "token"), upstream_verdict="relay")
    with Server(None, folder, "--upstream", address, *options) as server:
        server.wait(lambda: upstream_of(server)["resources"] == [{"type": "cds", "resources": 2}], "the clusters")
        yield server


def test_a_relay_that_is_well(relay: Server, top: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Status, metrics and readiness agree, and the command exits with 0."""
    address = f"127.0.0.1:{top.grpc_port}"
    report = upstream_of(relay)

    assert (report["name"], report["server"], report["wire"], report["state"]) == (
        address,
        address,
        "Delta ADS",
        "connected",
    )
    assert (report["trouble"], report["rejected"]) == ("", [])
    assert 0 <= report["age_s"] < 600
    assert answer_of(f"http://{relay.admin}/readyz")[0] == 200
    assert relay.ready["degraded"] == []
    assert metric(relay, "fsxds_upstream_connected") == {f'{{upstream="{address}"}}': 1.0}
    assert metric(relay, "fsxds_upstream_resources") == {f'{{type="cds",upstream="{address}"}}': 2.0}
    assert not relay.log_events("not_ready")
    assert exit_status(relay) == 0
    assert "connected" in capsys.readouterr().out


def test_client_status_has_both_sides(relay: Server) -> None:
    """The relay as a client of its upstream, with versions of that, beside its own client."""
    poll(relay, "edge-1")
    configs = client_configs(relay)
    own = next(config for scope, config in configs.items() if scope.startswith("upstream "))
    below = next(config for scope, config in configs.items() if not scope.startswith("upstream "))
    rows = {row["name"]: row for row in own["generic_xds_configs"]}

    assert below["node"]["id"] == "edge-1"
    assert {name: row["client_status"] for name, row in rows.items()} == {"web": "ACKED", "api": "ACKED"}
    assert all(row["version_info"] and row["last_updated"] for row in rows.values())
    assert rows["web"]["xds_config"]["name"] == "web"


def test_the_page_shows_upstreams(browser: Any, relay: Server, top: Server) -> None:
    """With their server, what is held, and how old it is."""
    with watched(browser, relay.admin) as seen:
        page = seen.open()
        row = page.locator("table:has(caption:text('Upstreams')) tbody tr")

        assert f"127.0.0.1:{top.grpc_port} by Delta ADS" in row.inner_text()
        assert "cds 2" in " ".join(row.inner_text().split())
        assert "All good: 1 upstream" in page.locator("#summary").inner_text()


def test_the_page_says_which_upstream_is_away(browser: Any, relay: Server, top: Server) -> None:
    """While it shows it: then everything that was held is served, and each exit says that it is old; until it is back."""
    address = f"127.0.0.1:{top.grpc_port}"
    with watched(browser, relay.admin) as seen:
        page = seen.open()
        top.kill()
        page.wait_for_selector(f"#summary h2:has-text('Upstream {address} is away: its last resources are served')")
        relay.wait(lambda: relay.ready["degraded"] == [f"upstream {address}"], "the ready file")

        page.wait_for_selector("table:has(caption:text('Upstreams')):has-text('Connection refused')")

        assert upstream_of(relay)["state"] == "away"
        assert [each["name"] for each in poll(relay, "edge-2")["resources"]] == ["api", "web"]
        assert answer_of(f"http://{relay.admin}/readyz")[0] == 200
        assert metric(relay, "fsxds_upstream_connected") == {f'{{upstream="{address}"}}': 0.0}
        assert exit_status(relay) == 1
        own = next(config for scope, config in client_configs(relay).items() if scope == f"upstream {address}: away")
        assert {row["client_status"] for row in own["generic_xds_configs"]} == {"ACKED"}

        top.start()
        page.wait_for_selector("#summary h2:has-text('All good')")
        relay.wait(lambda: relay.ready["degraded"] == [], "the ready file")
    assert [line["level"] for line in relay.log_events("upstream_lost")][:1] == ["warning"]
    assert len(relay.log_events("upstream_connected")) == 2


def test_what_a_client_rejects_is_a_problem_of_the_upstream(relay: Server, top: Server) -> None:
    """Where files have a path, it names the upstream, which has no lines; the graph does so too."""
    address, tree = f"127.0.0.1:{top.grpc_port}", top.tree  # type: ignore[attr-defined]
    taken = poll(relay, "edge-1")["version_info"]
    poll(relay, "edge-1", taken)
    write_file(tree / "new.yaml", clusters("fresh"))
    relay.wait(lambda: poll(relay, "edge-1", taken), "the new cluster")
    poll(relay, "edge-1", taken, error_detail={"code": 13, "message": "no such thing: fresh"})
    relay.wait(lambda: ask(relay, "status")["problems"], "the rejection")
    (problem,) = ask(relay, "status")["problems"]

    assert (problem["path"], problem["state"], problem["rule"]) == (
        f"upstream {address}",
        "rejected",
        "rejected-by-client",
    )
    assert "edge-1 rejects cluster fresh: no such thing" in problem["message"]
    assert "correct it" in problem["remedy"]
    own = next(config for scope, config in client_configs(relay).items() if scope.startswith("upstream "))
    (row,) = [row for row in own["generic_xds_configs"] if row["client_status"] == "NACKED"]
    assert row["name"] == "fresh"
    assert "edge-1" in row["error_state"]["details"]
    assert {node["place"] for node in ask(relay, "graph")["nodes"]} == {f"upstream {address}"}


def test_no_exit_shows_the_token(relay: Server) -> None:
    """It is in no log, page, metric or status."""
    exits = [answer_of(f"http://{relay.admin}{path}")[1] for path in ("/api/status", "/metrics", "/readyz")]
    exits += [relay.log_file.read_text(), relay.ready_file.read_text(), json.dumps(client_configs(relay))]

    assert not any(TOKEN in text for text in exits)


def test_what_is_restored_has_its_age(top: Server, tmp_path: Path) -> None:
    """A relay that was killed and starts while its upstream is away is ready, and says how old that is which it serves."""
    (tmp_path / "state").mkdir(mode=0o700)
    address = f"127.0.0.1:{top.grpc_port}"
    with Server(None, tmp_path, "--upstream", address, "--state", str(tmp_path / "state")) as server:
        server.wait(lambda: upstream_of(server)["resources"], "the clusters")
        server.wait(lambda: {"web", "api"} <= kept_in(tmp_path / "state"), "them on the disk")
        top.kill()
        try:
            server.wait(lambda: upstream_of(server)["state"] == "away", "the loss")
            server.kill()
            server.start()
            server.wait(lambda: upstream_of(server)["state"] == "away", "the attempt")
            report = upstream_of(server)

            assert report["age_s"] > 0
            assert report["resources"][0]["type"] == "cds"
            assert answer_of(f"http://{server.admin}/readyz")[0] == 200
            assert list(metric(server, "fsxds_upstream_age_seconds")) == [f'{{upstream="{address}"}}']
            assert server.log_events("upstreams_restored")[-1]["upstreams"] == [address]
        finally:
            top.start()


def test_a_start_awaits_upstreams_of_which_nothing_is_known(tmp_path: Path) -> None:
    """A directory beside them is served meanwhile, and after the patience for upstreams other things count again."""
    write_file(tmp_path / "tree" / "cds.yaml", clusters("web"))
    upstreams = ("--upstream", f"127.0.0.1:{free_port()}", *file_flags(upstream_patience="5s"))
    server = Server(tmp_path / "tree", tmp_path, *upstreams).start(wait=False)
    try:
        server.wait(lambda: server.log_events("listening")[2:], "the admin address")
        address = next(line["address"] for line in server.log_events("listening") if line["name"] == "admin")
        ready = f"http://{address}/readyz"
        server.wait(lambda: "did not answer yet" in answer_of(ready)[1], "what is awaited")
        assert answer_of(ready) == (503, "not ready: 1 of 1 upstreams did not answer yet\n")
        server.wait(lambda: answer_of(ready)[0] == 200, "that it waits no longer")
        waits = [line["waits_for"] for line in server.log_events("waiting")]

        assert all(each.startswith("the first answer of upstream 127.0.0.1:") for each in waits)
        assert "Connection refused" in waits[0]
        assert not server.log_events("not_ready")
    finally:
        server.stop()
