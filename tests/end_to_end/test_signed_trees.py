"""`--verify-with CA`: what is served is what its author signed; a tree that is not is held back, and what was good stays."""

from __future__ import annotations

import json
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.source.watching import point
from tests.support.fsxds_process import run_fsxds
from tests.support.server import Server, write_file
from tests.support.signing import lasting_signer

FLAGS = ("--linger", "0s", "--settle", "10ms", "--log-format", "json", "--rollout", "off")
MANIFEST, SIGNATURE = ".fsxds-manifest", ".fsxds-manifest.sig"


def clusters(*names: str) -> str:
    """Return a file of clusters."""
    return json.dumps([{"name": name, "connect_timeout": "1s"} for name in names])


@dataclass
class Signed:
    """A tree, who signs it, and a server that verifies it."""

    folder: Path
    server: Server

    @property
    def tree(self) -> Path:
        """The tree."""
        return self.folder / "tree"

    def sign(self, tree: Path | None = None, *flags: str) -> None:
        """Sign a tree."""
        keys = "--key", str(self.folder / "release.key"), "--cert", str(self.folder / "release.crt")
        done = run_fsxds(["sign", str(tree or self.tree), *keys, *flags])
        assert done.returncode == 0, done.stderr

    def served(self, node: str = "n") -> set[str] | None:
        """Return the names of the clusters that a node gets; None where there is no answer yet."""
        body = json.dumps({"node": {"id": node}}).encode()
        url = f"http://127.0.0.1:{self.server.port}/v3/discovery:clusters?timeout=0"
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, body, {"content-type": "application/json"}), timeout=60
            ) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            return None
        return {one["name"] for one in json.loads(content)["resources"]} if content else None

    def until_served(self, *names: str, node: str = "n") -> None:
        """Wait until a node gets these clusters."""
        self.server.wait(lambda: self.served(node) == set(names), f"{names}")

    def until_reported(self, rule: str, count: int = 1) -> str:
        """Wait until a problem was reported so often, and return what the log says of it."""

        def lines() -> list[dict[str, str]]:
            return [line for line in self.server.log_events("problem_found") if line["rule"] == rule]

        self.server.wait(lambda: len(lines()) >= count, rule)
        return json.dumps(lines()[-1])


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[Signed]:
    """Return a signed tree, and a server that is started by whoever wants it."""
    _, _, ca = lasting_signer(tmp_path)
    tree = tmp_path / "tree"
    write_file(tree / "cds.yaml", clusters("a"))
    flags = ("--verify-with", str(ca), "--state", str(tmp_path / "state"), *FLAGS)
    signed = Signed(tmp_path, Server(tree, tmp_path, *flags))
    signed.sign()
    yield signed
    signed.server.stop()


def test_what_is_not_signed_is_held_back(signed: Signed) -> None:
    """One byte, a file more, a file less, no manifest, an older one: each is reported, and what was good is served on."""
    tree = signed.tree
    first = signed.folder / "first"
    with signed.server:
        signed.until_served("a")
        write_file(tree / "cds.yaml", clusters("b"))
        assert "cds.yaml" in signed.until_reported("file-changed")
        write_file(tree / "cds.yaml", clusters("a"))
        write_file(tree / "more.cds.yaml", clusters("c"))
        assert "more.cds.yaml" in signed.until_reported("file-unsigned")
        (tree / "more.cds.yaml").unlink()
        (tree / MANIFEST).rename(signed.folder / "kept")
        assert MANIFEST in signed.until_reported("manifest-missing")
        assert signed.served() == {"a"}
        (signed.folder / "kept").rename(tree / MANIFEST)
        shutil.copytree(tree, first)

        # Signed, it is served, and what was before is a replay.
        write_file(tree / "cds.yaml", clusters("b"))
        signed.sign()
        signed.until_served("b")
        for name in (SIGNATURE, MANIFEST, "cds.yaml"):
            write_file(tree / name, (first / name).read_text())
        assert "which was seen before" in signed.until_reported("manifest-replayed")
        assert signed.served() == {"b"}

    # Also by the next process, which serves what the one before served.
    signed.server.start()
    signed.until_reported("manifest-replayed", 2)
    assert signed.served() == {"b"}
    signed.sign()
    signed.until_served("a")


