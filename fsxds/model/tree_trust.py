"""Decides which trees may be loaded, or else the last trusted one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Protocol

from fsxds.model.values import MANIFEST, NO_MANIFEST, OfferedManifest, Problem, SourceTree

MANIFEST_PATH = PurePosixPath(MANIFEST)


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


@dataclass(frozen=True, slots=True)
class TrustDecision:
    """The tree that may be loaded.

    `faults` say why it is not the one read; `has_last_good`: there is a trusted one.
    """

    tree: SourceTree
    faults: tuple[Problem, ...] = ()
    has_last_good: bool = True


class TreeTrust:
    """Decides which trees of one server may be loaded."""

    def __init__(self) -> None:
        self._last: SourceTree | None = None

    @property
    def offered(self) -> tuple[OfferedManifest, ...]:
        """The last trusted tree's manifest and signature, if it has both."""
        return (NO_MANIFEST if self._last is None else self._last.signed).offered

    def decide(
        self, tree: SourceTree, verifier: TreeVerifier | None, now_s: float, *, has_layers: bool = False
    ) -> TrustDecision:
        """Return this tree, or the last trusted one.

        `verifier` is None if all are trusted. `now_s` is since 1970. `has_layers`: folders are views' layers.
        """
        faults = () if verifier is None else verifier.faults(tree, now_s)
        if faults:
            kept = nothing_of(tree, faults, has_layers=has_layers) if self._last is None else self._last
            return TrustDecision(kept, faults, has_last_good=self._last is not None)
        self._last = tree
        return TrustDecision(tree)


def nothing_of(tree: SourceTree, faults: tuple[Problem, ...], *, has_layers: bool = False) -> SourceTree:
    """Return an empty tree with problems."""
    folders = {folder for file in tree.files for folder in file.path.parents} if has_layers else set[PurePosixPath]()
    paths = ({MANIFEST_PATH} | folders) - {PurePosixPath(), *(problem.path for problem in faults)}
    fact, remedy = "no file here is read: the tree is not trusted", "see the problems of its manifest and its files"
    others = (Problem.of_file(path, "tree-untrusted", fact, remedy) for path in paths)
    return replace(tree, files=(), problems=tuple(sorted((*faults, *others))))
