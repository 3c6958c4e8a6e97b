"""A validating Envoy's refusals as problems at the places where authors wrote what it refuses (pure)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.api.secrets import Masker
from fsxds.errors import ApiError
from fsxds.formats import PlainDocument, format_of
from fsxds.formats.positions import locate_all
from fsxds.local_envoy.judge_places import field_named
from fsxds.local_envoy.judge_words import lies_in_surroundings, plain_reason, remedy_for
from fsxds.local_envoy.rejection import Rejection
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Resource
from fsxds.snapshots.authored_paths import authored_path
from fsxds.values import FieldPath, PlainValue, Problem, Severity, pointer_of

REJECTS = "envoy-rejects"
UNDECIDED = "envoy-undecided"

Read: TypeAlias = Callable[[PurePosixPath], bytes | None]
"""The content of a file of the tree, None where it cannot be read."""


class ProblemWriter:
    """Makes problems of rejections; it reads the files that they come from."""

    def __init__(self, catalogue: Catalogue, read: Read) -> None:
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._masker = Masker(catalogue)
        self._read = read

    def problem(self, rejection: Rejection) -> Problem:
        """Say what Envoy refuses, and where that was written."""
        resource = rejection.resource
        if resource is None:
            remedy = "check its files one by one to find out which of them it is"
            return Problem(PurePosixPath("."), 1, 1, "", REJECTS, plain_reason(rejection.reason), remedy)
        plain = self._plain(resource)
        message_type = BY_TYPE_URL[resource.type_url].message_type
        field_path = field_named(rejection.reason, plain, message_type)
        line, column, authored = self._place(resource, field_path)
        secrets = self._masker.secrets_in({"@type": resource.type_url, **plain})
        message = plain_reason(rejection.reason, secrets) + _beside(rejection.others)
        path, pointer, remedy = resource.origin.path, pointer_of(authored), remedy_for(rejection.reason)
        if rejection.is_certain and not lies_in_surroundings(rejection.reason):
            return Problem(path, line, column, pointer, REJECTS, message, remedy)
        message = f"not decided, as it hangs on what is not on this machine: {message}"
        return Problem(path, line, column, pointer, UNDECIDED, message, remedy, Severity.NOTE)

    def _plain(self, resource: Resource) -> dict[str, PlainValue]:
        message_type = BY_TYPE_URL[resource.type_url].message_type
        try:
            return self._printer.to_plain(self._catalogue.message_class(message_type).FromString(resource.body))
        except ApiError:
            return {}

    def _place(self, resource: Resource, field_path: FieldPath) -> tuple[int, int, FieldPath]:
        """Return line, column and path as the author wrote them."""
        origin = resource.origin
        row, content = format_of(origin.path), self._read(origin.path)
        if row is None or content is None or row.name == "binary":
            return origin.line, 1, origin.field_path + field_path
        if row.name != "textproto":
            decoded = row.decode(content, self._catalogue, None).documents
            document = decoded[origin.document] if origin.document < len(decoded) else None
            value = document.value if isinstance(document, PlainDocument) else None
            field_path = authored_path(_inner(value, origin.field_path), field_path)
        path = origin.field_path + field_path
        wanted = origin.document, path
        line, column = locate_all(content, (wanted,), is_textproto=row.name == "textproto")[wanted]
        return line, column, path


def _inner(value: PlainValue, path: FieldPath) -> PlainValue:
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
    return value


def _beside(others: tuple[Resource, ...]) -> str:
    """Name the resources without which there would be no problem."""
    if not others:
        return ""
    named = (f'"{other.name}" at {other.origin}' for other in others)
    return f", beside {' and '.join(named)}"
