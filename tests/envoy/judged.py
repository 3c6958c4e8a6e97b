"""Resources made of YAML without fsxds' own rules, so that a real Envoy gets to see their mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, cast

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.envoy.validate import Progress, ValidationOptions, validate_resources
from fsxds.formats import yaml_format
from fsxds.formats.decoded import PlainDocument
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Origin, Resource, version_of_body
from fsxds.model.values import Problem, Severity
from tests.support.envoy import find_envoy


def resources_of(short_name: str, text: str, catalogue: Catalogue) -> tuple[Resource, ...]:
    """Read the list under `resources` of a file `<short name>.yaml`; unknown fields are left out."""
    row = BY_SHORT_NAME[short_name]
    (document,) = yaml_format.decode(text.encode(), catalogue, None).documents
    assert isinstance(document, PlainDocument)
    converter = Converter(catalogue, unknown_fields=Severity.WARNING)
    values = cast("Any", document.value)["resources"]
    made = []
    for index, (value, line) in enumerate(zip(values, document.item_lines, strict=True)):
        converted = converter.convert({"@type": row.type_url, **value}, "google.protobuf.Any")
        message: Any = converted.message
        assert message is not None, converted.faults
        name = value.get(row.name_field) or value.get("clusterName") or short_name
        origin = Origin(PurePosixPath(f"{short_name}.yaml"), line, 0, ("resources", index))
        made.append(Resource(row.type_url, name, message.value, version_of_body(row.type_url, message.value), origin))
    return tuple(made)


def read_in(directory: Path) -> Callable[[PurePosixPath], bytes | None]:
    """Return a function that reads the files of a directory."""
    return lambda path: (directory / path).read_bytes() if (directory / path).exists() else None


def judged(
    files: Mapping[str, str], catalogue: Catalogue, directory: Path, progress: Progress | None = None
) -> tuple[Problem, ...]:
    """Write files by the short names of their types, and ask the real Envoy about all that is in them."""
    resources: list[Resource] = []
    for short_name, text in files.items():
        Path(directory, f"{short_name}.yaml").write_text(text)
        resources += resources_of(short_name, text, catalogue)
    return validate_resources(resources, read_in(directory), ValidationOptions(Path(find_envoy()), catalogue, progress))
