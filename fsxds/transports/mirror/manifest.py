"""The record of our files in the output directory: on disk, and of this process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Snapshot
from fsxds.model.values import TypeUrl
from fsxds.transports.mirror.directory import MANIFEST, MirrorDirectory, Signature
from fsxds.transports.mirror.files import BUNDLES, COLLECTIONS, FORMS, SINGLES, FileOnDisk, MirrorEncoding, MirrorFile
from fsxds.transports.mirror.resource_layout import is_path_of_resource

LAYOUT = 1
"""A manifest of another version is not read."""

# With its authority: `lcds/example.com/edge.yaml`.
_WITH_AUTHORITIES = {BY_TYPE_URL[type_url].short_name for type_url in COLLECTIONS}
_OF_AUTHORITY = 3


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One of our files, maybe a stand-in (see `MirrorFile`).

    `digest` is a SHA-256; None while it is about to be written: ours with any content.
    """

    type_url: TypeUrl
    names: tuple[str, ...]
    digest: str | None
    is_stand_in: bool = False


ManifestRows = Mapping[PurePosixPath, ManifestRow]


def encode_manifest(rows: ManifestRows) -> bytes:
    """Encode the manifest; equal rows, equal bytes."""
    files = [_fields(path, row) for path, row in sorted(rows.items())]
    return json.dumps({"layout": LAYOUT, "files": files}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _fields(path: PurePosixPath, row: ManifestRow) -> dict[str, object]:
    fields: dict[str, object] = {"path": str(path), "type_url": row.type_url, "names": row.names, "sha256": row.digest}
    return fields | {"is_stand_in": True} if row.is_stand_in else fields


def decode_manifest(content: bytes) -> dict[PurePosixPath, ManifestRow]:
    """Decode a manifest.

    Raises:
        ValueError: it is none, or it names a file that fsxds cannot have written.
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
    """Reject paths outside of the directory: rows' files may be overwritten and removed."""
    stem, _, form = path.name.rpartition(".")
    if form in FORMS and is_path_of_resource(path):
        return path
    is_bundle = len(path.parts) == 1
    words = {BY_TYPE_URL[type_url].short_name for type_url in (BUNDLES if is_bundle else SINGLES)}
    folder = path.parent
    if len(path.parts) == _OF_AUTHORITY and path.parts[0] in _WITH_AUTHORITIES and ".." not in path.parts:
        folder = folder.parent
    if form not in FORMS or (stem if is_bundle else str(folder)) not in words:
        raise ValueError(f"fsxds writes no file {str(path)!r}")
    return path


class MirrorRecords:
    """The files of one directory that fsxds wrote, across restarts.

    `load` first, `announce` before changes and `save` after: a crash leaves no unrecorded file.
    """

    def __init__(self, directory: MirrorDirectory, encoding: MirrorEncoding) -> None:
        self._directory = directory
        self._encoding = encoding
        self._is_loaded = False
        self._rows: dict[PurePosixPath, ManifestRow] = {}
        # As on disk.
        self._manifest = b""
        self._manifest_signature: Signature | None = None
        # Valid for this signature.
        self._known: dict[PurePosixPath, tuple[Signature | None, MirrorFile]] = {}

    def forget(self) -> None:
        """Have `load` read again: others may have used the directory."""
        self._is_loaded = False

    def load(self) -> None:
        """Read the manifest once; if damaged, we own no file."""
        if self._is_loaded:
            return
        self._known = {}
        self._manifest = self._directory.read(MANIFEST) or b""
        self._manifest_signature = self._directory.signature(MANIFEST)
        try:
            self._rows = decode_manifest(self._manifest) if self._manifest else {}
        except ValueError:
            # Equal files are adopted, others reported with a remedy.
            self._rows = {}
        self._is_loaded = True

    @property
    def paths(self) -> Collection[PurePosixPath]:
        """The paths of our files."""
        return self._rows.keys()

    def owns(self, path: PurePosixPath) -> bool:
        """Whether fsxds wrote the file, or was about to."""
        return path in self._rows

    def owns_content(self, path: PurePosixPath, content: bytes | None) -> bool:
        """Whether our file has our content; None: missing."""
        return content is not None and self._rows[path].digest in {None, hashlib.sha256(content).hexdigest()}

    def changed_by_others(self) -> dict[PurePosixPath, Signature | None]:
        """Return our files, and the manifest, that others changed or removed, with signatures.

        The lock may have been removed with them.
        """
        known = {path: signature for path, (signature, _) in self._known.items()}
        if self._manifest:
            known[MANIFEST] = self._manifest_signature
        found = {path: self._directory.signature(path) for path in known}
        return {path: signature for path, signature in found.items() if signature != known[path]}

    def held(self, snapshot: Snapshot) -> dict[PurePosixPath, FileOnDisk]:
        """Return our existing files; forget missing ones.

        A bundle that would lose resources is read, to keep them for a while.
        """
        held: dict[PurePosixPath, FileOnDisk] = {}
        for path, row in list(self._rows.items()):
            signature = self._directory.signature(path)
            if signature is None:
                self.drop(path)
                continue
            known = self._known.get(path)
            content = known[1] if known and known[0] == signature else None
            if content is None and row.type_url in BUNDLES and set(row.names) - snapshot.resources(row.type_url).keys():
                content = self._read(path, row, signature)
            held[path] = FileOnDisk(row.type_url, row.names, content, row.is_stand_in)
        return held

    def _read(self, path: PurePosixPath, row: ManifestRow, signature: Signature) -> MirrorFile | None:
        content = self._encoding.decode(self._directory.read(path) or b"", path, row.type_url)
        if content is not None:
            self._known[path] = signature, content
        return content

    def announce(self, files: Iterable[MirrorFile]) -> None:
        """Record that these files will be ours."""
        self._write(self._rows | {file.path: _row_of(file, None) for file in files})

    def record(self, file: MirrorFile, content: bytes, signature: Signature | None) -> None:
        """Record a file's content with its signature."""
        self._rows[file.path] = _row_of(file, hashlib.sha256(content).hexdigest())
        self._known[file.path] = signature, file

    def drop(self, path: PurePosixPath) -> None:
        """Forget a file."""
        del self._rows[path]
        self._known.pop(path, None)

    def save(self) -> None:
        """Write the manifest if it changed."""
        self._write(self._rows)

    def _write(self, rows: dict[PurePosixPath, ManifestRow]) -> None:
        content = encode_manifest(rows)
        if content != self._manifest:
            self._manifest_signature = self._directory.replace(MANIFEST, content, is_private=True)
            self._directory.sync()
            self._manifest = content


def _row_of(file: MirrorFile, digest: str | None) -> ManifestRow:
    return ManifestRow(file.type_url, file.names, digest, file.is_stand_in)
