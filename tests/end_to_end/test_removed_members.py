"""Members of collections that are removed while their client, or the server, is away."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import yaml

from tests.end_to_end.test_state import until_kept
from tests.support.grpc_clients import DiscoveryClient, method_path
from tests.support.server import Server, write_file
from tests.support.settings_files import file_flags

CLUSTER = "xdstp://fleet/envoy.config.cluster.v3.Cluster/web"
GLOB = f"{CLUSTER}/*"
FLAGS = ("--http", "off", "--admin", "off", "--settle", "10ms", "--linger", "0s", "--step-timeout", "1s")


def write(tree: Path, names: str) -> None:
    """Write clusters, of which each letter is one."""
    clusters = [
        {
            "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
            "name": f"{CLUSTER}/{name}",
            "resource": {
                "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
                "name": f"{CLUSTER}/{name}",
                "type": "STATIC",
            },
        }
        for name in names
    ]
    write_file(tree / "cds.yaml", yaml.safe_dump(clusters or [{"version_info": ""}]) if names else "resources: []\n")


def started(directory: Path, *flags: str) -> Server:
    """Return a server of the tree that is to be run."""
    return Server(directory / "tree", directory, *FLAGS, "--log-format", "json", *flags)


def connected(server: Server, name: str = GLOB) -> tuple[set[str], set[str]]:
    """Connect as an Envoy does, which says nothing of what it holds; return what it is sent and what is removed, by letters."""

    async def ask() -> tuple[set[str], set[str]]:
        async with grpc.aio.insecure_channel(str(server.ready["grpc"])) as channel:
            stream = DiscoveryClient(channel, method_path("", "Delta"))
            await stream.ask("CDS", node="edge-1", resource_names_subscribe=[name])
            response: Any = await stream.answer()
            return {each.name[-1] for each in response.resources}, {name[-1] for name in response.removed_resources}

    return asyncio.run(ask())


def until_sent(server: Server, names: str) -> None:
    """Wait until members are served."""
    server.wait(lambda: connected(server)[0] == set(names), names)


def test_removed_members_survive_a_kill(tmp_path: Path) -> None:
    """What was removed before the process was killed, and while none was there, is told who connects to the next ones."""
    state = ("--state", str(tmp_path / "state"))
    write(tmp_path / "tree", "abc")
    with started(tmp_path, *state) as server:
        assert connected(server) == (set("abc"), set())
        until_kept(server, tmp_path, 1)
        write(tmp_path / "tree", "ab")
        until_sent(server, "ab")
        # Whether that is on the disk yet, or not.
        server.kill()
    write(tmp_path / "tree", "a")
    for _ in range(2):
        with started(tmp_path, *state) as server:
            until_sent(server, "a")
            assert connected(server) == ({"a"}, set("bc"))
            assert connected(server, "xdstp://fleet/envoy.config.cluster.v3.Cluster/*") == (set(), {"*"})
            assert not server.log_events("members_not_kept")


def until_written(server: Server, directory: Path, names: str) -> None:
    """Wait until the names of these members are in the user's state directory, and of no others."""

    def written() -> set[str]:
        texts = [path.read_text() for path in directory.glob("fsxds/members/*.json")]
        return {name[-1] for text in texts for _, groups in json.loads(text) for _, group in groups for name in group}

    server.wait(lambda: written() == set(names), f"the names {names}")


def test_names_of_members_are_kept_without_a_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was removed before the process was killed, and while none was there, is told who connects to the next ones."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    write(tmp_path / "tree", "abc")
    with started(tmp_path) as server:
        assert connected(server) == (set("abc"), set())
        until_written(server, tmp_path / "home", "abc")
        write(tmp_path / "tree", "ad")
        until_sent(server, "ad")
        until_written(server, tmp_path / "home", "abcd")
        server.kill()
    write(tmp_path / "tree", "a")
    for _ in range(2):
        with started(tmp_path) as server:
            assert connected(server) == ({"a"}, set("bcd"))
            assert not server.log_events("members_not_kept")
    write(tmp_path / "other" / "tree", "a")
    with started(tmp_path / "other") as server:
        assert connected(server) == ({"a"}, set())


def test_a_home_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of members are lost with the process, and the log says so; without collections there is nothing to say."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("no directory")
    write(tmp_path / "tree", "a")
    with started(tmp_path) as server:
        server.wait(lambda: server.log_events("members_not_written"), "the line")
        assert "give --state DIR" in str(server.log_events("members_not_written")[0]["message"])
    write_file(tmp_path / "other" / "tree" / "cds.yaml", "[{name: a, type: STATIC}]")
    with started(tmp_path / "other") as server:
        server.stop()
        assert not server.log_events("members_not_written")


def test_without_any_place_it_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first client that gets members makes the log say what a restart forgets, and no other one does."""
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME")
    write(tmp_path / "tree", "a")
    with started(tmp_path) as server:
        connected(server, f"{CLUSTER}/none/*")
        assert not server.log_events("members_not_kept")
        for _ in range(3):
            connected(server)
        lines = server.log_events("members_not_kept")

    assert [line["node"] for line in lines] == ["edge-1"]


@pytest.mark.parametrize("name", ["xdstp://fleet/envoy.config.listener.v3.Listener/web/*", "xdstp:"])
def test_rejected_names_are_logged(tmp_path: Path, name: str) -> None:
    """A collection of another type than the request is rejected, with the reason in the log."""
    write(tmp_path / "tree", "a")
    with started(tmp_path) as server:
        assert connected(server, name)[0] == set()
        (line,) = server.log_events("request_rejected")

    assert (line["status"], str(line["reason"]).startswith("resource_names: ")) == ("INVALID_ARGUMENT", True)


def test_names_without_the_authority_of_the_settings_are_said_once(tmp_path: Path) -> None:
    """A client that leaves the authority out is not asked for it twice, and one that writes it, never."""
    write(tmp_path / "tree", "a")
    with started(tmp_path, *file_flags(authority="fleet")) as server:
        assert connected(server) == ({"a"}, set())
        assert not server.log_events("authority_missing")
        for _ in range(2):
            assert connected(server, GLOB.replace("fleet", "")) == ({"a"}, set())
        (line,) = server.log_events("authority_missing")

    assert (line["node"], line["name"], line["authority"]) == ("edge-1", GLOB.replace("fleet", ""), "fleet")
    assert "write xdstp://fleet/…" in str(line["message"])
