"""Which trees may be loaded: each one, or those that a verifier finds no fault with. What was trusted last stays.

The verifier is a capability: see `signing/`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Protocol

from fsxds.model.values import MANIFEST, NO_MANIFEST, OfferedManifest, Problem, SourceTree

MANIFEST_PATH = PurePosixPath(MANIFEST)


class TrustedSigners(Protocol):
    """Who is trusted to sign. Equal ones trust the same."""

    def verify(self, manifest: bytes, signature: bytes, now_s: float) -> str:
        """Verify that a manifest is signed by one who is trusted, and return who that is; see `signatures.TrustAnchors`."""


@dataclass(frozen=True, slots=True)
class SeenManifest:
    """Which manifest was trusted: its serial, and the digest of its bytes."""

    serial: int
    digest: str


class SeenManifests(Protocol):
    """Remembers the newest manifest that was trusted of each subject, so that an older one is known as such."""

    def newest(self, subject: str) -> SeenManifest | None:
        """Return the newest one; None for a subject of which none was seen."""

    def keep(self, subject: str, seen: SeenManifest) -> None:
        """Remember a newer one."""


class SeenInProcess:
    """Remembers as long as the process lasts."""

    def __init__(self) -> None:
        self._seen: dict[str, SeenManifest] = {}

    def newest(self, subject: str) -> SeenManifest | None:
        """Return the newest one."""
        return self._seen.get(subject)

    def keep(self, subject: str, seen: SeenManifest) -> None:
        """Remember a newer one."""
        self._seen[subject] = seen


class TreeVerifier(Protocol):
    """Verifies trees as a whole, one after the other."""

    def faults(self, tree: SourceTree, now_s: float) -> tuple[Problem, ...]:
        """Return why a tree is not trusted at a time, in seconds since 1970; nothing if it is. It may block."""


@dataclass(frozen=True, slots=True)
class TrustDecision:
    """What of a tree may be loaded.

    Attributes:
        tree: what is to be loaded.
        faults: why that is not what was read; nothing where it is.
        has_last_good: it is what was trusted before.
    """

    tree: SourceTree
    faults: tuple[Problem, ...] = ()
    has_last_good: bool = True


class TreeTrust:
    """Decides which trees of one server may be loaded, one after the other."""

    def __init__(self) -> None:
        self._last: SourceTree | None = None

    @property
    def offered(self) -> tuple[OfferedManifest, ...]:
        """The manifest of the tree that was trusted last, and its signature, if it has both."""
        return (NO_MANIFEST if self._last is None else self._last.signed).offered

    def decide(
        self, tree: SourceTree, verifier: TreeVerifier | None, now_s: float, *, has_layers: bool = False
    ) -> TrustDecision:
        """Return what of a tree may be loaded: all of it, or what was trusted last.

        Args:
            tree: the tree as it was read.
            verifier: finds what is wrong with it; None if every tree is trusted.
            now_s: seconds since 1970.
            has_layers: folders of the tree are layers of views.
        """
        faults = () if verifier is None else verifier.faults(tree, now_s)
        if faults:
            kept = nothing_of(tree, faults, has_layers=has_layers) if self._last is None else self._last
            return TrustDecision(kept, faults, has_last_good=self._last is not None)
        self._last = tree
        return TrustDecision(tree)


def nothing_of(tree: SourceTree, faults: tuple[Problem, ...], *, has_layers: bool = False) -> SourceTree:
    """Return a tree in which nothing can be read, since it is not trusted and no other one was."""
    folders = {folder for file in tree.files for folder in file.path.parents} if has_layers else set[PurePosixPath]()
    paths = ({MANIFEST_PATH} | folders) - {PurePosixPath(), *(problem.path for problem in faults)}
    fact, remedy = "nothing here is read: the tree is not trusted", "see what is wrong with its manifest and its files"
    others = (Problem.of_file(path, "tree-untrusted", fact, remedy) for path in paths)
    return replace(tree, files=(), problems=tuple(sorted((*faults, *others))))
