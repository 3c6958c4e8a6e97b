from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsxds.commands.main import main
from tests.commands.trees import CLUSTERS, SECRETS, TYPO, write_tree


def test_a_clean_tree(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A tree without problems ends with status 0, nothing on stdout, and what is there on stderr."""
    tree = write_tree(tmp_path, cds=CLUSTERS, sds=SECRETS)

    assert main(["check", str(tree)]) == 0
    out, err = capfd.readouterr()
    assert ("", f"{tree}: clean: 1 secrets, 1 clusters\n") == (out, err)


def test_problems(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems end with status 1; each is a line whose path can be opened from the current directory."""
    write_tree(tmp_path, cds=TYPO, eds="a: [")
    monkeypatch.chdir(tmp_path)

    assert main(["check", "xds"]) == 1
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith(
        "xds/cds.yaml:3:3: error: resources[0].conect_timeout: envoy.config.cluster.v3.Cluster has"
    )
    assert lines[1].startswith("xds/eds.yaml:")
    assert (2, "xds: 2 errors\n") == (len(lines), err)


def test_warnings_are_clean(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Warnings are printed, and do not change the status."""
    tree = write_tree(tmp_path, cds=TYPO)

    assert main(["check", str(tree), "--unknown-fields", "warn"]) == 0
    out, err = capfd.readouterr()
    assert f"{tree}/cds.yaml:3:3: warning: " in out
    assert err == f"{tree}: 1 warning, clean: 1 clusters\n"


def test_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--format json` prints one object with every part of every problem."""
    tree = write_tree(tmp_path, cds=CLUSTERS, eds="a: [", more_clusters="", other=TYPO)

    assert main(["check", str(tree), "--format", "json"]) == 1
    result = json.loads(capfd.readouterr().out)
    assert not result["clean"]
    assert {"clusters": 1} == result["resources"]
    assert {"path", "line", "column", "severity", "rule", "pointer", "message", "remedy"} == set(result["problems"][0])
