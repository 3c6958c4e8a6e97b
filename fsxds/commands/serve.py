"""`fsxds serve DIR`: keep Envoys in step with a tree until told to stop."""

from __future__ import annotations

from pathlib import Path

from fsxds import app
from fsxds.commands.options import table_command, tree_argument
from fsxds.commands.running import run
from fsxds.live_settings import SettingsReader
from fsxds.operations.log import open_log
from fsxds.settings import Settings


@table_command(
    "serve",
    """\
  fsxds serve config/xds
  fsxds serve config/xds --http 0.0.0.0:18001 --mirror /run/envoy
  FSXDS_SETTLE=200ms fsxds serve config/xds --settings fsxds.yaml""",
)
@tree_argument
def serve(directory: Path, settings: Settings, reader: SettingsReader) -> None:
    """Serve DIR to Envoys, and every change of it.

    Clients that poll over REST are answered, and clients on gRPC streams sent to, as soon as something that they asked for
    changes. With --mirror, the same resources are written as files as well. A file with a mistake is held: what it held
    last stays. SIGTERM ends it, and SIGHUP has it read its settings again.
    """
    with open_log(settings.log_format, settings.log_level) as log:
        run(app.serve(directory, settings, log, reader))
