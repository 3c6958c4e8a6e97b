from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from fsxds.model.tree_trust import SeenInProcess, nothing_of
from fsxds.model.values import MANIFEST, NO_MANIFEST, Problem, SourceFile, SourceTree
from fsxds.server.reload import TreeTrust
from fsxds.signing.signatures import Signer
from fsxds.signing.tree_manifest import TreeManifest, write_manifest
from fsxds.signing.trusted_tree import MOST_NAMED, ManifestVerifier, SignedManifest, verified_tree
from tests.support.signing import (
    NOW,
    NOW_S,
    SERVER_AUTH,
    Spec,
    anchors,
    authority,
    key_of,
    signed_tree,
    signer,
    with_manifest,
    with_signed,
)
from tests.support.trees import tree_of

FILES = {"cds.yaml": "[{name: a}]", "edge/lds.yaml": "[]"}
SIGNED = signed_tree(FILES)
LATER_S = (NOW + dt.timedelta(hours=2)).timestamp()


def faults_of(tree: SourceTree, now_s: float = NOW_S) -> list[str]:
    """Return what is wrong with a tree, as users read it."""
    found = verified_tree(tree, anchors(), now_s)
    return [] if isinstance(found, SignedManifest) else list(map(str, found))


def verifier() -> ManifestVerifier:
    """Return one that trusts the CA."""
    return ManifestVerifier(anchors(), SeenInProcess())


def test_a_tree_as_it_was_signed() -> None:
    """It is trusted, and what its manifest says is known."""
    found = verified_tree(SIGNED, anchors(), NOW_S)

    assert isinstance(found, SignedManifest)
    assert (found.signer, found.manifest.serial, set(found.manifest.files)) == ("CN=release", 1, set(FILES))


def other_signer(spec: Spec) -> SourceTree:
    """Return the tree, signed with another certificate of the CA."""
    content = SIGNED.signed.manifest.content if SIGNED.signed.manifest else b""
    owner = authority().issue("release", key_of("secp256r1", 30), spec)
    return with_signed(SIGNED, content, Signer(owner.key, (owner.certificate,)).sign(content))


def changed(path: str, content: bytes | None) -> SourceTree:
    """Return the tree with another file; None removes it."""
    files = [file for file in SIGNED.files if str(file.path) != path]
    files += [] if content is None else [SourceFile.of(PurePosixPath(path), content)]
    return replace(SIGNED, files=tuple(sorted(files, key=lambda file: file.path.parts)))


def resigned(manifest: bytes) -> SourceTree:
    """Return the tree with another manifest, which is signed well."""
    return with_signed(SIGNED, manifest, signer().signer().sign(manifest))


MANIFEST_BYTES = write_manifest(TreeManifest.of(1, "", SIGNED.files, ()))
AGAIN = "sign the tree again by `fsxds sign`"
UNREADABLE = Problem.of_file(PurePosixPath(MANIFEST), "unreadable-file", "the file cannot be read", "let fsxds read it")

# Each has its own message, with the file, the fact and the remedy.
UNTRUSTED = {
    "no manifest": (
        replace(SIGNED, signed=NO_MANIFEST),
        ".fsxds-manifest:1:1: error: the tree has no manifest; sign the tree by `fsxds sign`",
    ),
    "no signature": (
        replace(SIGNED, signed=replace(SIGNED.signed, signature=None)),
        ".fsxds-manifest.sig:1:1: error: the tree has no signature of its manifest; sign the tree by `fsxds sign`",
    ),
    "unreadable": (
        replace(SIGNED, signed=replace(SIGNED.signed, manifest=None, problems=(UNREADABLE,))),
        ".fsxds-manifest:1:1: error: the file cannot be read; let fsxds read it",
    ),
    "no form": (
        resigned(b"{}"),
        f".fsxds-manifest:1:1: error: the manifest cannot be read: its form is not fsxds-manifest-1; {AGAIN}",
    ),
    "no form of a signature": (
        with_signed(SIGNED, MANIFEST_BYTES, b"{}"),
        f".fsxds-manifest:1:1: error: the signature cannot be read: its form is not fsxds-signature-1; {AGAIN}",
    ),
    "another manifest": (
        with_signed(SIGNED, MANIFEST_BYTES + b" ", SIGNED.signed.signature.content if SIGNED.signed.signature else b""),
        (
            ".fsxds-manifest:1:1: error: the signature does not match the manifest; restore it with its "
            f"signature, or {AGAIN}"
        ),
    ),
    "another CA": (
        with_manifest(
            SIGNED,
            TreeManifest.of(1, "", SIGNED.files, ()),
            authority("other CA").issue("mallory", key_of("secp256r1", 31)).signer(),
        ),
        (
            ".fsxds-manifest.sig:1:1: error: the signer CN=mallory has no certificate of a CA that is trusted; sign the tree with "
            "a certificate of that CA, or name the CA of the signer by --verify-with"
        ),
    ),
    "expired": (
        other_signer(Spec(hours=(-3, -2))),
        (
            ".fsxds-manifest.sig:1:1: error: the certificate CN=release expired on 2030-03-17 at 15:46 UTC; sign the tree again "
            "with one that is valid"
        ),
    ),
    "a server's": (
        other_signer(Spec(purposes=(SERVER_AUTH,))),
        (
            ".fsxds-manifest.sig:1:1: error: the certificate CN=release is not made for signing: its key usage has no "
            "codeSigning; sign with a certificate whose extended key usage is codeSigning or absent, and whose key usage allows "
            "digitalSignature"
        ),
    ),
    "a file more": (
        changed("eds.yaml", b"[]"),
        f"eds.yaml:1:1: error: the file is not part of the signed tree (serial 1); remove it, or {AGAIN}",
    ),
    "a file less": (
        changed("edge/lds.yaml", None),
        f"edge/lds.yaml:1:1: error: the file is part of the signed tree (serial 1), and is not here; restore it, or {AGAIN}",
    ),
    "another byte": (
        changed("cds.yaml", b"[{name: b}]"),
        f"cds.yaml:1:1: error: the content is not as in the signed tree (serial 1); restore it, or {AGAIN}",
    ),
    "another name": (
        with_manifest(SIGNED, TreeManifest.of(1, "", tree_of({"Cds.yaml": FILES["cds.yaml"]}).files, ())),
        "Cds.yaml:1:1: error: the file is part of the signed tree (serial 1), and is not here; restore it, or " + AGAIN,
    ),
}


