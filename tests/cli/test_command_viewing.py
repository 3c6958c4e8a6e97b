"""Commands with a settings file that has views."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fsxds.cli.main import main
from fsxds.settings.reading import read_settings
from fsxds.testing import serve

SETTINGS = """\
views:
- name: edge
  match: {cluster: "edge*", metadata: {labels: {tier: gold}}}
  layers: [common, edge, "nodes/{node.id}"]
- name: zone
  match: {locality: {region: eu, zone: z}}
  layers: [common, zone]
- name: everyone
  match: {cluster: "*"}
  layers: [common]
mirrors:
- {directory: ../mirrors/edge, node: {id: a, cluster: edge, metadata: {labels: {tier: gold}}}, format: yaml}
- {directory: ../mirrors/everyone, view: everyone, pause: 0}
"""


def clusters(**timeouts: int) -> str:
    """Return clusters with these timeouts, in seconds."""
    rows = (f"- {{name: {name}, type: STATIC, connect_timeout: {seconds}s}}\n" for name, seconds in timeouts.items())
    return "".join(rows)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of three layers and one folder in none, and a settings file beside it that counts."""
    files = {
        "common/clusters.yaml": clusters(shared=1, own=1),
        "edge/clusters.yaml": clusters(edge=2),
        "zone/clusters.yaml": clusters(zone=4),
        "nodes/a/clusters.yaml": clusters(own=3),
    }
    for path, text in files.items():
        (tmp_path / "xds" / path).parent.mkdir(parents=True)
        (tmp_path / "xds" / path).write_text(text)
    (tmp_path / "settings").mkdir()
    settings = tmp_path / "settings" / "fsxds.yaml"
    settings.write_text(SETTINGS)
    monkeypatch.setenv("FSXDS_SETTINGS", str(settings))
    monkeypatch.setenv("FSXDS_WITH_ENVOY", "false")
    return tmp_path / "xds"


GOLD = ("--node-cluster", "edge-1", "--node-metadata", "labels.tier=gold")


def timeouts(listing: dict[str, Any]) -> dict[str, str]:
    """Return the timeouts of the clusters in a listing of `fsxds show`, by name."""
    return {row["name"]: row["resource"]["connect_timeout"] for row in listing["cds"]["resources"]}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--view", "everyone"), {"own": "1s", "shared": "1s"}),
        (("--view", "edge"), {"edge": "2s", "own": "1s", "shared": "1s"}),
        (("--view", "edge", "--node-id", "a"), {"edge": "2s", "own": "3s", "shared": "1s"}),
        ((*GOLD, "--node-id", "a"), {"edge": "2s", "own": "3s", "shared": "1s"}),
        ((*GOLD, "--node-id", "../common"), {"edge": "2s", "own": "1s", "shared": "1s"}),
        (("--node-id", "a", "--node-cluster", "edge-1"), {"own": "1s", "shared": "1s"}),
        (("--node-cluster", "x", "--node-locality", "eu/z"), {"own": "1s", "shared": "1s", "zone": "4s"}),
        (("--node-cluster", "x", "--node-locality", "eu/"), {"own": "1s", "shared": "1s"}),
    ],
)
def test_show(tree: Path, capfd: pytest.CaptureFixture[str], flags: tuple[str, ...], expected: dict[str, str]) -> None:
    """`show` prints what a node, or the nodes of a view, would be served."""
    assert main(["show", str(tree), "--format", "json", *flags]) == 0

    assert expected == timeouts(json.loads(capfd.readouterr().out))


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            (),
            "the settings have the views edge, zone, everyone; give one by --view, or a node by --node-id, --node-cluster",
        ),
        (("--view", "edgee"), "there is no view edgee; did you mean edge?"),
        (("--view", "zzz"), "there is no view zzz; there are edge, zone, everyone"),
        (("--node-id", "a"), "no view of the settings matches a node of id a; add a rule to `views`"),
    ],
)
def test_wrong_views(tree: Path, capfd: pytest.CaptureFixture[str], flags: tuple[str, ...], line: str) -> None:
    """Where no view is chosen, or there is none such, that is wrong use, with the views that there are."""
    assert main(["show", str(tree), *flags]) == 2

    assert line in capfd.readouterr().err


