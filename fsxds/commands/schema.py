"""`fsxds schema`: JSON Schemas, for editors and other tools, of the files that fsxds reads."""

from __future__ import annotations

import sys

import click

from fsxds import loading
from fsxds.api.schema_documents import documents_schema, schema_text
from fsxds.commands.options import table_command
from fsxds.errors import UsageError
from fsxds.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.settings import Settings, settings_schema


class Choosing(click.Option):
    """A flag of this command alone."""

    group = "What the schema is of"


@table_command(
    "schema",
    """\
  fsxds schema > xds.schema.json
  fsxds schema --type cds --any UpstreamTlsContext --any HttpProtocolOptions > clusters.schema.json
  fsxds schema --settings > fsxds.schema.json""",
)
@click.option(
    "--type",
    "short_names",
    cls=Choosing,
    multiple=True,
    metavar="TYPE",
    type=click.Choice([row.short_name for row in RESOURCE_TYPES]),
    help="The files hold resources of this type; may be given again. By default they hold any.",
)
@click.option(
    "--any",
    "packed",
    cls=Choosing,
    multiple=True,
    metavar="MESSAGE",
    help="Only this message type, and others given so, may stand under an @type, such as Router; makes a small schema.",
)
@click.option("--settings", "of_settings", cls=Choosing, is_flag=True, help="The settings file of fsxds, instead.")
def schema(settings: Settings, short_names: tuple[str, ...], packed: tuple[str, ...], *, of_settings: bool) -> None:
    """Print the JSON Schema of resource files.

    It is made of the API of the Envoy in use: fields in both spellings, enums, ranges, required fields, and the rules in
    words. Editors with yaml-language-server use it by a first line `# yaml-language-server: $schema=xds.schema.json`.
    """
    if of_settings:
        if short_names or packed:
            raise UsageError("--settings is of another file than --type and --any; leave them out")
        sys.stdout.write(schema_text(settings_schema()))
        return
    rows = [BY_SHORT_NAME[name] for name in dict.fromkeys(short_names)]
    sys.stdout.write(schema_text(documents_schema(loading.find_catalogue(settings), rows, packed)))