@pytest.mark.parametrize("case", UNTRUSTED)
def test_trees_that_are_not_trusted(case: str) -> None:
    """Each says what is wrong: the file, the fact and the remedy."""
    tree, expected = UNTRUSTED[case]

    assert faults_of(tree)[:1] == [expected]


def test_a_file_that_cannot_be_read() -> None:
    """It is not what was signed, and the reason is told."""
    path = PurePosixPath("cds.yaml")
    problem = Problem.of_file(
        path, "unreadable-file", "the file cannot be read: Permission denied", "let fsxds read it"
    )
    tree = replace(changed("cds.yaml", None), problems=(problem,))

    assert "and cannot be read: the file cannot be read: Permission denied" in faults_of(tree)[0]


def test_what_is_excluded_here_need_not_be_here() -> None:
    """Files, and folders, that the settings leave out are no matter of who signs."""
    for excluded in ("edge", "edge/lds.yaml"):
        assert faults_of(replace(changed("edge/lds.yaml", None), excluded=(PurePosixPath(excluded),))) == []


def test_many_files_are_counted() -> None:
    """Of a tree that is another one, some files are named."""
    tree = with_manifest(tree_of({f"{number}.yaml": "" for number in range(100)}), TreeManifest(1))
    faults = faults_of(tree)

    assert len(faults) == MOST_NAMED + 1
    assert "80 more files of the tree are not as signed" in faults[0]


def test_the_last_good_tree_stays() -> None:
    """What was trusted is loaded on while what is there is not, also when its certificate ends; then the next one is."""
    trust, by, worse = TreeTrust(), verifier(), changed("cds.yaml", b"[]")
    first = trust.decide(SIGNED, by, NOW_S)
    second = trust.decide(worse, by, NOW_S)
    ended = trust.decide(SIGNED, by, LATER_S)
    third = trust.decide(signed_tree({"cds.yaml": "[]"}, 2), by, NOW_S)

    assert (first.tree, first.faults) == (SIGNED, ())
    assert (second.tree, second.has_last_good, [one.rule for one in second.faults]) == (SIGNED, True, ["file-changed"])
    assert (ended.tree, [one.rule for one in ended.faults]) == (SIGNED, ["signer-expired"])
    assert (len(third.tree.files), third.faults) == (1, ())


def test_nothing_was_trusted_before() -> None:
    """Then nothing is read: all that may be in the tree counts as unknown, and not as gone."""
    worse = changed("cds.yaml", b"[]")
    judged, layered = (TreeTrust().decide(worse, verifier(), NOW_S, has_layers=one) for one in (False, True))

    assert (judged.tree.files, judged.has_last_good) == ((), False)
    assert [str(one.path) for one in judged.tree.problems] == [".fsxds-manifest", "cds.yaml"]
    # A folder may be a layer, of which a view is made.
    assert [str(one.path) for one in layered.tree.problems] == [".fsxds-manifest", "cds.yaml", "edge"]
    assert nothing_of(worse, judged.faults) == judged.tree


def test_older_manifests_are_refused() -> None:
    """One that is older than the newest that was trusted is a replay, and so is another one of the same serial."""
    trust, by = TreeTrust(), verifier()
    older, newer = signed_tree({"cds.yaml": "old"}, 6), signed_tree({"cds.yaml": "new"}, 7)
    twin = signed_tree({"cds.yaml": "twin"}, 7)
    faults = [trust.decide(tree, by, NOW_S).faults for tree in (older, newer, newer, older, twin, newer)]

    assert [list(map(str, each)) for each in faults] == [
        *([], [], []),
        [
            (
                ".fsxds-manifest:1:1: error: the serial 6 is older than 7, which was seen before; restore the newer tree, or "
                "sign the tree again by `fsxds sign`"
            )
        ],
        [
            (
                ".fsxds-manifest:1:1: error: the serial 7 is that of another manifest, which was seen before; restore the newer "
                "tree, or sign the tree again by `fsxds sign`"
            )
        ],
        [],
    ]


def test_a_manifest_of_a_tree_that_is_not_there_yet_is_not_seen() -> None:
    """A newer one counts when its files are there: until then the older tree may come back."""
    trust, by = TreeTrust(), verifier()
    older, newer = signed_tree({"cds.yaml": "old"}, 6), signed_tree({"cds.yaml": "new"}, 7)
    half = replace(older, signed=newer.signed)

    assert [bool(trust.decide(tree, by, NOW_S).faults) for tree in (older, half, older, newer)] == [
        *(False, True, False, False)
    ]


def test_nothing_has_to_be_signed() -> None:
    """Without anybody who is trusted, each tree is loaded; what was loaded last stays when somebody is."""
    trust, plain = TreeTrust(), tree_of(FILES)
    first, second = trust.decide(plain, None, NOW_S), trust.decide(tree_of({}), verifier(), NOW_S)

    assert (first.tree, first.faults) == (plain, ())
    assert (second.tree, [one.rule for one in second.faults]) == (plain, ["manifest-missing"])
