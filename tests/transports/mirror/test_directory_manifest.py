"""The manifest of what is ours."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from fsxds.transports.mirror.directory import ManifestRow, decode_manifest, encode_manifest
from tests.transports.mirroring import url

ROWS = {
    PurePosixPath("eds/a%2Fb.pb"): ManifestRow(url("eds"), ("a/b",), None, is_stand_in=True),
    PurePosixPath("cds.pb"): ManifestRow(url("cds"), ("a", "ü"), "ab" * 32),
}


def test_a_manifest_comes_back_as_it_was() -> None:
    """Rows survive being written, in whatever order they come."""
    assert decode_manifest(encode_manifest(ROWS)) == ROWS
    assert encode_manifest(ROWS) == encode_manifest(dict(reversed(ROWS.items())))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"layout":1}',
        b'{"layout":2,"files":[]}',
        b'{"layout":1,"files":[{}]}',
        b"[" * 10**5,
    ],
)
def test_what_is_no_manifest_is_refused(content: bytes) -> None:
    """Damaged bytes, and layouts of other versions, are a ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"."):
        decode_manifest(content)


@pytest.mark.parametrize(
    "fields", [{"type_url": "no.such"}, {"names": "ab"}, {"sha256": 7}], ids=["type_url", "names", "sha256"]
)
def test_a_row_must_make_sense(fields: dict[str, object]) -> None:
    """Each of its fields is looked at."""
    row: dict[str, object] = {"path": "cds.pb", "type_url": url("cds"), "names": [], "sha256": None, **fields}

    with pytest.raises(ValueError, match="not a row of a manifest"):
        decode_manifest(json.dumps({"layout": 1, "files": [row]}).encode())


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../cds.pb",
        "eds/../../x",
        "eds/a/b.pb",
        "notes.txt",
        ".fsxds/lock",
        "",
        "eds",
        "eds.pb",
        "x/cds.pb",
    ],
)
def test_a_manifest_cannot_lead_out_of_the_directory(path: str) -> None:
    """A row for a file that fsxds would never write is refused, since rows are overwritten and removed."""
    row: dict[str, object] = {"path": path, "type_url": url("cds"), "names": [], "sha256": None}

    with pytest.raises(ValueError, match="fsxds writes no file"):
        decode_manifest(json.dumps({"layout": 1, "files": [row]}).encode())
