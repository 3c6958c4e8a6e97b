"""Which files of the output directory are ours, as a value and as the bytes that remember it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.resource_types import BY_TYPE_URL
from fsxds.transports.mirror_files import BUNDLES, FORMS, SINGLES
from fsxds.values import TypeUrl

LAYOUT = 1
"""Counts up when a manifest of before would be misread."""


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One file of ours: the type and the names it holds, and whether it is a stand-in (see `MirrorFile`).

    `digest` is the SHA-256 of its bytes, None while it is about to be written: it is ours then, whatever it holds.
    """

    type_url: TypeUrl
    names: tuple[str, ...]
    digest: str | None
    is_stand_in: bool = False


Rows = Mapping[PurePosixPath, ManifestRow]


def encode_manifest(rows: Rows) -> bytes:
    """Write the manifest: the same rows make the same bytes."""
    files = [_fields(path, row) for path, row in sorted(rows.items())]
    return json.dumps({"layout": LAYOUT, "files": files}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _fields(path: PurePosixPath, row: ManifestRow) -> dict[str, object]:
    fields: dict[str, object] = {"path": str(path), "type_url": row.type_url, "names": row.names, "sha256": row.digest}
    return fields | {"is_stand_in": True} if row.is_stand_in else fields


def decode_manifest(content: bytes) -> dict[PurePosixPath, ManifestRow]:
    """Read a manifest.

    Raises:
        ValueError: it is not one, or it names a file that fsxds cannot have written.
    """
    try:
        document = json.loads(content)
        if document["layout"] != LAYOUT:
            raise ValueError(f"layout {document['layout']!r} is not {LAYOUT}")
        return {_checked(PurePosixPath(row["path"])): _row(row) for row in document["files"]}
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a manifest of fsxds: {error!r}") from error


def _row(fields: Mapping[str, object]) -> ManifestRow:
    type_url, names, digest = fields["type_url"], fields["names"], fields["sha256"]
    if type_url not in BY_TYPE_URL or not isinstance(names, list) or not isinstance(digest, str | None):
        raise ValueError(f"not a row of a manifest: {fields!r}")
    return ManifestRow(TypeUrl(str(type_url)), tuple(map(str, names)), digest, fields.get("is_stand_in") is True)


def _checked(path: PurePosixPath) -> PurePosixPath:
    """Refuse what would lead out of the directory: rows are files that may be overwritten and removed."""
    stem, _, form = path.name.rpartition(".")
    is_bundle = len(path.parts) == 1
    words = {BY_TYPE_URL[type_url].short_name for type_url in (BUNDLES if is_bundle else SINGLES)}
    if form not in FORMS or (stem if is_bundle else str(path.parent)) not in words:
        raise ValueError(f"fsxds writes no file {str(path)!r}")
    return path
