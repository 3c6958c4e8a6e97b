"""Whether a tree is what its manifest says, and who signed that; what was trusted last stays.

| rule | problem |
| --- | --- |
| A tree has a manifest and its signature. | `manifest-missing` |
| Both can be read, and have their form. | `manifest-malformed` |
| The signer is one who is trusted, at this moment, and signed this. | `signer-…`, `signature-wrong` |
| No manifest is older than one that was trusted before, or another one of the same serial. | `manifest-replayed` |
| The files are those of the manifest: none more, none fewer, none with another byte. | `file-unsigned`, `file-missing`, `file-changed` |

A tree that breaks one is held back as a whole, and not even parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Protocol

from fsxds.signing.anchors import TrustedSigners
from fsxds.signing.offered import OfferedManifest
from fsxds.signing.tree_manifest import ManifestError, TreeManifest, digest_of, read_manifest
from fsxds.signing.untrusted import UntrustedError
from fsxds.values import MANIFEST, MANIFEST_SIGNATURE, NO_MANIFEST, Problem, Severity, SourceTree

MANIFEST_PATH, SIGNATURE_PATH = PurePosixPath(MANIFEST), PurePosixPath(MANIFEST_SIGNATURE)

# Files of one tree that are named; the others are counted.
MOST_NAMED = 20

_SIGN = "sign the tree by `fsxds sign`"
_SIGN_AGAIN = "sign the tree again by `fsxds sign`"


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


@dataclass(frozen=True, slots=True)
class SignedManifest:
    """A manifest that was verified: what it says, its digest, and who signed it."""

    manifest: TreeManifest
    digest: str
    signer: str

    def replay_fault(self, newest: SeenManifest | None) -> UntrustedError | None:
        """Return why it may be an old one that somebody put back, given the newest that was seen; None where it is not."""
        serial = self.manifest.serial
        if newest is None or serial > newest.serial or (serial, self.digest) == (newest.serial, newest.digest):
            return None
        if serial == newest.serial:
            fact = f"the serial {serial} is that of another manifest, which was seen before"
        else:
            fact = f"the serial {serial} is older than {newest.serial}, which was seen before"
        return UntrustedError("manifest-replayed", fact, f"restore the newer tree, or {_SIGN_AGAIN}")


def verified(manifest: bytes, signature: bytes, anchors: TrustedSigners, now_s: float) -> SignedManifest:
    """Verify a manifest, and return what it says.

    Args:
        manifest: its bytes.
        signature: those of its signature file.
        anchors: who is trusted to sign.
        now_s: seconds since 1970, when the signer has to be trusted.

    Raises:
        UntrustedError: it is not signed by one of these, or one of the two has another form.
    """
    part = "signature"
    try:
        signer = anchors.verify(manifest, signature, now_s)
        part = "manifest"
        # Of what is not signed, nothing is read.
        return SignedManifest(read_manifest(manifest), digest_of(manifest), signer)
    except ManifestError as error:
        raise UntrustedError("manifest-malformed", f"the {part} cannot be read: {error}", _SIGN_AGAIN) from error


def verified_tree(
    tree: SourceTree, anchors: TrustedSigners, now_s: float, known: SignedManifest | None = None
) -> SignedManifest | tuple[Problem, ...]:
    """Return the manifest of a tree that is what it says; otherwise why it is not, one problem at least.

    Args:
        tree: as it was read.
        anchors: who is trusted to sign.
        now_s: seconds since 1970.
        known: what was found of this very tree before: only whether its signer is still trusted is asked again.
    """
    manifest, signature = tree.signed.manifest, tree.signed.signature
    if tree.signed.problems:
        return tree.signed.problems
    if manifest is None or signature is None:
        path, what = (MANIFEST_PATH, "manifest") if manifest is None else (SIGNATURE_PATH, "signature of its manifest")
        return (Problem.of_file(path, "manifest-missing", f"the tree has no {what}", _SIGN),)
    try:
        if known is not None:
            anchors.verify(manifest.content, signature.content, now_s)
            return known
        signed = verified(manifest.content, signature.content, anchors, now_s)
    except UntrustedError as error:
        return (_problem_of(error),)
    return _named(_file_faults(tree, signed.manifest)) or signed


class TreeTrust:
    """Decides which trees of one server may be loaded, one after the other."""

    def __init__(self, seen: SeenManifests | None = None) -> None:
        """Remember what was trusted in `seen`, or as long as this process lasts."""
        self.seen: SeenManifests = SeenInProcess() if seen is None else seen
        self._last: SourceTree | None = None
        # What that was found to be; None where nobody had to sign it.
        self._found: SignedManifest | None = None

    @property
    def offered(self) -> tuple[OfferedManifest, ...]:
        """The manifest of the tree that was trusted last, and its signature, if it has both."""
        signed = NO_MANIFEST if self._last is None else self._last.signed
        if signed.manifest is None or signed.signature is None:
            return ()
        return (OfferedManifest(signed.manifest.content, signed.signature.content),)

    def decide(
        self, tree: SourceTree, anchors: TrustedSigners | None, now_s: float, *, has_layers: bool = False
    ) -> TrustDecision:
        """Return what of a tree may be loaded: all of it, or what was trusted last.

        Args:
            tree: the tree as it was read.
            anchors: who is trusted to sign; None where nothing is verified.
            now_s: seconds since 1970.
            has_layers: folders of the tree are layers of views.
        """
        found = () if anchors is None else self._verified(tree, anchors, now_s)
        if isinstance(found, tuple) and found:
            kept = nothing_of(tree, found, has_layers=has_layers) if self._last is None else self._last
            return TrustDecision(kept, found, has_last_good=self._last is not None)
        if isinstance(found, SignedManifest):
            seen = SeenManifest(found.manifest.serial, found.digest)
            if self.seen.newest("") != seen:
                self.seen.keep("", seen)
        self._last = tree
        self._found = found if isinstance(found, SignedManifest) else None
        return TrustDecision(tree)

    def _verified(
        self, tree: SourceTree, anchors: TrustedSigners, now_s: float
    ) -> SignedManifest | tuple[Problem, ...]:
        known = self._found if tree is self._last else None
        found = verified_tree(tree, anchors, now_s, known)
        if isinstance(found, tuple):
            return found
        fault = found.replay_fault(self.seen.newest(""))
        return found if fault is None else (_problem_of(fault),)


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


def nothing_of(tree: SourceTree, faults: tuple[Problem, ...], *, has_layers: bool = False) -> SourceTree:
    """Return a tree in which nothing can be read, since it is not trusted and no other one was."""
    folders = {folder for file in tree.files for folder in file.path.parents} if has_layers else set[PurePosixPath]()
    paths = ({MANIFEST_PATH} | folders) - {PurePosixPath(), *(problem.path for problem in faults)}
    fact, remedy = "nothing here is read: the tree is not trusted", "see what is wrong with its manifest and its files"
    others = (Problem.of_file(path, "tree-untrusted", fact, remedy) for path in paths)
    return replace(tree, files=(), problems=tuple(sorted((*faults, *others))))


def _problem_of(error: UntrustedError) -> Problem:
    path = SIGNATURE_PATH if error.rule.startswith("signer-") else MANIFEST_PATH
    return Problem.of_file(path, error.rule, error.fact, error.remedy)


def _file_faults(tree: SourceTree, manifest: TreeManifest) -> Iterator[Problem]:
    """Yield a problem for each file that is not what the manifest says."""
    signed = f"what was signed (serial {manifest.serial})"
    unreadable = {str(one.path): one.message for one in tree.problems if one.severity is Severity.ERROR}
    excluded = frozenset(tree.excluded)
    for file in tree.files:
        digest = manifest.files.get(str(file.path))
        if digest is None:
            remedy = f"remove it, or {_SIGN_AGAIN}"
            yield Problem.of_file(file.path, "file-unsigned", f"the file is not part of {signed}", remedy)
        elif digest != file.digest:
            remedy = f"restore it, or {_SIGN_AGAIN}"
            yield Problem.of_file(file.path, "file-changed", f"the content is not {signed}", remedy)
    found = {str(file.path) for file in tree.files}
    for name in manifest.files.keys() - found:
        path = PurePosixPath(name)
        # What the operator of this machine leaves out is no matter of who signs.
        if excluded.isdisjoint((path, *path.parents)):
            fact = f"cannot be read: {unreadable[name]}" if name in unreadable else "is not here"
            fact = f"the file is part of {signed}, and {fact}"
            yield Problem.of_file(path, "file-missing", fact, f"restore it, or {_SIGN_AGAIN}")


def _named(faults: Iterator[Problem]) -> tuple[Problem, ...]:
    """Return the first of many problems of files, and one that counts the others."""
    found = sorted(faults)
    if len(found) <= MOST_NAMED:
        return tuple(found)
    fact = f"{len(found) - MOST_NAMED} more files of the tree are not what was signed"
    return (Problem.of_file(MANIFEST_PATH, "tree-untrusted", fact, _SIGN_AGAIN), *found[:MOST_NAMED])
