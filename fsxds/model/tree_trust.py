"""Trust in trees: who signs, what was seen, and the tree to load in place of one without trust."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Protocol

from fsxds.model.values import MANIFEST, Problem, SourceTree

MANIFEST_PATH = PurePosixPath(MANIFEST)

# The largest number that a database and JSON of other programs hold exactly.
LARGEST_SERIAL = 2**53 - 1


class TrustedSigners(Protocol):
    """Equal objects trust the same signers."""

    def verify(self, manifest: bytes, signature: bytes, now_s: float) -> str:
        """Return a manifest's trusted signer; see `signatures.TrustAnchors`."""


@dataclass(frozen=True, slots=True)
class SeenManifest:
    """A trusted manifest's serial and digest."""

    serial: int
    digest: str


class SeenManifests(Protocol):
    """Remembers the newest trusted manifest of each subject."""

    def newest(self, subject: str) -> SeenManifest | None:
        """Return the newest, or None."""

    def keep(self, subject: str, seen: SeenManifest) -> None:
        """Remember a newer one."""


class SeenInProcess:
    """Remembers manifests until the process ends."""

    def __init__(self) -> None:
        self._seen: dict[str, SeenManifest] = {}

    def newest(self, subject: str) -> SeenManifest | None:
        """Return the newest, or None."""
        return self._seen.get(subject)

    def keep(self, subject: str, seen: SeenManifest) -> None:
        """Remember a newer one."""
        self._seen[subject] = seen


class TreeVerifier(Protocol):
    """Verifies whole trees."""

    def faults(self, tree: SourceTree, now_s: float) -> tuple[Problem, ...]:
        """Return why a tree is not trusted now, in seconds since 1970. May block."""


def nothing_of(tree: SourceTree, faults: tuple[Problem, ...], *, has_layers: bool = False) -> SourceTree:
    """Return an empty tree with problems."""
    folders = {folder for file in tree.files for folder in file.path.parents} if has_layers else set[PurePosixPath]()
    paths = ({MANIFEST_PATH} | folders) - {PurePosixPath(), *(problem.path for problem in faults)}
    fact, remedy = "no file here is read: the tree is not trusted", "see the problems of its manifest and its files"
    others = (Problem.of_file(path, "tree-untrusted", fact, remedy) for path in paths)
    return replace(tree, files=(), problems=tuple(sorted((*faults, *others))))
