from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsxds.model.tree_trust import LARGEST_SERIAL
from fsxds.model.values import TypeUrl
from fsxds.signing.tree_manifest import (
    ManifestError,
    TreeManifest,
    digest_of,
    read_manifest,
    read_object,
    write_manifest,
)

DIGEST = digest_of(b"a")
DIGESTS = st.binary(max_size=3).map(digest_of)
# What paths and names are: any text, also such as JSON writes in other ways.
TEXTS = st.text(st.characters(exclude_categories=()), max_size=5)
MANIFESTS = st.builds(
    TreeManifest,
    st.integers(1, LARGEST_SERIAL),
    TEXTS,
    st.dictionaries(TEXTS, DIGESTS, max_size=3),
    st.dictionaries(
        TEXTS.map(TypeUrl), st.dictionaries(TEXTS, st.frozensets(DIGESTS, max_size=2), max_size=2), max_size=2
    ),
)

GOOD: dict[str, object] = {
    "form": "fsxds-manifest-1",
    "serial": 1,
    "made": "",
    "files": {"a": DIGEST},
    "resources": {"t": {"n": [DIGEST]}},
}

# What is written in a good one, and why it is none then.
WRONG: dict[str, tuple[dict[str, object], str]] = {
    "another form": ({"form": "fsxds-manifest-2"}, "its form is not fsxds-manifest-1"),
    "no form": ({"form": None}, "its form is not fsxds-manifest-1"),
    "serial 0": ({"serial": 0}, "its serial is no number from 1 to"),
    "a huge serial": ({"serial": 2**53}, "its serial is no number from 1 to"),
    "half a serial": ({"serial": 1.5}, "its serial is no number from 1 to"),
    "a serial in words": ({"serial": "1"}, "its serial is no number from 1 to"),
    "true": ({"serial": True}, "its serial is no number from 1 to"),
    "a made number": ({"made": 1}, "`made` is no text"),
    "files in a list": ({"files": []}, "`files` is no object"),
    "no files": ({"files": None}, "`files` is no object"),
    "a short digest": ({"files": {"a": DIGEST[1:]}}, "a digest in it is no SHA-256"),
    "a digest in capitals": ({"files": {"a": DIGEST.upper()}}, "a digest in it is no SHA-256"),
    "no digest": ({"files": {"a": None}}, "a digest in it is no SHA-256"),
    "no resources": ({"resources": 1}, "`resources` is no object"),
    "no names": ({"resources": {"t": []}}, "`t` is no object"),
    "one digest": ({"resources": {"t": {"n": DIGEST}}}, "the digests of a resource are no list"),
    "a number of a digest": ({"resources": {"t": {"n": [1]}}}, "a digest in it is no SHA-256"),
}


@given(MANIFESTS)
@settings(max_examples=50)
def test_what_is_written_is_read(manifest: TreeManifest) -> None:
    """Nothing is lost, and equal manifests are equal bytes."""
    written = write_manifest(manifest)

    assert read_manifest(written) == manifest
    assert write_manifest(read_manifest(written)) == written


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_manifest(case: str) -> None:
    """Another form is said to be one, in words."""
    changes, words = WRONG[case]

    with pytest.raises(ManifestError, match=re.escape(words)):
        read_manifest(json.dumps(GOOD | changes).encode())


def test_what_later_versions_add() -> None:
    """What this version does not know of is passed over."""
    assert read_manifest(json.dumps(GOOD | {"later": 1}).encode()).serial == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is no JSON"),
        (b"\xff\xfe\x00", "it is no JSON"),
        (b"[1]", "it is no JSON object"),
        (b'{"a": 1, "a": 2}', "a key stands twice"),
        (b'{"a": {"b": 1, "b": 2}}', "a key stands twice"),
        (b"[" * 100_000, "it is no JSON"),
        (b'{"serial": ' + b"1" * 10_000 + b"}", "it is no JSON"),
    ],
    ids=["nothing", "bytes", "a list", "a key twice", "a key twice within", "a deep list", "a long number"],
)
def test_what_is_no_object(content: bytes, words: str) -> None:
    """Whatever it is, it is rejected in words."""
    with pytest.raises(ManifestError, match=words):
        read_object(content)


def test_what_is_served_is_listed_by_content() -> None:
    """A resource is listed where its type, its name and its bytes are those of a view."""
    manifest = TreeManifest(1, "", {}, {TypeUrl("t"): {"n": frozenset({digest_of(b"a"), digest_of(b"b")})}})

    assert manifest.lists(TypeUrl("t"), "n", digest_of(b"b"))
    assert not manifest.lists(TypeUrl("t"), "n", digest_of(b"c"))
    assert not manifest.lists(TypeUrl("t"), "m", digest_of(b"a"))
    assert not manifest.lists(TypeUrl("u"), "n", digest_of(b"a"))
