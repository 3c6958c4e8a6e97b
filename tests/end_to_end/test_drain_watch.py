"""What lingers goes early where the admin page of the Envoy that reads mirrored files says that nothing drains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fsxds.cli.main import main
from tests.end_to_end.test_admin import clusters, listeners, status
from tests.support.envoy import Envoy
from tests.support.ports import free_port
from tests.support.server import Server, write_file


def bootstrap(out: Path) -> dict[str, Any]:
    """Return the bootstrap of an Envoy that reads a directory of mirrored files."""
    sources = {
        f"{name}_config": {"resource_api_version": "V3", "path_config_source": {"path": f"{out}/{name}.pb"}}
        for name in ("cds", "lds")
    }
    return {"dynamic_resources": sources}


def test_what_lingers_goes_when_nothing_drains(tmp_path: Path) -> None:
    """Envoy drains for a second, and fsxds would keep the cluster for ten minutes."""
    tree, out, settings = tmp_path / "tree", tmp_path / "out", tmp_path / "fsxds.json"
    write_file(tree / "cds.json", clusters("a", "b"))
    port = free_port()
    write_file(tree / "lds.json", listeners("a", port))
    assert main(["mirror", str(tree), str(out)]) == 0
    with Envoy(bootstrap(out), drain_s=1) as envoy:
        admin = ":".join(map(str, envoy.admin))
        settings.write_text(json.dumps({"mirrors": [{"directory": "out", "admin": admin}]}))
        with Server(tree, tmp_path, "--settings", str(settings)) as server:
            envoy.wait(lambda: envoy.stat("listener_manager.total_listeners_active") == 1, what="the listener")
            write_file(tree / "lds.json", listeners("b", port))
            write_file(tree / "cds.json", clusters("b"))
            server.wait(lambda: server.log_events("lingering_started"), "the cluster to linger")
            server.wait(lambda: server.log_events("lingering_ended"), "it to go")

            after = server.wait(lambda: (found := status(server))["is_done"] and found, "the end")
            assert after["lingering"] == []
            envoy.wait(lambda: envoy.stat("cluster_manager.active_clusters") == 1, what="the cluster to go")
