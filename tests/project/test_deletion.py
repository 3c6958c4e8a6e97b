"""A capability is a part that can be deleted, with its row in a table if it has one: the main job goes on without it.

The order of steps, and that a rejected version is held, are no capability: they keep traffic up, and are the main job.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import TOP

# Each with the packages that it consists of, and those that need it: they go with it.
CAPABILITIES = {
    "editor": ("fsxds.editor",),
    "linter": ("fsxds.lint", "fsxds.editor"),
    "a local Envoy": ("fsxds.envoy", "fsxds.tools.importing", "fsxds.tools.dev"),
    "tools": ("fsxds.tools", "fsxds.editor"),
    "client": ("fsxds.client", "fsxds.upstream", "fsxds.tools"),
    "HTTP GET": ("fsxds.transports.http_get", "fsxds.tools.exporting"),
    "upstreams": (
        *("fsxds.upstream", "fsxds.snapshots.upstream_rows"),
        *("fsxds.events.upstream_events", "fsxds.observe.upstream_lines"),
    ),
    "signed trees": ("fsxds.signing", "fsxds.transports.manifests", "fsxds.upstream"),
    "state directory": ("fsxds.history",),
    "fleets": ("fsxds.fleet", "fsxds.events.fleet_events", "fsxds.server.workers"),
    "client status": ("fsxds.transports.client_status",),
    "admin address": (
        *("fsxds.server.admin_serving", "fsxds.transports.admin", "fsxds.status"),
        *("fsxds.publishing.rollout_operator", "fsxds.observe.metrics"),
    ),
    "redirects and list collections": (
        *("fsxds.snapshots.resolution", "fsxds.snapshots.locators"),
        *("fsxds.snapshots.list_collections", "fsxds.snapshots.folder_collections", "fsxds.upstream"),
    ),
    "service manager": ("fsxds.server.service_manager",),
    "views": ("fsxds.snapshots.layers", "fsxds.snapshots.layers_load", "fsxds.editor"),
    "canaries": ("fsxds.publishing.canaries",),
}


@pytest.mark.parametrize("name", CAPABILITIES)
def test_the_main_job_goes_on_without(name: str, tmp_path: Path) -> None:
    """A tree is served by REST, gRPC and mirrored files, and an edit of it."""
    argv = [sys.executable, "-m", "tests.support.main_job", str(tmp_path), *CAPABILITIES[name]]
    done = subprocess.run(argv, cwd=TOP, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


# Capabilities that settings ask for, and what they alone need.
UNASKED = (
    *("fsxds.client", "fsxds.editor", "fsxds.envoy", "fsxds.fleet", "fsxds.history", "fsxds.signing", "fsxds.upstream"),
    *("fsxds.events.fleet_events", "fsxds.events.upstream_events", "fsxds.publishing.canaries"),
    *("fsxds.observe.mirror_lines", "fsxds.observe.upstream_lines"),
    *("fsxds.server.mirror_serving", "fsxds.server.service_manager", "fsxds.server.workers"),
    *("fsxds.snapshots.layers", "fsxds.snapshots.resolution", "fsxds.snapshots.upstream_rows"),
    *("fsxds.transports.config_sources", "fsxds.transports.mirror"),
)


def test_a_server_loads_no_capability_that_its_settings_do_not_ask_for() -> None:
    """Each would make its start longer."""
    code = "import sys; from fsxds.testing import serve\nwith serve({'cds.yaml': '[]'}): print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, check=True, capture_output=True, text=True)

    assert [] == [name for name in done.stdout.split() if name.startswith(UNASKED)]