def test_wrong_metadata(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Metadata without a value is wrong use."""
    assert main(["show", str(tree), "--node-metadata", "tier"]) == 2

    assert "'tier' is not KEY=VALUE; write tier=gold, or labels.app=shop" in capfd.readouterr().err


def test_a_view_needs_settings(tree: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without views in the settings a view by name is wrong use, and what a node says of itself makes no difference."""
    monkeypatch.delenv("FSXDS_SETTINGS")

    assert main(["show", str(tree / "common"), "--view", "edge"]) == 2
    assert (
        "there is no view edge; the settings define no views; name the settings file by --settings"
        in capfd.readouterr().err
    )
    assert main(["show", str(tree / "common"), *GOLD]) == 0


def test_check_covers_every_view(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`check` reports the problem of each view once; of the layer that all have without saying where it shows."""
    (tree / "common" / "routes.yaml").write_text(
        "{name: r, virtual_hosts: [{name: v, domains: [a], routes: [{match: {prefix: /}, route: {cluster: edge}}]}]}"
    )
    (tree / "nodes" / "a" / "listeners.yaml").write_text("{name: l, adress: 1}")

    assert main(["check", str(tree), "--format", "json"]) == 1
    problems = json.loads(capfd.readouterr().out)

    assert [row["rule"] for row in problems].count("unknown-field") == 1
    (message,) = (row["message"] for row in problems if row["rule"] == "no-cluster")
    assert message.endswith(" (in common + zone, common)")


@pytest.mark.parametrize("output", ["text", "json", "github", "sarif", "junit"])
def test_a_problem_is_reported_once(tree: Path, capfd: pytest.CaptureFixture[str], output: str) -> None:
    """A mistake in the layer that all views have is one problem in all formats."""
    (tree / "common" / "clusters.yaml").write_text("- {name: shared, conect_timeout: 1s}")

    assert main(["check", str(tree), "--format", output]) == 1
    assert capfd.readouterr().out.count("<failure " if output == "junit" else "has no field") == 1


def test_check_of_one_view(tree: Path) -> None:
    """With a view, or a node, what others see is not checked."""
    (tree / "nodes" / "a" / "listeners.yaml").write_text("{name: l, adress: 1}")

    assert main(["check", str(tree), "--view", "everyone"]) == 0
    assert main(["check", str(tree), "--view", "edge"]) == 0
    assert main(["check", str(tree), "--view", "edge", "--node-id", "a"]) == 1


def test_check_of_files(tree: Path) -> None:
    """Files within a tree are checked in all of its views; files by themselves are in no view."""
    own = tree / "nodes" / "a" / "clusters.yaml"

    assert main(["check", str(own)]) == 0
    assert main(["check", "--tree", str(tree), str(own)]) == 0
    own.write_text("- {name: own, conect_timeout: 1s}")
    assert main(["check", str(own)]) == 1
    assert main(["check", "--tree", str(tree), str(own)]) == 1


def test_files_in_no_layer_are_noted(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What no rule names is served to nobody, which is worth a note."""
    (tree / "lost.yaml").write_text("[]")

    assert main(["check", str(tree)]) == 0
    assert "no-layer" in capfd.readouterr().out


def test_check_of_a_layer_without_a_folder(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is an error once, in views and at the path of the folder; another level of its rule, or a file there, is right."""
    for path in (tree / "edge").iterdir():
        path.rename(tree / "zone" / f"edge.{path.name}")

    assert main(["check", str(tree), "--format", "json"]) == 1
    (problem,) = json.loads(capfd.readouterr().out)
    assert (problem["rule"], problem["file"].endswith("xds/edge")) == ("missing-layer", True)
    assert problem["message"] == "this folder is a layer of the view edge, and has no configuration"
    assert main(["check", str(tree), "--view", "everyone"]) == 0
    assert main(["check", str(tree), "--rules", "missing-layer=warning"]) == 0
    (tree / "edge" / "clusters.yaml").write_text("resources: []")
    assert main(["check", str(tree)]) == 0


def test_no_layer_of_an_empty_directory_is_missed(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """That there is nothing is one problem, and none where it is allowed; files alone are in no layer."""
    empty = tree.parent / "empty"
    empty.mkdir()

    assert main(["check", str(empty)]) == 1
    assert "missing-layer" not in capfd.readouterr().out
    assert main(["check", str(empty), "--allow-empty"]) == 0
    assert main(["check", str(tree / "edge" / "clusters.yaml")]) == 0


def test_commands_ask_for_the_layers_of_their_view(tree: Path, tmp_path: Path) -> None:
    """A layer without a folder is a mistake where it is mirrored, and none where another view is."""
    (tree / "edge" / "clusters.yaml").unlink()

    assert main(["mirror", str(tree), str(tmp_path / "out"), "--view", "everyone"]) == 0
    assert main(["mirror", str(tree), str(tmp_path / "edge"), "--view", "edge"]) == 1


@pytest.fixture
def other(tree: Path) -> Path:
    """A copy of the tree."""
    copy = tree.parent / "other"
    shutil.copytree(tree, copy)
    return copy


def test_diff_of_one_view(tree: Path, other: Path) -> None:
    """`diff` compares what one view, or node, sees of both sides."""
    shutil.rmtree(other / "edge")

    assert main(["diff", str(tree), str(other), "--view", "everyone"]) == 0
    assert main(["diff", str(tree), str(other), "--view", "edge"]) == 1
    assert main(["diff", str(tree), str(other), *GOLD]) == 1


def test_diff_of_all_views(tree: Path, other: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a view all are compared: what changed in a layer is printed once, under the views that have it."""
    assert main(["diff", str(tree), str(other)]) == 0
    assert capfd.readouterr() == ("", f"{tree} → {other}: no difference in any of 4 views\n")
    (other / "zone" / "clusters.yaml").write_text(clusters(zone=5))
    (other / "nodes" / "b").mkdir()
    (other / "nodes" / "b" / "clusters.yaml").write_text(clusters(own=3))
    (other / "common" / "clusters.yaml").write_text(clusters(shared=2, own=1))

    assert main(["diff", str(tree), str(other)]) == 1
    out, err = capfd.readouterr()
    assert out.splitlines() == [
        "in all 5 views",
        "clusters: 1 changed",
        f"  ~ shared  {other}/common/clusters.yaml:1",
        "      ~ connect_timeout: 1s → 2s",
        "in 1 of 5 views: edge (common + edge + nodes/b)",
        "clusters: 1 changed",
        f"  ~ own  {other}/nodes/b/clusters.yaml:1",
        "      ~ connect_timeout: 1s → 3s",
        "in 1 of 5 views: zone (common + zone)",
        "clusters: 1 changed",
        f"  ~ zone  {other}/zone/clusters.yaml:1",
        "      ~ connect_timeout: 4s → 5s",
    ]
    assert err == f"{tree} → {other}: 3 changed in 5 of 5 views\n"


@pytest.mark.parametrize("output_format", ["json", "markdown"])
def test_diff_of_all_views_in_other_formats(
    tree: Path, other: Path, output_format: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """As text has it: JSON lists the views of each group, a comment has a heading for them."""
    (other / "zone" / "clusters.yaml").write_text(clusters(zone=5))

    assert main(["diff", str(tree), str(other), "--format", output_format]) == 1
    out = capfd.readouterr().out
    if output_format == "markdown":
        assert "#### in 1 of 4 views: `zone (common + zone)`\n\n| type | added" in out
        return
    content = json.loads(out)
    assert (content["same"], content["view_count"], "types" in content) == (False, 4, False)
    (group,) = content["groups"]
    assert group["views"] == [{"names": ["zone"], "layers": ["common", "zone"]}]
    assert [row["name"] for row in group["types"]["cds"]["changed"]] == ["zone"]


def test_diff_of_views_that_cannot_be_read(tree: Path, other: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A broken file is named once, whatever views it is in; what it may hold is unknown in these. The status is 3."""
    (other / "edge" / "clusters.yaml").write_text("- {name: edge, conect_timeout: 2s}")

    assert main(["diff", str(tree), str(other)]) == 3
    out, err = capfd.readouterr()
    assert [line.partition(": envoy")[0] for line in out.splitlines()] == [
        f"could not be read: {other}/edge/clusters.yaml:1",
        "in 2 of 4 views: edge (common + edge), edge (common + edge + nodes/a)",
        "clusters: 1 unknown",
        f"  ? edge  {tree}/edge/clusters.yaml:1",
    ]
    assert err.endswith("1 unknown in 2 of 4 views; not compared: 1 that could not be read\n")


def test_diff_of_a_layer_that_comes_or_goes(tree: Path, other: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A folder that one side lacks holds nothing there: its content is added, or removed, which the problem explains."""
    shutil.rmtree(other / "edge")

    for sides, sign in (((tree, other), "-"), ((other, tree), "+")):
        assert main(["diff", *map(str, sides)]) == 1
        out, err = capfd.readouterr()
        assert f"  {sign} edge  {tree}/edge/clusters.yaml:1" in out.splitlines()
        assert err.startswith(f"{other}/edge:1:1: error: this folder is a layer of the view edge")


def test_diff_with_a_server_asks_for_a_view(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What a server sends is one view, so that it has to be known which one the tree is compared by."""
    settings = replace(read_settings({}), cache_dir=None)
    with serve(tree, settings=settings) as server:
        assert main(["diff", server.http, str(tree)]) == 2
        assert "give the node by --node-id" in capfd.readouterr().err
        assert main(["diff", server.http, str(tree), "--node-cluster", "x"]) == 0


def mirrored(directory: Path) -> dict[str, str]:
    """Return the timeouts of the clusters in a mirrored YAML file, by name."""
    rows = yaml.safe_load((directory / "cds.yaml").read_text())["resources"]
    return {row["name"]: row["connect_timeout"] for row in rows}


def test_mirrors_of_the_settings(tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a directory all mirrors of the settings are written, each with its view; with one of theirs that one."""
    assert main(["mirror", str(tree)]) == 0
    assert {"edge": "2s", "own": "3s", "shared": "1s"} == mirrored(tmp_path / "mirrors" / "edge")
    assert (tmp_path / "mirrors" / "everyone" / "cds.pb").exists()
    assert 2 == len(capfd.readouterr().out.splitlines())

    assert main(["mirror", str(tree), str(tmp_path / "mirrors" / "edge")]) == 0
    assert 1 == len(capfd.readouterr().out.splitlines())


def test_a_mirror_of_a_view(tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A directory that the settings do not have is written for the view of the flags."""
    out = tmp_path / "out"

    assert main(["mirror", str(tree), str(out), "--view", "everyone", "--mirror-format", "yaml"]) == 0
    assert {"own": "1s", "shared": "1s"} == mirrored(out)
    assert main(["mirror", str(tree), str(out)]) == 2
    assert main(["mirror", str(tree), "--view", "everyone"]) == 2
    assert "give OUT" in capfd.readouterr().err


def test_a_mirror_is_not_inside_of_the_tree(tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No mirror of the settings may be where fsxds reads."""
    settings = tmp_path / "settings" / "fsxds.yaml"
    settings.write_text(SETTINGS.replace("../mirrors/everyone", "../xds/mirror"))

    assert main(["mirror", str(tree)]) == 2
    assert "is inside of the tree" in capfd.readouterr().err
    assert not (tmp_path / "mirrors").exists()


def test_bootstrap_of_a_node(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A bootstrap asks for what its node sees, and the node says what the rules match."""
    (tree / "edge" / "listeners.yaml").write_text("[]")
    node = ("--node-id", "a", "--node-cluster", "edge", "--node-metadata", "labels.tier=gold")

    assert main(["bootstrap", str(tree), *node]) == 0
    written = yaml.safe_load(capfd.readouterr().out)
    assert {"id": "a", "cluster": "edge", "metadata": {"labels": {"tier": "gold"}}} == written["node"]
    assert main(["bootstrap", str(tree), "--node", "x", "--view", "everyone"]) == 0


def test_doctor_examines_the_view_of_the_bootstrap(
    tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`doctor` examines what the node of the bootstrap sees; without a bootstrap, all views."""
    eds = "- {name: e, type: EDS, connect_timeout: 1s, eds_cluster_config: {eds_config: {path: /nowhere/e.yaml}}}\n"
    (tree / "edge" / "clusters.yaml").write_text(eds)
    bootstrap = tmp_path / "bootstrap.yaml"
    found = []
    for cluster in ("other", "edge"):
        bootstrap.write_text(f"node: {{id: x, cluster: {cluster}, metadata: {{labels: {{tier: gold}}}}}}\n")
        main(["doctor", str(tree), "--bootstrap", str(bootstrap), "--severity", "note"])
        found.append("edge/clusters.yaml" in capfd.readouterr().out)
    main(["doctor", str(tree), "--severity", "note"])

    assert [False, True, True] == [*found, "edge/clusters.yaml" in capfd.readouterr().out]
