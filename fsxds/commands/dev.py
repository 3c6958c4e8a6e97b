"""`fsxds dev DIR`: serve a tree to a real Envoy on this machine, and tell what it says."""

from __future__ import annotations

from pathlib import Path

from fsxds.commands.options import table_command, tree_argument
from fsxds.commands.running import run
from fsxds.dev import serve_to_local_envoy
from fsxds.live_settings import SettingsReader
from fsxds.operations.log import open_log
from fsxds.settings import Settings


@table_command(
    "dev",
    """\
  fsxds dev config/xds
  fsxds dev config/xds --transport delta
  fsxds dev config/xds --transport mirror --envoy ~/bin/envoy""",
)
@tree_argument
def dev(directory: Path, settings: Settings, reader: SettingsReader) -> None:
    """Serve DIR and start a real Envoy on it.

    Envoy gets everything by REST, or by a gRPC stream where the tree asks for one; --transport chooses. Prints where
    traffic, admin and xDS listen, what will hurt, and at each edit what changed and whether Envoy took it; where it
    refused, why, and the file and line it came from. Ctrl-C ends both.
    """
    with open_log(settings.log_format, settings.log_level) as log:
        run(serve_to_local_envoy(directory, settings, log, reader))
