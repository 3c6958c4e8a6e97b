"""What is known of the files that are ours: the manifest on disk, and what we remember to have written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import PurePosixPath

from fsxds.resources import Snapshot
from fsxds.transports.mirror_content import Content
from fsxds.transports.mirror_directory import MANIFEST, MirrorDirectory, Signature
from fsxds.transports.mirror_files import BUNDLES, HeldFile, MirrorFile
from fsxds.transports.mirror_manifest import ManifestRow, decode_manifest, encode_manifest


class MirrorRecords:
    """The files of one directory that fsxds wrote, across restarts.

    `load` comes first; `announce` before any file changes, `save` after, so that a crash leaves no file nobody knows.
    """

    def __init__(self, directory: MirrorDirectory, content: Content) -> None:
        self._directory = directory
        self._content = content
        self._is_loaded = False
        self._rows: dict[PurePosixPath, ManifestRow] = {}
        # The manifest as it is on disk.
        self._manifest = b""
        self._manifest_signature: Signature | None = None
        # What we know to be in a file while it has the signature.
        self._known: dict[PurePosixPath, tuple[Signature | None, MirrorFile]] = {}

    def forget(self) -> None:
        """Have the next `load` read the manifest again: somebody else may have had the directory."""
        self._is_loaded = False

    def load(self) -> None:
        """Read the manifest, unless it is known. Where it is damaged, no file is known to be ours."""
        if self._is_loaded:
            return
        self._known = {}
        self._manifest = self._directory.read(MANIFEST) or b""
        self._manifest_signature = self._directory.signature(MANIFEST)
        try:
            self._rows = decode_manifest(self._manifest) if self._manifest else {}
        except ValueError:
            # Then equal files are taken over, and others refused with what to do.
            self._rows = {}
        self._is_loaded = True

    # -- looking

    def owns(self, path: PurePosixPath) -> bool:
        """Tell whether fsxds wrote the file, or was about to."""
        return path in self._rows

    def owns_content(self, path: PurePosixPath, content: bytes | None) -> bool:
        """Tell whether a file of ours still holds what fsxds wrote; None stands for one that is not there."""
        return content is not None and self._rows[path].digest in {None, hashlib.sha256(content).hexdigest()}

    def changed_by_others(self) -> dict[PurePosixPath, Signature | None]:
        """Return the files of ours that somebody removed or wrote since, with what is there now.

        The manifest is one of them: with the folder that it is in, somebody may have removed the lock.
        """
        known = {path: signature for path, (signature, _) in self._known.items()}
        if self._manifest:
            known[MANIFEST] = self._manifest_signature
        found = {path: self._directory.signature(path) for path in known}
        return {path: signature for path, signature in found.items() if signature != known[path]}

    def held(self, snapshot: Snapshot) -> dict[PurePosixPath, HeldFile]:
        """Return our files that are there, and forget those that are not.

        Bundles that would lose something to this snapshot are read, if need be: to keep it, or to keep it for a while.
        """
        held: dict[PurePosixPath, HeldFile] = {}
        for path, row in list(self._rows.items()):
            signature = self._directory.signature(path)
            if signature is None:
                self.drop(path)
                continue
            known = self._known.get(path)
            content = known[1] if known and known[0] == signature else None
            if content is None and row.type_url in BUNDLES and set(row.names) - snapshot.resources(row.type_url).keys():
                content = self._read(path, row, signature)
            held[path] = HeldFile(row.type_url, row.names, content, row.is_stand_in)
        return held

    def _read(self, path: PurePosixPath, row: ManifestRow, signature: Signature) -> MirrorFile | None:
        content = self._content.decode(self._directory.read(path) or b"", path, row.type_url)
        if content is not None:
            self._known[path] = signature, content
        return content

    # -- changing

    def announce(self, files: Iterable[MirrorFile]) -> None:
        """Write down what will be ours."""
        self._write(self._rows | {file.path: _row(file, None) for file in files})

    def record(self, file: MirrorFile, content: bytes, signature: Signature | None) -> None:
        """Remember that a file holds this now, while it has this signature."""
        self._rows[file.path] = _row(file, hashlib.sha256(content).hexdigest())
        self._known[file.path] = signature, file

    def drop(self, path: PurePosixPath) -> None:
        """Forget a file that is not ours any more."""
        del self._rows[path]
        self._known.pop(path, None)

    def save(self) -> None:
        """Write the manifest, if it is not what is on disk."""
        self._write(self._rows)

    def _write(self, rows: dict[PurePosixPath, ManifestRow]) -> None:
        content = encode_manifest(rows)
        if content != self._manifest:
            self._manifest_signature = self._directory.replace(MANIFEST, content, is_private=True)
            self._directory.sync()
            self._manifest = content


def _row(file: MirrorFile, digest: str | None) -> ManifestRow:
    return ManifestRow(file.type_url, file.names, digest, file.is_stand_in)
