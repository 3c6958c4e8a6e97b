"""What `fsxds diff` says of what a server would hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsxds.cli.main import main
from tests.cli.trees import TYPO
from tests.support.server import Server

ROUTES = """\
- name: edge
  virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: CLUSTER}}]}]
"""
MANY = tuple(f"c{number}" for number in range(9))


def clusters(*names: str) -> str:
    """Write clusters."""
    return "".join(f"- {{name: {name}, type: STATIC, connect_timeout: 1s}}\n" for name in names)


def tree(directory: Path, names: tuple[str, ...], route: str) -> str:
    """Write clusters, and routes to one."""
    directory.mkdir(parents=True)
    (directory / "cds.yaml").write_text(clusters(*names))
    (directory / "rds.yaml").write_text(ROUTES.replace("CLUSTER", route))
    return str(directory)


def held(capfd: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Return the rules by which something would be held."""
    main(["diff", *arguments, "--format", "json"])
    return [one["rule"] for one in json.loads(capfd.readouterr().out)["held"]]


def test_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each with its place and the remedy, after the difference; the exit status is that of a difference."""
    a, b = tree(tmp_path / "a", MANY, "c0"), tree(tmp_path / "b", ("c7", "c8"), "new")

    assert main(["diff", a, b]) == 1
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert f"  ! cluster c0 is removed, and would stay: route edge names it  {a}/cds.yaml:1" in lines
    assert f"  ! 6 of 9 clusters removed: they would stay until that is approved  {a}/cds.yaml:2" in lines
    undefined = "route edge names cluster new, which is not defined: the served version would stay"
    assert f"  ! {undefined}  {b}/rds.yaml:1" in lines
    assert "      define cluster new, or list it in `static_clusters` if the bootstrap defines it" in lines
    assert err.endswith(f"{a} → {b}: 1 changed, 7 removed; 3 would be held\n")


def test_json_has_the_id_to_approve(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With it in the settings, the removal is not held."""
    a, b = tree(tmp_path / "a", MANY, "c0"), tree(tmp_path / "b", ("c0",), "c0")
    assert main(["diff", a, b, "--format", "json"]) == 1
    (one,) = json.loads(capfd.readouterr().out)["held"]

    assert one["rule"] == "large-removal"
    assert f"fsxds rollout approve {one['approval_id']}" in one["remedy"]
    assert held(capfd, a, b, "--approved", one["approval_id"]) == []


def test_markdown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An alert above the table."""
    a, b = tree(tmp_path / "a", MANY, "c0"), tree(tmp_path / "b", MANY, "new")
    assert main(["diff", a, b, "--format", "markdown"]) == 1
    out = capfd.readouterr().out

    assert "> **A server would hold these, and serve the rest:**" in out
    assert f"> - `{b}/rds.yaml:1`: `route edge names cluster new, which is not defined" in out
    assert out.index("[!CAUTION]") < out.index("| type |")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ["undefined-name", "large-removal"]),
        (("--references", "warn"), ["large-removal"]),
        (("--max-removal", "off"), ["undefined-name"]),
        (("--static-clusters", "new"), ["large-removal"]),
        (("--upstream", "127.0.0.1:1"), ["large-removal"]),
    ],
)
def test_settings_of_the_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: list[str]
) -> None:
    """They say what is held; what an upstream may have is not undefined."""
    a, b = tree(tmp_path / "a", MANY, "c0"), tree(tmp_path / "b", ("c0", "c1"), "new")
    if "--upstream" in arguments:
        (tmp_path / "fsxds.yaml").write_text(f'upstream: ["{arguments[1]}"]\n')
        arguments = ("--settings", str(tmp_path / "fsxds.yaml"))

    assert sorted(held(capfd, a, b, *arguments)) == sorted(expected)


def test_what_may_be_in_a_broken_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its last good content would stay: nothing is removed."""
    a, b = tree(tmp_path / "a", MANY, "c0"), tree(tmp_path / "b", ("c0",), "c0")
    (tmp_path / "b/clusters.yaml").write_text(TYPO)

    assert held(capfd, a, b) == []


def test_a_running_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What it serves is compared with a tree; nothing is held of what a server has."""
    a, b = tree(tmp_path / "a", MANY, "c0"), tree(tmp_path / "b", ("c0",), "c0")
    with Server(Path(a), tmp_path) as server:
        address = f"http://127.0.0.1:{server.port}"

        assert held(capfd, address, b) == ["large-removal"]
        assert held(capfd, b, address) == []


def test_views(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What would be held in some views alone is shown with these."""
    settings = tmp_path / "fsxds.yaml"
    rules = "{name: edge, match: {cluster: edge}, layers: [common, edge]}, {name: inner, layers: [common]}"
    settings.write_text(f"views: [{rules}]\n")
    for side, route in (("a", "c0"), ("b", "new")):
        tree(tmp_path / side / "common", MANY, "c0")
        tree(tmp_path / side / "edge", ("e",), route)
    sides = (str(tmp_path / "a"), str(tmp_path / "b"), "--settings", str(settings))

    assert main(["diff", *sides]) == 1
    assert "the served version would stay (in edge (common + edge))" in capfd.readouterr().out
    assert main(["diff", *sides, "--format", "json"]) == 1
    (one,) = json.loads(capfd.readouterr().out)["held"]
    assert one["views"] == [{"names": ["edge"], "layers": ["common", "edge"]}]
    assert held(capfd, *sides, "--view", "inner") == []
