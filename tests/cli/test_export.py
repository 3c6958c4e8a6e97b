from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsxds.cli.main import main
from tests.cli.trees import CLUSTERS, SECRETS, TYPO, write_tree
from tests.transports.mirror.test_directory import full_disk

HEADER = "- {name: edge, request_headers_to_add: [{header: {key: x-token, value: s3cr3t}}]}\n"
CLUSTER = "envoy.config.cluster.v3.Cluster"


def export(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return the status and what is printed."""
    status = main(["export", *map(str, arguments)])
    printed = capfd.readouterr()
    return status, printed.out, printed.err


def texts(out: Path) -> dict[str, str]:
    return {str(path.relative_to(out)): path.read_text() for path in out.rglob("*") if path.is_file()}


def test_a_tree_is_exported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The files are there, secrets are not, and a second time nothing is to be done."""
    tree, out = write_tree(tmp_path, cds=CLUSTERS, sds=SECRETS), tmp_path / "out"

    status, printed, errors = export(capfd, tree, out)
    assert status == 0
    assert printed.startswith(f"{out}: 1 resource: 5 files written ({CLUSTER}/web, ")
    assert "1 secret left out: secrets are never exported" in errors
    assert json.loads((out / CLUSTER / "web").read_text()) == {
        "name": "web",
        "type": "STATIC",
        "connect_timeout": "1s",
    }
    assert not any("S3CR3T" in text or "transport_sockets" in path for path, text in texts(out).items())
    assert export(capfd, tree, out)[1] == f"{out}: 1 resource: 0 files written, 0 removed, 5 unchanged\n"


def test_lists_have_the_url(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With --url, lists and the index say where files will be."""
    tree, out = write_tree(tmp_path, cds=CLUSTERS), tmp_path / "out"

    assert export(capfd, tree, out, "--url", "https://cdn.example.com/xds/")[0] == 0
    (row,) = json.loads((out / CLUSTER / "index.json").read_text())
    assert row["name"] == f"https://cdn.example.com/xds/{CLUSTER}/web"


def test_a_mistake_leaves_what_is_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing of a tree with a mistake is exported, nor of one without any configuration; nothing is removed."""
    tree, out = write_tree(tmp_path, cds=CLUSTERS), tmp_path / "out"
    export(capfd, tree, out)
    before = texts(out)

    (tree / "cds.yaml").write_text(TYPO)
    status, _, errors = export(capfd, tree, out)
    assert (status, texts(out)) == (1, before)
    assert f"{tree}/cds.yaml:3:3: error: " in errors
    assert f"not exported; {out} is unchanged" in errors
    (tree / "cds.yaml").unlink()
    status, _, errors = export(capfd, tree, out)
    assert (status, texts(out)) == (1, before)
    assert "no file in this directory is configuration" in errors


def test_credentials_have_to_be_allowed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What may have one is left out, with status 1, until it is allowed by its name."""
    tree, out = write_tree(tmp_path, cds=CLUSTERS, rds=HEADER), tmp_path / "out"

    status, _, errors = export(capfd, tree, out)
    assert status == 1
    assert "rds edge: not exported" in errors
    assert "--allow rds/edge" in errors
    assert not any("s3cr3t" in text for text in texts(out).values())
    assert export(capfd, tree, out, "--allow", "rds/edge")[0] == 0
    assert any("s3cr3t" in text for text in texts(out).values())
    export(capfd, tree, out)
    (tree / "cds.yaml").write_text(CLUSTERS.replace("web", "other"))
    export(capfd, tree, out)
    assert not any("s3cr3t" in text for text in texts(out).values())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--allow", "web"], "--allow web: is not TYPE/NAME"),
        (["--allow", "sds/web"], "secrets are never exported"),
        (["--url", "cdn.example.com"], "--url: is no URL"),
        (["--url", "https://me:s3cr3t@cdn.example.com"], "--url: is no URL"),
        (["--url", "https://cdn.example.com/?a"], "--url: is no URL"),
        (["--url", "https://[::1"], "--url: is no URL"),
    ],
)
def test_wrong_use(arguments: list[str], complaint: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is said in one line, with a remedy and without what may be secret; nothing is written."""
    tree, out = write_tree(tmp_path, cds=CLUSTERS), tmp_path / "out"

    status, _, errors = export(capfd, tree, out, *arguments)
    assert status == 2
    assert complaint in errors
    assert "s3cr3t" not in errors
    assert not out.exists()


def test_places_that_cannot_be(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Inside of the tree, where a file is, and on a full disk: one line, and status 2."""
    tree, file = write_tree(tmp_path, cds=CLUSTERS), tmp_path / "file"
    file.write_text("theirs")

    assert export(capfd, tree, tree / "out")[::2] == (
        2,
        f"fsxds: {tree}/out: is inside of the tree {tree}; choose a directory outside of it\n",
    )
    status, _, errors = export(capfd, tree, file)
    assert (status, file.read_text(), "Traceback" in errors) == (2, "theirs", False)
    (tree / "cds.yaml").write_text(f"- {{name: web, alt_stat_name: {'x' * 2000}}}\n")
    with full_disk():
        status, _, errors = export(capfd, tree, tmp_path / "out")
    assert (status, "File too large; make it writable" in errors) == (2, True)
    assert export(capfd, tree, tmp_path / "out")[0] == 0


def test_what_is_in_the_way_stays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Somebody's file is named, and all else is exported, with status 1."""
    tree, out = write_tree(tmp_path, cds=CLUSTERS), tmp_path / "out"
    out.mkdir()
    (out / "index.json").write_text("theirs")

    status, _, errors = export(capfd, tree, out)
    assert (status, (out / "index.json").read_text()) == (1, "theirs")
    assert "index.json: a file that fsxds did not export is there" in errors
    assert (out / CLUSTER / "web").exists()


def test_a_view_is_exported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The flags choose it, as everywhere."""
    tree, out = tmp_path / "xds", tmp_path / "out"
    for layer in ("common", "edge"):
        (tree / layer).mkdir(parents=True)
        (tree / layer / "cds.yaml").write_text(f"- {{name: {layer}}}\n")
    settings = tmp_path / "fsxds.yaml"
    settings.write_text(
        "views: [{name: edge, match: {cluster: edge}, layers: [common, edge]}, {name: other, layers: [common]}]"
    )

    assert export(capfd, tree, out, "--settings", settings, "--view", "other")[0] == 0
    assert sorted(path.name for path in (out / CLUSTER).iterdir()) == ["*", "common", "index.json"]
    assert export(capfd, tree, out, "--settings", settings, "--view", "edge")[0] == 0
    assert sorted(path.name for path in (out / CLUSTER).iterdir()) == ["*", "common", "edge", "index.json"]
