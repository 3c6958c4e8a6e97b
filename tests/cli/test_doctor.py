"""What `fsxds doctor` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsxds.cli.main import main
from tests.cli.trees import CLUSTERS, TYPO, write_tree
from tests.support.envoy import Envoy
from tests.support.ports import free_address

CONFIG = Path(__file__).parents[2] / "config"

SLOW = """\
node: {id: edge-1, cluster: edge}
static_resources: {clusters: [{name: xds, type: STATIC, connect_timeout: 1s}]}
dynamic_resources:
  cds_config:
    resource_api_version: V3
    api_config_source: {api_type: REST, transport_api_version: V3, cluster_names: [xds], refresh_delay: 30s}
"""
CRASH = """\
- name: web
  type: EDS
  eds_cluster_config:
    eds_config:
      api_config_source: {api_type: REST, cluster_names: [xds], refresh_delay: 0s, request_timeout: 30s}
"""


def diagnosis(capfd: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> tuple[str, str]:
    """Return what is printed, on stdout and stderr."""
    assert status == main(["doctor", *arguments])
    out, err = capfd.readouterr()
    return out, err


def test_sample_is_healthy(capfd: pytest.CaptureFixture[str]) -> None:
    """The sample tree and its bootstrap are well together."""
    out, err = diagnosis(
        capfd, str(CONFIG / "xds"), "--bootstrap", str(CONFIG / "envoy-rest.yaml"), "--severity", "note"
    )

    assert out == ""
    assert "clean, 8 files" in err


def test_mirror_must_be_written_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample's bootstrap for files is well once they are there; with rewritten sources nobody asks a server."""
    monkeypatch.chdir(tmp_path)
    arguments = (str(CONFIG / "xds"), "--bootstrap", str(CONFIG / "envoy-mirror.yaml"), "--mirror-config-sources")
    out, _ = diagnosis(capfd, *arguments, "--format", "json", status=1)

    assert {"missing-file"} == {row["rule"] for row in json.loads(out)}
    assert main(["mirror", str(CONFIG / "xds"), "build/mirror", "--mirror-config-sources"]) == 0
    capfd.readouterr()
    assert diagnosis(capfd, *arguments)[0] == ""


def test_places_in_both(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems of bootstrap and tree are told by file and line, as `check` does; the paths lead there from here."""
    write_tree(tmp_path, cds=CRASH)
    (tmp_path / "envoy.yaml").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    out, _ = diagnosis(capfd, "xds", "--bootstrap", "envoy.yaml", "--format", "json", status=1)
    rows = {(row["file"], row["line"], row["rule"], row["severity"]) for row in json.loads(out)}

    assert {
        ("envoy.yaml", 6, "slow-refresh", "warning"),
        ("envoy.yaml", 6, "short-request-timeout", "warning"),
        ("xds/cds.yaml", 5, "short-refresh-delay", "error"),
    } <= rows


def test_severity_and_levels(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Warnings fail where they are asked to, and rules are silenced by their names."""
    tree, bootstrap = write_tree(tmp_path, cds=CLUSTERS), tmp_path / "envoy.yaml"
    bootstrap.write_text(SLOW)
    arguments = (str(tree), "--bootstrap", str(bootstrap))

    assert "slow-refresh" in diagnosis(capfd, *arguments)[0]
    diagnosis(capfd, *arguments, "--severity", "warning", status=1)
    silenced = "slow-refresh=off,short-request-timeout=off"
    assert "" == diagnosis(capfd, *arguments, "--severity", "warning", "--rules", silenced)[0]


def test_without_a_bootstrap(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The tree alone is examined; its other mistakes are the business of `check`, and what is broken is not healthy."""
    out, err = diagnosis(capfd, str(write_tree(tmp_path, cds=TYPO)), status=1)

    assert "/cds.yaml:3:3: error[unknown-field]: " in out
    assert "the tree itself has 1 problem: fsxds check" in err


def test_bootstrap_that_is_not_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is told in a line."""
    _, err = diagnosis(capfd, str(write_tree(tmp_path, cds=CLUSTERS)), "--bootstrap", f"{tmp_path}/no.yaml", status=2)

    assert "no.yaml: cannot be read: No such file or directory" in err


def test_a_bootstrap_for_mirrored_files_lacks_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The sample tree is examined whole beside a bootstrap without the cluster that its sources name, and is clean itself."""
    top = Path(__file__).parents[2]
    monkeypatch.chdir(tmp_path)
    arguments = ("--bootstrap", str(top / "config/envoy-mirror.yaml"), "--mirror-config-sources")

    _, err = diagnosis(capfd, str(top / "config/xds"), *arguments, status=1)

    assert "2 clusters, 1 endpoint, 3 listeners" in err
    assert "the tree itself" not in err


def test_a_drain_that_outlasts_what_lingers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The drain time of a running Envoy, by its admin page, is compared with --linger, by flag and by settings."""
    tree = str(write_tree(tmp_path, cds=CLUSTERS))
    settings = tmp_path / "fsxds.yaml"
    with Envoy({}, drain_s=30) as envoy:
        host, port = envoy.admin
        admin = f"{host}:{port}"
        settings.write_text(f"mirrors: [{{directory: out, admin: '{admin}'}}]\nlinger: 10s\n")
        _, long = diagnosis(capfd, tree, "--envoy-admin", admin)
        _, short = diagnosis(capfd, tree, "--envoy-admin", admin, "--linger", "29s")
        diagnosis(capfd, tree, "--envoy-admin", admin, "--linger", "29s", "--severity", "warning", status=1)
        _, of_mirror = diagnosis(capfd, tree, "--settings", str(settings))

    assert "go on for" not in long
    assert "for 30 s, and fsxds keeps their resources for 29 s" in short
    assert "give fsxds --linger 30s, or start Envoy with --drain-time-s 29" in short
    assert "keeps their resources for 10 s" in of_mirror


def test_an_admin_page_that_does_not_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is wrong use, as nothing was compared."""
    tree, nobody = str(write_tree(tmp_path, cds=CLUSTERS)), free_address()
    _, err = diagnosis(capfd, tree, "--envoy-admin", nobody, status=2)

    assert f"{nobody}: no Envoy answers there; give the address of its admin page" in err
