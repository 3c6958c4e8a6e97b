"""`fsxds schema`: prints a JSON Schema."""

from __future__ import annotations

from typing import TypedDict

from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.server import loading_rules
from fsxds.settings.options import Settings
from fsxds.settings.reading import settings_schema
from fsxds.tools.json_schema import Spelling
from fsxds.tools.schema_documents import documents_schema, schema_text


class SchemaFlags(TypedDict):
    """The flags of resource files."""

    short_names: tuple[str, ...]
    packed: tuple[str, ...]
    spelling: Spelling


def run_schema(settings: Settings, flags: SchemaFlags) -> None:
    """Print the schema of resource files; UsageError for an unknown message type."""
    rows = [BY_SHORT_NAME[name] for name in dict.fromkeys(flags["short_names"])]
    catalogue = loading_rules.find_catalogue(settings)
    print(schema_text(documents_schema(catalogue, rows, flags["packed"], flags["spelling"])), end="")


def run_settings_schema(flags: SchemaFlags) -> None:
    """Print the settings' schema; UsageError for a flag of resource files."""
    if flags["short_names"] or flags["packed"]:
        raise UsageError("--settings is of another file than --type and --any; leave them out")
    print(schema_text(settings_schema()), end="")
