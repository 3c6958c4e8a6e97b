"""What `fsxds check` can be asked about, and how it names the places."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fsxds.cli.main import main
from tests.cli.test_check import LISTENER_WITH_BAD_LUA
from tests.cli.trees import CLUSTERS, TYPO, write_tree

ROUTES = "- name: r\n  virtual_hosts:\n  - {name: v, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: web}}]}\n"


def found(capfd: pytest.CaptureFixture[str]) -> list[tuple[str, str, str]]:
    """Return file, rule and severity of each problem that was just printed as JSON."""
    rows = json.loads(capfd.readouterr().out)
    return [(row["file"], row["rule"], row["severity"]) for row in rows]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree in the current directory: a cluster, and a route to it."""
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path, cds=CLUSTERS, rds=ROUTES)
    return Path("xds")


@pytest.mark.parametrize("names", [(), ("README.md", ".hidden.yaml", "notes.txt")])
def test_directory_without_configuration(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], names: tuple[str, ...]
) -> None:
    """A directory in which nothing is configuration is mostly the wrong one: status 1, unless that is allowed."""
    for name in names:
        (tmp_path / name).write_text("hello\n")

    assert main(["check", str(tmp_path)]) == 1
    assert f"{tmp_path}:1:1: error[no-configuration]: " in capfd.readouterr().out
    assert main(["check", str(tmp_path), "--allow-empty"]) == 0
    assert main(["check", str(tmp_path), "--allow-empty", "--format", "json"]) == 0
    capfd.readouterr()
    assert main(["check", str(tmp_path), "--rules", "no-configuration=note"]) == 0


