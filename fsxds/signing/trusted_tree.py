"""Verifies a tree by its manifest; the last trusted tree stays.

| rule | problem |
| --- | --- |
| A tree has a manifest and its signature. | `manifest-missing` |
| Both can be read, and have their form. | `manifest-malformed` |
| The signer is trusted now, and signed this. | `signer-...`, `signature-wrong` |
| No manifest is older than a trusted one, or another of its serial. | `manifest-replayed` |
| The files match: none more, none fewer, none with another byte. | `file-unsigned`, `file-missing`, `file-changed` |

A tree that breaks a rule is held back whole, and not even parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsxds.model.errors import UsageError
from fsxds.model.tree_trust import MANIFEST_PATH, SeenManifest, SeenManifests, TrustedSigners
from fsxds.model.values import MANIFEST_SIGNATURE, Problem, Severity, SourceTree
from fsxds.signing.certificates import UntrustedError
from fsxds.signing.tree_manifest import ManifestError, TreeManifest, digest_of, read_manifest

SIGNATURE_PATH = PurePosixPath(MANIFEST_SIGNATURE)

# The number of files of one tree that are named; further ones are counted.
MOST_NAMED = 20

_SIGN = "sign the tree by `fsxds sign`"
_SIGN_AGAIN = "sign the tree again by `fsxds sign`"


@dataclass(frozen=True, slots=True)
class SignedManifest:
    """A verified manifest."""

    manifest: TreeManifest
    digest: str
    signer: str

    def replay_fault(self, newest: SeenManifest | None) -> UntrustedError | None:
        """Return why a manifest may be a replayed old one, or None."""
        serial = self.manifest.serial
        if newest is None or serial > newest.serial or (serial, self.digest) == (newest.serial, newest.digest):
            return None
        if serial == newest.serial:
            fact = f"the serial {serial} is that of another manifest, which was seen before"
        else:
            fact = f"the serial {serial} is older than {newest.serial}, which was seen before"
        return UntrustedError("manifest-replayed", fact, f"restore the newer tree, or {_SIGN_AGAIN}")


def verified(manifest: bytes, signature: bytes, anchors: TrustedSigners, now_s: float) -> SignedManifest:
    """Verify a manifest; `now_s` is since 1970.

    Raises UntrustedError: no trusted signer signed it, or one of the two is malformed.
    """
    part = "signature"
    try:
        signer = anchors.verify(manifest, signature, now_s)
        part = "manifest"
        # An unsigned manifest is not read.
        return SignedManifest(read_manifest(manifest), digest_of(manifest), signer)
    except ManifestError as error:
        raise UntrustedError("manifest-malformed", f"the {part} cannot be read: {error}", _SIGN_AGAIN) from error


def verified_tree(
    tree: SourceTree, anchors: TrustedSigners, now_s: float, known: SignedManifest | None = None
) -> SignedManifest | tuple[Problem, ...]:
    """Return the manifest that a tree matches, or at least one problem.

    `now_s` is since 1970. `known` is this very tree's earlier result: only its signer's trust is verified again.
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


class ManifestVerifier:
    """Verifies trees by their manifests: see `tree_trust.TreeVerifier`."""

    def __init__(self, anchors: TrustedSigners, seen: SeenManifests) -> None:
        """Trusted manifests are remembered in `seen`."""
        self._anchors, self._seen = anchors, seen
        # The last trusted tree, and its manifest.
        self._found: tuple[SourceTree, SignedManifest] | None = None

    def faults(self, tree: SourceTree, now_s: float) -> tuple[Problem, ...]:
        """Return why a tree is not trusted, or empty."""
        known = self._found[1] if self._found is not None and self._found[0] is tree else None
        found = verified_tree(tree, self._anchors, now_s, known)
        if isinstance(found, tuple):
            return found
        fault, seen = found.replay_fault(self._seen.newest("")), SeenManifest(found.manifest.serial, found.digest)
        if fault is not None:
            return (_problem_of(fault),)
        if self._seen.newest("") != seen:
            self._seen.keep("", seen)
        self._found = tree, found
        return ()


def _problem_of(error: UntrustedError) -> Problem:
    path = SIGNATURE_PATH if error.rule.startswith("signer-") else MANIFEST_PATH
    return Problem.of_file(path, error.rule, error.fact, error.remedy)


def _file_faults(tree: SourceTree, manifest: TreeManifest) -> Iterator[Problem]:
    signed = f"the signed tree (serial {manifest.serial})"
    unreadable = {str(one.path): one.message for one in tree.problems if one.severity is Severity.ERROR}
    excluded = frozenset(tree.excluded)
    for file in tree.files:
        digest = manifest.files.get(str(file.path))
        if digest is None:
            remedy = f"remove it, or {_SIGN_AGAIN}"
            yield Problem.of_file(file.path, "file-unsigned", f"the file is not part of {signed}", remedy)
        elif digest != file.digest:
            remedy = f"restore it, or {_SIGN_AGAIN}"
            yield Problem.of_file(file.path, "file-changed", f"the content is not as in {signed}", remedy)
    found = {str(file.path) for file in tree.files}
    for name in manifest.files.keys() - found:
        path = PurePosixPath(name)
        # Files that the operator of this machine excludes do not concern the signer.
        if excluded.isdisjoint((path, *path.parents)):
            fact = f"cannot be read: {unreadable[name]}" if name in unreadable else "is not here"
            fact = f"the file is part of {signed}, and {fact}"
            yield Problem.of_file(path, "file-missing", fact, f"restore it, or {_SIGN_AGAIN}")


def _named(faults: Iterator[Problem]) -> tuple[Problem, ...]:
    found = sorted(faults)
    if len(found) <= MOST_NAMED:
        return tuple(found)
    fact = f"{len(found) - MOST_NAMED} more files of the tree are not as signed"
    return (Problem.of_file(MANIFEST_PATH, "tree-untrusted", fact, _SIGN_AGAIN), *found[:MOST_NAMED])


_MOST_BYTES = 4 * 1024 * 1024


def read_anchors(path: Path) -> TrustedSigners:
    """Read a file's certificates.

    Raises UsageError: it cannot be read, has none, or `cryptography` is not installed.
    """
    try:
        # The extra "certificates" is only needed for verification.
        from fsxds.signing.signatures import TrustAnchors
    except ImportError as error:
        raise UsageError("verify_with: needs cryptography; pip install 'fsxds[certificates]'") from error
    remedy = "give a file that has the certificate of the CA in PEM"
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"verify_with: {path}: cannot be read: {error.strerror}; {remedy}") from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"verify_with: {path}: is larger than {_MOST_BYTES} bytes; {remedy}")
    try:
        return TrustAnchors.of(content)
    except UsageError as error:
        raise UsageError(f"verify_with: {path}: {error}; {remedy}") from error
