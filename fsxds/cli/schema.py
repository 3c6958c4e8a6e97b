"""`fsxds schema`: JSON Schemas, for editors and other tools, of the files that fsxds reads."""

from __future__ import annotations

import sys

from fsxds import reload
from fsxds.errors import UsageError
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.settings.options import Settings
from fsxds.settings.reading import settings_schema
from fsxds.tools.schema_documents import documents_schema, schema_text


def run_schema(settings: Settings, short_names: tuple[str, ...], packed: tuple[str, ...], *, of_settings: bool) -> None:
    """Print a schema; UsageError where the flags contradict each other, or a message type does not exist."""
    if of_settings:
        if short_names or packed:
            raise UsageError("--settings is of another file than --type and --any; leave them out")
        sys.stdout.write(schema_text(settings_schema()))
        return
    rows = [BY_SHORT_NAME[name] for name in dict.fromkeys(short_names)]
    sys.stdout.write(schema_text(documents_schema(reload.find_catalogue(settings), rows, packed)))
