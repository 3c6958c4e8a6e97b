"""Several mirrored directories, each with what its node or view sees."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import yaml

from fsxds.cli.main import main
from tests.support.server import Server, write_file

SETTINGS = """\
views:
- name: edge
  match: {cluster: edge}
  layers: [common, "nodes/{node.id}"]
  variables: {SECONDS: 7}
- name: everyone
  match: {cluster: "*"}
  layers: [common]
variables: {SECONDS: 1}
mirror_format: yaml
mirror_pause: 0
mirrors:
- {directory: out/edge, node: {id: a, cluster: edge}}
- {directory: out/everyone, view: everyone}
"""


def timeouts(directory: Path) -> dict[str, str]:
    """Return the timeouts of the mirrored clusters by name, nothing while there are none."""
    try:
        rows = yaml.safe_load((directory / "cds.yaml").read_text())["resources"]
    except FileNotFoundError:
        return {}
    return {row["name"]: row["connect_timeout"] for row in rows}


def test_each_mirror_has_its_view(tmp_path: Path) -> None:
    """Each directory holds its view, and follows what changes in it. Settings that leave a mirror without a view are not applied."""
    tree, out = tmp_path / "xds", tmp_path / "out"
    write_file(
        tree / "common" / "cds.yaml",
        '# fsxds: variables\n- {name: shared, type: STATIC, connect_timeout: "${SECONDS}s"}\n',
    )
    write_file(tree / "nodes" / "a" / "own.cds.yaml", "- {name: own, type: STATIC, connect_timeout: 2s}\n")
    settings = tmp_path / "fsxds.yaml"
    settings.write_text(SETTINGS)
    server = Server(tree, tmp_path, "--settings", str(settings), "--rollout", "off")
    try:
        server.start(wait=False)
        server.wait(lambda: timeouts(out / "edge") == {"shared": "7s", "own": "2s"}, "the mirror of a node")
        server.wait(lambda: timeouts(out / "everyone") == {"shared": "1s"}, "the mirror of a view")
        write_file(tree / "nodes" / "a" / "own.cds.yaml", "- {name: own, type: STATIC, connect_timeout: 3s}\n")
        server.wait(lambda: timeouts(out / "edge") == {"shared": "7s", "own": "3s"}, "the change of a layer")
        settings.write_text(SETTINGS.replace("everyone", "others"))
        os.kill(server.pid, signal.SIGHUP)
        server.wait(lambda: server.log_events("settings_kept"), "the rejection of other settings")
    finally:
        server.stop()


def test_a_mirror_that_no_view_is_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A mirror for a node that no rule matches is wrong use, and so is one of the flag, which is for no node."""
    write_file(tmp_path / "xds" / "cds.yaml", "[]\n")
    settings = tmp_path / "fsxds.yaml"
    settings.write_text(SETTINGS.replace("node: {id: a, cluster: edge}", "node: {id: a}"))

    assert main(["serve", str(tmp_path / "xds"), "--settings", str(settings)]) == 2
    assert "out/edge: no view of the settings is for the node of this mirror; add a rule" in capfd.readouterr().err
    settings.write_text(SETTINGS.partition("mirrors:")[0])
    assert main(["serve", str(tmp_path / "xds"), "--settings", str(settings), "--mirror", str(tmp_path / "out")]) == 2
    assert f"{tmp_path / 'out'}: no view of the settings" in capfd.readouterr().err
