"""`fsxds check --against ADMIN`: what a running fsxds would hold of a tree."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsxds.cli.main import main
from tests.cli.trees import write_tree
from tests.support.server import Server

ROUTES = """\
- name: edge
  virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: CLUSTER}}]}]
"""


def clusters(*names: str) -> str:
    """Write clusters."""
    return "".join(f"- {{name: {name}, type: STATIC, connect_timeout: 1s}}\n" for name in names)


def routes(cluster: str) -> str:
    """Write routes to a cluster."""
    return ROUTES.replace("CLUSTER", cluster)


MANY = tuple(f"c{number}" for number in range(9))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of nine clusters, and of routes to the first."""
    with Server(write_tree(tmp_path, cds=clusters(*MANY), rds=routes("c0")), tmp_path) as running:
        yield running


def changed(tmp_path: Path, **texts: str) -> str:
    """Write another tree."""
    (tmp_path / "next").mkdir()
    return str(write_tree(tmp_path / "next", **texts))


def found(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """Return the exit status and the errors of a check, each with its file."""
    status = main(["check", *arguments, "--no-envoy", "--format", "json"])
    problems = json.loads(capfd.readouterr().out)
    return status, [f"{Path(one['file']).name} {one['rule']}" for one in problems if one["severity"] == "error"]


def test_nothing_is_held(tmp_path: Path, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """The same tree is served already, and a change of a route to another cluster would be served."""
    tree = changed(tmp_path, cds=clusters(*MANY, "d"), rds=routes("d"))

    assert found(capfd, str(tmp_path / "xds"), "--against", server.admin) == (0, [])
    assert found(capfd, tree, "--against", server.admin) == (0, [])


def test_what_would_be_held(tmp_path: Path, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """A large removal, what is removed and in use, and a new name that nothing defines, each once."""
    tree = changed(tmp_path, cds=clusters("c7", "c8"), rds=routes("new"))
    status, errors = found(capfd, tree, "--against", server.admin)

    assert status == 1
    assert sorted(errors) == [
        "cds.yaml large-removal",
        "cds.yaml removed-in-use",
        "rds.yaml no-cluster",
        "rds.yaml undefined-name",
    ]
    assert main(["check", tree, "--no-envoy", "--against", f"http://{server.admin}/"]) == 1
    text = capfd.readouterr().out
    assert "cds.yaml:1:1: error[removed-in-use]: cluster c0 is removed, and would stay: route edge names it" in text
    assert "error[large-removal]: 6 of 9 clusters removed: they would stay until that is approved" in text


def test_an_approved_removal(tmp_path: Path, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """The id that is printed is the one that the server waits for; with it in the settings, nothing is held."""
    tree = changed(tmp_path, cds=clusters("c0"), rds=routes("c0"))
    assert main(["check", tree, "--no-envoy", "--against", server.admin]) == 1
    (approval_id,) = set(re.findall(r"rollout approve (\w+)", capfd.readouterr().out))

    assert found(capfd, tree, "--against", server.admin, "--approved", approval_id) == (0, [])
    (tmp_path / "xds/cds.yaml").write_text(clusters("c0"))
    server.wait(lambda: main(["rollout", "approve", approval_id, "--admin", server.admin]) == 0, "the removal")


def test_levels(tmp_path: Path, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """`--rules` lowers what would be held as any other problem."""
    tree = changed(tmp_path, cds=clusters("c0"), rds=routes("c0"))

    assert found(capfd, tree, "--against", server.admin, "--rules", "large-removal=warning") == (0, [])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["XDS", "--against", "127.0.0.1:1"], "127.0.0.1:1: request failed"),
        (["XDS", "XDS/../next", "--against", "127.0.0.1:1"], "--against takes one whole tree"),
        (["XDS/cds.yaml", "--against", "127.0.0.1:1"], "--against takes one whole tree"),
        (["XDS", "--against", "https://127.0.0.1:1"], "https needs a CA to trust"),
    ],
)
def test_wrong_use(tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    """Status 2, and why."""
    tree = write_tree(tmp_path, cds=clusters("a"))
    changed(tmp_path, cds=clusters("a"))
    words = [word.replace("XDS", str(tree)) for word in arguments]

    assert main(["check", *words, "--no-envoy"]) == 2
    assert line in capfd.readouterr().err


def test_views(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What would be held is said of the views that a node has; a view that nobody has would be served as it is."""
    for folder, names in (("common", MANY), ("edge", ("e",))):
        (tmp_path / "xds" / folder).mkdir(parents=True)
        (tmp_path / "xds" / folder / "cds.yaml").write_text(clusters(*names))
    settings = tmp_path / "fsxds.yaml"
    rules = "{name: edge, match: {cluster: edge}, layers: [common, edge]}, {name: inner, layers: [common]}"
    settings.write_text(f"views: [{rules}]\n")
    shutil.copytree(tmp_path / "xds", tmp_path / "next")
    (tmp_path / "next/common/cds.yaml").write_text(clusters("c0"))
    with Server(tmp_path / "xds", tmp_path, "--settings", str(settings)) as server:
        arguments = (str(tmp_path / "next"), "--settings", str(settings), "--against", server.admin)
        assert main(["check", *arguments, "--no-envoy"]) == 0
        assert "serves none of these views" not in capfd.readouterr().err
        # A node of the view asks.
        address = f"http://127.0.0.1:{server.port}"
        assert main(["diff", address, str(tmp_path / "xds"), "--settings", str(settings), "--node-cluster", "x"]) == 0
        capfd.readouterr()

        assert found(capfd, *arguments) == (1, ["cds.yaml large-removal"])
        assert main(["check", *arguments, "--no-envoy", "--view", "edge"]) == 0
        assert "serves none of these views, so no resource would be held" in capfd.readouterr().err
