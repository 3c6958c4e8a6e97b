"""A tree's manifest, for signing.

It is one JSON object, signed byte for byte:

| key | value |
| --- | --- |
| `form` | `fsxds-manifest-1` |
| `serial` | a number that grows with each manifest, so that an older one is detected |
| `made` | when it was made, for people |
| `files` | `{path: SHA-256}` of each file that fsxds reads; paths are relative to the tree |
| `resources` | `{type URL: {name: [SHA-256, ...]}}` of each resource served in any view; of its serialized message |
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fsxds.model.errors import FsxdsError
from fsxds.model.resources import Resource
from fsxds.model.tree_trust import LARGEST_SERIAL
from fsxds.model.values import SourceFile, TypeUrl

FORM = "fsxds-manifest-1"

_DIGEST = re.compile(r"[0-9a-f]{64}")


class ManifestError(FsxdsError):
    """A text is no manifest, or no signature of one."""


@dataclass(frozen=True, slots=True)
class TreeManifest:
    """A tree's content.

    `serial` grows from 1; `made` is for people. `files` are digests by path, `resources` by type and name, several if
    views differ.
    """

    serial: int
    made: str = ""
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    resources: Mapping[TypeUrl, Mapping[str, frozenset[str]]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, serial: int, made: str, files: Iterable[SourceFile], resources: Iterable[Resource]) -> TreeManifest:
        """Create the manifest of files and resources."""
        digests = defaultdict[TypeUrl, defaultdict[str, set[str]]](lambda: defaultdict(set))
        for resource in resources:
            digests[resource.type_url][resource.name].add(digest_of(resource.body))
        return cls(
            serial,
            made,
            {str(file.path): file.digest for file in files},
            {one: {name: frozenset(each) for name, each in names.items()} for one, names in digests.items()},
        )

    def lists(self, type_url: TypeUrl, name: str, digest: str) -> bool:
        """Whether a resource with this content is listed."""
        return digest in self.resources.get(type_url, {}).get(name, ())


def digest_of(content: bytes) -> str:
    """Return the digest of content."""
    return hashlib.sha256(content).hexdigest()


def write_manifest(manifest: TreeManifest) -> bytes:
    """Write a manifest with one digest per line, for version control."""
    written = {
        "form": FORM,
        "serial": manifest.serial,
        "made": manifest.made,
        "files": manifest.files,
        "resources": {
            type_url: {name: sorted(digests) for name, digests in names.items()}
            for type_url, names in manifest.resources.items()
        },
    }
    return f"{json.dumps(written, indent=1, sort_keys=True)}\n".encode()


def read_manifest(content: bytes) -> TreeManifest:
    """Read a manifest. Raises ManifestError if it is malformed."""
    written = read_object(content)
    if written.get("form") != FORM:
        raise ManifestError(f"its form is not {FORM}")
    serial, made = written.get("serial"), written.get("made", "")
    if not isinstance(serial, int) or isinstance(serial, bool) or not 0 < serial <= LARGEST_SERIAL:
        raise ManifestError(f"its serial is no number from 1 to {LARGEST_SERIAL}")
    if not isinstance(made, str):
        raise ManifestError("`made` is no text")
    files = {path: _digest(digest) for path, digest in _mapping(written, "files").items()}
    types = _mapping(written, "resources")
    resources = {
        TypeUrl(type_url): {name: _digests(digests) for name, digests in _mapping(types, type_url).items()}
        for type_url in types
    }
    return TreeManifest(serial, made, files, resources)


def read_object(content: bytes) -> dict[str, object]:
    """Read a JSON object without duplicate keys. Raises ManifestError."""
    try:
        written = json.loads(content, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ManifestError("it is no JSON") from error
    if not isinstance(written, dict):
        raise ManifestError("it is no JSON object")
    return written


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ManifestError("a key stands twice in it")
    return made


def _mapping(written: Mapping[str, object], key: str) -> dict[str, object]:
    value = written.get(key)
    if not isinstance(value, dict):
        raise ManifestError(f"`{key}` is no object")
    return value


def _digest(written: object) -> str:
    if not isinstance(written, str) or not _DIGEST.fullmatch(written):
        raise ManifestError("a digest in it is no SHA-256 in lower case")
    return written


def _digests(written: object) -> frozenset[str]:
    if not isinstance(written, list):
        raise ManifestError("the digests of a resource are no list")
    return frozenset(map(_digest, written))
