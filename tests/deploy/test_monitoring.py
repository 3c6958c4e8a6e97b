"""docker/monitoring: rules, dashboard and docs name metrics that exist; a real Prometheus scrapes a real server, and takes every query."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from fsxds.observe.metrics import ROWS_BY_NAME
from tests.support.metric_list import metrics_section
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.server import Server, write_file

MONITORING = Path(__file__).parents[2] / "docker" / "monitoring"
NAME = re.compile(r"\b(?:fsxds|process)_[a-z_]+\b")
PART_OF_HISTOGRAM = re.compile(r"_(?:bucket|sum|count)$")

needs_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None, reason="apt-get install prometheus"
)


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard that show something."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def dashboard_queries() -> list[str]:
    """Return every query of the dashboard, as Grafana fills it in."""
    filled = {"$job": "fsxds", "$instance": ".+", "$__rate_interval": "1m"}
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    for name, word in filled.items():
        found = [query.replace(name, word) for query in found]
    return found


def alert_queries() -> list[str]:
    """Return the queries of all alerts."""
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def names_in(queries: list[str]) -> set[str]:
    """Return the metrics that queries name, histograms by their own name."""
    names = {name for query in queries for name in NAME.findall(query)}
    return {PART_OF_HISTOGRAM.sub("", name) if name not in ROWS_BY_NAME else name for name in names}


def test_docs_list_the_metrics() -> None:
    """The table is in the docs as `tests/support/metric_list.py` prints it."""
    assert metrics_section() in (MONITORING / "README.md").read_text(encoding="utf-8")


def test_the_dashboard_is_one() -> None:
    """Each panel has its own id, place, data source and meaning, and none lies over another."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]

    assert len({panel["id"] for panel in dashboard["panels"]}) == len(set(places)) == len(dashboard["panels"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in dashboard["panels"])
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    assert all("$job" in target["expr"] for panel in panels() for target in panel["targets"])


@needs_prometheus
@pytest.mark.parametrize("check", [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"], ["check", "config", "prometheus.yaml"]])  # fmt: skip
def test_promtool_finds_nothing(check: list[str]) -> None:
    """Rules are rules, each alert is silent first and fires later, and the example is a configuration."""
    done = subprocess.run(["promtool", *check], cwd=MONITORING, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_every_alert_is_tested() -> None:
    """No rule is without a test in which it fires."""
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
    tests = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
    fired = {each["alertname"] for test in tests for each in test["alert_rule_test"] if "exp_alerts" in each}

    assert {rule["alert"] for rule in rules} == fired


@needs_prometheus
def test_a_real_prometheus_scrapes_and_takes_every_query(tmp_path: Path) -> None:
    """It stores what a server exposes, after an edit that a held poll waited for; each query is one, and names what is exposed."""
    write_file(tmp_path / "tree" / "cds.yaml", "[{name: a, type: STATIC, connect_timeout: 1s}]")
    with Server(tmp_path / "tree", tmp_path) as server:
        exposed = scrape(server.admin)
        with running_prometheus(tmp_path, server.admin) as address:
            wait_for(lambda: value_of(address, "fsxds_ready") == "1")
            wait_for(lambda: value_of(address, 'fsxds_resources{type="cds"}') == "1")
            for query in (*dashboard_queries(), *alert_queries()):
                assert ask(address, query)["status"] == "success", query
            answered_within(server, tmp_path / "tree")
            wait_for(lambda: value_of(address, 'fsxds_update_send_seconds_count{type="cds"}') == "1")
            assert value_of(address, "sum(fsxds_clients)") == "1"
        after = scrape(server.admin)

    queries = [*dashboard_queries(), *alert_queries()]
    assert names_in(queries) - names_of(exposed) == set()
    assert names_of(exposed) >= ROWS_BY_NAME.keys()
    assert 'fsxds_update_send_seconds_count{type="cds"} 1.0' in after
    assert 'fsxds_requests_total{listener="REST",status="200"} 2.0' in after


@needs_prometheus
def test_formats_are_those_that_a_request_accepts(tmp_path: Path) -> None:
    """OpenMetrics, compressed; the real promtool finds nothing in what a real server exposes."""
    write_file(tmp_path / "tree" / "cds.yaml", "[]")
    with Server(tmp_path / "tree", tmp_path) as server:
        headers = {"accept": "application/openmetrics-text; version=1.0.0", "accept-encoding": "gzip"}
        request = urllib.request.Request(f"http://{server.admin}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
            assert answer.headers["content-encoding"] == "gzip"
        text = scrape(server.admin)
        with urllib.request.urlopen(f"http://{server.admin}/healthz", timeout=30) as answer:
            assert answer.read() == b"ok\n"
    checked = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True, check=False)

    assert (0, b"") == (checked.returncode, checked.stdout + checked.stderr)


def answered_within(server: Server, tree: Path) -> None:
    """Have a poll wait for an edit, and be answered with it."""
    url = f"http://127.0.0.1:{server.port}/v3/discovery:clusters?timeout=30s"

    def poll(version: str) -> str:
        body = json.dumps({"node": {"id": "edge-1"}, "version_info": version}).encode()
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: str = json.loads(answer.read())["version_info"]
            return found

    version = poll("")
    script = (
        "import sys,urllib.request as r;"
        "print(r.urlopen(r.Request(sys.argv[1], sys.argv[2].encode(), {'content-type': 'application/json'})).status)"
    )
    body = json.dumps({"node": {"id": "edge-1"}, "version_info": version})
    with subprocess.Popen(["python3", "-c", script, url, body], stdout=subprocess.PIPE, text=True) as waiting:
        server.wait(lambda: "fsxds_polls_held 1.0" in scrape(server.admin), "the poll that is held")
        write_file(tree / "cds.yaml", "[{name: b, type: STATIC, connect_timeout: 1s}]")
        assert waiting.stdout is not None
        assert waiting.stdout.read().strip() == "200"


def scrape(admin: str) -> str:
    """Return what `/metrics` says."""
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=30) as answer:
        content: bytes = answer.read()
        return content.decode()


def names_of(exposed: str) -> set[str]:
    """Return the names of what is exposed."""
    return {line.split()[2] for line in exposed.splitlines() if line.startswith("# TYPE")}


@contextmanager
def running_prometheus(folder: Path, target: str) -> Iterator[str]:
    """Run a Prometheus that scrapes a target each second; yield its address."""
    address = f"127.0.0.1:{free_port()}"
    configuration = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    job = {"job_name": "fsxds", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    configuration |= {"scrape_configs": [job], "rule_files": [str(MONITORING / "alerts.yaml")]}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    command = [
        "prometheus", f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}", "--log.level=error",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield address
        finally:
            process.terminate()


def ask(address: str, query: str) -> dict[str, Any]:
    """Return the answer to a query; also where it is wrong."""
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except urllib.error.HTTPError as error:
        with error:
            return {"status": error.read().decode()}
    except OSError:
        return {"status": "not there yet", "data": {"result": []}}


def value_of(address: str, query: str) -> str:
    """Return the value of a query; empty where there is none yet."""
    rows = ask(address, query).get("data", {}).get("result")
    return str(rows[0]["value"][1]) if rows else ""


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