def test_ignored_files_are_one_note(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """However many files no format claims, they take one line; what is excluded by default is none of them."""
    for name in ("README.md", "Makefile", "a.txt", "b.sh"):
        (tree / name).write_text("hello\n")

    assert main(["check", "xds", "--no-envoy"]) == 0
    (line, *_) = capfd.readouterr().out.splitlines()
    assert line.startswith("xds/Makefile:1:1: note[ignored-file]: ignored: no format has this suffix; nor a.txt, b.sh;")


@pytest.mark.usefixtures("tree")
def test_several_trees(capfd: pytest.CaptureFixture[str]) -> None:
    """Each directory is a tree of its own, so that the same name may stand in both; one report tells of all."""
    other = Path("other")
    other.mkdir()
    (other / "cds.yaml").write_text(CLUSTERS)
    (other / "eds.yaml").write_text("a: [")

    assert main(["check", "xds", "other", "--format", "json", "--no-envoy"]) == 1
    assert found(capfd) == [("other/eds.yaml", "bad-syntax", "error")]


@pytest.mark.usefixtures("tree")
def test_files_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Files by themselves are no whole tree: what they name and do not define is a note, what is wrong in them an error."""
    assert main(["check", "xds/rds.yaml", "--format", "json"]) == 0
    assert found(capfd) == [("xds/rds.yaml", "no-cluster", "note")]
    assert main(["check", "xds/rds.yaml", "xds/cds.yaml", "--format", "json"]) == 0
    assert found(capfd) == []
    Path("xds/cds.yaml").write_text(TYPO)
    assert main(["check", "xds/cds.yaml", "--format", "json"]) == 1
    assert found(capfd) == [("xds/cds.yaml", "unknown-field", "error")]


@pytest.mark.usefixtures("tree")
def test_files_of_a_tree(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Within their tree files are checked with all others; of the others errors alone are told."""
    arguments = ["check", "--tree", "xds", "--no-envoy", "--format", "json"]
    Path("xds/eds.yaml").write_text("- {cluster_name: nobody}")

    assert main([*arguments, "xds/rds.yaml"]) == 0
    assert found(capfd) == []
    assert main([*arguments, "xds/eds.yaml"]) == 0
    assert [("xds/eds.yaml", "unused-endpoints", "note")] == found(capfd)
    assert main(arguments) == 0
    assert [("xds/eds.yaml", "unused-endpoints", "note")] == found(capfd)
    monkeypatch.setenv("FSXDS_CHECK_TREE", "xds")
    Path("xds/sds.yaml").write_text("a: [")
    assert main(["check", "xds/rds.yaml", "--no-envoy", "--format", "json"]) == 1
    assert found(capfd) == [("xds/sds.yaml", "bad-syntax", "error")]


@pytest.mark.usefixtures("tree")
def test_stdin(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What an editor has not saved yet is checked in the place of the file, and what a script writes by itself."""

    def check(*arguments: str) -> int:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TYPO.encode())))
        return main(["check", *arguments, "--no-envoy", "--format", "json"])

    assert check("-", "--stdin-path", "xds/cds.yaml") == 1
    assert found(capfd) == [("xds/cds.yaml", "unknown-field", "error")]
    assert check("-", "--stdin-path", "xds/cds.yaml", "--tree", "xds") == 1
    assert ("xds/cds.yaml", "unknown-field", "error") in found(capfd)
    assert check("-") == 2
    assert "give it by --stdin-path NAME" in capfd.readouterr().err


@pytest.mark.usefixtures("tree")
def test_envoy_judges_what_comes_by_stdin(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a real Envoy refuses of stdin is told with the lines of stdin, whatever the file holds on the disk."""
    Path("xds/lds.yaml").write_text("[]\n")
    text = "# moved\n" * 5 + LISTENER_WITH_BAD_LUA
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))

    assert main(["check", "-", "--stdin-path", "xds/lds.yaml", "--tree", "xds", "--format", "json"]) == 1
    (problem,) = [row for row in json.loads(capfd.readouterr().out) if row["rule"] == "envoy-rejects"]
    assert problem["file"] == "xds/lds.yaml"
    assert problem["line"] == 6


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("directory", "arguments"),
    [
        (".", ["xds"]),
        ("xds", ["."]),
        ("xds", ["cds.yaml", "eds.yaml"]),
        ("elsewhere", ["../xds/cds.yaml", "../xds/eds.yaml"]),
    ],
)
def test_places_have_one_base(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    directory: str,
    arguments: list[str],
) -> None:
    """Pipelines are told paths from the top of the repository, wherever the check runs, within messages too."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "elsewhere").mkdir()
    Path("xds/eds.yaml").write_text(f"type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster\n{CLUSTERS}")
    monkeypatch.chdir(tmp_path / directory)

    assert main(["check", *arguments, "--format", "github", "--no-envoy"]) == 1
    (line,) = capfd.readouterr().out.splitlines()
    assert line.startswith("::error file=xds/eds.yaml,")
    assert "already defined at xds/cds.yaml:3" in line
    assert main(["check", *arguments, "--format", "sarif", "--no-envoy"]) == 1
    (run,) = json.loads(capfd.readouterr().out)["runs"]
    assert run["originalUriBaseIds"] == {"%SRCROOT%": {"uri": f"file://{tmp_path}/"}}
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "xds/eds.yaml", "uriBaseId": "%SRCROOT%"}


@pytest.mark.usefixtures("tree")
def test_people_are_told_paths_from_here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal places lead from the current directory, within messages too, as compilers have it."""
    Path("xds/more.clusters.yaml").write_text(CLUSTERS)

    assert main(["check", "xds", "--no-envoy"]) == 1
    assert "xds/more.clusters.yaml:3:1: error[duplicate-name]: " in (out := capfd.readouterr().out)
    assert 'Cluster "web" is already defined at xds/cds.yaml:3\n' in out
    monkeypatch.chdir("xds")
    assert main(["check", ".", "--no-envoy"]) == 1
    assert 'Cluster "web" is already defined at cds.yaml:3\n' in capfd.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nosuch"], ["nosuch.yaml", "-"]])
def test_wrong_use(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a path, or with one that does not exist, nothing is checked."""
    monkeypatch.chdir(tmp_path)

    assert main(["check", *arguments]) == 2
