"""A relay with `--verify-with` takes from its upstream what the author signed, whoever is between, and nothing else."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.test_signed_trees import Signed, clusters
from tests.support.server import Server, write_file
from tests.support.signing import lasting_signer

FLAGS = ("--linger", "0s", "--settle", "10ms", "--log-format", "json", "--rollout", "off")


@pytest.fixture
def started() -> Iterator[ExitStack]:
    """End what a test starts."""
    with ExitStack() as stack:
        yield stack


def author_of(tmp_path: Path) -> Signed:
    """Return a signed tree, and a server that serves whatever is in it."""
    lasting_signer(tmp_path)
    (tmp_path / "author").mkdir()
    signed = Signed(tmp_path, Server(tmp_path / "tree", tmp_path / "author", *FLAGS))
    write_file(signed.tree / "cds.yaml", clusters("a"))
    write_file(signed.tree / "more.cds.yaml", clusters("b"))
    signed.sign()
    return signed


def relay_of(above: str, tmp_path: Path, name: str, *flags: str) -> Signed:
    """Return a relay below a server."""
    (tmp_path / name).mkdir(exist_ok=True)
    return Signed(tmp_path, Server(None, tmp_path / name, "--upstream", above, *flags, *FLAGS))


def grpc_of(signed: Signed) -> str:
    return f"127.0.0.1:{signed.server.grpc_port}"


def reasons(signed: Signed) -> str:
    """Return what a relay logged of what it rejected."""
    return json.dumps(signed.server.log_events("upstream_rejected"))


def test_what_the_author_signs_passes_and_nothing_else(tmp_path: Path, started: ExitStack) -> None:
    """Through a relay that verifies nothing: what is not signed waits, and what was good stays; signed, it comes."""
    author = author_of(tmp_path)
    started.enter_context(author.server)
    between = relay_of(grpc_of(author), tmp_path, "between")
    started.enter_context(between.server)
    flags = "--verify-with", str(tmp_path / "ca.crt"), "--state", str(tmp_path / "state")
    below = relay_of(grpc_of(between), tmp_path, "below", *flags)
    started.enter_context(below.server)
    below.until_served("a", "b")

    # Another content, a new resource, and a removal.
    write_file(author.tree / "cds.yaml", clusters("a").replace("1s", "9s"))
    write_file(author.tree / "new.cds.yaml", clusters("c"))
    (author.tree / "more.cds.yaml").unlink()
    between.until_served("a", "c")
    below.server.wait(lambda: "is removed, and a manifest lists it still" in reasons(below), "a removal to be rejected")
    below.server.wait(lambda: '\\"c\\": is not what a manifest lists' in reasons(below), "a cluster to be rejected")
    assert below.served() == {"a", "b"}
    assert timeout_of(below, "a") == "1s"

    author.sign()
    below.until_served("a", "c")
    assert timeout_of(below, "a") == "9s"
    assert offers_of(below) == offers_of(author) != []

    # Nothing is lost by a restart while nobody is above, and nothing comes that is not signed.
    author.server.stop()
    between.server.stop()
    below.server.stop()
    below.server.start()
    below.until_served("a", "c")


def timeout_of(signed: Signed, name: str) -> str:
    """Return a field of a cluster, as a node gets it."""
    url = f"http://127.0.0.1:{signed.server.port}/v3/discovery:clusters?timeout=0"
    body = json.dumps({"node": {"id": "n"}, "resource_names": [name]}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, body, {"content-type": "application/json"}), timeout=60
    ) as answer:
        (found,) = json.loads(answer.read())["resources"]
    return str(found["connect_timeout"])


def offers_of(signed: Signed) -> list[object]:
    """Return the manifests that a server offers by GET."""
    with urllib.request.urlopen(f"http://127.0.0.1:{signed.server.port}/fsxds/v1/manifest", timeout=60) as answer:
        offers: list[object] = json.loads(answer.read())["manifests"]
    return offers


def test_a_server_between_that_changes_what_passes(tmp_path: Path, started: ExitStack) -> None:
    """It has the manifest of the author, and other content: only what is the author's is taken. Over REST, too."""
    author = author_of(tmp_path)
    evil = tmp_path / "evil"
    shutil.copytree(author.tree, evil / "tree")
    write_file(evil / "tree" / "cds.yaml", clusters("a").replace("1s", "9s"))
    write_file(evil / "tree" / "new.cds.yaml", clusters("evil"))
    changing = Signed(evil, Server(evil / "tree", evil, *FLAGS))
    started.enter_context(changing.server)
    ca = "--verify-with", str(tmp_path / "ca.crt")
    for name, above in (("stream", grpc_of(changing)), ("polls", f"http://127.0.0.1:{changing.server.port}")):
        below = relay_of(above, tmp_path, name, *ca)
        started.enter_context(below.server)
        below.until_served("b")
        below.server.wait(lambda: "is not what a manifest lists" in reasons(below), "a rejection")  # noqa: B023
        assert below.served() == {"b"}

    # A manifest of somebody else, of which the relay believes nothing.
    (tmp_path / "other").mkdir()
    lasting_signer(tmp_path / "other", 1)
    Signed(tmp_path / "other", changing.server).sign(evil / "tree")
    below.server.wait(
        lambda: "CA that is trusted" in reasons(below) or below.served() == {"b"}, "the manifest to be passed over"
    )
    assert below.served() == {"b"}


def test_nothing_is_vouched_for(tmp_path: Path, started: ExitStack) -> None:
    """An upstream without a manifest is served nothing of, and the reason is told."""
    author = author_of(tmp_path)
    for name in (".fsxds-manifest", ".fsxds-manifest.sig"):
        (author.tree / name).unlink()
    started.enter_context(author.server)
    below = relay_of(grpc_of(author), tmp_path, "below", "--verify-with", str(tmp_path / "ca.crt"))
    below.server.start(wait=False)
    started.callback(below.server.stop)
    below.server.wait(lambda: "the server has offered no manifest" in reasons(below), "a rejection")
    assert below.served() is None
    author.sign()
    below.until_served("a", "b")


def test_what_is_signed_later_is_offered_again(tmp_path: Path, started: ExitStack) -> None:
    """The author's server took the change back when its only relay rejected it; that it is signed now has it offered at once."""
    author = author_of(tmp_path)
    (tmp_path / "orderly").mkdir()
    orderly = [flag for flag in FLAGS if flag not in ("--rollout", "off")]
    author.server = Server(author.tree, tmp_path / "orderly", *orderly)
    started.enter_context(author.server)
    below = relay_of(grpc_of(author), tmp_path, "below", "--verify-with", str(tmp_path / "ca.crt"))
    started.enter_context(below.server)
    below.until_served("a", "b")
    write_file(author.tree / "new.cds.yaml", clusters("c"))
    author.server.wait(lambda: author.server.log_events("versions_held"), "the change to be taken back")

    author.sign()

    author.server.wait(lambda: author.server.log_events("versions_released"), "the change to be offered again")
    below.until_served("a", "b", "c")
    author.until_served("a", "b", "c")
