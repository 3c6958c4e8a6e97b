"""Servers of a fleet, as processes, on a real etcd: what one of them loads, all serve."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from xds.core.v3.resource_locator_pb2 import ResourceLocator

from tests.support.certificates import Authority
from tests.support.etcd import ETCD, MISSING, Etcd, running_etcd
from tests.support.follower import Follower
from tests.support.fsxds_process import run_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.server import Server
from tests.support.settings_files import file_flags
from tests.support.tcp_relay import Relay

pytestmark = pytest.mark.skipif(ETCD is None, reason=MISSING)


@pytest.fixture
def etcd(tmp_path) -> Iterator[Etcd]:
    (tmp_path / "etcd").mkdir()
    with running_etcd(tmp_path / "etcd", 3) as running:
        yield running


def write(tree: Path, *names: str) -> Path:
    """Write a tree with clusters of these names, as if it had always been so."""
    tree.mkdir(exist_ok=True)
    rows = [{"name": name, "connect_timeout": "1s"} for name in names]
    (tree / "next").write_text(json.dumps(rows))
    (tree / "next").rename(tree / "clusters.yaml")
    return tree


def names_at(server: Server, cluster: str = "") -> list[str]:
    """Return the clusters that a server sends to a node of a cluster that was never there."""
    request = urllib.request.Request(
        f"http://{server.ready['http']}/v3/discovery:clusters",
        json.dumps({"node": {"id": uuid.uuid4().hex, "cluster": cluster}}).encode(),
        {"content-type": "application/json", "x-envoy-expected-rq-timeout-ms": "0"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return [row["name"] for row in json.load(response)["resources"]]


def await_names(server: Server, *names: str, cluster: str = "") -> None:
    """Wait until a server sends clusters of these names to nodes of a cluster."""
    ends_s = time.monotonic() + PATIENCE_S
    while (found := names_at(server, cluster)) != [*names]:
        assert time.monotonic() < ends_s, found
        time.sleep(0.02)


def server_of(folder: Path, etcd: Etcd, tree: Path | None = None, *options: str) -> Server:
    folder.mkdir()
    fleet = () if "--fleet" in options else ("--fleet", f"{etcd.url}/fleet")
    return Server(tree, folder, *fleet, *options)


def test_all_serve_what_one_publishes(etcd, tmp_path) -> None:
    """Also a server without a tree, and one whose own tree is another; when the publisher is killed, that is published."""
    ours, theirs = write(tmp_path / "ours", "a"), write(tmp_path / "theirs", "a", "b")
    first, second = server_of(tmp_path / "1", etcd, ours), server_of(tmp_path / "2", etcd, theirs)
    follower = server_of(tmp_path / "3", etcd)
    with first, second, follower:
        for each in (first, second, follower):
            await_names(each, "a")
        write(ours, "a", "c")
        for each in (first, second, follower):
            await_names(each, "a", "c")
        shown = run_fsxds(["status", "--admin", follower.admin, "--format", "json"])
        servers = json.loads(shown.stdout)["status"]["fleet"]
        assert [one["is_publisher"] for one in servers].count(True) == 1
        assert len(servers) == 3

        first.kill()
        second.wait(lambda: second.log_events("fleet_publisher_waits"), "the election")
        assert names_at(follower) == ["a", "c"]
        write(theirs, "b")
        await_names(follower, "b")
        assert second.log_events("fleet_publisher_elected")
        assert not follower.log_events("fleet_publisher_elected")


def test_etcd_may_be_away(etcd, tmp_path) -> None:
    """What was published is served on while no member answers; an edit of that time follows when they do."""
    tree = write(tmp_path / "tree", "a")
    with server_of(tmp_path / "1", etcd, tree) as publisher, server_of(tmp_path / "2", etcd) as follower:
        await_names(follower, "a")
        for number in range(3):
            etcd.signal(number, signal.SIGKILL)
        write(tree, "a", "b")
        follower.wait(lambda: follower.log_events("fleet_lost"), "the loss of etcd")
        assert names_at(publisher) == names_at(follower) == ["a"]

        for number in range(3):
            etcd.start(number)
        for each in (publisher, follower):
            await_names(each, "a", "b")


def test_an_end_lets_another_publish_at_once(etcd, tmp_path) -> None:
    """A publisher that ends gives its place back, and does not have others wait for its lease."""
    ours, theirs = write(tmp_path / "ours", "a"), write(tmp_path / "theirs", "b")
    first, second = server_of(tmp_path / "1", etcd, ours), server_of(tmp_path / "2", etcd, theirs)
    with first, second:
        await_names(second, "a")
        first.stop()
        await_names(second, "b")


def test_secrets_are_encrypted_or_not_published(etcd, tmp_path) -> None:
    """Without a key a tree with a secret is not published, and what was before is served on."""
    tree = write(tmp_path / "tree", "a")
    with server_of(tmp_path / "1", etcd, tree) as publisher, server_of(tmp_path / "2", etcd) as follower:
        await_names(follower, "a")
        (tree / "secrets.yaml").write_text("- name: s\n  generic_secret: {secret: {inline_string: hunter2}}\n")
        (event,) = publisher.wait(lambda: publisher.log_events("fleet_secrets_exposed"), "the secret to be found")
        assert "secrets.yaml:1" in event["message"]
        write(tree, "a", "b")
        assert names_at(follower) == ["a"]
    (tmp_path / "key").write_text("ab" * 32)
    key = ["--fleet-encryption-key", str(tmp_path / "key")]
    with (
        server_of(tmp_path / "3", etcd, tree, *key, "--fleet", f"{etcd.url}/other"),
        server_of(tmp_path / "4", etcd, None, *key, "--fleet", f"{etcd.url}/other") as follower,
    ):
        await_names(follower, "a", "b")
        kept = subprocess.run(
            ["etcdctl", "--endpoints", etcd.targets[0], "get", "--prefix", "/other/"], capture_output=True, check=True
        )
    assert len(kept.stdout) > 1000
    assert not any(word in kept.stdout for word in (b"hunter2", b"connect_timeout", b"secrets.yaml"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--settings", "{user}"], "fleet_user: "),
        (["--settings", "{empty_user}"], "write NAME:PASSWORD"),
        (["--fleet-encryption-key", "{empty}"], "64 hex digits"),
        (["--fleet-cert", "{empty}"], "belong together"),
        (["--fleet-ca", "{empty}"], "has no certificate"),
    ],
)
def test_mistakes_of_the_command_are_named(options, words, tmp_path) -> None:
    """The process ends with status 2, before it asks etcd."""
    (tmp_path / "empty").touch()
    paths = {"empty": tmp_path / "empty", "user": tmp_path / "user.yaml", "empty_user": tmp_path / "empty.yaml"}
    paths["user"].write_text("fleet_user: none\n")
    paths["empty_user"].write_text("fleet_user: empty\n")
    argv = [one.format(**paths) for one in options]

    ended = run_fsxds(["serve", "--fleet", "etcd://127.0.0.1:1", "--http", "127.0.0.1:0", "--grpc", "off", *argv])

    assert ended.returncode == 2
    assert words in ended.stderr


def test_operators_decide_at_any_server(etcd, tmp_path) -> None:
    """A large removal waits for approval; a server without a tree shows it, and the publisher approves what is approved there."""
    names = [f"c{number}" for number in range(10)]
    tree = write(tmp_path / "tree", *names)
    with server_of(tmp_path / "1", etcd, tree) as publisher, server_of(tmp_path / "2", etcd) as follower:
        await_names(follower, *names)
        write(tree, "c0")
        publisher.wait(lambda: publisher.log_events("removal_held"), "the removal to be held")
        shown = run_fsxds(["rollout", "status", "--admin", follower.admin, "--format", "json"])
        (approval,) = [one["approval"] for one in json.loads(shown.stdout)["channels"] if one["approval"]]
        assert names_at(follower) == names

        wrong = run_fsxds(["rollout", "approve", "c0ffee", "--admin", follower.admin])
        assert wrong.returncode == 1
        assert f"the waiting ones are {approval['id']}" in wrong.stderr
        done = run_fsxds(["rollout", "approve", approval["id"], "--admin", follower.admin])
        assert done.returncode == 0, done.stderr
        await_names(follower, "c0")
        (line,) = [line for line in publisher.log_events("rollout_commanded") if approval["id"] in line["message"]]
        assert line["command"] == "rollout/approve"


def test_views_are_those_of_the_publisher(etcd, tmp_path) -> None:
    """A server without a tree has a view published when one of its nodes comes, and follows it."""
    tree = tmp_path / "tree"
    for layer in ("base", "edge"):
        write(tree.parent / "made", layer).rename(tree.parent / layer)
    tree.mkdir()
    for layer in ("base", "edge"):
        (tmp_path / layer).rename(tree / layer)
    settings = tmp_path / "fsxds.yaml"
    settings.write_text(
        "views: [{name: edge, match: {cluster: edge}, layers: [base, edge]}, {name: all, layers: [base]}]"
    )
    options = ("--settings", str(settings))
    with (
        server_of(tmp_path / "1", etcd, tree, *options) as publisher,
        server_of(tmp_path / "2", etcd, None, *options) as follower,
    ):
        for each in (follower, publisher):
            await_names(each, "base")
            assert names_at(each, "edge") == ["base", "edge"]
        write(tree / "edge", "edge", "more")
        await_names(follower, "base", "edge", "more", cluster="edge")
        assert names_at(follower) == ["base"]


def test_a_restart_without_etcd_serves_what_was_served(etcd, tmp_path) -> None:
    """With --state; what is published meanwhile follows when etcd is back."""
    tree = write(tmp_path / "tree", "a")
    state = ["--state", str(tmp_path / "state")]
    with server_of(tmp_path / "1", etcd, tree), server_of(tmp_path / "2", etcd, None, *state) as follower:
        await_names(follower, "a")
        for number in range(3):
            etcd.signal(number, signal.SIGKILL)
        # Its end writes what is to be kept.
        follower.stop()
        follower.start()
        assert names_at(follower) == ["a"]
        write(tree, "a", "b")
        for number in range(3):
            etcd.start(number)
        await_names(follower, "a", "b")


def test_etcd_without_space(tmp_path) -> None:
    """A change is not published, and the log says why; it is when there is space again."""
    tree = write(tmp_path / "tree", "a")
    (tmp_path / "etcd").mkdir()
    with (
        running_etcd(tmp_path / "etcd", options=["--quota-backend-bytes", str(4 << 20)]) as etcd,
        server_of(tmp_path / "1", etcd, tree) as publisher,
        server_of(tmp_path / "2", etcd) as follower,
    ):
        await_names(follower, "a")
        full = False
        for number in range(12):
            put = ["etcdctl", "--endpoints", etcd.targets[0], "put", f"other{number}"]
            full = subprocess.run(put, input=bytes(900_000), check=False, capture_output=True).returncode != 0 or full
        assert full
        write(tree, "a", "b")
        (event,) = publisher.wait(lambda: publisher.log_events("fleet_publication_failed"), "the failure")
        assert "database space exceeded" in event["message"]
        assert names_at(follower) == ["a"]

        run = [*put[:3], "del", "--prefix", "other"]
        subprocess.run(run, check=True, capture_output=True)
        status = json.loads(
            subprocess.run([*put[:3], "endpoint", "status", "-w", "json"], check=True, capture_output=True).stdout
        )
        subprocess.run(
            [*put[:3], "compact", str(status[0]["Status"]["header"]["revision"])], check=True, capture_output=True
        )
        subprocess.run([*put[:3], "defrag"], check=True, capture_output=True)
        subprocess.run([*put[:3], "alarm", "disarm"], check=True, capture_output=True)
        await_names(follower, "a", "b")


def test_etcd_that_is_far_away(etcd, tmp_path) -> None:
    """Half a second there and back: edits arrive, the publisher stays, and nothing counts as lost."""
    with ExitStack() as stack:
        ports = [int(target.rpartition(":")[2]) for target in etcd.targets]
        relays = [stack.enter_context(Relay(port, latency_s=0.25)) for port in ports]
        far = ("--fleet", f"etcd://{','.join(relay.address for relay in relays)}/fleet")
        tree = write(tmp_path / "tree", "a")
        publisher = stack.enter_context(server_of(tmp_path / "1", etcd, tree, *far))
        follower = stack.enter_context(server_of(tmp_path / "2", etcd, None, *far))
        await_names(follower, "a")
        for number in range(2):
            write(tree, "a", f"b{number}")
            await_names(follower, "a", f"b{number}")
        assert len(publisher.log_events("fleet_publisher_elected")) == 1
        assert not any(server.log_events("fleet_lost") for server in (publisher, follower))


def test_a_certificate_of_etcd_that_has_ended(tmp_path) -> None:
    """No server asks that etcd: what it would serve waits, and the log says that nobody answers."""
    (tmp_path / "etcd").mkdir()
    authority = Authority()
    ca = authority.write(tmp_path / "ca.crt")
    chain, key = authority.issue("127.0.0.1", ended=True).write(tmp_path, "server")
    options = ["--cert-file", str(chain), "--key-file", str(key)]
    with running_etcd(tmp_path / "etcd", options=options, scheme="https") as etcd:
        tls = ("--fleet-ca", str(ca))
        server = server_of(tmp_path / "1", etcd, write(tmp_path / "tree", "a"), *tls)
        try:
            server.start(wait=False)
            (line,) = server.wait(lambda: server.log_events("fleet_lost"), "the certificate to be rejected")
            assert "certificate" in line["message"].lower()
        finally:
            server.kill()


def test_etcd_that_asks_for_certificates(tmp_path) -> None:
    """Servers show theirs, and trust the CA of the members."""
    (tmp_path / "etcd").mkdir()
    authority = Authority()
    ca = authority.write(tmp_path / "ca.crt")
    chain, key = authority.issue("127.0.0.1").write(tmp_path, "server")
    shown, own = authority.issue("fsxds").write(tmp_path, "own")
    options = ["--cert-file", str(chain), "--key-file", str(key), "--trusted-ca-file", str(ca), "--client-cert-auth"]
    tls = ("--fleet-ca", str(ca), "--fleet-cert", str(shown), "--fleet-key", str(own))
    with (
        running_etcd(tmp_path / "etcd", options=options, scheme="https") as etcd,
        server_of(tmp_path / "1", etcd, write(tmp_path / "tree", "a"), *tls),
        server_of(tmp_path / "2", etcd, None, *tls) as follower,
    ):
        await_names(follower, "a")


def test_etcd_that_has_users(etcd, tmp_path) -> None:
    """A user that may read and write the prefix alone is enough."""
    for words in (
        "role add fleet",
        "role grant-permission fleet readwrite /fleet/ /fleet0",
        "user add fsxds:secret",
        "user grant-role fsxds fleet",
        "user add root:r",
        "user grant-role root root",
        "auth enable",
    ):
        argv = ["etcdctl", "--endpoints", etcd.targets[0], *words.split()]
        subprocess.run(argv, check=True, capture_output=True, timeout=PATIENCE_S)
    (tmp_path / "user").write_text("fsxds:secret\n")
    user = file_flags(fleet_user=str(tmp_path / "user"))
    with (
        server_of(tmp_path / "1", etcd, write(tmp_path / "tree", "a"), *user),
        server_of(tmp_path / "2", etcd, None, *user) as follower,
    ):
        await_names(follower, "a")


def test_an_upstream_is_published_and_rolled_back(etcd, tmp_path) -> None:
    """A server without a tree, but with an upstream, publishes that; a rollback there is one of the fleet."""
    tree = write(tmp_path / "tree", "a")
    (tmp_path / "0").mkdir()
    with Server(tree, tmp_path / "0") as upstream:
        options = ("--upstream", upstream.ready["grpc"], "--state", str(tmp_path / "state"))
        with server_of(tmp_path / "1", etcd, None, *options) as relay, server_of(tmp_path / "2", etcd) as follower:
            await_names(follower, "a")
            write(tree, "a", "b")
            await_names(follower, "a", "b")
            await_names(relay, "a", "b")
            relay.wait(lambda: "@2" in run_fsxds(["history", "--admin", relay.admin]).stdout, "the history")

            assert run_fsxds(["rollback", "1", "--admin", relay.admin]).returncode == 0
            await_names(follower, "a")


def test_an_upstream_is_asked_for_the_names_of_all_servers(etcd, tmp_path) -> None:
    """A server without an upstream serves what its clients ask for, and knows which names exist nowhere."""
    tree = write(tmp_path / "tree", "a", "b")
    (tmp_path / "0").mkdir()
    asked = ("--upstream-names", "asked")
    with Server(tree, tmp_path / "0") as upstream:
        relay = server_of(tmp_path / "1", etcd, None, "--upstream", upstream.ready["grpc"], *asked)
        with relay, server_of(tmp_path / "2", etcd, None, *asked) as follower:
            assert status_of(follower, "b") == 200
            assert status_of(relay, "b") == 200
            assert status_of(follower, "gone") == 404
            await_names(follower, "a", "b")


def test_redirects_without_a_target_are_published(etcd, tmp_path) -> None:
    """A server without a tree answers GET with 302, and has clients that follow redirects themselves get the locator."""
    kind, tree = "envoy.config.cluster.v3.Cluster", write(tmp_path / "tree", "a")
    old = f"xdstp://a/{kind}/old"
    settings = tmp_path / "settings.yaml"
    settings.write_text("authority: a\nauthorities: {b: {url: 'http://other.example/v3'}}\nredirects: client\n")
    options = ("--settings", str(settings))
    with server_of(tmp_path / "1", etcd, tree, *options), server_of(tmp_path / "2", etcd, None, *options) as follower:
        await_names(follower, "a")
        rows = [{"name": old, "resource_name": {"name": f"xdstp://b/{kind}/new"}}]
        (tree / "redirects.clusters.yaml").write_text(json.dumps(rows))
        with Follower(follower.ready["grpc"]) as client:
            client.ask(f"type.googleapis.com/{kind}", old).until_held(old)
            assert client.message(old, ResourceLocator).authority == "b"
        with closing(http.client.HTTPConnection(follower.ready["http"], timeout=PATIENCE_S)) as connection:
            connection.request("GET", f"/{kind}/old")
            answer = connection.getresponse()
        assert (answer.status, answer.headers["location"]) == (302, f"http://other.example/v3/{kind}/new")


def status_of(server: Server, cluster: str) -> int:
    """Return the status of a GET of a cluster that waits for it."""
    place = f"http://{server.ready['http']}/envoy.config.cluster.v3.Cluster/{cluster}?wait=20s"
    try:
        with urllib.request.urlopen(place, timeout=PATIENCE_S) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_rollback_at_any_server_survives_the_publisher(etcd, tmp_path) -> None:
    """The history has the same numbers everywhere, without `--state`; the next publisher serves what was rolled back to."""
    ours, theirs = write(tmp_path / "ours", "a"), write(tmp_path / "theirs", "a")
    first, second = server_of(tmp_path / "1", etcd, ours), server_of(tmp_path / "2", etcd, theirs)
    with first, second, server_of(tmp_path / "3", etcd) as follower:
        await_names(follower, "a")
        for tree in (ours, theirs):
            write(tree, "a", "bad")
        await_names(follower, "a", "bad")

        def numbers_at(server: Server) -> list[str]:
            shown = run_fsxds(["history", "--admin", server.admin, "--format", "json"])
            return [f"@{row['number']}" for row in json.loads(shown.stdout)["snapshots"]]

        first.wait(lambda: len(numbers_at(first)) == 2, "both to be kept")
        assert numbers_at(follower) == numbers_at(second) == numbers_at(first) == ["@2", "@1"]
        for path in ("graph", "diff?from=1&to=2"):
            with urllib.request.urlopen(f"http://{follower.admin}/api/{path}", timeout=PATIENCE_S) as response:
                assert "bad" in response.read().decode()
        done = run_fsxds(["rollback", "@1", "--admin", follower.admin])
        assert done.returncode == 0, done.stderr
        await_names(follower, "a")

        first.kill()
        second.wait(lambda: second.log_events("fleet_publisher_elected"), "the election")
        write(theirs, "a", "bad", "more")
        await_names(follower, "a", "more")
        second.wait(lambda: len(numbers_at(follower)) > 3, "what was served since to be kept")
        assert numbers_at(follower)[-2:] == ["@2", "@1"]
        assert run_fsxds(["rollout", "resume", "--admin", follower.admin]).returncode == 0
        await_names(follower, "a", "bad", "more")