def test_a_restart_on_a_tree_that_is_not_trusted(signed: Signed) -> None:
    """Nothing of it is served: what was served before is, and without that nothing, which a client is not told is empty."""
    with signed.server:
        signed.until_served("a")
    write_file(signed.tree / "cds.yaml", clusters("evil"))
    signed.server.start()
    signed.until_reported("file-changed")
    assert signed.served() == {"a"}
    signed.server.stop()
    shutil.rmtree(signed.folder / "state")
    signed.server.start(wait=False)
    signed.until_reported("file-changed", 2)
    signed.server.wait(lambda: signed.server.log_events("not_ready"), "not ready")
    assert signed.served() is None
    signed.sign()
    signed.until_served("evil")


def test_views_and_a_new_ca(tmp_path: Path) -> None:
    """A view whose layer was changed stays, as all others do; SIGHUP asks for another CA, and what is there is judged again."""
    for number, folder in enumerate(("ours", "theirs")):
        (tmp_path / folder).mkdir()
        lasting_signer(tmp_path / folder, number)
    tree, settings = tmp_path / "ours" / "tree", tmp_path / "fsxds.yaml"
    views = [
        {"name": "edge", "layers": ["common", "edge"], "match": {"id": "edge"}},
        {"name": "core", "layers": ["common"], "match": {}},
    ]
    settings.write_text(json.dumps({"verify_with": "ours/ca.crt", "views": views}))
    for layer, name in (("common", "a"), ("edge", "b")):
        write_file(tree / layer / "cds.yaml", clusters(name))
    flags = ("--settings", str(settings), "--state", str(tmp_path / "state"), *FLAGS)
    signed = Signed(tmp_path / "ours", Server(tree, tmp_path, *flags))
    signed.sign(None, "--settings", str(settings))
    with signed.server as server:
        signed.until_served("a", "b", node="edge")
        write_file(tree / "edge" / "cds.yaml", clusters("evil"))
        signed.until_reported("file-changed")
        assert (signed.served("edge"), signed.served("core")) == ({"a", "b"}, {"a"})

    # Nothing of the tree is trusted, and the folders that are there are still the layers of the views.
    with server:
        signed.until_reported("file-changed", 2)
        signed.until_served("a", "b", node="edge")
        assert signed.served("core") == {"a"}
        signed.sign(None, "--settings", str(settings))
        signed.until_served("a", "evil", node="edge")

        settings.write_text(json.dumps({"verify_with": "theirs/ca.crt", "views": views}))
        assert server._process is not None
        server._process.send_signal(signal.SIGHUP)
        signed.until_reported("signer-untrusted")
        assert (signed.served("edge"), signed.served("core")) == ({"a", "evil"}, {"a"})
        other = Signed(tmp_path / "theirs", server)
        write_file(tree / "edge" / "cds.yaml", clusters("c"))
        other.sign(tree, "--settings", str(settings))
        signed.until_served("a", "c", node="edge")


def test_generations_of_a_config_map(tmp_path: Path) -> None:
    """Links to a hidden folder, flipped in one step, bring files and manifest along; no generation is ever mixed with another."""
    lasting_signer(tmp_path)
    volume = tmp_path / "volume"
    volume.mkdir()
    flags = ("--verify-with", str(tmp_path / "ca.crt"), *FLAGS)
    signed = Signed(tmp_path, Server(volume, tmp_path, *flags))

    def publish(name: str, serial: int) -> None:
        hidden = volume / f"..{name}"
        write_file(hidden / "cds.yaml", clusters(name))
        signed.sign(hidden, "--serial", str(serial))
        point(volume / "..data", hidden.name)
        for file in ("cds.yaml", MANIFEST, SIGNATURE):
            if not (volume / file).is_symlink():
                (volume / file).symlink_to(f"..data/{file}")

    publish("one", 1)
    with signed.server:
        for number, name in enumerate(("two", "three", "four"), 2):
            publish(name, number)
            signed.until_served(name)
        assert signed.server.log_events("problem_found") == []
