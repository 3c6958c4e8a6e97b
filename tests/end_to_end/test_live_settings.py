"""SIGHUP: settings that can change while running are applied at once, and nothing that is wrong with them ends anything."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.fsxds_process import FsxdsProcess, start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.server import Server, events_in, write_file

CLUSTERS = "[{name: web, type: STATIC, connect_timeout: 1s}]"
# A field that the API does not know: an error, unless the settings say otherwise.
UNKNOWN = "[{name: next, type: STATIC, connect_timeout: 1s, no_such_field: 1}]"


class Reloading(Server):
    """A server with a settings file."""

    def __init__(self, workdir: Path, *options: str) -> None:
        self.tree, self.settings = workdir / "tree", workdir / "fsxds.yaml"
        write_file(self.tree / "cds.yaml", CLUSTERS)
        self.settings.write_text("settle: 10ms\n")
        super().__init__(self.tree, workdir, "--settings", str(self.settings), *options)

    def reload(self, text: str, event: str = "settings_reloaded") -> dict[str, Any]:
        """Write other settings, send SIGHUP, and return the line that answers it."""
        before = len(self.log_events(event))
        write_file(self.settings, text)
        os.kill(self.pid, signal.SIGHUP)
        self.wait(lambda: len(self.log_events(event)) > before, f"the line {event}")
        return self.log_events(event)[-1]

    def problems(self) -> set[tuple[str, str]]:
        """Return the rule and the severity of each problem that was found, and not fixed since."""
        found: dict[str, tuple[str, str]] = {}
        for line in events_in(self.log_file.read_bytes()):
            if line["event"] == "problem_found":
                found[line["problem"]] = line["rule"], line["severity"]
            elif line["event"] == "problem_fixed":
                found.pop(line["problem"], None)
        return set(found.values())

    def names(self) -> set[str]:
        """Ask for the clusters that are served."""
        url = f"http://127.0.0.1:{self.port}/v3/discovery:clusters"
        body = json.dumps({"node": {"id": str(time.monotonic())}}).encode()
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return {row["name"] for row in json.load(response)["resources"]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Reloading]:
    """A server that serves one cluster, and holds a file with another."""
    with Reloading(tmp_path) as running:
        write_file(running.tree / "more.cds.yaml", UNKNOWN)
        running.wait(lambda: running.log_events("degraded"), "the held file")
        yield running


def test_what_is_held_is_judged_by_the_new_settings(server: Reloading) -> None:
    """A milder rule serves the file; the stricter one again keeps what is served, and says that it is held."""
    assert server.names() == {"web"}

    line = server.reload("settle: 10ms\nunknown_fields: warn\n")

    assert (line["changed"], line["needs_restart"]) == (["unknown_fields"], [])
    server.wait(lambda: server.names() == {"web", "next"}, "the file that was held")
    held = len(server.log_events("degraded"))
    server.reload("settle: 10ms\n")
    server.wait(lambda: len(server.log_events("degraded")) > held, "the file that is held again")
    assert server.names() == {"web", "next"}


def test_names_follow_the_authority(tmp_path: Path) -> None:
    """With another authority, what is named without one is served by its new name, and found by it; plain names stay."""
    prefix = "envoy.config.cluster.v3.Cluster"
    with Reloading(tmp_path, "--step-timeout", "100ms") as server:
        write_file(server.tree / "more.cds.yaml", f"[{{name: 'xdstp:///{prefix}/a b', type: STATIC}}]")
        server.wait(lambda: len(server.names()) == 2, "the structured name")
        assert server.names() == {"web", f"xdstp:///{prefix}/a%20b"}

        line = server.reload("settle: 10ms\nauthority: one.example\n")

        assert (line["changed"], line["needs_restart"]) == (["authority"], [])
        server.wait(lambda: server.names() == {"web", f"xdstp://one.example/{prefix}/a%20b"}, "the other authority")
        server.reload("authority: not an authority\n", "settings_kept")
        assert server.names() == {"web", f"xdstp://one.example/{prefix}/a%20b"}
        server.reload("settle: 10ms\nauthority: two\ncontext_params: [{folder: deep, params: {a: b}}]\n")
        write_file(server.tree / "deep/cds.yaml", f"[{{name: 'xdstp:///{prefix}/a b', type: STATIC}}]")
        names = {"web", f"xdstp://two/{prefix}/a%20b", f"xdstp://two/{prefix}/a%20b?a=b"}
        server.wait(lambda: server.names() == names, "the parameters of the folder")


def test_levels_of_rules_and_static_clusters_change(tmp_path: Path) -> None:
    """A reference to a cluster that only the bootstrap defines holds a file until the settings name it."""
    with Reloading(tmp_path) as server:
        routes = "[{name: r, virtual_hosts: [{name: h, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: %s}}]}]}]"
        write_file(server.tree / "rds.yaml", routes % "elsewhere")
        server.wait(
            lambda: server.problems() == {("no-cluster", "warning"), ("undefined-name", "error")}, "the problem"
        )

        server.reload("rules: {no-cluster: error}\n")
        server.wait(lambda: server.problems() == {("no-cluster", "error"), ("undefined-name", "error")}, "the error")
        server.reload("rules: {no-cluster: error}\nstatic_clusters: [elsewhere]\n")

        server.wait(lambda: not server.problems(), "its end")
        bootstrap = tmp_path / "bootstrap.yaml"
        bootstrap.write_text("static_resources: {clusters: [{name: elsewhere}]}")
        assert server.reload(f"bootstrap: {bootstrap}\n")["changed"] == ["rules", "static_clusters", "bootstrap"]
        bootstrap.write_text("static_resources: {clusters: [{name: other}]}")
        assert server.reload(f"bootstrap: {bootstrap}\n")["changed"] == ["bootstrap"]
        server.wait(lambda: server.problems() == {("no-cluster", "warning")}, "the problem again")


def test_what_a_mistake_holds_back_changes(server: Reloading) -> None:
    """A tree that is accepted whole waits for its broken file; file by file, its other files move on at once."""
    server.reload("settle: 10ms\naccept: tree\n")
    held = len(server.log_events("degraded"))
    write_file(server.tree / "cds.yaml", CLUSTERS.replace("web", "edited"))
    server.wait(lambda: len(server.log_events("degraded")) > held, "the edit that waits")
    assert server.names() == {"web"}

    server.reload("settle: 10ms\n")

    server.wait(lambda: server.names() == {"edited"}, "the edit")


def test_mistakes_keep_the_settings_in_use(server: Reloading) -> None:
    """One line names file, line and remedy, whatever is wrong; after that the next reload works as any other."""
    line = server.reload("settle: 10ms\nunknown_feilds: warn\n", "settings_kept")
    assert (
        f"{server.settings}:2:1: unknown_feilds: there is no such setting; did you mean unknown_fields?"
        in line["reason"]
    )
    assert str(server.settings.with_name("no.yaml")) in server.reload("bootstrap: no.yaml\n", "settings_kept")["reason"]
    server.settings.unlink()
    os.kill(server.pid, signal.SIGHUP)
    server.wait(lambda: len(server.log_events("settings_kept")) == 3, "the missing file")
    assert server.names() == {"web"}

    assert server.reload("settle: 10ms\nunknown_fields: warn\n")["changed"] == ["unknown_fields"]
    server.wait(lambda: server.names() == {"web", "next"}, "the file that was held")


def test_what_needs_a_restart_is_named(server: Reloading) -> None:
    """Each time, until it is done; what flags say stays, whatever the file says."""
    for _ in range(2):
        line = server.reload("settle: 10ms\nhttp: 127.0.0.1:1\nversions: authored\nlog_format: json\nmirror: out\n")
        assert line["needs_restart"] == ["mirror", "versions", "log_format"]
        assert line["changed"] == []
    assert server.names() == {"web"}


def test_watching_and_logging_change(server: Reloading) -> None:
    """The watcher starts anew with what it serves, files are excluded, the log writes more, and edits arrive as before."""
    line = server.reload("watch: poll\npoll: 50ms\nexclude: ['more*']\nlog_level: debug\nmax_hold: 1s\n")

    assert line["changed"] == ["max_hold", "watch", "settle", "poll", "exclude", "log_level"]
    server.wait(lambda: server.log_events("recovered"), "the file that is excluded")
    assert server.names() == {"web"}
    server.wait(lambda: server.log_events("response_sent"), "a line for debugging")
    write_file(server.tree / "cds.yaml", CLUSTERS.replace("web", "edited"))
    server.wait(lambda: server.names() == {"edited"}, "the edit")


def test_many_hangups_harm_nothing(tmp_path: Path) -> None:
    """Fifty in a second, while files and settings change: every request is answered, and the last edit and settings count."""
    with Reloading(tmp_path) as server:
        for number in range(50):
            level = ("error", "warn")[number % 2]
            write_file(server.settings, f"settle: 10ms\nunknown_fields: {level}\npoll: {number + 1}s\n")
            os.kill(server.pid, signal.SIGHUP)
            write_file(server.tree / "cds.yaml", UNKNOWN.replace("next", f"v{number}"))
            write_file(server.tree / "more.cds.yaml", CLUSTERS.replace("web", f"more{number}"))
            time.sleep(0.01)
            if number % 10 == 0:
                assert server.names()

        server.wait(lambda: server.names() == {"v49", "more49"}, "the last edit")
        assert server._process is not None
        for sent in (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
            server._process.send_signal(sent)
        assert server._process.wait(PATIENCE_S) == 0
    assert [] == [event for event in ("internal_error", "component_degraded", "tree_lost") if server.log_events(event)]


def test_hangup_during_the_start(tmp_path: Path) -> None:
    """It does not end the process, and is answered when that serves."""
    server = Reloading(tmp_path, "--log-level", "debug").start(wait=False)
    try:
        server.wait(server.log_file.read_text, "the first line")
        os.kill(server.pid, signal.SIGHUP)
        server.wait(lambda: server.log_events("settings_reloaded"), "the answer")
        server.wait(server.ready_file.exists, "the first snapshot")
    finally:
        assert server.stop() == 0


def test_dev_and_watch_go_on(server: Reloading, tmp_path: Path) -> None:
    """`dev` reads its settings again as `serve` does; `watch` has none to read again, and says so."""
    file, addresses = tmp_path / "dev.yaml", ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    file.write_text("rescan: 1s\n")
    write_file(tmp_path / "broken" / "cds.yaml", UNKNOWN)
    dev = (*("dev", str(tmp_path / "broken"), "--settings", str(file)), *addresses)
    watch = ("watch", f"127.0.0.1:{server.grpc_port}", "--type", "cds")
    with ExitStack() as stack:
        for command, is_up, answer in (
            (dev, "problem_found", "rescan changed"),
            (watch, " as watch-", "SIGHUP: goes on"),
        ):
            log_file = tmp_path / f"{command[0]}.log"
            with log_file.open("wb") as log:
                process = start_fsxds([*command], stdout=log, stderr=log)
            stack.callback(process.kill)
            server.wait(lambda: is_up in log_file.read_text(), is_up)  # noqa: B023
            file.write_text("rescan: 2s\n")
            # The line may be there before the loop that receives the signal.
            server.wait(lambda: process.poll() or hung_up(process, log_file, answer), answer)  # noqa: B023
            assert process.poll() is None, log_file.read_text()


def hung_up(process: FsxdsProcess, log_file: Path, answer: str) -> bool:
    """Send SIGHUP, unless it was answered."""
    if answer in log_file.read_text():
        return True
    process.send_signal(signal.SIGHUP)
    return False
